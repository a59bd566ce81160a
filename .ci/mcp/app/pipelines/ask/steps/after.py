import json

print(json.dumps({"output": "it went on"}))

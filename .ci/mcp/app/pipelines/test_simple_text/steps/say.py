import json

print(json.dumps({"output": "This is a simple text response for testing."}))

import json
import sys

print("a line", file=sys.stderr)
print(json.dumps({"output": "done"}))

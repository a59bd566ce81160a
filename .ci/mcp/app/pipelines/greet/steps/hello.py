import json
import sys

name = json.load(sys.stdin)["input"]["name"]
print(json.dumps({"output": f"Hello, {name}!"}))

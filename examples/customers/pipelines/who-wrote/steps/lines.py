"""One line a customer."""
import json
import sys

customers = json.load(sys.stdin)["steps"]["look-up"]["output"]
print(json.dumps({"output": [f"{c['name']} <{c['address']}>, {c['orders']} orders" for c in customers]}))

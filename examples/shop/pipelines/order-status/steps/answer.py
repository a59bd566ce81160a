"""Says how an order stands."""

import json
import sys

steps = json.load(sys.stdin)["steps"]
order = steps["order"]["output"]
names = ", ".join(item["name"] for item in order["items"])
print(json.dumps({"output": f"Order {order['order_id']} ({names}) is {order['status']}."}))

"""Counts packages and names the first ones."""

import json
import sys

packages = json.load(sys.stdin)["steps"]["installed"]["output"]
names = sorted(package["name"] for package in packages)
print(json.dumps({"output": {"count": len(names), "first": names[:5]}}))

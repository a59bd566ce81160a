#!/usr/bin/env python3
"""Reports on stderr how the run ended: it runs after success, failure and cancellation."""

import json
import sys

request = json.load(sys.stdin)
run, status = request["run"], request["status"]
print(f"run {run['id']} of {run['pipeline']}: {status}", file=sys.stderr)
json.dump({"output": {"status": status}}, sys.stdout)

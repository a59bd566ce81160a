#!/usr/bin/env python3
"""Says on stderr how the run ended: it is called after success, failure and cancellation alike."""

import json
import sys

request = json.load(sys.stdin)
run, status = request["run"], request["status"]
print(f"run {run['id']} of {run['pipeline']}: {status}", file=sys.stderr)
json.dump({"output": {"status": status}}, sys.stdout)

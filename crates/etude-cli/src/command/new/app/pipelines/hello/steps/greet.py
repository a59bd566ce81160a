#!/usr/bin/env python3
"""Makes a greeting from the name in the input."""

import json
import sys

request = json.load(sys.stdin)
name = request["input"]["name"].strip()
if not name:
    # Whatever stands on stderr is shown when a step fails.
    sys.exit("the name is empty")
json.dump({"output": {"greeting": f"Hello, {name}!", "letters": sum(c.isalpha() for c in name)}}, sys.stdout)

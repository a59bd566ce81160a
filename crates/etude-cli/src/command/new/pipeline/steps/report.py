#!/usr/bin/env python3
"""Makes the pipeline's output from the outputs of earlier steps."""

import json
import sys

request = json.load(sys.stdin)
prepared = request["steps"]["prepare"]["output"]
json.dump({"output": f"{prepared['words']} words: {prepared['text']}"}, sys.stdout)

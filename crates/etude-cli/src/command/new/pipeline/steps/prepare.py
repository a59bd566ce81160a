#!/usr/bin/env python3
"""Reads the input and prepares it for the later steps."""

import json
import sys

request = json.load(sys.stdin)
text = request["input"]["text"].strip()
json.dump({"output": {"text": text, "words": len(text.split())}}, sys.stdout)

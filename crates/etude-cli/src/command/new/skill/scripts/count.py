#!/usr/bin/env python3
"""Counts the words and lines of the file that is named on the command line."""

import json
import sys

if len(sys.argv) != 2:
    sys.exit("usage: count.py FILE")
with open(sys.argv[1], encoding="utf-8") as file:
    text = file.read()
json.dump({"words": len(text.split()), "lines": len(text.splitlines())}, sys.stdout)
print()

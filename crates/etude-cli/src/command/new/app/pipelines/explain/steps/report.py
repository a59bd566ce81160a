#!/usr/bin/env python3
"""Formats the explanation as Markdown."""

import json
import sys

request = json.load(sys.stdin)
explained = request["steps"]["explain"]["output"]
lines = [explained["summary"]]
if explained["terms"]:
    lines.append("")
lines += [f"- {entry['term']}: {entry['meaning']}" for entry in explained["terms"]]
json.dump({"output": "\n".join(lines)}, sys.stdout)

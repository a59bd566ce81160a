#!/usr/bin/env python3
"""Checks what no schema can say: every term that the model explains stands in the text."""

import json
import sys


def plain(text):
    return " ".join(text.lower().split())


request = json.load(sys.stdin)
text = plain(request["input"]["text"])
errors = [
    f"the term {entry['term']!r} does not stand in the text"
    for entry in request["output"]["terms"]
    if plain(entry["term"]) not in text
]
json.dump({"valid": not errors, "errors": errors}, sys.stdout)

#!/usr/bin/env python3
"""Checks a rule that no schema can express: the text contains every term that the model explains."""

import json
import sys


def plain(text):
    return " ".join(text.lower().split())


request = json.load(sys.stdin)
text = plain(request["input"]["text"])
errors = [
    f"the term {entry['term']!r} is not in the text"
    for entry in request["output"]["terms"]
    if plain(entry["term"]) not in text
]
json.dump({"valid": not errors, "errors": errors}, sys.stdout)

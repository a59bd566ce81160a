#!/usr/bin/env python3
"""The commands of the package: each prints one JSON value on stdout, also after an error."""

import json
import sys


def main(arguments):
    if arguments[:1] != ["count"]:
        return 2, {"ok": False, "error": {"code": "usage", "message": "usage: main.py count WORD…"}}
    words = " ".join(arguments[1:]).split()
    return 0, {"ok": True, "words": len(words), "letters": sum(c.isalpha() for word in words for c in word)}


status, value = main(sys.argv[1:])
print(json.dumps(value))
sys.exit(status)

#!/usr/bin/env python3
"""Makes one sentence of the output of the step `greet`."""

import json
import sys

request = json.load(sys.stdin)
greet = request["steps"]["greet"]["output"]
noun = "letter" if greet["letters"] == 1 else "letters"
json.dump({"output": f"{greet['greeting']} Your name has {greet['letters']} {noun}."}, sys.stdout)

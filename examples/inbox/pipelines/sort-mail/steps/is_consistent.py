"""Nobody has to act today on a mail that only says thank you."""

import json
import sys

label = json.load(sys.stdin)["output"]
is_wrong = label["urgent"] and label["about"] == "says thank you"
errors = ["a mail that only says thank you is not urgent: look again at what it is about"] if is_wrong else []
print(json.dumps({"valid": not errors, "errors": errors}))

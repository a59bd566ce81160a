"""All answers on one sheet, for the person who releases them."""

import json
import sys

steps = json.load(sys.stdin)["steps"]
pairs = list(zip(steps["read"]["output"], steps["draft"]["output"]))
answers = [f"To {mail['from']}, {mail['subject']!r}:\n{draft['reply']}" for mail, draft in pairs]
title = f"Send {len(answers)} answers?" if len(answers) != 1 else "Send this answer?"
print(json.dumps({"output": "\n\n".join([title, *answers])}))

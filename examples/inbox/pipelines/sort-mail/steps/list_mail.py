"""One line a mail, the urgent ones first."""

import json
import sys

steps = json.load(sys.stdin)["steps"]
rows = list(zip(steps["read"]["output"], steps["label"]["output"]))
rows.sort(key=lambda row: not row[1]["urgent"])
lines = [
    f"{'urgent' if label['urgent'] else '      '}  {label['about']:<20}  {mail['from']}: {mail['subject']}"
    for mail, label in rows
]
print(json.dumps({"output": "\n".join(lines)}))

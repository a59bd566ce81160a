"""One letter a borrower, with all of their late tools, the latest first."""
import json
import sys

overdue = json.load(sys.stdin)["steps"]["overdue"]["output"]
borrowers = {}
for row in overdue:
    borrowers.setdefault(row["to"], []).append(row)


def letter(name, rows):
    lines = [f"- {row['label']} ({row['item']}), due {row['due']}, {row['daysLate']} days late" for row in rows]
    return "\n".join([f"Dear {name},", "", "please bring back:", "", *lines, "", "Thank you, your tool library"])


print(json.dumps({"output": [{"to": name, "text": letter(name, rows)} for name, rows in borrowers.items()]}, ensure_ascii=False))

"""The oldest mails of the folder `mail`, each with what the shop knows about its order."""

import json
import re
import sys
from pathlib import Path

APP = Path(__file__).resolve().parents[3]
ORDERS = json.loads((APP / "orders.json").read_text(encoding="utf-8"))


def read(path):
    head, _, text = path.read_text(encoding="utf-8").partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    found = re.search(r"\bA-\d+\b", text)
    if not found or found[0] not in ORDERS:
        sys.exit(f"{path.name}: no order of this shop is named; answer this mail yourself")
    order = ORDERS[found[0]]
    mail = {"file": path.name, "date": fields["Date"], "from": fields["From"], "name": fields["From"].split()[0]}
    return {**mail, "subject": fields["Subject"], "text": text.strip(), "order": found[0], **order}


count = json.load(sys.stdin)["input"]["count"]
mails = sorted(map(read, (APP / "mail").glob("*.txt")), key=lambda mail: (mail["date"], mail["file"]))
print(json.dumps({"output": mails[:count]}))

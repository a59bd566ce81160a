"""The newest mails of the folder `mail`: file, sender, subject and text of each."""

import json
import sys
from pathlib import Path

MAIL = Path(__file__).resolve().parents[3] / "mail"


def read(path):
    text = path.read_text(encoding="utf-8")
    head, _, _ = text.partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    return {"file": path.name, "from": fields["From"], "date": fields["Date"], "subject": fields["Subject"], "text": text}


count = json.load(sys.stdin)["input"]["count"]
mails = sorted(map(read, MAIL.glob("*.txt")), key=lambda mail: (mail["date"], mail["file"]), reverse=True)
print(json.dumps({"output": mails[:count]}))

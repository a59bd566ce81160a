"""Puts the released answers into the folder `outbox`, one file each. Another try writes the same files."""

import json
import sys
from pathlib import Path

OUTBOX = Path(__file__).resolve().parents[3] / "outbox"

steps = json.load(sys.stdin)["steps"]
OUTBOX.mkdir(exist_ok=True)
sent = []
for mail, draft in zip(steps["read"]["output"], steps["draft"]["output"]):
    text = f"To: {mail['from']}\nSubject: Re: {mail['subject']}\n\nHello {mail['name']},\n\n{draft['reply']}\n\nYour order: {mail['order']}, {mail['item']}\nThe tea shop\n"
    (OUTBOX / mail["file"]).write_text(text, encoding="utf-8")
    sent.append(f"outbox/{mail['file']}  {mail['from']}: Re: {mail['subject']}")
print(json.dumps({"output": "\n".join(sent)}))

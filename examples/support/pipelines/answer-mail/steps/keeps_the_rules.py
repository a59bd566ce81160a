"""What an answer of this shop must and must not have. Each error tells the model what to change."""

import json
import re
import sys

DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday"

given = json.load(sys.stdin)
reply, known = given["output"]["reply"], given["item"]["known"]
errors = []

if (words := len(reply.split())) > 45:
    errors.append(f"{words} words; at most 45")
for day in re.findall(DAYS, known):
    if day not in reply:
        errors.append(f"pass on the day: {day}")
for amount in re.findall(r"\d+\.\d\d", reply):
    if amount not in known:
        errors.append(f"the facts do not have the amount {amount}")
if found := re.search(r"\[[^\]]*\]|\b(?:sincerely|regards|your name)\b", reply, re.IGNORECASE):
    errors.append(f"leave out {found[0]!r}: the signature is added later")
if found := re.search(r"\b(?:the shop|your team)\b", reply, re.IGNORECASE):
    errors.append(f"you are the shop: write `we` for {found[0]!r}")
if found := re.search(r"\b(?:refund|discount|voucher|compensat\w+)\b", reply, re.IGNORECASE):
    errors.append(f"promise no {found[0].lower()}: pass on the facts only")
if found := re.search(r"\b(?:contact us|call us|reply to)\b", reply, re.IGNORECASE):
    errors.append(f"ask nothing of the customer: leave out {found[0]!r}")

print(json.dumps({"valid": not errors, "errors": errors}))

"""`find NAME`: one customer as JSON. See APP.md, the contract."""
import csv
import json
import sys
from pathlib import Path

# Inside the package: an approved package runs from a copy of its content.
CUSTOMERS = Path(__file__).resolve().parent / "customers.csv"


def refuse(code, message, status):
    print(json.dumps({"ok": False, "error": {"code": code, "message": message}}))
    sys.exit(status)


if len(sys.argv) != 3 or sys.argv[1] != "find":
    refuse("E_ARG", "usage: find NAME", 2)
with open(CUSTOMERS, encoding="utf-8") as file:
    found = next((row for row in csv.DictReader(file) if row["name"] == sys.argv[2]), None)
if found is None:
    refuse("E_NOT_FOUND", f"there is no customer `{sys.argv[2]}`", 4)
print(json.dumps({**found, "orders": int(found["orders"])}))

"""Finds one customer in data/customers.csv."""
import csv
import json
import os
import sys
from pathlib import Path

wanted = json.load(sys.stdin)["item"]
with open(Path(os.environ["ETUDE_APP_DIR"]) / "data" / "customers.csv", encoding="utf-8") as file:
    found = next((row for row in csv.DictReader(file) if row["name"] == wanted), None)
if found is None:
    sys.exit(f"there is no customer `{wanted}`")
print(json.dumps({"output": found}))

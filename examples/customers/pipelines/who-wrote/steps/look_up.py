"""Finds one customer in the data of the package `customer-list`."""
import csv
import json
import os
import sys
from pathlib import Path

wanted = json.load(sys.stdin)["item"]
customers = Path(os.environ["ETUDE_APP_DIR"]) / "apps/customer-list/app/customers.csv"
with open(customers, encoding="utf-8") as file:
    found = next((row for row in csv.DictReader(file) if row["name"] == wanted), None)
if found is None:
    sys.exit(f"there is no customer `{wanted}`")
print(json.dumps({"output": found}))

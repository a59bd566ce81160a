#!/usr/bin/env python3
"""Writes orders.csv: 200 plausible orders with planted problems, the same bytes every time."""

import csv
import random
from datetime import date, timedelta
from pathlib import Path

COLUMNS = ["order_id", "ordered_on", "shipped_on", "customer_email", "country", "product", "quantity", "unit_price", "discount", "status"]
PRODUCTS = {"Desk lamp": 39.9, "Office chair": 189.0, "Notebook, ruled": 4.5, "Whiteboard 90x60": 64.0, "Cable tray": 24.9, 'Monitor arm 27"': 79.0}
COUNTRIES = ["Germany", "France", "Netherlands", "Austria", "Spain"]
NAMES = ["ana", "bruno", "chloe", "daan", "elif", "felix", "greta", "hugo", "ines", "jonas", "katja", "liam"]


def orders(rng):
    """Clean orders, in order of time."""
    day = date(2026, 1, 5)
    for number in range(1, 201):
        day += timedelta(days=rng.choice([0, 0, 1]))
        product = rng.choice(list(PRODUCTS))
        price = round(PRODUCTS[product] * rng.choice([1, 1, 1, 0.95]), 2)
        cancelled = rng.random() < 0.06
        yield [f"SO-{10000 + number}", str(day), "" if cancelled else str(day + timedelta(days=rng.randint(1, 5))), f"{rng.choice(NAMES)}{rng.randint(1, 40)}@example.com",
               rng.choice(COUNTRIES), product, str(rng.randint(1, 9)), f"{price:.2f}", rng.choice(["0", "0", "0", "5", "10"]), "cancelled" if cancelled else "shipped"]


def plant(rows):
    """The problems. Row numbers count from 0; the line in the file is two more."""
    at = {name: position for position, name in enumerate(COLUMNS)}
    rows[17][at["quantity"]] = "400"
    rows[150][at["quantity"]] = "-3"
    rows[42][at["unit_price"]] = "18900.00"
    rows[63][at["quantity"]] = "two"
    rows[64][at["unit_price"]] = "n/a"
    rows[88][at["unit_price"]] = "79,00"
    rows[25][at["ordered_on"]], rows[25][at["shipped_on"]] = "2026-02-30", "2026-03-03"
    rows[110][at["shipped_on"]] = "2062-04-01"
    rows[131][at["shipped_on"]] = "2026-01-02"
    for row in (70, 71, 72):
        year, month, day = rows[row][at["ordered_on"]].split("-")
        rows[row][at["ordered_on"]] = f"{month}/{day}/{year}"
    for row in (12, 33, 90, 101, 102, 103, 140, 141, 166, 167, 190):
        rows[row][at["customer_email"]] = ""
    for row, spelling in ((9, "germany"), (55, "GERMANY"), (77, "France "), (121, "france")):
        rows[row][at["country"]] = spelling
    rows[95][at["order_id"]] = rows[94][at["order_id"]]
    rows[180] = list(rows[179])
    rows[199] = rows[199][:8]


def main():
    rows = list(orders(random.Random(20260105)))
    plant(rows)
    with open(Path(__file__).with_name("orders.csv"), "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


main()

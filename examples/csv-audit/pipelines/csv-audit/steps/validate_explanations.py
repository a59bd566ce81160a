#!/usr/bin/env python3
"""Checks the explanations: every finding exactly once, and no number that the finding does not hold."""

import json
import re
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from step_io import StepError, output_of, run_validator

# Thousands separators only where they group three digits, so that `1,2` stays two numbers.
NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")
# Names that hold digits without being a quantity.
NAMES = re.compile(r"\bF\d+\b|\bISO[ -]?8601\b|\bUTF-?(?:8|16)\b|\bRFC[ -]?4180\b", re.IGNORECASE)


def numbers_in(text):
    """The numbers in a text, as they are written, by value."""
    return {Decimal(found.replace(",", "")): found for found in NUMBER.findall(NAMES.sub(" ", text))}


def check(request):
    findings = {entry["id"]: entry for entry in output_of(request, "find_problems")["findings"]}
    profile = output_of(request, "profile")
    try:
        summary, explanations = request["output"]["summary"], request["output"]["explanations"]
        ids = [entry["finding_id"] for entry in explanations]
    except (KeyError, TypeError):
        raise StepError("stdin has no `output` with `summary` and `explanations`; the schema demands them") from None
    errors = check_ids(findings, ids)
    for entry in explanations:
        known = findings.get(entry["finding_id"])
        if known is not None:
            allowed = numbers_in(json.dumps(known, ensure_ascii=False))
            for field in ("explanation", "suggestion"):
                errors.extend(foreign_numbers(f"{field} of {known['id']}", entry[field], allowed, f"finding {known['id']}"))
    totals = json.dumps([list(findings.values()), profile["rows"], len(profile["columns"]), len(findings)], ensure_ascii=False)
    errors.extend(foreign_numbers("summary", summary, numbers_in(totals), "any finding"))
    return errors


def check_ids(findings, ids):
    """Every finding exactly once, and nothing that was not found."""
    errors = []
    for name, times in Counter(ids).items():
        if name not in findings:
            errors.append(f"finding_id {name} is no finding; remove it (the findings are {', '.join(findings)})")
        elif times > 1:
            errors.append(f"finding {name} is explained {times} times; keep one entry for it")
    errors.extend(f"finding {name} ({known['kind']}) is not explained; add an entry with finding_id {name}" for name, known in findings.items() if name not in ids)
    return errors


def foreign_numbers(place, text, allowed, source):
    """One error for each number in `text` that is not allowed there."""
    return [f"{place}: the number {written} is not in {source}; remove it or use a number of the finding"
            for value, written in numbers_in(text).items() if value not in allowed]


run_validator(check)

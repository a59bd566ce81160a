#!/usr/bin/env python3
"""Finds problems in the data. Every number in a finding is counted here; the model only explains."""

import sys
from datetime import date, datetime, timezone
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from problems import find_problems
from step_io import StepError, output_of, parameter, run_step
from table import read_table


def as_of(text):
    """The day after which dates are in the future."""
    if not text:
        return datetime.now(timezone.utc).date()
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise StepError(f"`as_of` is `{text}`: {error}; write a day as YYYY-MM-DD") from None


def search(request):
    table = read_table(parameter(request, "file", str, ""), parameter(request, "max_bytes", int, 50_000_000))
    settings = {"as_of": as_of(parameter(request, "as_of", str, "")), "iqr_factor": parameter(request, "iqr_factor", (int, float), 3)}
    found = find_problems(table, output_of(request, "profile"), settings)
    most = parameter(request, "max_findings", int, 25)
    return {"findings": found[:most], "left_out": max(0, len(found) - most)}


run_step(search)

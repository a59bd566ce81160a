#!/usr/bin/env python3
"""Profiles the table: what is in each column."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from profiling import profile
from step_io import parameter, run_step
from table import read_table


def profile_csv(request):
    return profile(read_table(parameter(request, "file", str, ""), parameter(request, "max_bytes", int, 50_000_000)))


run_step(profile_csv)

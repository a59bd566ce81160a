#!/usr/bin/env python3
"""Checks that the repository and the commits of the range exist, and says which commits they are."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from repository import open_repository, resolve_range
from step_io import parameter, run_step


def check_range(request):
    repository = open_repository(parameter(request, "repo", str, ""))
    base, head = resolve_range(repository, parameter(request, "range", str, "HEAD~1..HEAD"))
    return {"repository": str(repository.path), "base": base, "head": head}


run_step(check_range)

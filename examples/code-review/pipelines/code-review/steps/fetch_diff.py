#!/usr/bin/env python3
"""Reads the changes of a commit range: per file a bounded diff with line numbers, and what was skipped and why."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from changes import collect
from repository import base_tree, open_repository, resolve_range
from step_io import parameter, run_step


def fetch_diff(request):
    text = parameter(request, "range", str, "HEAD~1..HEAD")
    limits = [parameter(request, name, int, default) for name, default in (("max_files", 30), ("max_file_chars", 6000), ("max_total_chars", 24000))]
    repository = open_repository(parameter(request, "repo", str, ""))
    base, head = resolve_range(repository, text)
    found = collect(repository, base_tree(repository, base), head, *limits)
    return {"repository": repository.name, "range": text, "base": base, "head": head, **found}


run_step(fetch_diff)

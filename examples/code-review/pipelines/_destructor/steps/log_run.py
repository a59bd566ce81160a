#!/usr/bin/env python3
"""Appends one line about this run to the run log, whatever became of the run."""

import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from state import run_of, state_dir
from step_io import StepError, run_step


def log_run(request):
    run, error = run_of(request), request.get("error") or {}
    line = {
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "run": run["id"],
        "pipeline": run.get("pipeline"),
        "status": request.get("status"),
        "range": (request.get("input") or {}).get("range"),
        "error": {key: error[key] for key in ("kind", "step") if error.get(key)} or None,
    }
    path = state_dir() / "runs.jsonl"
    data = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # One write in append mode: lines of runs that end together do not mix.
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(log, data)
        finally:
            os.close(log)
    except OSError as failure:
        raise StepError(f"cannot append to the run log {path}: {failure.strerror}") from None
    return {"log": str(path)}


run_step(log_run)

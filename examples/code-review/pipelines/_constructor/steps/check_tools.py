#!/usr/bin/env python3
"""Checks that python3 and git are new enough, before anything else needs them."""

import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from repository import git_program
from step_io import StepError, run_step

OLDEST_PYTHON = (3, 8)
OLDEST_GIT = (2, 24)  # --end-of-options


def check_tools(_request):
    if sys.version_info[:2] < OLDEST_PYTHON:
        raise StepError(f"python3 is {sys.version.split()[0]}; the steps of this app need {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    told = subprocess.run([git_program(), "--version"], capture_output=True, text=True, check=False).stdout.strip()
    found = re.search(r"(\d+)\.(\d+)", told)
    if found is None:
        raise StepError(f"`git --version` printed {told!r}; is {git_program()} really git?")
    if tuple(map(int, found.groups())) < OLDEST_GIT:
        raise StepError(f"{told} is too old; this app needs git {'.'.join(map(str, OLDEST_GIT))} or newer")
    return {"python": sys.version.split()[0], "git": told}


run_step(check_tools)

#!/usr/bin/env python3
"""Takes the lock of this review, so that the same commits are not analysed, and paid for, twice at the same time."""

import json
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from state import lock_path, run_of
from step_io import StepError, output_of, run_step


def take_lock(request):
    run, found = run_of(request), output_of(request, "check_range")
    path = lock_path(found["repository"], found["base"], found["head"])
    # The parent of a step is the runner: while it lives, the lock holds.
    lock = {"run": run["id"], "runner_pid": os.getppid(), "repository": found["repository"], "head": found["head"]}
    staged = path.with_name(f"{path.stem}.{os.getpid()}.tmp")
    staged.write_text(json.dumps(lock), encoding="utf-8", errors="surrogateescape")
    try:
        for _ in range(2):
            try:
                os.link(staged, path)  # Fails if the lock exists, and a reader never sees half of it.
                return {"lock": str(path)}
            except FileExistsError:
                give_way(path, run)
        raise StepError(f"another run took the lock {path} at the same moment; try again")
    finally:
        staged.unlink()


def give_way(path, run):
    """Removes a lock that is ours (the step ran before) or whose runner is gone; refuses otherwise."""
    try:
        held = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
        owner, pid = str(held["run"]), int(held["runner_pid"])
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        raise StepError(f"the lock {path} is not one of this app; look at it and delete it") from None
    if owner != run["id"]:
        if alive(pid):
            raise StepError(f"run {owner} (process {pid}) is reviewing the same commits; wait for it, or delete {path} if that is not so")
        print(f"the lock of run {owner} is left over: its runner (process {pid}) is gone", file=sys.stderr)
    path.unlink(missing_ok=True)


def alive(pid):
    """Whether there is a process with that id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


run_step(take_lock)

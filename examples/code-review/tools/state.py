"""Where this app keeps its locks and its run log between runs."""

import hashlib
import os
from pathlib import Path

from step_io import StepError


def state_dir():
    """`$XDG_STATE_HOME/etude-examples/code-review`, by default below `~/.local/state`."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # The base directory specification: a relative path counts as not set.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state"
    return root / "etude-examples" / "code-review"


def locks_dir():
    """The directory of locks, created if need be."""
    path = state_dir() / "locks"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StepError(f"cannot create the state directory {path} ({error.strerror}); set XDG_STATE_HOME to a directory that you can write") from None
    return path


def lock_path(repository, base, head):
    """The lock of one review: the same commits of the same repository."""
    key = "\n".join((str(repository), base or "", head))
    return locks_dir() / (hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32] + ".json")


def run_of(request):
    """The `run` that constructors and destructors are given: `id` and `pipeline`."""
    run = request.get("run")
    if not isinstance(run, dict) or not isinstance(run.get("id"), str):
        raise StepError("stdin has no `run.id`; this step belongs into `_constructor` or `_destructor`")
    return run

"""The contract of a step: one JSON object on stdin, one on stdout, talk on stderr."""

import json
import os
import sys
from pathlib import Path

APP_DIR = Path(__file__).resolve().parents[1]
KINDS = {str: "a string", int: "a whole number", (int, float): "a number", bool: "true or false"}


class StepError(Exception):
    """What stops the step; its text is for the person who reads the failed run."""


def read_request():
    """The request of the runner: `input`, `steps` and, depending on the step, `output`, `run`, `status`."""
    raw = sys.stdin.buffer.read()
    try:
        request = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise StepError(f"stdin is not one JSON document ({error}); pipe a request such as {{\"input\": {{}}, \"steps\": {{}}}} in") from None
    if not isinstance(request, dict):
        raise StepError(f"stdin holds {type(request).__name__}, not the JSON object with `input` and `steps`")
    return request


def output_of(request, step):
    """The output of an earlier step."""
    try:
        return request["steps"][step]["output"]
    except (KeyError, TypeError):
        raise StepError(f"stdin has no output of step `{step}`; it runs before this one") from None


def parameter(request, name, kind, default):
    """An input parameter of the type `kind`; `default` where it is not given."""
    value = (request.get("input") or {}).get(name)
    if value is None:
        return default
    # A bool is an int in Python, but `true` is no number in JSON.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise StepError(f"input `{name}` is {json.dumps(value)[:80]}, not {KINDS[kind]}")
    return value


def caller_dir():
    """Where the user called etude. A runner that does not say so leaves the app's own directory."""
    told = os.environ.get("ETUDE_CALLER_DIR", "")
    return Path(told) if os.path.isabs(told) else APP_DIR


def user_path(text):
    """The path that a user means: a relative one begins where etude was called, and `~` is their home."""
    return caller_dir() / os.path.expanduser(text)


def run_step(step):
    """Runs `step(request)` and prints its result as `output`; a `StepError` goes to stderr with exit status 1."""
    try:
        result = step(read_request())
    except StepError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps({"output": result}, ensure_ascii=False))


def run_validator(check):
    """Runs `check(request)`, a list of errors, and prints the verdict; exit status 1 is a rejection."""
    try:
        errors = check(read_request())
    except StepError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    if errors:
        print(json.dumps({"valid": False, "errors": errors}, ensure_ascii=False))
        sys.exit(1)
    print(json.dumps({"valid": True}))

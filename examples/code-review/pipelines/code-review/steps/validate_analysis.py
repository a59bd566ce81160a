#!/usr/bin/env python3
"""Checks an analysis against the diff it is about. Every message says what to change, because a model reads it."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from step_io import StepError, output_of, run_validator

SERIOUS = ("critical", "high")
SHORTEST_DETAIL = 40
EXAMPLES = 8
WORD = re.compile(r"[^\W\d]\w{2,}")


def check(request):
    known = {entry["file"]: entry for entry in output_of(request, "fetch_diff")["files"]}
    try:
        analysed = request["output"]["files"]
        names = [entry["file"] for entry in analysed]
    except (KeyError, TypeError):
        raise StepError("stdin has no `output.files` with a `file` each; the schema demands it") from None
    errors = compare_names(known, names)
    for entry in analysed:
        if entry["file"] in known:
            for index, issue in enumerate(entry["issues"]):
                place = f"file {quoted(entry['file'])}, issues[{index}] ({issue['title']!r})"
                errors.extend(check_line(place, issue["line"], known[entry["file"]]))
                errors.extend(check_detail(place, issue, known[entry["file"]]))
    return errors


def quoted(name):
    return json.dumps(name, ensure_ascii=False)


def compare_names(known, names):
    """Every file of the diff exactly once, and no other."""
    errors = []
    expected = ", ".join(quoted(name) for name in known)
    for name, times in Counter(names).items():
        if name not in known:
            errors.append(f"file {quoted(name)} is not in the diff; remove it (the files in the diff are: {expected})")
        elif times > 1:
            errors.append(f"file {quoted(name)} is analysed {times} times; give one entry with all its issues")
    for name in known:
        if name not in names:
            errors.append(f"file {quoted(name)} is in the diff but not in the analysis; add an entry for it (with an empty `issues` if it has none)")
    return errors


def check_line(place, line, known):
    """A cited line is one that the diff shows."""
    if line is None or any(first <= line <= last for first, last in known["hunks"]):
        return []
    if not known["hunks"]:
        return [f"{place}: line {line} cannot be cited, because the diff shows no line of the new file; set line to null"]
    ranges = ", ".join(f"{first}-{last}" if first != last else str(first) for first, last in known["hunks"])
    return [f"{place}: line {line} is not in the diff; use a line number within {ranges}, or null"]


def check_detail(place, issue, known):
    """A serious issue says what exactly is wrong."""
    if issue["severity"] not in SERIOUS:
        return []
    detail = issue["detail"].strip()
    if len(detail) < SHORTEST_DETAIL or detail.rstrip(".").casefold() == issue["title"].strip().rstrip(".").casefold():
        return [f"{place}: a {issue['severity']} issue needs a specific detail of at least {SHORTEST_DETAIL} characters: "
                "what goes wrong, when, and how to fix it"]
    in_diff = {word.casefold(): word for word in WORD.findall(known["diff"])}
    if not any(word.casefold() in in_diff for word in WORD.findall(detail)):
        some = ", ".join(list(in_diff.values())[:EXAMPLES])
        return [f"{place}: the detail of a {issue['severity']} issue names nothing that occurs in the diff of this file; "
                f"name the function, variable or expression it is about (words of this diff are, for example: {some})"]
    return []


run_validator(check)

#!/usr/bin/env python3
"""Checks one description: a real title and summary, and keywords that are different from each other."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from step_io import StepError, run_validator


def check(request):
    try:
        output = request["output"]
        title, summary, keywords = output["title"].strip(), output["summary"].strip(), output["keywords"]
    except (KeyError, TypeError, AttributeError):
        raise StepError("stdin has no `output` with `title`, `summary` and `keywords`; the schema demands them") from None
    errors = []
    # The runner adds the element of a for_each step to the stdin of its validator.
    path = (request.get("item") or {}).get("path", "")
    if path and title.casefold() in (path.casefold(), path.rsplit("/", 1)[-1].casefold()):
        errors.append(f"title {title!r} is the name of the file; give the title of the document")
    if len(summary.split()) < 4:
        errors.append("summary has fewer than four words; say in a sentence what a reader learns")
    if summary.rstrip(".").casefold() == title.rstrip(".").casefold():
        errors.append("summary only repeats the title; say in a sentence what a reader learns")
    folded = [keyword.strip().casefold() for keyword in keywords]
    for keyword in dict.fromkeys(folded):
        if folded.count(keyword) > 1:
            errors.append(f"keyword {keyword!r} stands there {folded.count(keyword)} times; keep one and add other keywords if fewer than three are left")
    return errors


run_validator(check)

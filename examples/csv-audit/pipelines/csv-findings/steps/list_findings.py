#!/usr/bin/env python3
"""The findings as text for a terminal, the most severe first."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from step_io import output_of, run_step


def printable(value):
    """Text on one line; what came out of the table must not steer the terminal."""
    line = " ".join(str(value).split())
    return "".join(char if char.isprintable() else "\ufffd" for char in line)


def list_findings(request):
    profile, found = output_of(request, "profile"), output_of(request, "find_problems")
    findings = found["findings"]
    lines = [f"{printable(profile['file'])}: {profile['rows']} rows, {len(profile['columns'])} columns, {len(findings) or 'no'} findings"]
    lines.extend(finding_line(entry) for entry in findings)
    if found["left_out"]:
        lines.append(f"and {found['left_out']} less severe ones")
    return "\n".join(lines)


def finding_line(entry):
    where = f"{printable(entry['column'])}: " if entry["column"] else ""
    lines = f" (line {', '.join(map(str, entry['lines']))}{', …' if entry['count'] > len(entry['lines']) else ''})" if entry["lines"] else ""
    return f"{entry['severity']:<6}  {where}{printable(entry['text'])}{lines}"


run_step(list_findings)

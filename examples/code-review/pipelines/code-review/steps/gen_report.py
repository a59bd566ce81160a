#!/usr/bin/env python3
"""The report: Markdown for people, the counts for programs."""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from step_io import output_of, run_step

SEVERITIES = ("critical", "high", "medium", "low")


def text(value):
    """Text of a model or a file name on one line, unable to become Markdown structure or HTML."""
    line = " ".join(value.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\*_\[\]|#])", r"\\\1", line)


def code(value):
    """A code span, also around text that holds back-quotes or line ends."""
    line = value.replace("\r", "\\r").replace("\n", "\\n")
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def plural(number, word):
    return f"{number} {word}{'' if number == 1 else 's'}"


def gen_report(request):
    diff, stats = output_of(request, "fetch_diff"), output_of(request, "calc_stats")
    analysis = output_of(request, "analyze_files") or {"files": []}
    by_name = {entry["file"]: entry for entry in analysis["files"]}
    parts = [f"# Code review of {code(diff['range'])} in {code(diff['repository'])}", overview(diff, stats)]
    if stats["issues"]:
        parts.append("## Issues\n\n" + "\n".join(issue_lines(by_name)))
    if diff["files"]:
        parts.append("## Files\n\n" + "\n".join(file_line(entry, by_name[entry["file"]]) for entry in diff["files"]))
    if diff["skipped"]:
        parts.append("## Not reviewed\n\n" + "\n".join(f"- {code(entry['file'])} ({entry['status']}): {entry['reason']}" for entry in diff["skipped"]))
    return {"markdown": "\n\n".join(parts) + "\n", "stats": stats}


def overview(diff, stats):
    """One paragraph: what was read, what was found, and what the reader must not assume."""
    base = diff["base"][:12] if diff["base"] else "nothing (root commit)"
    lines = [f"Commits {base} to {diff['head'][:12]}: {plural(stats['files'], 'file')} reviewed, +{stats['lines_added']} -{stats['lines_removed']} lines."]
    if not stats["files"]:
        lines.append("There is nothing to review in this range.")
    elif stats["issues"]:
        counts = ", ".join(f"{number} {severity}" for severity, number in stats["by_severity"].items() if number)
        lines.append(f"**{plural(stats['issues'], 'issue')}**: {counts}.")
    else:
        lines.append("**No issues found.**")
    if stats["truncated"]:
        lines.append(f"The diff of {plural(stats['truncated'], 'file')} was cut to the size limits.")
    return "\n".join(lines)


def issue_lines(by_name):
    """All issues, the worst first."""
    found = [(SEVERITIES.index(issue["severity"]), entry["file"], issue["line"] or 0, issue) for entry in by_name.values() for issue in entry["issues"]]
    for _, name, line, issue in sorted(found, key=lambda row: row[:3]):
        place = code(f"{name}:{line}" if line else name)
        yield f"- **{issue['severity']}** {place} {text(issue['title'])}\n  {text(issue['detail'])}"


def file_line(entry, analysed):
    origin = f", from {code(entry['old_file'])}" if entry["old_file"] else ""
    return f"- {code(entry['file'])} ({entry['status']}{origin}, +{entry['added']} -{entry['removed']}): {text(analysed['summary'])}"


run_step(gen_report)

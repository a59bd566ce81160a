#!/usr/bin/env python3
"""The report: findings with their explanations, and the profile of every column."""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from step_io import output_of, run_step


def text(value):
    """Text on one line, unable to become Markdown structure or HTML."""
    line = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\\\*_\[\]|#`])", r"\\\1", line)


def report(request):
    profile, found = output_of(request, "profile"), output_of(request, "find_problems")
    explained = output_of(request, "explain") or {"summary": "No problems were found.", "explanations": []}
    by_id = {entry["finding_id"]: entry for entry in explained["explanations"]}
    findings = [{**entry, "explanation": by_id[entry["id"]]["explanation"], "suggestion": by_id[entry["id"]]["suggestion"]} for entry in found["findings"]]
    counts = {severity: sum(entry["severity"] == severity for entry in findings) for severity in ("high", "medium", "low")}
    parts = [f"# Data audit of {text(profile['file'])}",
             f"{profile['rows']} rows, {len(profile['columns'])} columns, {text(profile['encoding'])}; {len(findings)} findings ({', '.join(f'{n} {name}' for name, n in counts.items())}).",
             text(explained["summary"])]
    if findings:
        parts.append("## Findings\n\n" + "\n".join(finding_lines(entry) for entry in findings))
    if found["left_out"]:
        parts.append(f"Left out, because they are less severe: {found['left_out']}. Raise `max_findings` to see them.")
    parts.append("## Columns\n\n" + column_table(profile["columns"]))
    return {"markdown": "\n\n".join(parts) + "\n", "summary": explained["summary"], "findings": findings, "counts": counts,
            "rows": profile["rows"], "columns": len(profile["columns"])}


def finding_lines(entry):
    where = f"column {text(entry['column'])}: " if entry["column"] else ""
    lines = f" (line {', '.join(map(str, entry['lines']))}{', …' if entry['count'] > len(entry['lines']) else ''})" if entry["lines"] else ""
    return f"- **{entry['id']} {entry['severity']}** {where}{text(entry['text'])}{lines}\n  {text(entry['explanation'])}\n  *{text(entry['suggestion'])}*"


def column_table(columns):
    rows = ["| column | type | values | missing | distinct | smallest | largest |", "| --- | --- | ---: | ---: | ---: | --- | --- |"]
    for facts in columns:
        ends = [text(facts[key]) if facts.get(key) is not None else "" for key in ("min", "max")]
        rows.append(f"| {text(facts['name'])} | {facts['type']} | {facts['values']} | {facts['nulls']} | {facts['distinct']} | {ends[0]} | {ends[1]} |")
    return "\n".join(rows)


run_step(report)

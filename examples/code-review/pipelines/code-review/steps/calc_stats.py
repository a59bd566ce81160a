#!/usr/bin/env python3
"""Counts: files, lines, issues by severity. Numbers come from code, not from a model."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from step_io import output_of, run_step

SEVERITIES = ("critical", "high", "medium", "low")


def calc_stats(request):
    diff = output_of(request, "fetch_diff")
    analysis = output_of(request, "analyze_files") or {"files": []}
    issues = [issue for entry in analysis["files"] for issue in entry["issues"]]
    by_severity = {severity: sum(issue["severity"] == severity for issue in issues) for severity in SEVERITIES}
    return {
        "files": len(diff["files"]),
        "files_with_issues": sum(bool(entry["issues"]) for entry in analysis["files"]),
        "truncated": sum(entry["truncated"] for entry in diff["files"]),
        "skipped": len(diff["skipped"]),
        "lines_added": sum(entry["added"] for entry in diff["files"]),
        "lines_removed": sum(entry["removed"] for entry in diff["files"]),
        "issues": len(issues),
        "by_severity": by_severity,
        "worst": next((severity for severity in SEVERITIES if by_severity[severity]), None),
    }


run_step(calc_stats)

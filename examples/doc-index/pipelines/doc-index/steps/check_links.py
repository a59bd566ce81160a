#!/usr/bin/env python3
"""Finds links between the files whose target does not exist. No network: links to elsewhere are not followed."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from documents import broken_links, markdown_files, open_folder, read_document
from step_io import StepError, parameter, run_step

MOST_CHARS = 1_000_000


def check_links(request):
    root = open_folder(parameter(request, "folder", str, "docs"))
    broken = []
    for path in markdown_files(root)[: parameter(request, "max_files", int, 100)]:
        try:
            text, _ = read_document(root, path, MOST_CHARS)
        except StepError:
            continue  # list_files has reported it.
        broken.extend(broken_links(root, path, text))
    return {"broken": broken}


run_step(check_links)

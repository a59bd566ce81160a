#!/usr/bin/env python3
"""Lists the Markdown files below the folder, with as much of each as the model is to read."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from documents import WRITTEN_HERE, markdown_files, open_folder, read_document, writable
from step_io import StepError, parameter, run_step


def list_files(request):
    root = open_folder(parameter(request, "folder", str, ""))
    max_files, max_chars = parameter(request, "max_files", int, 100), parameter(request, "max_chars", int, 4000)
    files, left_out = [], []
    for path in markdown_files(root):
        name = writable(path)
        if len(files) >= max_files:
            left_out.append({"path": name, "reason": f"more than `max_files` = {max_files} files"})
            continue
        try:
            text, truncated = read_document(root, path, max_chars)
        except StepError as error:
            left_out.append({"path": name, "reason": str(error)})
            continue
        if text.startswith(WRITTEN_HERE):
            continue
        files.append({"path": name, "bytes": (root / path).stat().st_size, "text": text, "truncated": truncated})
    if not files and not left_out:
        raise StepError(f"`folder`: there is no Markdown file (.md, .markdown) below {root}")
    return {"files": files, "left_out": left_out}


run_step(list_files)

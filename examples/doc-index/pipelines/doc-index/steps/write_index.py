#!/usr/bin/env python3
"""Writes index.md and index.json. Each file appears whole or not at all; writing them again changes nothing."""

import json
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from documents import locate
from step_io import StepError, output_of, parameter, run_step


def write_index(request):
    built = output_of(request, "build_index")
    folder = locate(parameter(request, "out", str, ""), "out")
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (("index.md", built["markdown"]), ("index.json", json.dumps(built["index"], indent=2, ensure_ascii=False) + "\n")):
            staged = folder / f".{name}.{os.getpid()}.tmp"
            staged.write_text(content, encoding="utf-8")
            os.replace(staged, folder / name)
            written.append(str(folder / name))
    except OSError as error:
        raise StepError(f"`out`: cannot write into {folder}: {error.strerror}") from None
    return {"written": written}


run_step(write_index)

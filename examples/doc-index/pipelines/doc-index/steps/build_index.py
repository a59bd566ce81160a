#!/usr/bin/env python3
"""Joins files and descriptions into an index, as Markdown and as data. Files that failed are named, not dropped."""

import os
import re
import sys
from pathlib import Path
from urllib.parse import quote

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from documents import WRITTEN_HERE, locate
from step_io import output_of, parameter, run_step


def text(value):
    """Text on one line, unable to become Markdown structure or HTML."""
    line = " ".join(value.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\\\*_\[\]|#`])", r"\\\1", line)


def build_index(request):
    listed = output_of(request, "list_files")
    described = output_of(request, "describe") or []
    documents, failed = [], []
    for file, result in zip(listed["files"], described):
        head = {"path": file["path"], "bytes": file["bytes"]}
        if result.get("error"):
            error = result["error"]
            failed.append({**head, "reason": error.get("message") or error.get("kind") or "unknown" if isinstance(error, dict) else str(error)})
        else:
            entry = result["output"]
            documents.append({**head, **entry, "keywords": [" ".join(word.split()).casefold() for word in entry["keywords"]]})
    broken = (output_of(request, "check_links") or {"broken": None})["broken"]
    index = {"documents": documents, "keywords": by_keyword(documents), "not_described": failed, "left_out": listed["left_out"], "broken_links": broken}
    return {"markdown": markdown(index, link_base(request)), "index": index}


def link_base(request):
    """What leads from the place of the index to the documents: nothing, unless the index is written elsewhere."""
    out = parameter(request, "out", str, "")
    if not out:
        return ""
    base = os.path.relpath(locate(parameter(request, "folder", str, "docs")), locate(out, "out")).replace(os.sep, "/")
    return "" if base == "." else base + "/"


def by_keyword(documents):
    """Keyword to the paths that have it, both sorted."""
    paths = {}
    for document in documents:
        for keyword in document["keywords"]:
            paths.setdefault(keyword, []).append(document["path"])
    return {keyword: sorted(paths[keyword]) for keyword in sorted(paths)}


def markdown(index, base):
    def link(path, words):
        return f"[{text(words)}]({quote(base + path)})"

    documents = index["documents"]
    parts = [WRITTEN_HERE, "# Index", f"{len(documents)} {'document' if len(documents) == 1 else 'documents'}."]
    if documents:
        parts.append("\n".join(f"- {link(entry['path'], entry['title'])}: {text(entry['summary'])}" for entry in documents))
        titles = {entry["path"]: entry["title"] for entry in documents}
        parts.append("## Keywords\n\n" + "\n".join(f"- {text(word)}: {', '.join(link(path, titles[path]) for path in paths)}" for word, paths in index["keywords"].items()))
    if index["broken_links"]:
        parts.append("## Broken links\n\n" + "\n".join(f"- {text(entry['file'])} line {entry['line']}: {text(entry['target'])}" for entry in index["broken_links"]))
    missing = index["not_described"] + index["left_out"]
    if missing:
        parts.append("## Not in the index\n\n" + "\n".join(f"- {text(entry['path'])}: {text(entry['reason'])}" for entry in missing))
    return "\n\n".join(parts) + "\n"


run_step(build_index)

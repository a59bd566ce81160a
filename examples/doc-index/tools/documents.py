"""Markdown files below a folder: which there are, what they say, where their links lead."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

from step_io import APP_DIR, StepError, user_path

# The first line of an index, so that the next run does not index the index.
WRITTEN_HERE = "<!-- index made by doc-index -->"
SUFFIXES = (".md", ".markdown")
LINK = re.compile(r"!?\[[^\]\n]*\]\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\([^\s()]*\))*))(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?^ {0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
# A scheme has at least two letters here, so that a Windows drive is none.
ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|//")


def locate(folder, name="folder"):
    """The path that a parameter means."""
    if not folder or "\0" in folder:
        raise StepError(f"`{name}` is {folder!r}; give the path of a folder")
    return user_path(folder)


def open_folder(folder):
    """The path of a folder that exists; empty is the bundled one."""
    path = locate(folder) if folder else APP_DIR / "docs"
    if not path.is_dir():
        raise StepError(f"`folder`: {path} {'is not a folder' if path.exists() else 'does not exist'}")
    return path


def markdown_files(root):
    """The Markdown files below a folder as relative paths, sorted; hidden folders and symbolic links are passed over."""
    found = []
    for place, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        for name in files:
            path = Path(place, name)
            if name.lower().endswith(SUFFIXES) and not name.startswith(".") and not path.is_symlink() and path.is_file():
                found.append(path.relative_to(root))
    return sorted(found, key=lambda path: path.parts)


def writable(path):
    """A path as text; file names that are no UTF-8 cannot be written in JSON."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def read_document(root, path, max_chars):
    """(text, truncated) of a file; a `StepError` says why it cannot be read."""
    try:
        with open(root / path, "rb") as file:
            # Four bytes are the longest character of UTF-8.
            raw = file.read(4 * max_chars + 4)
    except OSError as error:
        raise StepError(error.strerror or str(error)) from None
    if b"\0" in raw:
        raise StepError("holds NUL bytes; it is not text")
    text = raw.decode("utf-8-sig", "replace")
    if not text.strip():
        raise StepError("is empty")
    return (text, False) if len(text) <= max_chars else (text[:max_chars], True)


def links(text):
    """(line, target) of each link to another file; links in code, to a place on the same page or to elsewhere are none."""
    def blank(found):
        return re.sub(r"[^\n]", " ", found[0])

    text = CODE_SPAN.sub(blank, FENCE.sub(blank, text))
    for found in LINK.finditer(text):
        target = found[1] if found[1] is not None else re.sub(r"\\(.)", r"\1", found[2])
        if target and not target.startswith("#") and not ELSEWHERE.match(target):
            yield text.count("\n", 0, found.start()) + 1, target


def broken_links(root, path, text):
    """The links of one file whose target does not exist. A target that starts with `/` is taken from the root folder."""
    for line, target in links(text):
        place = unquote(target.split("#", 1)[0].split("?", 1)[0])
        if not place or "\0" in place:
            continue
        base = root if place.startswith("/") else (root / path).parent
        if not os.path.lexists(base / place.lstrip("/")):
            yield {"file": writable(path), "line": line, "target": target}

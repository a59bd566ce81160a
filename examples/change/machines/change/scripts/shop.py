"""What the other scripts know of the shop: its files, how they are told to a model, and what became of them."""
import difflib
import pathlib

MOST_CHARS = 12_000


def read(app):
    """The text of each Python file below shop/."""
    app = pathlib.Path(app)
    paths = sorted((app / "shop").rglob("*.py"))
    return {path.relative_to(app).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in paths}


def shown(files):
    """Files as a model is told of them: as they are, so that lines can be copied; by name once a prompt is full."""
    parts, left = [], MOST_CHARS
    for path, text in files.items():
        if len(text) <= left:
            parts.append(f"{path}:\n```python\n{text.rstrip()}\n```" if text.strip() else f"{path}: empty")
            left -= len(text)
        else:
            parts.append(f"{path}: {len(text)} characters, not shown here")
    return "\n\n".join(parts)


def diff(before, after):
    """What became of `before`, as a patch; empty if nothing did."""
    lines = []
    for path in sorted({*before, *after}):
        old, new = before.get(path, "").splitlines(), after.get(path, "").splitlines()
        lines += difflib.unified_diff(old, new, path, path, lineterm="")
    return cut("\n".join(lines))


def cut(text):
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}\n[{len(text) - MOST_CHARS} more characters]"

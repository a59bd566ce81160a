"""A linter of thirty lines: enough for a shop."""
import ast
import json
import pathlib
import sys

LONGEST = 100


def problems(path, text):
    try:
        ast.parse(text)
    except SyntaxError as error:
        yield f"{path}:{error.lineno}: {error.msg}"
    for number, line in enumerate(text.split("\n"), 1):
        if "\t" in line:
            yield f"{path}:{number}: a tab"
        if line != line.rstrip():
            yield f"{path}:{number}: blanks at the end"
        if len(line) > LONGEST:
            yield f"{path}:{number}: {len(line)} characters"


if __name__ == "__main__":
    json.load(sys.stdin)
    files = sorted(pathlib.Path("shop").rglob("*.py"))
    found = [problem for path in files for problem in problems(path.as_posix(), path.read_text())]
    print(json.dumps({"ok": True, "value": {"problems": found}}))

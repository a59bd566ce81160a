"""The pages of the site: documents of the repository with their links, and references that are made from the program."""

import json
import os
import pathlib
import re
import subprocess

import http_api

# Documents outside `docs/`, and their places on the site.
OUTSIDE = {
    "ARCHITECTURE.md": "internals/architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "SECURITY.md": "internals/security.md",
}
REPOSITORY = "https://github.com/etude-dev/etude"
# What the search shows first, and what it leaves out: a newcomer does not look for decisions and measurements.
WEIGHTS = [(r"guides/|install\.md|index\.md$", "boost: 4"), (r"errors/", "boost: 0.1")]
UNSEARCHED = re.compile(r"adr/|spec/|internals/|design/|(changelog|performance|proof|first-minute|hostile-input|style|glossary)\.md$")
FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"(\]\()([^)\s]+)(\))|^(\[[^\]]+\]: )(\S+)()$", re.MULTILINE)
ITEM = re.compile(r"^\s*([-*]|\d+\.) ")


def write(root, binary, project):
    """Writes the project of the site generator."""
    pages = places(root)
    for source, place in pages.items():
        put(project / "docs" / place, convert(root, source, place, pages))
    for picture in (root / "docs/pictures").iterdir():
        target = project / "docs/pictures" / picture.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(picture.read_bytes())
    put(project / "docs/errors/index.md", errors(root))
    put(project / "docs/reference/commands.md", commands(binary))
    put(project / "docs/reference/http.md", http_api.page(binary))
    put(project / "zensical.toml", (root / "site/zensical.toml").read_text(encoding="utf-8"))


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def places(root):
    """The place on the site of each document of the repository."""
    pages = dict(OUTSIDE)
    for path in sorted((root / "docs").rglob("*.md")):
        place = path.relative_to(root / "docs").as_posix()
        pages[f"docs/{place}"] = re.sub(r"(^|/)README\.md$", r"\1index.md", place)
    return pages


def convert(root, source, place, pages):
    """A document as the site's Markdown has it: links lead to pages or to the repository, and blocks stand apart."""
    text = (root / source).read_text(encoding="utf-8")
    out, is_fenced, before = [], False, ""
    for line in text.splitlines():
        if FENCE.match(line):
            if not is_fenced and before.strip() and not ITEM.match(before):
                out.append("")
            is_fenced = not is_fenced
        elif not is_fenced:
            if re.fullmatch(r"\s*<!--.*-->\s*", line):
                # Marks for tests and generators.
                line = ""
            elif ITEM.match(line) and before.strip() and not ITEM.match(before) and not before.startswith(" "):
                out.append("")
            elif line.startswith("|") and before.strip() and not before.startswith("|"):
                out.append("")
            line = LINK.sub(lambda found: link(root, found, source, place, pages), line)
        out.append(line)
        before = line
    return front_matter(place) + "\n".join(out) + "\n"


def front_matter(place):
    if UNSEARCHED.match(place):
        return "---\nsearch:\n  exclude: true\n---\n"
    weight = next((weight for pattern, weight in WEIGHTS if re.match(pattern, place)), None)
    return f"---\nsearch:\n  {weight}\n---\n" if weight else ""


def link(root, found, source, place, pages):
    before, target, after = (found[1], found[2], found[3]) if found[1] else (found[4], found[5], found[6])
    if re.match(r"[a-z]+:", target) or target.startswith("#"):
        return found[0]
    path, mark, anchor = target.partition("#")
    meant = os.path.normpath(pathlib.PurePosixPath(source).parent / path)
    page = pages.get(meant) or pages.get(f"{meant}/README.md")
    if page is None and meant == "docs/errors":
        page = "errors/index.md"
    if page is not None:
        path = os.path.relpath(page, pathlib.PurePosixPath(place).parent)
    elif (root / meant).suffix == ".png":
        path = os.path.relpath(meant.removeprefix("docs/"), pathlib.PurePosixPath(place).parent)
    else:
        path = f"{REPOSITORY}/{'tree' if (root / meant).is_dir() else 'blob'}/main/{meant}"
    return f"{before}{path}{mark}{anchor}{after}"


def errors(root):
    """The list of all codes, from the first lines of their pages."""
    families = {
        "P": "Definitions of pipelines, machines, skills and applications",
        "D": "Cascades of skills",
        "R": "Runs",
        "E": "Environment",
        "B": "Internal errors",
    }
    lines = ["---", "search:", "  exclude: true", "---", "# Error codes", "", "`etude explain CODE` prints these pages.", ""]
    for letter, title in families.items():
        lines += [f"## {title}", "", "| code | meaning |", "|---|---|"]
        for path in sorted((root / "docs/errors").glob(f"{letter}*.md")):
            code, _, meaning = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").partition(": ")
            lines.append(f"| [{code}]({path.name}) | {meaning.replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines)


def commands(binary):
    """The help of every command, as the program prints it."""

    def help_of(words):
        done = subprocess.run([binary, "help", *words, "--format", "json"], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["help"]

    lines = ["# Command line", "", "The help of every command. `etude help COMMAND` prints it.", ""]

    def add(words, depth):
        text = help_of(words)
        title = " ".join(["etude", *words])
        lines.extend([f"{'#' * depth} `{title}`", "", "```text", text.rstrip(), "```", ""])
        for name in subcommands(text):
            add([*words, name], min(depth + 1, 4))

    add([], 2)
    return "\n".join(lines)


def subcommands(text):
    """The names below `Commands:` in a help text."""
    names = []
    is_list = False
    for line in text.splitlines():
        if line.endswith("ommands:"):
            is_list = True
        elif line and not line.startswith(" "):
            is_list = False
        elif is_list and (found := re.match(r"^  ([a-z][a-z-]*)(  |$)", line)) and found[1] != "help":
            names.append(found[1])
    return names

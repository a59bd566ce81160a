"""The changes between two commits, per file, in a bounded form that a model can read and cite line numbers from."""

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass, field

from repository import environment
from step_io import StepError

STATUS = {"A": "added", "C": "copied", "D": "deleted", "M": "modified", "R": "renamed", "T": "type changed"}
HUNK = re.compile(rb"^@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$")
DIFF_OPTIONS = ["--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", "--full-index", "--unified=3", "--inter-hunk-context=0"]
SUBMODULE = "160000"
LONGEST_LINE = 400


@dataclass
class Change:
    """One changed file, before its text is read."""

    path: bytes
    old_path: bytes
    status: str
    modes: tuple
    added: int = 0
    removed: int = 0
    binary: bool = False


@dataclass
class Excerpt:
    """The part of a file's diff that fits: its text, the line ranges of the new file it shows, and what was cut."""

    text: str
    hunks: list = field(default_factory=list)
    truncated: bool = False


def shown(path):
    """A path as text: bytes that are not UTF-8 become `\\xNN`, because JSON has no way to write them."""
    return path.decode("utf-8", "backslashreplace")


def changed_files(repository, base, head):
    """Every changed file, in git's order. The NUL-separated form is the only one that any file name survives."""
    raw = repository.git("diff", *DIFF_OPTIONS, "--raw", "--numstat", "-z", base, head, "--")
    fields = raw.split(b"\0")
    changes, at = {}, 0
    while at < len(fields) and fields[at].startswith(b":"):
        old_mode, new_mode, _, _, letter = fields[at][1:].decode("ascii").split(" ")
        pair = letter[0] in "RC"
        old, new = fields[at + 1], fields[at + 2 if pair else at + 1]
        at += 3 if pair else 2
        changes[new] = Change(new, old, STATUS.get(letter[0], letter[0]), (old_mode, new_mode))
    while at < len(fields) and fields[at]:
        added, removed, path = fields[at].split(b"\t", 2)
        # A renamed file has an empty path here; the old and the new one are the next two fields.
        path, at = (path, at + 1) if path else (fields[at + 2], at + 3)
        change = changes.get(path)
        if change is None:
            raise StepError(f"`git diff` counted lines of {shown(path)!r}, which it did not list as changed")
        change.binary = added == b"-"
        if not change.binary:
            change.added, change.removed = int(added), int(removed)
    return list(changes.values())


def unreadable(change):
    """Why a change has no text to review, or None."""
    if SUBMODULE in change.modes:
        return "submodule"
    if change.binary:
        return "binary file"
    if change.added == change.removed == 0:
        return {"renamed": "renamed without a change", "copied": "copied without a change", "added": "empty file", "deleted": "empty file"}.get(change.status, "only its mode changed")
    return None


def excerpt(repository, base, head, change, limit):
    """At most `limit` characters of the diff of one file, cut after a whole line; git is stopped when that is reached."""
    command = repository.command("diff", *DIFF_OPTIONS, base, head, "--", *sorted({change.path, change.old_path}))
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)
        with process.stdout:
            result = number_lines(lines_of(process.stdout), limit)
        if result.truncated:
            process.terminate()
        status = process.wait()
        stderr.seek(0)
        words = stderr.read(2000).decode("utf-8", "replace").strip()
    if status != 0 and not result.truncated:
        raise StepError(f"`git diff` of {shown(change.path)!r} failed with exit status {status}: {words}")
    return result


def lines_of(stream):
    """Lines without their end; a line of megabytes is read in pieces and comes out as its first part, marked."""
    while True:
        line = stream.readline(LONGEST_LINE * 4)
        if not line:
            return
        whole = line.endswith(b"\n")
        while not whole:
            rest = stream.readline(65536)
            whole = not rest or rest.endswith(b"\n")
        yield line.rstrip(b"\r\n")


def number_lines(lines, limit):
    """The hunks of a diff with the new file's line number before every line that the new file has."""
    result, parts, size = Excerpt(""), [], 0
    for number, mark, text in hunk_lines(lines):
        line = f"@@ from line {number}{text}" if mark == "@" else f"{'' if mark == '-' else number:>6} {mark} {text}"
        if size + len(line) + 1 > limit:
            result.truncated = True
            break
        parts.append(line)
        size += len(line) + 1
        if mark == "@":
            result.hunks.append([number, number - 1])
        elif mark != "-":
            result.hunks[-1][1] = number
    if parts and parts[-1].startswith("@@"):
        parts.pop()
    # A hunk that shows no line of the new file (a deletion) gives nothing to cite.
    result.hunks = [pair for pair in result.hunks if pair[1] >= pair[0]]
    result.text = "\n".join(parts)
    return result


def hunk_lines(lines):
    """(line number in the new file, mark, text) of each line of each hunk; the mark of a hunk's heading is `@`.

    The counts in the heading say where a hunk ends. The first character of a line does not: a removed line `-- x` looks
    like the heading of a file.
    """
    old_left = new_left = number = 0
    for line in lines:
        if old_left <= 0 and new_left <= 0:
            heading_line = HUNK.match(line)
            if heading_line:
                old, number, new, context = heading_line.groups()
                old_left, new_left, number = int(old or 1), int(new or 1), int(number)
                yield number, "@", bounded(context)
            continue
        mark = chr(line[0]) if line else " "
        if mark == "\\":
            continue
        old_left -= mark != "+"
        new_left -= mark != "-"
        yield number, mark, bounded(line[1:])
        number += mark != "-"


def bounded(line):
    """One line as text: control characters visible, at most `LONGEST_LINE` characters."""
    text = line.decode("utf-8", "backslashreplace")
    text = "".join(c if c == "\t" or c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)
    return text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + " … (long line cut)"


def heading(entry):
    """The line above a file's diff in the prompt. The name is written as JSON: that is how it must come back."""
    name = json.dumps(entry["file"], ensure_ascii=False)
    origin = f", from {json.dumps(entry['old_file'], ensure_ascii=False)}" if entry["old_file"] else ""
    return f"### file: {name} ({entry['status']}{origin}, +{entry['added']} -{entry['removed']})"


def collect(repository, base, head, max_files, max_file_chars, max_total_chars):
    """The reviewable files with their excerpts, the skipped ones with reasons, and the text for the prompt."""
    files, skipped, sections, budget = [], [], [], max_total_chars
    for change in changed_files(repository, base, head):
        name = shown(change.path)
        reason = unreadable(change)
        if reason is None and len(files) >= max_files:
            reason = f"more than `max_files` = {max_files} files"
        elif reason is None and budget < min(200, max_file_chars):
            reason = f"`max_total_chars` = {max_total_chars} characters were used up"
        if reason is not None:
            skipped.append({"file": name, "status": change.status, "reason": reason})
            continue
        part = excerpt(repository, base, head, change, min(max_file_chars, budget))
        if not part.text:
            skipped.append({"file": name, "status": change.status, "reason": "not one line of its diff fits the size limits"})
            continue
        entry = {"file": name, "old_file": shown(change.old_path) if change.old_path != change.path else None, "status": change.status,
                 "added": change.added, "removed": change.removed, "truncated": part.truncated, "hunks": part.hunks, "diff": part.text}
        files.append(entry)
        budget -= len(part.text)
        note = "\n(the diff of this file is longer; the rest is not shown)" if part.truncated else ""
        sections.append(f"{heading(entry)}\n{part.text}{note}")
    return {"files": files, "skipped": skipped, "text": "\n\n".join(sections)}

#!/usr/bin/env python3
"""Prints what the review pipeline reads: the diff of a commit range with line numbers, bounded. For skill mode and people."""

import argparse
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from changes import collect
from repository import base_tree, open_repository, resolve_range
from step_io import StepError


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("range", nargs="?", default="HEAD~1..HEAD", help="A..B, A...B or one commit (default: %(default)s)")
    parser.add_argument("--repo", default=".", help="path of the repository (default: where you are)")
    parser.add_argument("--max-files", type=int, default=30)
    parser.add_argument("--max-file-chars", type=int, default=6000)
    parser.add_argument("--max-total-chars", type=int, default=24000)
    args = parser.parse_args()
    try:
        repository = open_repository(str(Path(args.repo).resolve()))
        base, head = resolve_range(repository, args.range)
        found = collect(repository, base_tree(repository, base), head, args.max_files, args.max_file_chars, args.max_total_chars)
    except StepError as error:
        sys.exit(f"error: {error}")
    print(found["text"] or "nothing to review")
    for entry in found["skipped"]:
        print(f"not shown: {entry['file']!r} ({entry['status']}): {entry['reason']}")


main()

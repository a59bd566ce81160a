"""A local git repository: where it is, which commits a range means, what changed between them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from step_io import StepError, user_path

# The user's configuration must not change the form of a diff.
STEADY = ["-c", "core.quotePath=false", "-c", "diff.relative=false", "-c", "diff.suppressBlankEmpty=false", "-c", "diff.algorithm=myers"]
FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_EXTERNAL_DIFF", "GIT_DIFF_OPTS")


def git_program():
    """The path of `git`."""
    found = shutil.which("git")
    if found is None:
        raise StepError("`git` is not in PATH; install git 2.24 or newer")
    return found


def environment():
    """The environment for git: no prompts, no lock files, paths taken literally, and nothing left over from a git hook."""
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    env.update(GIT_OPTIONAL_LOCKS="0", GIT_LITERAL_PATHSPECS="1", GIT_TERMINAL_PROMPT="0", LC_ALL="C")
    return env


class Repository:
    """A repository on this machine; `location` are the arguments that make git use it."""

    def __init__(self, path, location):
        self.path = path
        self.location = location

    def command(self, *args):
        """The argument vector of a git command in this repository."""
        return [git_program(), *STEADY, *self.location, *args]

    def git(self, *args):
        """The stdout of a git command, as bytes; a failing one is a `StepError` with git's own words."""
        done = subprocess.run(self.command(*args), env=environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode != 0:
            words = done.stderr.decode("utf-8", "replace").strip() or f"exit status {done.returncode}"
            raise StepError(f"`git {args[0]}` failed in {self.path}: {words}")
        return done.stdout

    def commit(self, revision):
        """The full id of the commit that `revision` names, or None."""
        args = self.command("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        done = subprocess.run(args, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.stdout.decode("ascii", "replace").strip() if done.returncode == 0 else None

    @property
    def name(self):
        """A short name for reports, the same on every machine that has the repository in a folder of that name."""
        return self.path.name or str(self.path)


def locate(repo):
    """The path that the parameter `repo` means. Empty is where etude was called, hence the repository that the user is in."""
    if "\0" in repo:
        raise StepError("`repo` holds a NUL character; no path does")
    return user_path(repo)


def open_repository(repo):
    """The repository for the parameter `repo`."""
    path = locate(repo)
    if not path.is_dir():
        raise StepError(f"`repo`: {path} {'is not a directory' if path.exists() else 'does not exist'}")
    # A damaged bare repository inside another repository must not quietly become the outer one.
    if (path / "HEAD").is_file() and (path / "objects").is_dir():
        found = Repository(path, [f"--git-dir={path}"])
        found.git("rev-parse", "--git-dir")
        return found
    probe = Repository(path, ["-C", str(path)])
    try:
        top = os.fsdecode(probe.git("rev-parse", "--show-toplevel")).rstrip("\n")
    except StepError as error:
        raise StepError(f"`repo`: no git repository at or above {path} ({error})") from None
    return Repository(Path(top), ["-C", top])


def resolve_range(repository, text):
    """The commits (base, head) of `A..B`, `A...B` (since their merge base) or `A` (that commit alone); base may be None."""
    if not text or text.startswith("-") or re.search(r"[\s\0-\x1f\x7f]", text):
        raise StepError(f"`range` is {text!r}; give commits such as `HEAD~1..HEAD`, `main...feature` or `3f2a9c1`")
    left, dots, right = re.fullmatch(r"(.*?)(?:(\.\.\.?)(.*))?", text).groups()
    if dots is None:
        head = known_commit(repository, text, text)
        return parent_of(repository, head), head
    base, head = (known_commit(repository, side or "HEAD", text) for side in (left, right))
    if dots == "...":
        base = repository.git("merge-base", base, head).decode("ascii").split()[0]
    return base, head


def known_commit(repository, revision, text):
    """The commit id of one side of the range `text`."""
    commit = repository.commit(revision)
    if commit is None:
        raise StepError(f"`range` is `{text}`, but `{revision}` names no commit in {repository.path} ({extent(repository)})")
    return commit


def parent_of(repository, commit):
    """The first parent of a commit; None for a root commit."""
    ids = repository.git("rev-list", "--parents", "--max-count=1", commit).decode("ascii").split()
    return ids[1] if len(ids) > 1 else None


def extent(repository):
    """What there is instead, for messages: how many commits, and whether history was cut off."""
    if repository.commit("HEAD") is None:
        return "it has no commit at HEAD"
    count = int(repository.git("rev-list", "--count", "--first-parent", "HEAD"))
    shallow = repository.git("rev-parse", "--is-shallow-repository").strip() == b"true"
    words = f"HEAD has {count} commit{'' if count == 1 else 's'} on its first-parent line"
    return words + (", and the clone is shallow: `git fetch --unshallow` brings the rest" if shallow else "")


def base_tree(repository, base):
    """What git can compare with: the base commit, or the empty tree in front of a root commit."""
    if base is not None:
        return base
    done = subprocess.run(repository.command("hash-object", "-t", "tree", "--stdin"), env=environment(), input=b"", capture_output=True, check=True)
    return done.stdout.decode("ascii").strip()

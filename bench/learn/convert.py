#!/usr/bin/env python3
"""Converts public skills, and says what became of their statements.

    bench/learn/convert.py --etude PROGRAM --skills DIR [--clone] [--only TEXT] [--model NAME] [--out DIR] [--format json]

`skills.toml` lists the skills. DIR has a checkout of each repository at DIR/OWNER/NAME; `--clone` makes those that are missing, at the
listed commits. Without `--model`, `reader.py` is the model: plain rules, no key, no network. `--model local/NAME` asks the local model.

Every app that a conversion makes must pass `etude check`, its tests must succeed without key and without network, its skill must be
unchanged, and none of its steps may be a stub, have a placeholder that is not filled in, or be shell text that no shell can read. The exit
status is 1 if one of them is not so.
"""

import argparse
import concurrent.futures
import filecmp
import functools
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib

sys.dont_write_bytecode = True

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ("code", "llm", "skill")
OUTCOMES = ("enforced", "asked", "left", "background")
STUB = re.compile(r"\b(TODO|FIXME|NotImplementedError|unimplemented)\b|^\s*pass\s*$", re.M)
# What a reader fills in before a command can run. The values of parameters are in variables.
OPEN = re.compile(r"(?<![<\w])<[A-Za-z][\w .-]*>|(?:^|\s)(?:\.\.\.|…)(?=\s|$)|(?:^|\s)\[[A-Za-z-][^\]$]*\](?=\s|$)|path/to/", re.M)
TIMEOUT = 600


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--etude", required=True, type=pathlib.Path, help="the program")
    parser.add_argument("--skills", required=True, type=pathlib.Path, help="the directory of the checkouts")
    parser.add_argument("--clone", action="store_true", help="clone the repositories that are missing")
    parser.add_argument("--only", default="", help="only skills whose path contains this text")
    parser.add_argument("--model", help="ask this model instead of reader.py, as `local/qwen2.5-coder-1.5b`")
    parser.add_argument("--out", type=pathlib.Path, help="keep the apps in this directory")
    parser.add_argument("--jobs", type=int, default=2, help="conversions at the same time (2)")
    parser.add_argument("--format", choices=("human", "json"), default="human")
    return parser.parse_args()


def listed(only):
    with open(HERE / "skills.toml", "rb") as file:
        found = tomllib.load(file)
    return found["repositories"], [skill for skill in found["skill"] if only in skill["path"]]


def clone(directory, repository, commit):
    place = directory / repository
    if not place.exists():
        subprocess.run(["git", "clone", "--quiet", f"https://github.com/{repository}", place], check=True)
        subprocess.run(["git", "-C", place, "checkout", "--quiet", commit], check=True)


class Bench:
    def __init__(self, args, out):
        self.args, self.out = args, out
        # Nothing of the user: neither keys nor configuration nor journal.
        self.environment = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        home = out / ".home"
        home.mkdir(exist_ok=True)
        self.environment |= {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
        if args.model:
            # The weights that the user has.
            self.environment |= {"HOME": os.environ["HOME"]}

    def etude(self, *args, offline=False):
        command = [str(self.args.etude.resolve()), *map(str, args)]
        if offline:
            command = [*without_network(), *command]
        return subprocess.run(
            command, env=self.environment, cwd=self.out, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT
        )

    def configuration(self, name, source):
        if self.args.model:
            return {"model_mapping": {"standard": self.args.model}}
        command = shlex.join(["python3", str(HERE / "reader.py"), str(source / "SKILL.md")])
        return {"model_mapping": {"standard": "reader/rules"}, "providers": {"reader": {"kind": "command", "command": command}}}

    def convert(self, skill):
        """The row of a skill: what became of its statements, and what is wrong."""
        name = pathlib.Path(skill["path"]).name
        key = f"{skill['repository'].split('/')[0]}-{name}"
        source = (self.args.skills / skill["repository"] / skill["path"]).resolve()
        row = {"skill": name, "kind": skill["kind"], "repository": skill["repository"], "faults": []}
        config = self.out / f"{key}.config.yaml"
        config.write_text(json.dumps(self.configuration(name, source)))
        app = self.out / key
        cases = HERE / "cases" / f"{key}.jsonl"
        more = ["--cases", cases] if cases.exists() and not self.args.model else []
        ran = self.etude("convert", source, "--out", app, "--config", config, "--yolo", "--format", "json", "--quiet", *more)
        try:
            document = json.loads(ran.stdout)
        except ValueError:
            row["faults"].append(f"convert: exit {ran.returncode}: {ran.stderr.strip()[-500:]}")
            return row
        outcomes = [statement["outcome"] for statement in document["statements"]]
        row |= {"statements": len(outcomes), **{outcome: outcomes.count(outcome) for outcome in OUTCOMES}}
        row |= {"pipelines": len(document["pipelines"]), "cases": document["cases"], "reason": document["reason"]}
        row |= {"left_out": document["left_out"], "steps": [], "tests": 0}
        if ran.returncode:
            row["faults"].append(f"convert: exit {ran.returncode}: {document['errors']}")
        elif app.exists() != bool(document["pipelines"]):
            row["faults"].append("an app without a pipeline, or the other way round")
        if app.exists():
            row["faults"] += self.unchanged(source, app) + self.checked(source, app, row) + self.tested(app, row)
        return row

    def unchanged(self, source, app):
        files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
        return [f"{path} differs from the skill's" for path in files if not filecmp.cmp(source / path, app / path, shallow=False)]

    def checked(self, source, app, row):
        """What `etude check` and a careful reader find in an app."""
        found = []
        ran = self.etude("check", "-C", app, "--format", "json")
        if ran.returncode:
            found.append(f"check: {ran.stdout.strip()[-500:]}{ran.stderr.strip()[-500:]}")
        made = [file for file in sorted((app / "skills").rglob("*")) if not (source / file.relative_to(app)).exists()]
        for file in [*sorted((app / "pipelines").rglob("*")), *made]:
            if file.is_file() and STUB.search(text := file.read_text()):
                found.append(f"{file.relative_to(app)}: a stub: {STUB.search(text)[0].strip()}")
        for pipeline in sorted((app / "pipelines").iterdir()):
            for step in steps((pipeline / "pipeline.yaml").read_text()):
                row["steps"].append(step["type"])
                if step["type"] == "code":
                    found += shell_faults(pipeline, step)
        return found

    def tested(self, app, row):
        if not row["cases"]["passed"]:
            return []
        ran = self.etude("test", "-C", app, "--format", "json", offline=True)
        document = json.loads(ran.stdout)
        if "tests" not in document:
            return [f"test: exit {ran.returncode}: {ran.stderr.strip()[-500:]}"]
        row["tests"] = document["passed"]
        failed = [test for test in document["tests"] if not test["passed"]]
        return [f"test {test['name']}: {test['faults']}" for test in failed]


@functools.cache
def without_network():
    """A prefix for commands without network, where the machine has one."""
    prefix = ["unshare", "--net", "--map-root-user"]
    if shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
        return prefix
    return []


def steps(text):
    """The names, types and commands of steps, in the form in which conversion writes them."""
    found, lines = [], iter(text.partition("\nsteps:\n")[2].splitlines())
    for line in lines:
        if mark := re.match(r"  - name: (.*)|    (type|command): (.*)", line):
            name, member, value = mark.groups()
            if name:
                found.append({"name": name.strip('"')})
            elif value == "|-":
                block = list(itertools.takewhile(lambda line: line.startswith("      ") or not line, lines))
                found[-1][member] = "\n".join(line[6:] for line in block)
            else:
                found[-1][member] = json.loads(value) if value.startswith('"') else value
    return found


def shell_faults(pipeline, step):
    """What is wrong with the shell text of a code step."""
    texts = [("command", step["command"], "sh")]
    file = pipeline / step["command"].removeprefix("bash ").removesuffix(" </dev/null")
    if step["command"].startswith("bash ") and file.is_file():
        texts.append((file.name, file.read_text(), "bash"))
    found = []
    for name, text, shell in texts:
        place = f"{pipeline.name}, step {step['name']}, {name}"
        read = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
        if read.returncode:
            found.append(f"{place}: {read.stderr.strip()}")
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        found += [f"{place}: not filled in: {mark.group().strip()!r}" for mark in OPEN.finditer(code)]
    return found


def shown(rows):
    """The table for people."""
    lines = ["| skill | kind | statements | enforced | asked | left | background | pipelines | steps: code, llm, skill | tests |", "|---" * 10 + "|"]
    for row in rows:
        if "statements" in row:
            steps = ", ".join(str(row["steps"].count(kind)) for kind in KINDS)
            counts = [row["statements"], *(row[outcome] for outcome in OUTCOMES), row["pipelines"], steps, row["tests"]]
            lines.append(f"| {row['skill']} | {row['kind']} | {' | '.join(map(str, counts))} |")
    whole = [row for row in rows if "statements" in row]
    total = [sum(row[name] for row in whole) for name in ("statements", *OUTCOMES, "pipelines")]
    steps = [step for row in whole for step in row["steps"]]
    counts = [*total, ", ".join(str(steps.count(kind)) for kind in KINDS), sum(row["tests"] for row in whole)]
    lines.append(f"| {len(whole)} skills | | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def main():
    args = arguments()
    repositories, skills = listed(args.only)
    if args.clone:
        for repository in sorted({skill["repository"] for skill in skills}):
            clone(args.skills, repository, repositories[repository])
    with tempfile.TemporaryDirectory() as scratch:
        out = (args.out or pathlib.Path(scratch)).resolve()
        out.mkdir(parents=True, exist_ok=True)
        bench = Bench(args, out)
        with concurrent.futures.ThreadPoolExecutor(1 if args.model else args.jobs) as pool:
            rows = list(pool.map(bench.convert, skills))
    if args.format == "json":
        print(json.dumps(rows, indent=2))
    else:
        print(shown(rows))
    faults = [f"{row['repository']} {row['skill']}: {fault}" for row in rows for fault in row["faults"]]
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if faults else 0)


main()

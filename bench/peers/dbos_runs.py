"""DBOS Transact on SQLite. `dbos_runs.py KIND DIR`; prints one JSON object of figures.

Durability: its own settings for SQLite (a rollback journal, `synchronous` as SQLite has it: FULL).
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import model_client
from dbos import DBOS, SetWorkflowID

kind, directory = sys.argv[1:]
DBOS(
    config={
        "name": "bench",
        "system_database_url": f"sqlite:///{os.path.abspath(directory)}/dbos.sqlite",
        "log_level": "ERROR",
        "run_admin_server": False,
    }
)


@DBOS.step()
def process(at):
    ended = subprocess.run(["cat", "out.json"], input=b"{}", capture_output=True, check=True)
    return json.loads(ended.stdout)["output"]


@DBOS.step()
def killed_once():
    """Ends the process as a crash does, unless somebody has noted that it did."""
    if not os.path.exists("resumed"):
        os.kill(os.getpid(), signal.SIGKILL)


@DBOS.step()
def nothing(at):
    return at


@DBOS.step()
def talk(at):
    return model_client.ask(f"Say what you think of number {at}.")


@DBOS.step()
def make():
    ended = subprocess.run(["cat", "../value.json"], input=b"{}", capture_output=True, check=True)
    return json.loads(ended.stdout)["output"]


@DBOS.step()
def take(value):
    ended = subprocess.run(["sh", "../take.sh"], input=json.dumps({"value": value}).encode(), capture_output=True, check=True)
    return json.loads(ended.stdout)["output"]


@DBOS.step()
async def wait(at):
    await asyncio.sleep(0.1)
    return at


@DBOS.workflow()
def processes(count):
    for at in range(count):
        process(at)


@DBOS.workflow()
def crash(count):
    for at in range(count - 1):
        process(at)
    killed_once()
    return process(count)


@DBOS.workflow()
def nothings(count):
    for at in range(count):
        nothing(at)


@DBOS.workflow()
def talks(count):
    for at in range(count):
        talk(at)


@DBOS.workflow()
def large():
    return take(make())


@DBOS.workflow()
async def waits(count):
    for at in range(count):
        await wait(at)


async def many(runs, calls):
    since = time.perf_counter()
    handles = [await DBOS.start_workflow_async(waits, calls) for _ in range(runs)]
    await asyncio.gather(*(handle.get_result() for handle in handles))
    return (time.perf_counter() - since) * 1e3


def main():
    DBOS.launch()
    since = time.perf_counter()
    if kind == "one":
        processes(1)
        print("{}")
    elif kind == "steps":
        processes(100)
        print(json.dumps({"ms": (time.perf_counter() - since) * 1e3}))
    elif kind == "killed":
        with SetWorkflowID("crash"):
            crash(100)
    elif kind == "resumed":
        # It was taken up again by the launch.
        print(json.dumps(DBOS.retrieve_workflow("crash").get_result()))
    elif kind == "durable":
        nothings(100)
        print(json.dumps({"sync": (time.perf_counter() - since) * 1e3 / 100}))
    elif kind == "large-strict":
        large()
        print(json.dumps({"ms": (time.perf_counter() - since) * 1e3}))
    elif kind == "llm-strict":
        talks(100)
        print("{}")
    elif kind == "concurrent":
        print(json.dumps({"ms": asyncio.run(many(100, 10))}))
    sys.stdout.flush()
    DBOS.destroy()


main()

"""LangGraph with its SQLite saver. `langgraph_runs.py KIND DIR`; prints one JSON object of figures.

Durability: the saver's own settings (write-ahead log, `synchronous` as SQLite has it: FULL), and `durability="sync"`, with
which a step's checkpoint is written before the next step starts; `async`, its default, is measured beside it.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from typing import TypedDict

import model_client
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    n: int


class Talk(State):
    text: str


class Large(State):
    value: str


def graph(count, node, last=None, state=State):
    builder = StateGraph(state)
    for at in range(count):
        builder.add_node(f"s{at}", last if last and at == count - 1 else node)
    builder.add_edge(START, "s0")
    for at in range(count - 1):
        builder.add_edge(f"s{at}", f"s{at + 1}")
    builder.add_edge(f"s{count - 1}", END)
    return builder


def process(state):
    ended = subprocess.run(["cat", "out.json"], input=b"{}", capture_output=True, check=True)
    return {"n": json.loads(ended.stdout)["output"]["n"]}


def killed_once(state):
    """Ends the process as a crash does, unless somebody has noted that it did."""
    if not os.path.exists("resumed"):
        os.kill(os.getpid(), signal.SIGKILL)
    return process(state)


def nothing(state):
    return {"n": state["n"] + 1}


def talk(state):
    return {"n": state["n"] + 1, "text": model_client.ask(f"Say what you think of number {state['n']}.")}


def make(state):
    ended = subprocess.run(["cat", "../value.json"], input=b"{}", capture_output=True, check=True)
    return {"value": json.loads(ended.stdout)["output"]}


def take(state):
    given = json.dumps({"value": state["value"]}).encode()
    ended = subprocess.run(["sh", "../take.sh"], input=given, capture_output=True, check=True)
    return {"n": json.loads(ended.stdout)["output"]}


async def wait(state):
    await asyncio.sleep(0.1)
    return {"n": state["n"] + 1}


def invoke(directory, builder, durability):
    with SqliteSaver.from_conn_string(f"{directory}/langgraph.db") as saver:
        compiled = builder.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": str(time.time())}, "recursion_limit": 110}
        since = time.perf_counter()
        compiled.invoke({"n": 0}, config, durability=durability)
        return (time.perf_counter() - since) * 1e3


def crash(directory, count, begins):
    with SqliteSaver.from_conn_string(f"{directory}/langgraph.db") as saver:
        compiled = graph(count, process, killed_once).compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "crash"}, "recursion_limit": count + 10}
        return compiled.invoke({"n": 0} if begins else None, config, durability="sync")


async def many(directory, runs, calls):
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(f"{directory}/many.db") as saver:
        compiled = graph(calls, wait).compile(checkpointer=saver)
        since = time.perf_counter()
        await asyncio.gather(
            *(
                compiled.ainvoke({"n": 0}, {"configurable": {"thread_id": f"t{at}"}}, durability="sync")
                for at in range(runs)
            )
        )
        return (time.perf_counter() - since) * 1e3


def main():
    kind, directory = sys.argv[1:]
    durability = "sync" if kind.endswith("-strict") else "async"
    if kind == "one":
        invoke(directory, graph(1, process), "sync")
        print("{}")
    elif kind == "steps":
        print(json.dumps({"ms": invoke(directory, graph(100, process), "sync")}))
    elif kind == "killed":
        crash(directory, 100, True)
    elif kind == "resumed":
        print(json.dumps(crash(directory, 100, False)))
    elif kind == "durable":
        figures = {}
        for durability in ("sync", "async"):
            figures[durability] = invoke(directory, graph(100, nothing), durability) / 100
        print(json.dumps(figures))
    elif kind in ("large", "large-strict"):
        print(json.dumps({"ms": invoke(directory, graph(2, make, take, Large), durability)}))
    elif kind in ("llm", "llm-strict"):
        invoke(directory, graph(100, talk, state=Talk), durability)
        print("{}")
    elif kind == "concurrent":
        print(json.dumps({"ms": asyncio.run(many(directory, 100, 10))}))


main()

"""Restate: one server on this machine, a Python service beside it. `restate_runs.py KIND DIR SERVER`, where SERVER is the
server's program; prints one JSON object of figures.

Durability: the server's own settings (every step is in its replicated log, of one replica here, before it counts). Of itself it
refuses values above 32 MiB, and its SDK tries again without end; for 100 MB its limit of messages is raised.
"""

import asyncio
import concurrent.futures
import http.client
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

import hypercorn.asyncio
import hypercorn.config
import restate

service = restate.Service("Bench")


@service.handler()
async def steps(ctx: restate.Context, request: dict) -> float:
    what = process if request["what"] == "process" else nothing
    since = time.perf_counter()
    for at in range(request["count"]):
        await ctx.run_typed(f"s{at}", what)
    return (time.perf_counter() - since) * 1e3


@service.handler()
async def large(ctx: restate.Context, request: dict) -> float:
    since = time.perf_counter()
    value = await ctx.run_typed("make", make)
    await ctx.run_typed("take", take, value=value)
    return (time.perf_counter() - since) * 1e3


# Invocations of `waiting` begin when the gate is open; when each has ended.
open_gate, ends = asyncio.Event(), []


@service.handler()
async def waiting(ctx: restate.Context, request: dict) -> int:
    await open_gate.wait()
    for at in range(request["count"]):
        await ctx.run_typed(f"s{at}", nothing)
    ends.append(time.perf_counter())
    return 1


def make() -> str:
    ended = subprocess.run(["cat", "../value.json"], input=b"{}", capture_output=True, check=True)
    return json.loads(ended.stdout)["output"]


def take(value: str) -> int:
    ended = subprocess.run(["sh", "../take.sh"], input=json.dumps({"value": value}).encode(), capture_output=True, check=True)
    return json.loads(ended.stdout)["output"]


def process() -> int:
    ended = subprocess.run(["cat", "out.json"], input=b"{}", capture_output=True, check=True)
    return json.loads(ended.stdout)["output"]["n"]


def nothing() -> int:
    return 1


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read() or b"null")


def post_all(host, path, body, count, threads):
    """Posts the same `count` times on kept connections; the requests a second."""
    def some(_):
        connection = http.client.HTTPConnection(host, timeout=300)
        for _ in range(count // threads):
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status < 300, answer.status

    since = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(some, range(threads)))
    return count / (time.perf_counter() - since)


async def fleet(host):
    """What `fleet/queue` and `fleet/append` of the baselines measure: submissions that wait, whole runs of ten steps, steps of 64 runs at once."""

    async def elsewhere(path, body, count, threads):
        words = [sys.executable, __file__, "post", host, path, json.dumps(body), str(count), str(threads)]
        client = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        reported, _ = await client.communicate()
        return float(reported)

    submit = await elsewhere("/Bench/waiting/send?delay=3600s", {"count": 10}, 3200, 32)
    records = 64 * 200 / (64 / await elsewhere("/Bench/steps", {"what": "nothing", "count": 200}, 64, 64))
    await elsewhere("/Bench/waiting/send", {"count": 10}, 3200, 32)
    since = time.perf_counter()
    open_gate.set()
    while len(ends) < 3200:
        await asyncio.sleep(0.01)
    return {"submit": submit, "records": records, "runs": 3200 / (ends[-1] - since)}


def when_ready(url, body):
    for _ in range(200):
        try:
            return post(url, body)
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(url)


async def serve(port, stop):
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.errorlog = None
    await hypercorn.asyncio.serve(restate.app([service]), config, shutdown_trigger=stop.wait)


async def main():
    kind, directory, server = sys.argv[1:]
    ports = {name: free_port() for name in ("node", "ingress", "admin", "service")}
    environment = os.environ | {
        "DO_NOT_TRACK": "1",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_ADVERTISED_HOST": "127.0.0.1",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_PORT": str(ports["node"]),
        "RESTATE_INGRESS__BIND_PORT": str(ports["ingress"]),
        "RESTATE_ADMIN__BIND_PORT": str(ports["admin"]),
        "RESTATE_BASE_DIR": os.path.abspath(directory),
        "RESTATE_NODE_NAME": "n1",
    }
    if kind == "large-strict":
        environment["RESTATE_NETWORKING__MESSAGE_SIZE_LIMIT"] = "256MiB"
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(ports["service"], stop))
    with open(f"{directory}/server.log", "wb") as log:
        running = subprocess.Popen([server, "--no-logo"], env=environment, stdout=log, stderr=log)
    try:
        admin = f"http://127.0.0.1:{ports['admin']}/deployments"
        await asyncio.to_thread(when_ready, admin, {"uri": f"http://127.0.0.1:{ports['service']}"})
        bench = f"http://127.0.0.1:{ports['ingress']}/Bench"

        async def measured(what, count):
            return await asyncio.to_thread(when_ready, f"{bench}/steps", {"what": what, "count": count})

        await measured("nothing", 10)
        if kind == "durable":
            print(json.dumps({"sync": await measured("nothing", 100) / 100}))
        elif kind == "steps":
            print(json.dumps({"ms": await measured("process", 100)}))
        elif kind == "fleet":
            print(json.dumps(await fleet(f"127.0.0.1:{ports['ingress']}")))
        elif kind == "large-strict":
            print(json.dumps({"ms": await asyncio.to_thread(post, f"{bench}/large", {})}))
    finally:
        running.terminate()
        running.wait()
        stop.set()
        await serving


if sys.argv[1] == "post":
    host, path, body, count, threads = sys.argv[2:]
    print(post_all(host, path, json.loads(body), int(count), int(threads)))
else:
    asyncio.run(main())

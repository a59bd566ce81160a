#!/usr/bin/env python3
"""Starts runs over HTTP at a steady rate beside many event streams, and counts what was lost. The streams wait for the end of one run; a few
more follow each started run to its end.

    bench/serve.py [--rate 200] [--seconds 10] [--streams 1000]

`ETUDE_BIN` is the binary, `target/release/etude` by default. It exits with 1 if an accepted run did not end, or if a stream missed the end of
one. Everything stays on loopback. Times depend on the machine; counts do not.
"""

import argparse
import asyncio
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

STREAMS_OF_A_TOKEN = 100
# The server accepts 1,024 connections.
FOLLOWERS, CLIENTS = 8, 8
PIPELINES = {
    "one": """name: one
description: "One code step"
input: {n: integer}
steps:
  - {name: echo, type: code, command: "cat", output: text}
""",
    "wait": """name: wait
description: "Waits for an answer"
steps:
  - {name: ask, type: approval, message: "Go on?"}
""",
}


def binary() -> str:
    return os.environ.get("ETUDE_BIN", str(pathlib.Path(__file__).parents[1] / "target/release/etude"))


class Load:
    def __init__(self, port: int, owner: str):
        self.port, self.owner = port, owner
        self.accepted: set[str] = set()
        self.refused: dict[int, int] = {}
        self.latencies: list[float] = []
        self.followed: asyncio.Queue = asyncio.Queue()
        self.ended: dict[str, int] = {}
        self.most_streams = self.streams = 0

    def head(self, method: str, path: str, token: str, more: str = "") -> bytes:
        lines = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {token}\r\n{more}\r\n"
        return lines.encode()

    async def response(self, reader) -> tuple[int, bytes]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split(" ", 2)[1])
        length = next((int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")), 0)
        return status, await reader.readexactly(length)

    async def post(self, path: str, document: dict):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = json.dumps(document).encode()
        more = f"Connection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nPrefer: wait=20\r\n"
        writer.write(self.head("POST", path, self.owner, more) + body)
        _, answer = await self.response(reader)
        writer.close()
        return json.loads(answer)

    async def get(self, path: str):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(self.head("GET", path, self.owner, "Connection: close\r\n"))
        _, body = await self.response(reader)
        writer.close()
        return json.loads(body)

    async def follow(self, token: str):
        """Follows one run after the other, each to the end that its stream says."""
        while (run := await self.followed.get()) is not None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
            writer.write(self.head("GET", f"/v1/runs/{run}/events", token, "Accept: text/event-stream\r\n"))
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                raise SystemExit(f"a stream was refused: {head.decode('latin-1')}")
            self.streams += 1
            self.most_streams = max(self.most_streams, self.streams)
            while line := await reader.readline():
                if line.startswith(b"data:") and json.loads(line[5:]).get("event") == "ended":
                    self.ended[run] = self.ended.get(run, 0) + 1
                    break
            self.streams -= 1
            writer.close()

    async def start(self, queue: asyncio.Queue):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while (n := await queue.get()) is not None:
            body = json.dumps({"pipeline": "one", "input": {"n": n}}).encode()
            began = time.perf_counter()
            writer.write(self.head("POST", "/v1/runs", self.owner, f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n") + body)
            status, answer = await self.response(reader)
            self.latencies.append(time.perf_counter() - began)
            if status in (201, 202):
                run = json.loads(answer)["run_id"]
                self.accepted.add(run)
                self.followed.put_nowait(run)
            else:
                self.refused[status] = self.refused.get(status, 0) + 1
        writer.close()

    async def starts(self, rate: int, seconds: int) -> float:
        queue: asyncio.Queue = asyncio.Queue()
        clients = [asyncio.create_task(self.start(queue)) for _ in range(CLIENTS)]
        began = time.perf_counter()
        for n in range(rate * seconds):
            await asyncio.sleep(max(0.0, began + n / rate - time.perf_counter()))
            queue.put_nowait(n)
        for _ in clients:
            queue.put_nowait(None)
        await asyncio.gather(*clients)
        return time.perf_counter() - began


def memory(pid: int) -> float:
    """The resident memory of a process in MiB."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:")) / 1024


async def measure(args, child, port: int, owner: str, tokens: list[str]) -> int:
    load = Load(port, owner)
    idle = memory(child.pid)
    waiting = (await load.post("/v1/runs", {"pipeline": "wait"}))["run_id"]
    streams = []
    for n in range(args.streams):
        load.followed.put_nowait(waiting)
        streams.append(asyncio.create_task(load.follow(tokens[n // STREAMS_OF_A_TOKEN])))
        await asyncio.sleep(0)
    while load.streams < args.streams:
        await asyncio.sleep(0.01)
    quiet, began = memory(child.pid), time.perf_counter()
    followers = [asyncio.create_task(load.follow(load.owner)) for _ in range(FOLLOWERS)]
    took = await load.starts(args.rate, args.seconds)
    for _ in followers:
        load.followed.put_nowait(None)
    most, ended = quiet, asyncio.gather(*followers)
    deadline = time.monotonic() + 600
    while not ended.done() and time.monotonic() < deadline:
        most = max(most, memory(child.pid))
        await asyncio.sleep(0.2)
    whole = time.perf_counter() - began
    decision = (await load.get("/v1/decisions"))["decisions"][0]
    await load.post(f"/v1/decisions/{decision['id'].replace('/', '%2F')}", {"approved": True, "question": decision["question"]})
    for _ in streams:
        load.followed.put_nowait(None)
    await asyncio.wait(streams, timeout=60)
    ends = {}
    for status in ("succeeded", "failed", "cancelled"):
        after = ""
        while after is not None:
            page = await load.get(f"/v1/runs?status={status}&limit=100{after and '&cursor=' + after}")
            ends |= {run["run_id"]: status for run in page["runs"]}
            after = page.get("next")
    lost = [run for run in load.accepted if ends.get(run) != "succeeded"]
    missed = len(load.accepted - load.ended.keys()) + args.streams - load.ended.get(waiting, 0)
    latencies = sorted(load.latencies)
    print(f"starts             {len(load.accepted)} accepted, {sum(load.refused.values())} refused {load.refused or ''}".rstrip())
    print(f"rate               {len(latencies) / took:.0f}/s of {args.rate}/s")
    print(f"response           median {statistics.median(latencies) * 1000:.1f} ms, p99 {latencies[len(latencies) * 99 // 100] * 1000:.1f} ms")
    print(f"runs without end   {len(lost)}")
    print(f"streams            {load.most_streams} at once, ends missed {missed}")
    print(f"all runs ended     after {whole:.1f} s, {len(load.accepted) / whole:.0f}/s")
    print(f"memory             idle {idle:.1f} MiB, with streams {quiet:.1f} MiB, most {most:.1f} MiB")
    return 1 if lost or missed or load.refused else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--streams", type=int, default=1000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="etude-load-", ignore_cleanup_errors=True) as home:
        for name, text in PIPELINES.items():
            directory = pathlib.Path(home, "app/pipelines", name)
            directory.mkdir(parents=True)
            directory.joinpath("pipeline.yaml").write_text(text)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment = {**kept, "HOME": home, "XDG_STATE_HOME": f"{home}/state"}
        command = [binary(), "serve", f"{home}/app", "--port", "0", "--format", "json", "--quiet"]
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            line = json.loads(child.stdout.readline())
            port = int(line["addresses"][0].rsplit(":", 1)[1])
            owner = pathlib.Path(line["socket"]).with_name("owner.token").read_text().strip()
            tokens = []
            for n in range(-(-args.streams // STREAMS_OF_A_TOKEN)):
                made = [binary(), "token", "new", f"reader-{n}", "--scope", "read", "--format", "json"]
                tokens.append(json.loads(subprocess.check_output(made, env=environment))["token"])
            return asyncio.run(measure(args, child, port, owner, tokens))
        finally:
            child.terminate()
            child.wait(60)


if __name__ == "__main__":
    sys.exit(main())

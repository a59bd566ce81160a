"""What ours and the peers are given alike, beyond steps that start `cat`."""

import base64
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys

import footprint

HERE = pathlib.Path(__file__).resolve().parent

LARGE = 100 * 1000 * 1000
PIPELINES = 10_000
CALLS = 100

# The schema and the answer of `schema` in crates/etude-bench/benches/baselines/durable.rs, whose figure ours is.
ISSUE = {"file": "src/some/where.rs", "line": 17, "severity": "medium", "message": "this can be simpler"}
REVIEW = {"summary": "twenty things to look at", "issues": [ISSUE] * 20}
REVIEW_SCHEMA = {
    "type": "object",
    "required": ["issues", "summary"],
    "additionalProperties": False,
    "properties": {
        "summary": {"type": "string", "minLength": 10, "maxLength": 2000},
        "issues": {
            "type": "array",
            "maxItems": 100,
            "items": {
                "type": "object",
                "required": ["file", "line", "severity", "message"],
                "additionalProperties": False,
                "properties": {
                    "file": {"type": "string", "pattern": "^[a-z/_.]+$"},
                    "line": {"type": "integer", "minimum": 1},
                    "severity": {"enum": ["low", "medium", "high"]},
                    "message": {"type": "string", "minLength": 3},
                },
            },
        },
    },
}

PIPELINE = """name: p{at:05}
description: "Do the thing number {at} and report what came of it"
triggers:
  - "do thing {at}"
  - "thing {at} please"
input:
  path: string
steps:
  - name: fetch
    type: code
    command: "sh steps/fetch.sh"
  - name: explain
    type: llm
    prompt: "Explain {{{{fetch.output}}}} of {{{{input.path}}}}"
"""


def large(work):
    """100 MB, others each time: ours keeps equal values once and would not write them again, and a disk may be quick with what
    repeats. And what fails if it is given less."""
    letters = base64.b64encode(os.urandom(LARGE * 3 // 4))
    (work / "value.json").write_bytes(b'{"output": "' + letters + b'"}')
    (work / "take.sh").write_text(f'n=$(wc -c)\ntest "$n" -gt {LARGE} || exit 1\necho "{{\\"output\\": $n}}"\n')


def commands(work):
    """The two steps of it. The files lie outside of apps, whose files are their definition."""
    return [f"cat {work}/value.json", f"sh {work}/take.sh"]


def pipelines(work):
    """An app of very many of them, as in the baselines."""
    for at in range(PIPELINES):
        directory = work / f"many/pipelines/p{at:05}"
        (directory / "steps").mkdir(parents=True)
        (directory / "steps/fetch.sh").write_text("cat\n")
        (directory / "pipeline.yaml").write_text(PIPELINE.format(at=at))
    return work / "many"


def review(work):
    (work / "review.schema.json").write_text(json.dumps(REVIEW_SCHEMA))
    (work / "review.json").write_text(json.dumps(REVIEW))


def talk(work, address):
    """An app that asks a local server for each step."""
    app = footprint.app(work / "talk", "talk", [])
    steps = "".join(f'  - name: s{at}\n    type: llm\n    prompt: "Say what you think of number {at}."\n' for at in range(CALLS))
    (app / "pipelines/talk/pipeline.yaml").write_text(f"name: talk\ndescription: what is measured\nsteps:\n{steps}")
    provider = f'{{kind: openai-compatible, base_url: "http://{address}/v1", api_key: "sk-0123456789abcdef0123456789abcdef"}}'
    (app / "etude.yaml").write_text(f"model_mapping: {{lite: near/m, standard: near/m, reasoning: near/m}}\nproviders: {{near: {provider}}}\n")
    return app


class ModelServer:
    """A local model server in a process of its own, and what calls of it take."""

    def __enter__(self):
        self.running = subprocess.Popen([sys.executable, HERE / "model_server.py"], stdout=subprocess.PIPE, text=True)
        self.port = int(self.running.stdout.readline())
        self.address = f"127.0.0.1:{self.port}"
        self.bares = []
        return self

    def __exit__(self, *_):
        self.running.terminate()
        self.running.wait()

    def beyond_bare(self, run):
        """Milliseconds from one call of `run` to its next, less what they are when calls are all there is."""
        self.seen()
        run()
        each = self.each_ms()
        self.bare()
        self.bares.append(self.each_ms())
        return each - self.bares[-1]

    def seen(self):
        """What the server has seen since it was asked last."""
        connection = http.client.HTTPConnection(self.address)
        connection.request("GET", "/calls")
        seen = json.loads(connection.getresponse().read())
        connection.close()
        return seen

    def each_ms(self):
        seen = self.seen()
        if seen["calls"] != CALLS:
            raise RuntimeError(f"{seen['calls']} calls instead of {CALLS}")
        return seen["each_ms"]

    def bare(self):
        """Requests as small as they can be on one connection, their answers read as JSON."""
        body = b'{"model":"m","messages":[{"role":"user","content":"Say what you think of number 1."}]}'
        request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: %b\r\ncontent-length: %d\r\n\r\n%b" % (self.address.encode(), len(body), body)
        with socket.create_connection(("127.0.0.1", self.port)) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(CALLS):
                stream.sendall(request)
                answer = stream.recv(4096)
                while not answer.endswith(b"}}"):
                    answer += stream.recv(4096)
                json.loads(answer.partition(b"\r\n\r\n")[2])

"""A tool of the app: one call of a tau-bench tool, JSON in and JSON out.

Beside it lies `environment.json`: the checkout, the domain, and where the state is. The state is the list of calls that changed
the database, `calls.jsonl`; a fresh database and these calls are the database. If a process listens on `socket` there, the call is
theirs: `evaluate.py` keeps one warm process for many runs."""

import json
import os
import socket
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    call = json.load(sys.stdin)
    with open(os.path.join(HERE, "environment.json")) as file:
        where = json.load(file)
    try:
        print(ask(os.path.join(where["state"], "socket"), call))
    except (FileNotFoundError, ConnectionRefusedError):
        print(json.dumps(here(where, call)))


def ask(path, call):
    """The response of a process that has the database in memory."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        line.sendall(json.dumps({"tool": call["tool"], "args": call["args"]}).encode() + b"\n")
        with line.makefile() as reader:
            return reader.read()


def here(where, call):
    """The response of an environment that is loaded for this call."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, where["scripts"])
    import tau

    environment = tau.Environment(where["checkout"], where["domain"])
    log = os.path.join(where["state"], "calls.jsonl")
    if os.path.exists(log):
        with open(log) as file:
            for line in file:
                environment.respond(json.loads(line))
    response = environment.respond(call)
    if response["ok"] and environment.writes(call["tool"]):
        os.makedirs(where["state"], exist_ok=True)
        with open(log, "a") as file:
            file.write(json.dumps({"tool": call["tool"], "args": call["args"]}) + "\n")
    return response


if __name__ == "__main__":
    main()

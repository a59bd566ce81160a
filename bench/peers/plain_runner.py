"""A straightforward runner of the same protocol in Python: what one writes in an afternoon.

It runs the steps of a pipeline in order, gives commands the input and all earlier outputs on stdin, checks what they print, asks
a model where a step has a prompt, and notes each output in SQLite before the next step begins (write-ahead log, synchronous =
NORMAL: as `etude` by default; FULL if the pipeline says so). It has no process groups, time limits, retries, constructor, destructor, schemas or resume.

    plain_runner.py PIPELINE.json JOURNAL
"""

import json
import os
import shlex
import sqlite3
import subprocess
import sys
import uuid


def command(step, outputs, directory):
    """The output of a process, which is given those of the steps before it."""
    stdin = json.dumps({"input": {}, "steps": outputs})
    ended = subprocess.run(shlex.split(step["command"]), input=stdin.encode(), capture_output=True, cwd=directory, check=False)
    if ended.returncode != 0:
        sys.exit(f"step {step['name']} failed: {ended.stderr.decode(errors='replace')}")
    document = json.loads(ended.stdout)
    if not isinstance(document, dict) or "output" not in document:
        sys.exit(f"step {step['name']} printed no output")
    return document["output"]


def ask(prompt):
    # Who only starts commands does not pay for an HTTP client.
    import model_client

    return model_client.ask(prompt)


def main():
    pipeline_file, journal = sys.argv[1:]
    with open(pipeline_file, encoding="utf-8") as file:
        pipeline = json.load(file)
    database = sqlite3.connect(journal, isolation_level=None)
    database.execute("pragma journal_mode = wal")
    database.execute(f"pragma synchronous = {pipeline.get('synchronous', 'normal')}")
    database.execute("create table if not exists outputs (run text, step text, output text, primary key (run, step))")
    run = uuid.uuid4().hex
    directory = os.path.dirname(os.path.abspath(pipeline_file))
    outputs = {}
    for step in pipeline["steps"]:
        output = ask(step["prompt"]) if "prompt" in step else command(step, outputs, directory)
        outputs[step["name"]] = {"output": output}
        database.execute("insert into outputs values (?, ?, ?)", (run, step["name"], json.dumps(output)))
    print(json.dumps(output))


if __name__ == "__main__":
    main()

"""A straightforward runner of the same protocol in Python: what one writes in an afternoon.

It runs the code steps of a pipeline in order, gives each the input and all earlier outputs on stdin, checks what it prints,
and notes each output in SQLite before the next step begins (write-ahead log, synchronous = NORMAL: as `etude` by default).
It has no process groups, time limits, retries, constructor, destructor, schemas or resume.

    plain_runner.py PIPELINE.json JOURNAL
"""

import json
import os
import shlex
import sqlite3
import subprocess
import sys
import uuid


def main():
    pipeline_file, journal = sys.argv[1:]
    with open(pipeline_file, encoding="utf-8") as file:
        pipeline = json.load(file)
    database = sqlite3.connect(journal, isolation_level=None)
    database.execute("pragma journal_mode = wal")
    database.execute("pragma synchronous = normal")
    database.execute("create table if not exists outputs (run text, step text, output text, primary key (run, step))")
    run = uuid.uuid4().hex
    outputs = {}
    for step in pipeline["steps"]:
        stdin = json.dumps({"input": {}, "steps": outputs})
        ended = subprocess.run(
            shlex.split(step["command"]),
            input=stdin.encode(),
            capture_output=True,
            cwd=os.path.dirname(os.path.abspath(pipeline_file)),
            check=False,
        )
        if ended.returncode != 0:
            sys.exit(f"step {step['name']} failed: {ended.stderr.decode(errors='replace')}")
        document = json.loads(ended.stdout)
        if not isinstance(document, dict) or "output" not in document:
            sys.exit(f"step {step['name']} printed no output")
        outputs[step["name"]] = {"output": document["output"]}
        database.execute("insert into outputs values (?, ?, ?)", (run, step["name"], json.dumps(document["output"])))
    print(json.dumps(document["output"]))


if __name__ == "__main__":
    main()

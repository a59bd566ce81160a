"""Makes the recordings again: runs the walk of README.md with the model by rules of `desk.py`, and keeps every response.

    ETUDE_BIN=target/debug/etude python3 -B examples/shop/tests/record.py
"""

import json
import pathlib
import shutil
import tempfile

import desk
import walk

RECORDINGS = walk.APP / "tests" / "recordings" / "desk"


def main():
    server = desk.serve()
    shutil.rmtree(RECORDINGS, ignore_errors=True)
    for steps in (walk.Walk.all, walk.Walk.page):
        with tempfile.TemporaryDirectory() as directory:
            for line in steps(walk.Walk(pathlib.Path(directory), config(server.server_address[1]))):
                print(line)
    print(f"{len(list(RECORDINGS.iterdir()))} recordings")


def config(port):
    """The configuration of the walk, in which the model by rules answers what is not recorded."""
    recorded = {"kind": "recorded", "path": str(RECORDINGS), "record": "rules/desk-by-rules"}
    rules = {"kind": "openai-compatible", "base_url": f"http://127.0.0.1:{port}/v1"}
    tiers = {tier: "recorded/desk" for tier in ("lite", "standard", "reasoning")}
    return json.dumps({"model_mapping": tiers, "providers": {"recorded": recorded, "rules": rules}})


if __name__ == "__main__":
    main()

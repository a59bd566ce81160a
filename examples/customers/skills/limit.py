"""Counts the calls of each tool. What is in `globals` is shared by all layers of a run."""
import json
import subprocess
import sys


def host(*words):
    return subprocess.run(["etude", "host", *words], capture_output=True, text=True, check=True).stdout


tool = json.load(sys.stdin)["ctx"]["target"]["run"]["tool"]
name, most = tool["name"], tool["metadata"]["limit"]["calls"]
count = (json.loads(host("get", f"globals.calls.{name}")) or 0) + 1
if count > most:
    sys.exit(f"`{name}` was called {most} times in this run already")
host("set", f"globals.calls.{name}", str(count))

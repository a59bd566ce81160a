"""Counts the calls of each tool. What is in `globals` is shared by all layers of a run."""
import json
import subprocess
import sys

tool = json.load(sys.stdin)["ctx"]["target"]["run"]["tool"]
name, most = tool["name"], tool["metadata"]["limit"]["calls"]
# One request that counts and compares: calls that run at once cannot come between.
added = subprocess.run(["etude", "host", "add", f"globals.calls.{name}", "1", "--max", str(most)],
                       capture_output=True, text=True, check=False)
if "would exceed" in added.stderr:
    sys.exit(f"`{name}` was called {most} times in this run already")
if added.returncode:
    sys.exit(f"the calls of `{name}` cannot be counted: {added.stderr.strip()}")

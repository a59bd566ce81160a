"""Asks the tool shed what is overdue: its command line is the only way to its ledger."""
import json
import os
import subprocess
import sys
from pathlib import Path

given = json.load(sys.stdin)["input"]
package = Path(os.environ["ETUDE_APP_DIR"]) / (given.get("ledger") or "apps/tool-shed")
command = [sys.executable, "app/shed.py", "report", "overdue", "--as-of", given["as_of"]]
done = subprocess.run(command, cwd=package, capture_output=True, text=True, check=False)
answer = json.loads(done.stdout) if done.stdout.strip() else {}
if done.returncode != 0:
    error = answer.get("error", {})
    sys.exit(f"tool-shed: {error.get('code', done.returncode)}: {error.get('message', done.stderr.strip())}")
print(json.dumps({"output": answer["overdue"]}))

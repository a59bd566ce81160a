"""Exit: counts the repairs, so that the machine does not repair for ever."""
import json
import sys

hook = json.load(sys.stdin)
data = hook["slot"]["data"]
json.dump({"slot": {**data, "repairs": data.get("repairs", 0) + 1}}, sys.stdout)

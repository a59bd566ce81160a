import json
import sys
import time

given = json.load(sys.stdin)["input"]
# A call that takes less than two seconds is no task.
time.sleep(given["seconds"] and given["seconds"] + 3)
print(json.dumps({"output": given["label"]}))

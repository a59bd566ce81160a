import json
import time

time.sleep(0.2)
print(json.dumps({"output": 3}))

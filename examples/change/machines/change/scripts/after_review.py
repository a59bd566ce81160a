"""Next: what is not approved is repaired, twice at most."""
import json
import sys

MOST_REPAIRS = 2


def after(result, slot):
    approved = result["verdict"] == "ok" and result.get("parsed", {}).get("approved")
    if approved or slot["data"].get("repairs", 0) >= MOST_REPAIRS:
        return {"execution": "terminate"}
    return {"execution": "sequential", "nextStages": ["repair"]}


if __name__ == "__main__":
    hook = json.load(sys.stdin)
    json.dump(after(hook["result"], hook["slot"]), sys.stdout)

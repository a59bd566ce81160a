"""Assert: a stage that says which files it changed must have called a tool that changes files."""
import json
import sys


def judge(act):
    if act["capHit"]:
        return {"verdict": "retry", "reason": "You ran out of turns. Finish the change, then call `submit_change`."}
    messages = act["transcript"]["messages"]
    called = [call["name"] for message in messages for call in message.get("toolCalls", [])]
    if "Edit" in called or "Write" in called:
        return {"verdict": "ok"}
    return {"verdict": "retry", "reason": "You changed no file. Make the change with `Edit` or `Write` first."}


if __name__ == "__main__":
    json.dump(judge(json.load(sys.stdin)["act"]), sys.stdout)

"""Assert: a report about the tests, or about lint, says what the tool said."""
import json
import sys

TOOLS = {"test": "run_tests", "lint": "run_lint"}


def said(tool, messages):
    """What `tool` said when it was called last; None if it never answered."""
    calls, value = set(), None
    for message in messages:
        calls |= {call["id"] for call in message.get("toolCalls", []) if call["name"] == tool}
        if message.get("toolCallId") in calls:
            try:
                value = json.loads(message["content"])
            except ValueError:
                value = None  # It broke, and its answer says how.
    return value


def is_good(report):
    return report["passed"] if "passed" in report else not report["problems"]


def judge(stage, act):
    tool, channel = TOOLS[stage], f"submit_{stage}"
    value = said(tool, act["transcript"]["messages"])
    if value is None:
        return {"verdict": "retry", "reason": f"Nothing is known yet. Call `{tool}`."}
    if act["capHit"]:
        return {"verdict": "retry", "reason": f"You have called `{tool}`. Call `{channel}` now."}
    if is_good(act["parsed"]) != is_good(value):
        return {"verdict": "retry", "reason": f"That is not what `{tool}` said. Read its answer, and call `{channel}` again."}
    return {"verdict": "ok"}


if __name__ == "__main__":
    hook = json.load(sys.stdin)
    json.dump(judge(hook["stage"]["id"], hook["act"]), sys.stdout)

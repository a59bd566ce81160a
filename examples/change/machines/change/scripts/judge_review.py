"""Assert: a review approves what passes its tests and lists what is wrong with the rest; in the end somebody approves."""
import json
import sys

MOST_REPAIRS = 2


def judge(act, tests_passed, repairs):
    if act["capHit"]:
        return {"verdict": "retry", "reason": "Call `submit_review` now."}
    approved, problems = act["parsed"]["approved"], act["parsed"]["problems"]
    if approved and not tests_passed:
        return {"verdict": "retry", "reason": "The tests fail, so the change cannot be approved."}
    if not approved and not problems:
        return {"verdict": "retry", "reason": "Say in `problems` what has to be repaired, or approve the change."}
    if not approved and repairs >= MOST_REPAIRS:
        return {"verdict": "fail", "reason": f"not approved after {repairs} repairs: {'; '.join(problems)}"}
    return {"verdict": "ok"}


if __name__ == "__main__":
    hook = json.load(sys.stdin)
    passed = hook["ctx"]["upstream"][0]["parsed"]["passed"]
    json.dump(judge(hook["act"], passed, hook["slot"]["data"].get("repairs", 0)), sys.stdout)

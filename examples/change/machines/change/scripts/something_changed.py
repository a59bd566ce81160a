"""Assert: a stage that says which files it changed has changed the shop, since the plan or the last review."""
import json
import sys

import shop


def judge(before, after, cap_hit=False):
    if cap_hit:
        return {"verdict": "retry", "reason": "You ran out of turns. Finish the change, then hand it in."}
    if shop.diff(before, after):
        return {"verdict": "ok"}
    return {"verdict": "retry", "reason": "You changed no file. Make the change with `Edit` or `Write` first."}


if __name__ == "__main__":
    hook = json.load(sys.stdin)
    kept = hook["slot"]["data"]
    before = kept.get("reviewed") or kept.get("before", {})
    json.dump(judge(before, shop.read(hook["run"]["cwd"]), hook["act"]["capHit"]), sys.stdout)

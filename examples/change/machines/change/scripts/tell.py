"""Setup: everything that a stage has to know, so that no model has to look for it."""
import json
import sys

import shop


def listed(lines):
    return "\n".join(f"- {line}" for line in lines) or "- nothing"


def told(stage, task, upstream, before, files):
    ctx = {"task": task}
    if stage in ("plan", "implement", "repair"):
        ctx["files"] = shop.shown(files)
    if stage in ("review", "repair"):
        ctx["diff"] = shop.diff(before, files)
    if stage == "implement":
        ctx["plan"] = listed(upstream[0]["output"]["steps"])
    if stage == "review":
        tests, lint = (one["parsed"] for one in upstream)
        ctx["tests"] = "they passed" if tests["passed"] else f"they FAILED\n{listed(tests['problems'])}"
        ctx["lint"] = listed(lint["problems"])
    if stage == "repair":
        ctx["found"] = listed(upstream[0]["output"]["found"])
    return ctx


if __name__ == "__main__":
    hook = json.load(sys.stdin)
    before = hook["slot"]["data"].get("before", {})
    ctx = told(hook["stage"]["id"], hook["input"]["task"], hook["ctx"]["upstream"], before, shop.read(hook["run"]["cwd"]))
    json.dump({"ctx": ctx}, sys.stdout)

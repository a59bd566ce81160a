"""Setup: everything that a stage has to know, so that no model has to look for it."""
import json
import sys

import shop


def listed(lines):
    return "\n".join(f"- {line}" for line in lines)


def paragraphs(*texts):
    return "\n\n".join(text for text in texts if text)


def reported(result):
    """What a model made of it, and what the tool said."""
    return paragraphs(listed(result["parsed"]["problems"]), result["output"]["said"])


def told(stage, task, upstream, before, files):
    ctx = {"task": task}
    if stage in ("plan", "implement", "repair"):
        ctx["files"] = shop.shown(files)
    if stage in ("review", "repair"):
        ctx["diff"] = shop.diff(before, files)
    if stage == "implement":
        ctx["plan"] = listed(upstream[0]["output"]["steps"])
    if stage == "review":
        tests, lint = upstream
        ctx["tests"] = "They passed." if tests["parsed"]["passed"] else f"They FAILED:\n{reported(tests)}"
        ctx["lint"] = reported(lint) or "It found nothing."
    if stage == "repair":
        found = upstream[0]["output"]
        ctx["found"] = paragraphs(found["tests"], found["lint"], listed(found["problems"]))
    return ctx


if __name__ == "__main__":
    hook = json.load(sys.stdin)
    before = hook["slot"]["data"].get("before", {})
    ctx = told(hook["stage"]["id"], hook["input"]["task"], hook["ctx"]["upstream"], before, shop.read(hook["run"]["cwd"]))
    json.dump({"ctx": ctx}, sys.stdout)

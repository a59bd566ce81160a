"""Exit of tests and lint: hands on what the tool said, as it was, next to what the model made of it."""
import json
import sys

from as_the_tool_said import TOOLS, said

MOST_CHARS = 3_000


def handed_on(stage, act):
    value = said(TOOLS[stage], act["transcript"]["messages"]) or {}
    text = value.get("output") or "\n".join(value.get("problems", []))
    return {"said": text[-MOST_CHARS:].strip()}


if __name__ == "__main__":
    hook = json.load(sys.stdin)
    json.dump({"output": handed_on(hook["stage"]["id"], hook["act"])}, sys.stdout)

"""Guard: files are written below shop/ only, whatever a stage may call."""
import json
import posixpath
import sys


def judge(payload):
    if payload["toolId"] not in ("Edit", "Write"):
        return {"decision": "allow"}
    args = payload["args"]
    path = str(args.get("path") or "")
    if posixpath.normpath(path).startswith("shop/"):
        return {"decision": "allow"}
    return {"decision": "deny", "code": "OutsideTheShop", "reason": f"`{path}` is not below shop/"}


if __name__ == "__main__":
    json.dump(judge(json.load(sys.stdin)["payload"]), sys.stdout)

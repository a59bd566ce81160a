

def answer(method, params):
    if method == "initialize":
        info = {"name": "scripted", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return call(params["arguments"])
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": REFUSAL}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)

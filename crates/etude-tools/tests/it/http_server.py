"""A scripted MCP server over HTTP on a free port of this machine. The first argument says how it behaves."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE = sys.argv[1]
SESSIONS = set()
CALLS = [0]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", kind="application/json", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def result(self, message, result, **headers):
        if MODE == "stateless":
            result.setdefault("resultType", "complete")
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        if MODE == "sse":
            body = b"event: message\ndata: " + body + b"\n\n"
            return self.reply(200, body, "text/event-stream", **headers)
        return self.reply(200, body, **headers)

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        self.reply(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message.get("method")
        if MODE == "auth" and self.headers.get("Authorization") != "Bearer good":
            return self.reply(401, WWW_Authenticate="Bearer")
        if MODE == "html":
            return self.reply(500, b"<html>oops</html>", "text/html")
        if "id" not in message:
            return self.reply(202)
        if MODE == "stateless":
            if method == "server/discover":
                versions = {"supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private"}
                return self.result(message, {"capabilities": {"tools": {}}, **versions})
            if self.headers.get("MCP-Protocol-Version") != "2026-07-28":
                return self.reply(400)
        elif method == "initialize":
            session = f"s{len(SESSIONS)}"
            SESSIONS.add(session)
            info = {"name": "scripted", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            return self.result(message, result, Mcp_Session_Id=session)
        elif self.headers.get("Mcp-Session-Id") not in SESSIONS:
            # As servers do that know nothing but sessions: no JSON-RPC, no id.
            return self.reply(400, b"Bad Request: no session", "text/plain")
        if method == "tools/list":
            schema = {"type": "object", "properties": {"text": {"type": "string"}}}
            tools = [{"name": name, "inputSchema": schema} for name in ("echo", "drop", "late", "forget")]
            return self.result(message, {"tools": tools})
        name = message["params"]["name"]
        CALLS[0] += 1
        if name == "drop":
            self.close_connection = True
            self.connection.close()
            return None
        if name == "late":
            time.sleep(30)
        if name == "forget" and len(SESSIONS) == 1:
            SESSIONS.clear()
            SESSIONS.add("other")
            return self.reply(404)
        text = message["params"].get("arguments", {}).get("text", name)
        return self.result(message, {"content": [{"type": "text", "text": f"{text} {CALLS[0]}"}]})


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()

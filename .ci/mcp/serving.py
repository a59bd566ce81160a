"""A server of the fixtures in `app`, and a proxy that adds its token to requests without one."""

import contextlib
import http.client
import http.server
import json
import os
import pathlib
import subprocess
import tempfile
import threading

HERE = pathlib.Path(__file__).parent
APP = HERE / "app"


def binary() -> str:
    return os.environ.get("ETUDE_BIN", str(HERE.parents[1] / "target/debug/etude"))


def environment(home: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, "HOME": home, "XDG_STATE_HOME": f"{home}/state"}


@contextlib.contextmanager
def serving(app=APP, more={}):
    """The home of a running server of `app`, its port, and its token. `more` is added to its environment."""
    with tempfile.TemporaryDirectory(prefix="etude-clients-", ignore_cleanup_errors=True) as home:
        command = [binary(), "serve", str(app), "--port", "0", "--format", "json"]
        with open(f"{home}/requests.log", "wb") as log:
            child = subprocess.Popen(command, env={**environment(home), **more}, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                line = json.loads(child.stdout.readline())
                token = pathlib.Path(line["socket"]).with_name("owner.token").read_text().strip()
                yield home, int(line["addresses"][0].rsplit(":", 1)[1]), token
            finally:
                child.terminate()
                child.wait(60)


@contextlib.contextmanager
def proxy(port: int, token: str):
    """The port of a proxy to `port`, for clients that cannot send a token."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self):
            own = str(self.server.server_address[1])
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            upstream = http.client.HTTPConnection("127.0.0.1", port)
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() in ("host", "origin"):
                    # The server's own names pass, and all others must be refused by it.
                    value = value.replace(f":{own}", f":{port}")
                if name.lower() not in ("connection", "transfer-encoding"):
                    upstream.putheader(name, value.strip())
            if "Authorization" not in self.headers:
                upstream.putheader("Authorization", f"Bearer {token}")
            upstream.endheaders(body)
            response = upstream.getresponse()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            with contextlib.suppress(OSError):
                while piece := response.read1(65536):
                    self.wfile.write(piece)
                    self.wfile.flush()
            upstream.close()
            self.close_connection = True

        do_GET = do_POST = do_DELETE = forward

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()

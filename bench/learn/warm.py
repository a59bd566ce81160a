"""One warm environment for many runs: the tools of an app ask it through a socket."""

import json
import pathlib
import socketserver
import threading

import tau


class Warm:
    """Serves the calls of the apps whose state directories are added; all see the same database."""

    def __init__(self, environment):
        self.environment, self.lock, self.calls = environment, threading.Lock(), []

    def listen(self, state):
        """Starts to answer the tools of the app with this state directory."""
        path = pathlib.Path(state) / "socket"
        path.unlink(missing_ok=True)
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                call = json.loads(self.rfile.readline())
                self.wfile.write(json.dumps(outer.respond(call)).encode())

        server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def respond(self, call):
        with self.lock:
            response = self.environment.respond(call)
            self.calls.append((call["tool"], call["args"], response["ok"]))
            return response

    def prepare(self, actions):
        """A fresh database after these (tool, arguments)."""
        with self.lock:
            self.calls.clear()
            self.environment.after(actions)

    def digest(self):
        with self.lock:
            return self.environment.digest()

    def written(self):
        """The calls that changed something since `prepare`."""
        with self.lock:
            return [(tool, given) for tool, given, is_ok in self.calls if is_ok and self.environment.writes(tool)]


def expected(environment, before, action):
    """The digests before and after an action that follows others."""
    start = environment.after(before)
    try:
        environment.call(*action)
    except tau.Refused:
        pass
    return start, environment.digest()

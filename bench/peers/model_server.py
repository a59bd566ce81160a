"""A model server on loopback that answers every chat request at once, with the same words. Prints its port.

It notes when each request was there. `GET /calls` tells how many there were since it was asked last, and the milliseconds from
one to the next: seen from here, whoever asks is measured alike, and the start of nobody counts.
"""

import json
import socketserver
import time

BODY = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "I think that it is fine."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28},
    }
).encode()

arrivals = []


def reported():
    """What was seen since the last time."""
    calls = len(arrivals)
    each = (arrivals[-1] - arrivals[0]) / (calls - 1) * 1e3 if calls > 1 else None
    arrivals.clear()
    return json.dumps({"calls": calls, "each_ms": each}).encode()


class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        while asked := self.rfile.readline():
            length = 0
            while (header := self.rfile.readline()).strip():
                name, value = header.split(b":", 1)
                length = int(value) if name.lower() == b"content-length" else length
            self.rfile.read(length)
            if asked.startswith(b"POST"):
                arrivals.append(time.perf_counter())
            body = BODY if asked.startswith(b"POST") else reported()
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


with Server(("127.0.0.1", 0), Handler) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()

#!/usr/bin/env python3
"""Measures pages of `etude serve` in Chromium beside static pages of the same bytes: the list of 10,000 runs, a run with many effects, a log of 200 MiB.

    bench/pages.py [--runs 10000] [--effects 10000] [--log-mib 200] [--times 9] [--json]

`ETUDE_BIN` is the binary, `target/release/etude` by default. Needs chromedriver. Page and baseline are opened in turn. Prints medians, with `--json` one document a line for `bench/run`.
"""

import argparse
import gzip
import http.client
import http.server
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".ci/http"))
sys.dont_write_bytecode = True

from webdriver import Browser  # noqa: E402

PIPELINES = {
    "one": "input: {n: {type: integer, required: false}}\nsteps:\n  - {name: echo, type: code, command: \"cat\", output: text}\n",
    "many": "input: {items: array}\nsteps:\n  - {name: each, type: code, command: \"true\", output: text, for_each: \"{{input.items}}\", max_parallel: 4, max_items: 1000000}\n",
    "loud": "input: {bytes: integer}\nsteps:\n  - {name: speak, type: code, command: \"python3 loud.py\"}\n",
}
ASSETS = ["etude.css", "page.js", "live.js", "keys.js", "graph.js", "login.js", "icon.svg"]
WHAT = {
    "list": "`/` with {runs:,} runs",
    "run": "a run of {effects:,} effects",
    "log": "the beginning of a log of {log} MiB",
    "end of the log": "its end",
}
LOUD = """import json, os, sys
line = b"a line of a log that is as long as lines of logs often are\\n"
left = json.load(sys.stdin)["input"]["bytes"]
while left > 0:
    left -= os.write(2, (line * 1000)[:left])
print(json.dumps({"output": 1}))
"""
FIGURES = """
return new Promise(done => {
  const tasks = [];
  new PerformanceObserver(list => list.getEntries().forEach(task => tasks.push(task.duration))).observe({type: 'longtask', buffered: true});
  const wait = () => {
    const paint = performance.getEntriesByName('first-contentful-paint')[0];
    if (!paint) { return setTimeout(wait, 10); }
    setTimeout(() => done({paint: paint.startTime, response: performance.getEntriesByType('navigation')[0].responseEnd,
      elements: document.querySelectorAll('*').length, heap: performance.memory.usedJSHeapSize / 1048576, task: Math.max(0, ...tasks)}), 100);
  };
  wait();
});
"""


class Server:
    def __init__(self, home: str):
        binary = os.environ.get("ETUDE_BIN", str(ROOT / "target/release/etude"))
        for name, text in PIPELINES.items():
            directory = pathlib.Path(home, "app/pipelines", name)
            directory.mkdir(parents=True)
            directory.joinpath("pipeline.yaml").write_text(f"name: {name}\ndescription: \"For measurements\"\n{text}")
        pathlib.Path(home, "app/pipelines/loud/loud.py").write_text(LOUD)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        command = [binary, "serve", f"{home}/app", "--port", "0", "--format", "json", "--quiet"]
        environment = {**kept, "HOME": home, "XDG_STATE_HOME": f"{home}/state"}
        self.child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        line = json.loads(self.child.stdout.readline())
        self.port = int(line["addresses"][0].rsplit(":", 1)[1])
        self.token = pathlib.Path(line["socket"]).with_name("owner.token").read_text().strip()
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=900)

    def ask(self, method: str, path: str, body=None, **headers):
        """The response and its content."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self.connection.getresponse()
        content = response.read()
        if response.status >= 400:
            raise SystemExit(f"{method} {path}: {response.status} {content[:300]}")
        return response, content

    def send(self, method: str, path: str, body=None):
        return self.ask(method, path, body)[1]

    def run(self, pipeline: str, given: dict) -> str:
        run = json.loads(self.send("POST", "/v1/runs", {"pipeline": pipeline, "input": given}))["run_id"]
        while (status := json.loads(self.send("GET", f"/v1/runs/{run}"))["status"]) in ("queued", "running"):
            time.sleep(0.5)
        if status != "succeeded":
            raise SystemExit(f"{pipeline} has {status}")
        return run

    def get(self, path: str) -> tuple[str, str, bytes]:
        """Media type, how long it is kept, and bytes."""
        response, content = self.ask("GET", path, Accept="text/html")
        return response.headers["Content-Type"], response.headers["Cache-Control"], content


def static(pages: dict[str, tuple[str, str, bytes]]):
    """A server of the same bytes, with what the pages load, kept by the browser for as long."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            kind, keep, body = pages.get(self.path, ("text/plain", "no-store", b""))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", keep)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--effects", type=int, default=10_000)
    parser.add_argument("--log-mib", type=int, default=200)
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="etude-pages-", ignore_cleanup_errors=True) as home:
        server = Server(home)
        browser = Browser()
        try:
            loud = server.run("loud", {"bytes": args.log_mib << 20})
            many = server.run("many", {"items": list(range(args.effects))})
            for n in range(args.runs - 2):
                server.send("POST", "/v1/runs", {"pipeline": "one", "not_before": "2199-01-01T00:00:00Z"})
            effect = json.loads(server.send("GET", f"/v1/runs/{loud}/effects"))["effects"][0]["id"].replace("/", "%2F")
            paths = {"list": "/", "run": f"/runs/{many}", "log": f"/runs/{loud}/log/{effect}/stderr", "end of the log": f"/runs/{loud}/log/{effect}/stderr?end=true"}
            pages = {path: server.get(path) for path in paths.values()}
            assets = re.search(rb'href="(/assets/[^/]+/)etude.css"', pages["/"][2])[1].decode()
            files = {path: server.get(path) for path in (assets + name for name in ASSETS)}
            copy = static({**files, **pages})
            link = json.loads(server.send("POST", "/v1/server/links", {}))["url"]
            browser.post("/url", {"url": link})
            browser.until("return !!document.querySelector('.top') && location.hash === ''")
            origins = {"etude": f"http://127.0.0.1:{server.port}", "static": f"http://127.0.0.1:{copy.server_address[1]}"}
            for name, path in paths.items():
                found: dict[str, list[dict]] = {"etude": [], "static": []}
                for _ in range(args.times):
                    for of, origin in origins.items():
                        browser.post("/url", {"url": origin + path})
                        found[of].append(browser.evaluate(FIGURES))
                middle = {of: {key: statistics.median(one[key] for one in all_of) for key in all_of[0]} for of, all_of in found.items()}
                ours, size = middle["etude"], len(gzip.compress(pages[path][2])) / 1024
                figure = {
                    "key": name.replace(" ", "-"), "what": WHAT[name].format(runs=args.runs, effects=args.effects, log=args.log_mib), "paint_ms": ours["paint"],
                    "static_paint_ms": middle["static"]["paint"], "response_ms": ours["response"], "compressed_kib": size, "elements": ours["elements"],
                    "heap_mib": ours["heap"], "longest_task_ms": max(one["task"] for one in found["etude"]),
                }
                if args.json:
                    print(json.dumps(figure), flush=True)
                    continue
                print(f"{name:16} first paint {ours['paint']:.0f} ms (static {middle['static']['paint']:.0f} ms), response {ours['response']:.0f} ms, "
                      f"{len(pages[path][2]) / 1024:.0f} KiB ({size:.0f} compressed), {ours['elements']:.0f} elements, "
                      f"heap {ours['heap']:.1f} MiB, longest task {figure['longest_task_ms']:.0f} ms", flush=True)
        finally:
            browser.close()
            server.child.terminate()
            server.child.wait(60)
    return 0


if __name__ == "__main__":
    sys.exit(main())

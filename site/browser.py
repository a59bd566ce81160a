"""The site in a real browser, over WebDriver: its search, and pictures of its pages."""

import base64
import contextlib
import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

# The names under which an element and a key travel.
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
DESKTOP, PHONE = (1280, 900), (390, 844)
# How long a page may take, in seconds: a busy machine is no failure.
PATIENCE = 60
OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


def is_here():
    """True if this machine has a browser with its driver."""
    return shutil.which("chromedriver") is not None


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(out):
    """The address of the site on loopback."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(out)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


class Browser:
    """One window of a headless browser."""

    def __init__(self, port, directory):
        self.base = f"http://127.0.0.1:{port}"
        options = {"args": [*OPTIONS, f"--user-data-dir={directory}/profile"]}
        found = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}})
        self.base += f"/session/{found['sessionId']}"

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["value"]

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script, *arguments):
        """The value of a script as soon as it is true; `None` after `PATIENCE` seconds."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if value := self.run(script, *arguments):
                return value
            time.sleep(0.05)
        return None

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def resize(self, size):
        # A window has a least width; the emulation of a device has none.
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600}
        self.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})

    def type(self, selector, text):
        element = self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]
        self.call("POST", f"/element/{element}/clear", {})
        self.call("POST", f"/element/{element}/value", {"text": text})

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))


@contextlib.contextmanager
def browser(directory):
    with subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as driver:
        try:
            port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
            window = Browser(port, directory)
            yield window
            window.call("DELETE", "")
        finally:
            driver.terminate()


# What the search shows, in order: its dialog is in a shadow tree.
RESULTS = """
const trees = [...document.querySelectorAll('*')].map(element => element.shadowRoot).filter(Boolean);
const links = trees.flatMap(tree => [...tree.querySelectorAll('a[href]')]);
return links.map(link => new URL(link.href).pathname.slice(1));
"""
DIALOG = """
const trees = [...document.querySelectorAll('*')].map(element => element.shadowRoot).filter(Boolean);
const field = trees.flatMap(tree => [...tree.querySelectorAll('input')])[0];
if (field) field.focus();
return field ? field.value === arguments[0] : false;
"""


def answers(window, url, question):
    """The pages that the search shows for a question, best first."""
    window.open(f"{url}/index.html")
    window.wait("const button = document.querySelector('.md-search__button'); button?.click(); return Boolean(button)")
    window.wait(DIALOG, "")
    window.call("POST", "/goog/cdp/execute", {"cmd": "Input.insertText", "params": {"text": question}})
    found, before = [], None
    end = time.monotonic() + PATIENCE
    # The list is drawn again while the search goes on: it is complete when it stays as it is.
    while time.monotonic() < end:
        found = window.run(RESULTS)
        if found and found == before:
            break
        before = found
        time.sleep(0.1)
    return found


def search(out, questions, directory):
    """Asks the site's search; the first page must be the right one."""
    asked, wrong = 0, []
    with served(out) as url, browser(directory) as window:
        window.resize(DESKTOP)
        for line in questions.read_text(encoding="utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            question, _, right = line.partition(" -> ")
            found = answers(window, url, question)
            asked += 1
            if not found or found[0] not in right.split(" | "):
                wrong.append(f"`{question}` must lead to {right}, and leads to {', '.join(found[:3]) or 'nothing'}")
    if wrong or asked < 20:
        sys.exit("error: " + "\n       ".join(wrong or [f"only {asked} questions"]))
    print(f"    {asked} questions lead to the right page")


PAGES = ["index.html", "guides/first-pipeline.html", "pipelines.html", "errors/index.html", "reference/commands.html"]


def pictures(out, directory, scratch):
    """Takes pictures of some pages in both sizes, and fails where a page is wider than its window."""
    directory.mkdir(parents=True, exist_ok=True)
    wide = []
    with served(out) as url, browser(scratch) as window:
        for size, name in ((DESKTOP, "desktop"), (PHONE, "phone")):
            window.resize(size)
            for page in PAGES:
                window.open(f"{url}/{page}")
                window.wait("return document.readyState === 'complete'")
                if window.run("return document.documentElement.scrollWidth > window.innerWidth"):
                    wide.append(f"`{page}` is wider than a {name}")
                window.picture(directory / f"{page.replace('/', '-').removesuffix('.html')}-{name}.png")
    if wide:
        sys.exit("error: " + "\n       ".join(wide))
    print(f"    no page is wider than its window; pictures are in {directory}")

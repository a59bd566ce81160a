"""Chromium for scripts, by the protocol of WebDriver and without a library."""

import http.client
import json
import subprocess
import time

PATIENCE_S = 60


class Browser:
    """Chromium, by the protocol of WebDriver."""

    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = next(line for line in self.driver.stdout if "started successfully on port" in line)
        self.port = int(line.strip().rstrip(".").rsplit(" ", 1)[1])
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": arguments}}
        self.session = ""
        self.session = f"/session/{self.post('/session', {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"

    def post(self, path: str, body: dict):
        return self.send("POST", path, json.dumps(body))

    def send(self, method: str, path: str, body: str | None = None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, f"{self.session}{path}", body, {"Content-Type": "application/json"})
        value = json.loads(connection.getresponse().read())["value"]
        assert not (isinstance(value, dict) and value.get("error")), value
        return value

    def evaluate(self, script: str):
        return self.post("/execute/sync", {"script": script, "args": []})

    def until(self, script: str):
        deadline = time.monotonic() + PATIENCE_S
        while not (value := self.evaluate(script)):
            assert time.monotonic() < deadline, f"{script}: {self.evaluate('return JSON.stringify([window.seen, location.href])')}"
            time.sleep(0.05)
        return value

    def close(self):
        try:
            # The browser outlives its driver, unless its session is ended.
            self.send("DELETE", "")
        finally:
            self.driver.terminate()
        self.driver.wait(PATIENCE_S)

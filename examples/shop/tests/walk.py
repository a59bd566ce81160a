"""The walk of README.md, step by step, with the program in `ETUDE_BIN`."""

import json
import os
import pathlib
import re
import shutil
import subprocess

APP = pathlib.Path(__file__).resolve().parent.parent
RETURNS = [
    "I want to return the white cups of my order T-1042, please. I am ada@example.com, the money can go to my gift card.",
    "Please take back the kettle and the glass teapot of order T-1079, refund to my visa. My address is mei@example.org.",
    "omar@example.net here: the tea strainer of order T-1116 goes back, the money to my visa card please.",
    "I would like to return two things of T-1153, the glass teapot and the tea towel. My mail is lena@example.com. Put it on my gift card.",
]
CANCELLATIONS = [
    "Please cancel my order T-1051. I am ada@example.com.",
    "I ordered twice by mistake, cancel order T-1088. mei@example.org",
    "omar@example.net: I want to cancel T-1125.",
]
# The agent says no: what is refused says what has to hold.
STRANGERS = ["I want to return the white cups of order T-1116. I am hana@example.com, the money can go to my visa card."]
# A run in skill mode beside which a candidate runs, and a request that a learned pipeline takes.
SHADOWED = "Please cancel order T-1384 of mine, hana@example.com."
LEARNED = "Please cancel my order T-1273. I am jonas@example.com."
# The command of README.md whose run waits for a person.
WAITS = f'etude run --config recorded.yaml "{LEARNED}"'
# With the model of desk.py behind a port.
LIVE = """model_mapping: {{lite: desk/m, standard: desk/m, reasoning: desk/m}}
learn: {{shadow: 1}}
providers: {{desk: {{kind: openai-compatible, base_url: "http://127.0.0.1:{port}/v1"}}}}
"""
SKILL_RUNS = RETURNS + CANCELLATIONS + STRANGERS


class Walk:
    """A copy of the app in a directory of its own, and a home of its own."""

    def __init__(self, directory, config=None):
        self.app, self.home = directory / "shop", directory / "home"
        self.home.mkdir()
        shutil.copytree(APP, self.app, ignore=shutil.ignore_patterns("state", "__pycache__"))
        if config:
            (self.app / "recorded.yaml").write_text(config, encoding="utf-8")
        self.program = os.environ.get("ETUDE_BIN") or shutil.which("etude")
        keep = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR")}
        self.environ = {**keep, "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}

    def etude(self, *words, code=0):
        """Runs `etude`; gives its document."""
        ran = subprocess.run(
            [pathlib.Path(self.program).resolve(), *words, "--format", "json"],
            cwd=self.app,
            env=self.environ,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if ran.returncode != code:
            raise AssertionError(f"{words} exited with {ran.returncode}: {ran.stdout}{ran.stderr}")
        return json.loads(ran.stdout)

    def run(self, *words, code=0):
        return self.etude("run", "--config", "recorded.yaml", "--yolo", *words, code=code)

    def shop(self):
        """The shop as it is now."""
        return json.loads((self.app / "state" / "shop.json").read_text(encoding="utf-8"))

    def order(self, order_id):
        return next(order for order in self.shop()["orders"] if order["order_id"] == order_id)

    def skill_runs(self):
        """The runs in skill mode that are learned from."""
        return [self.run("--skill", request) for request in SKILL_RUNS]

    def promote(self, name, *more):
        return self.etude("learn", "promote", name, *more, "--config", "recorded.yaml")

    def evidence(self, name):
        """What speaks for a learned pipeline."""
        rows = self.etude("learn", "status", "--config", "recorded.yaml")["pipelines"]
        return next(row for row in rows if row["name"] == name)["evidence"]

    def page(self):
        """The commands of README.md that need the copied app, in order; a line about each."""
        path = self.home / "bin"
        path.mkdir()
        (path / "etude").symlink_to(pathlib.Path(self.program).resolve())
        environ = {**self.environ, "PATH": f"{path}{os.pathsep}{self.environ['PATH']}"}
        for command in commands():
            # Without a terminal, no one can be asked: an agent's calls need `--yolo`.
            line = command.replace(" --skill ", " --yolo --skill ") if " --yolo " not in command else command
            ran = subprocess.run(line, shell=True, cwd=self.app, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            if ran.returncode != (5 if command.startswith(WAITS) else 0):
                raise AssertionError(f"{command} exited with {ran.returncode}: {ran.stdout}{ran.stderr}")
            yield f"{command}\n  {ran.stdout.strip()}"

    def all(self):
        """Every step of the walk; a line about each."""
        for request, document in zip(SKILL_RUNS, self.skill_runs(), strict=True):
            yield line(request, document)


def commands():
    """The lines of README.md's shell blocks that begin with `etude`, without their comments."""
    text = (APP / "README.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [re.sub(r"\s+# .*", "", line) for line in lines if line.startswith("etude ")]


def line(request, document):
    """A request with what came of it."""
    usage = document["usage"]
    return f"{request}\n  {document['mode']}: {json.dumps(document['output'])}; {usage['calls']} calls, {usage['input_tokens']} + {usage['output_tokens']} tokens"

"""Runs learned pipelines on writes that they have not seen, and compares the database with that of the solution."""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess

import app
import naive
import oracle
import tau
import warm

# `kind`: hit, wrong, falls back, failed, no program. `tokens` are those sent and received, `ms` is the run as a whole.
Outcome = collections.namedtuple("Outcome", "family kind calls tokens ms questions mistaken detail")
# A write that has not been seen: the (tool, arguments) before it, the write itself, all writes of the task's solution, and the user's words.
Case = collections.namedtuple("Case", "name user text before write solution parameters")


# Tools that find a user.
LOOKUP = "find_user_id_by_"


def parameters(environment, write, calls, user):
    """Values by argument name, and by (tool, argument): of the write, of the user's record, of the other calls."""
    found = collections.defaultdict(list)
    record = environment.data["users"].get(user, {})
    identity = {"user_id": user, "email": record.get("email"), **record.get("name", {}), "zip": record.get("address", {}).get("zip")}
    for given in [write[1], identity, *(arguments for _, arguments in calls)]:
        for name, value in given.items():
            found[name].append(value)
    for tool, given in [write, *calls, *((tool, identity) for tool in environment.tools if tool.startswith(LOOKUP))]:
        for name, value in given.items():
            found[tool, name].append(value)
    return dict(found)


def parameter(case, name, uses=()):
    """The value of a parameter, only if the user said it. What takes the parameter is asked first; a trailing number tells parameters of
    one argument apart."""
    keys = [*uses, name, *(argument for _, argument in uses), re.sub(r"_\d+$", "", name)]
    if any(tool.startswith(LOOKUP) for tool, _ in uses):
        # What a user is found by is their own, and not part of another address.
        keys = uses
    for value in [value for key in keys for value in case.parameters.get(key, [])]:
        leaves = oracle.scalars(value)
        if leaves and all(oracle.occurs(leaf, case.text) for leaf in leaves):
            return value
    return None


def uses(definition, name):
    """The (tool, argument) that take a parameter as it is, in order."""
    template = re.compile(r"\{\{\s*input\." + re.escape(name) + r"\s*\}\}")
    rows = [(step["tool"], step.get("args") or {}) for step in steps(definition.get("steps", [])) if step.get("tool")]
    return [(tool, argument) for tool, args in rows for argument, value in args.items() if isinstance(value, str) and template.fullmatch(value)]


def related(environment, write):
    """Values of the records that the write is about, for questions that show something else than an argument."""
    data, (_, given) = environment.data, write
    record = data.get("orders", {}).get(given.get("order_id")) or data.get("reservations", {}).get(given.get("reservation_id")) or {}
    chosen = [item for item in record.get("items", []) if item["item_id"] in given.get("item_ids", [])]
    return oracle.scalars(chosen) + oracle.scalars(data["users"].get(record.get("user_id"), {}).get("name", {})) + oracle.scalars(record)


# Stands before the list of a loop in the question before a write.
EACH = "each of "


class Judge:
    """Says whether a task's solution makes a call, by what the call does to a database of its own."""

    def __init__(self, environment):
        self.environment, self.before, self.start, self.meant = environment, [], None, set()

    def prepare(self, case):
        self.before = case.before
        self.start = self.environment.after(case.before)
        self.meant = {self.environment.after([*case.before, write]) for write in case.solution}

    def is_meant(self, tool, arguments):
        self.environment.after(self.before)
        try:
            self.environment.call(tool, arguments)
        except tau.Refused:
            return False
        made = self.environment.digest()
        return made != self.start and made in self.meant

    def read(self, tool, lines):
        """The calls that a prompt shows as one line for each argument: text as it is, everything else as JSON. In a loop there is one call
        for each element."""
        kinds = self.environment.schema(tool)["parameters"]["properties"]
        rows = dict(re.findall(r"^- (\w+): (.*(?:\n(?!- \w+: ).*)*)", lines, re.M))
        loops = {name: json.loads(text.removeprefix(EACH)) for name, text in rows.items() if text.startswith(EACH)}
        given = {name: text if kinds[name]["type"] == "string" else json.loads(text) for name, text in rows.items() if name not in loops}
        return [{**given, **dict(zip(loops, elements))} for elements in zip(*loops.values())] if loops else [given]


class Product:
    """The program under test in a directory of its own, with a model that is an oracle."""

    def __init__(self, program, environment, checkout, scratch):
        self.program, self.environment, self.checkout = str(pathlib.Path(program).resolve()), environment, checkout
        self.scratch = pathlib.Path(scratch).resolve()
        self.warm, self.model = warm.Warm(environment), oracle.Server()
        self.judge = Judge(type(environment)(checkout, environment.domain))
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.config = self.scratch / "etude.yaml"
        self.config.write_text(json.dumps({**self.model.configuration(), "learn": {"confirm": "model"}}))
        base = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR")}
        self.environ = {**base, "HOME": str(self.scratch / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
        (self.scratch / "home").mkdir(exist_ok=True)

    def run(self, *words):
        return subprocess.run([self.program, *words], capture_output=True, text=True, env=self.environ, stdin=subprocess.DEVNULL, check=False)

    def app(self, name):
        """A new app whose tools ask the warm environment."""
        directory = self.scratch / name
        shutil.rmtree(directory, ignore_errors=True)
        app.write(directory, self.environment, self.checkout)
        self.warm.listen(directory / "state")
        return directory

    def learned(self, name, traces, given=None):
        """An app with what is learned from the traces, or with pipelines that are given; the definitions by family."""
        directory = self.app(name)
        pipelines = directory / "pipelines"
        pipelines.mkdir()
        if given:
            shutil.copytree(given, pipelines, dirs_exist_ok=True)
            return directory, {path.name.replace("-", "_"): json.loads((path / "pipeline.yaml").read_text()) for path in sorted(pipelines.iterdir())}
        file = self.scratch / f"{name}.jsonl"
        file.write_text("".join(json.dumps(trace) + "\n" for trace in traces))
        ran = self.run("learn", "-C", str(directory), "--traces", str(file), "--model", "none", "--format", "json")
        if ran.returncode != 0:
            raise SystemExit(f"error: `etude learn` exited with {ran.returncode}: {ran.stderr or ran.stdout}")
        document = json.loads(ran.stdout)
        (self.scratch / f"{name}.learned.json").write_text(json.dumps(document, indent=1))
        definitions = {}
        for row in document["candidates"]:
            shown = self.run("learn", "show", row["name"], "-C", str(directory), "--format", "json")
            definitions[row["family"]] = json.loads(shown.stdout)["definition"]
        for row in document["candidates"]:
            # Without `learn.yaml` a pipeline has no state: it runs, and is never demoted.
            shutil.move(str(directory / "learned" / row["name"]), str(pipelines / row["name"]))
            (pipelines / row["name"] / "learn.yaml").unlink(missing_ok=True)
        return directory, definitions

    def measure(self, directory, definitions, case, is_assisted=False, is_forbidden=False, **answers):
        """Runs the family's pipeline on the case. A write that is forbidden must leave the database as it was. `is_assisted`: in the state
        in which each write is confirmed, here by the model. `answers`: how the oracle answers."""
        family = case.write[0]
        definition = definitions.get(family)
        if definition is None:
            return nothing(family)
        start, wanted = warm.expected(self.environment, case.before, case.write)
        self.warm.prepare(case.before)
        self.judge.prepare(case)
        self.assist(directory / "pipelines" / definition["name"], family, is_assisted)
        self.model.oracle = oracle.Oracle(
            case.name, case.write[1], related(self.environment, case.write), judge=self.judge,
            targets=targets(definition), direct=direct(definition, family), **answers,
        )  # fmt: skip
        given = {name: parameter(case, name, uses(definition, name)) for name in definition.get("input", {})}
        # A write that is repeated takes a list of what its tool takes one of.
        is_list = lambda name: definition["input"][name].get("type") == "array"  # noqa: E731
        given = {name: [value] if is_list(name) and not isinstance(value, list) else value for name, value in given.items() if value is not None}
        ran = self.run(
            "run", "-C", str(directory), "--config", str(self.config), "--pipeline", definition["name"],
            "--input", json.dumps(given), "--yolo", "--format", "json", case.text,
        )  # fmt: skip
        ended = self.warm.digest()
        return self.outcome(family, ran, ended, start, start if is_forbidden else wanted, self.model.oracle)

    def assist(self, pipeline, family, is_assisted):
        """Gives a pipeline the state `assisted`, or none. What earlier runs say about it is deleted, so that none of them demotes it."""
        state = pipeline / "learn.yaml"
        state.unlink(missing_ok=True)
        if is_assisted:
            state.write_text(json.dumps({"learn": 1, "state": "assisted", "family": family}))
            shutil.rmtree(self.scratch / "home" / ".local", ignore_errors=True)

    def agent(self, directory, case, calls, answer):
        """Runs skill mode with the agent of a recorded run, whose words and calls these are; `case` has all writes of the task."""
        start, wanted = self.environment.after([]), self.environment.after([*case.before, case.write])
        self.warm.prepare([])
        self.model.oracle = oracle.Agent(calls, answer)
        ran = self.run("run", "-C", str(directory), "--config", str(self.config), "--skill", "--yolo", "--format", "json", case.text)
        return self.outcome("agent", ran, self.warm.digest(), start, wanted, self.model.oracle)

    def outcome(self, family, ran, ended, start, wanted, asked):
        try:
            document = json.loads(ran.stdout)
        except ValueError:
            document = {"errors": [{"kind": "unreadable", "message": ran.stderr[-300:]}]}
        back = document.get("fell_back")
        errors = [f"{error.get('kind')}: {error.get('message')}" for error in document.get("errors", [])]
        detail = f"{back['step']}: {back['reason']}" if back else "; ".join(errors)[:300]
        if ended == start:
            # A parameter that the request does not have sends a routed request to the agent.
            is_handed_over = back or document.get("status") == "succeeded" or any(error.get("kind") == "input_invalid" for error in document.get("errors", []))
            kind = "falls back" if is_handed_over else "failed"
        else:
            kind = "hit" if ended == wanted else "wrong"
        if kind == "wrong":
            detail = f"{json.dumps(self.warm.written())} {detail}"
        usage = document.get("usage", {})
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        return Outcome(family, kind, usage.get("calls", 0), tokens, document.get("duration_ms", 0), asked.asked, asked.mistaken, detail)


def nothing(family):
    """The outcome where nothing was learned."""
    return Outcome(family, "no program", 0, 0, 0, 0, 0, "")


def targets(definition):
    """Which argument of a write takes the output of a question, where it takes it as it is."""
    found = {}
    for step in steps(definition.get("steps", [])):
        for argument, template in (step.get("args") or {}).items():
            named = re.fullmatch(r"\{\{\s*(?:steps\.)?([\w-]+)\.output.*\}\}", template) if isinstance(template, str) else None
            if named:
                found[named[1]] = argument
    return found


def direct(definition, family):
    """The questions whose answer the write takes as it is."""
    listed = list(steps(definition.get("steps", [])))
    answers = {"{{%s.output%s}}" % (step["name"], f".{by}" if (by := step["choose"].get("by")) else "") for step in listed if step.get("choose")}
    taken = {template for step in listed if step.get("tool") == family for template in (step.get("args") or {}).values() if isinstance(template, str)}
    return {template.strip("{}").partition(".")[0] for template in answers & taken}


def steps(listed):
    for step in listed:
        yield step
        yield from steps(step.get("steps", []))


def copied(environment, programs, case):
    """The outcome of naive copying."""
    family = case.write[0]
    if family not in programs:
        return nothing(family)
    start, wanted = warm.expected(environment, case.before, case.write)
    for program in programs[family]:
        environment.after(case.before)
        if naive.replay(program, environment, lambda name: parameter(case, name)):
            break
    ended = environment.digest()
    return nothing(family)._replace(kind="falls back" if ended == start else "hit" if ended == wanted else "wrong")


def bound(wrong, n, confidence=0.95):
    """The upper end of the two-sided Clopper-Pearson interval."""
    if n == 0 or wrong == n:
        return 1.0
    low, high, tail = 0.0, 1.0, (1 - confidence) / 2
    for _ in range(60):
        middle = (low + high) / 2
        term, total = (1 - middle) ** n, 0.0
        for k in range(wrong + 1):
            total += term
            term *= (n - k) / (k + 1) * middle / (1 - middle)
        low, high = (middle, high) if total > tail else (low, middle)
    return high

#!/usr/bin/env python3
"""Measures `etude learn` on the multi-turn tasks of BFCL: five folds of the tasks of each domain, in the words of their users.

    bench/learn/bfcl.py --etude PROGRAM --checkout CHECKOUT [--domain NAME…] [--variant NAME…]

`--checkout` is one of ShishirPatil/gorilla (README.md says how to get it). Every task has users' turns, calls that solve each turn, and a
state of its own from which they start. The solutions of four folds are the traces; a write of the fifth is run from the state before it, with
all that its user has said until then. What counts as a hit, as wrong, and as a variant: README.md."""

import argparse
import ast
import collections
import copy
import hashlib
import importlib
import inspect
import json
import pathlib
import sys
import tempfile
import types

sys.dont_write_bytecode = True

import evaluate  # noqa: E402  (they lie beside this file)
import measure  # noqa: E402
import naive  # noqa: E402
import tau  # noqa: E402
import traces  # noqa: E402

# The class that most of a domain's calls go to, and the number of its first task: there are fifty of each.
DOMAINS = {"files": 0, "vehicle": 50, "trading": 100, "travel": 150}
TASKS = 50
# Where the benchmark has each class and its description.
MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
DOCUMENTS = {"TwitterAPI": "posting_api"}
# Begins a task in its own state: it is no tool, and stands before the calls of a task.
START = "(start)"
JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "list": "array"}

# A call with the number of the user's turn that it belongs to.
Call = collections.namedtuple("Call", "turn tool arguments")
Task = collections.namedtuple("Task", "name turns calls classes")


def package(checkout):
    """Makes the benchmark's classes importable from a checkout, without its packages."""
    root = pathlib.Path(checkout).resolve() / "berkeley-function-call-leaderboard" / "bfcl_eval"
    if not (root / "data").is_dir():
        raise SystemExit(f"error: {checkout} has no `berkeley-function-call-leaderboard/bfcl_eval/data`; see bench/learn/README.md")
    parts = ("eval_checker", "multi_turn_eval", "func_source_code")
    for depth in range(len(parts) + 1):
        module = types.ModuleType(".".join(("bfcl_eval", *parts[:depth])))
        module.__path__ = [str(root.joinpath(*parts[:depth]))]
        sys.modules[module.__name__] = module
    # One function of `MathAPI` takes logarithms with it; that function fails.
    sys.modules.setdefault("mpmath", types.ModuleType("mpmath"))
    return root


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line]


class Environment:
    """One domain: the tools of its classes, its tasks, and instances of the classes that begin again with each task."""

    def __init__(self, checkout, domain):
        root = package(checkout)
        self.domain = domain
        first = DOMAINS[domain]
        entries = lines(root / "data" / "BFCL_v4_multi_turn_base.json")[first : first + TASKS]
        solved = {row["id"]: row["ground_truth"] for row in lines(root / "data" / "possible_answer" / "BFCL_v4_multi_turn_base.json")}
        self.entries = {entry["id"]: entry for entry in entries}
        self.classes = {name: self.imported(name) for name in sorted({name for entry in entries for name in entry["involved_classes"]})}
        self.documents, self.owners = {}, {}
        for name, kind in self.classes.items():
            for document in lines(root / "data" / "multi_turn_func_doc" / f"{MODULES[name]}.json"):
                if hasattr(kind, document["name"]):
                    self.documents[document["name"]], self.owners[document["name"]] = document, name
        self.tools = self.documents
        self.policy = "".join(sorted({document["description"].partition(" Tool description:")[0] + "\n" for document in self.documents.values()}))
        # Nothing here has records of users.
        self.data = {"users": {}}
        self.instances, self.fresh = {}, {}
        self.solutions = {name: [self.parsed(turn, text) for turn, texts in enumerate(solved[name]) for text in texts] for name in self.entries}
        self.changing = self.found_to_change()

    def imported(self, name):
        module = importlib.import_module(f"bfcl_eval.eval_checker.multi_turn_eval.func_source_code.{MODULES[name]}")
        return getattr(module, name)

    def parsed(self, turn, text):
        """A call of a solution, which is written as an expression of Python."""
        node = ast.parse(text.strip(), mode="eval").body
        names = [name for name in inspect.signature(getattr(self.classes[self.owners[node.func.id]], node.func.id)).parameters if name != "self"]
        given = dict(zip(names, (ast.literal_eval(value) for value in node.args)))
        given |= {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
        return Call(turn, node.func.id, json.loads(json.dumps(given)))

    def tasks(self):
        said = lambda turn: " ".join(message["content"] for message in turn if message["role"] == "user")  # noqa: E731
        return [Task(name, [said(turn) for turn in entry["question"]], self.solutions[name], entry["involved_classes"]) for name, entry in self.entries.items()]

    def found_to_change(self):
        """The tools that change a state in any solution."""
        found = set()
        for name, calls in self.solutions.items():
            self.start(name)
            for call in calls:
                before = self.digest()
                self.respond({"tool": call.tool, "args": call.arguments})
                if self.digest() != before:
                    found.add(call.tool)
        return found

    def start(self, task):
        entry = self.entries[task]
        self.instances = {}
        for name in self.classes:
            instance = self.classes[name]()
            if hasattr(instance, "_load_scenario"):
                instance._load_scenario(copy.deepcopy(entry["initial_config"].get(name, {})))
            self.instances[name] = instance

    def writes(self, tool):
        return tool == START or tool in self.changing

    def call(self, tool, arguments):
        """The tool's value as JSON. Raises `tau.Refused`."""
        if tool == START:
            return self.start(**arguments)
        if tool not in self.owners:
            raise tau.Refused(f"unknown tool {tool}")
        try:
            value = getattr(self.instances[self.owners[tool]], tool)(**arguments)
        except Exception as error:  # the benchmark's own loop reports any exception of a tool as its answer
            raise tau.Refused(f"{type(error).__name__}: {error}") from error
        if isinstance(value, dict) and "error" in value:
            raise tau.Refused(str(value["error"]))
        return json.loads(json.dumps(value, default=str))

    # What a tool of an app prints for a call.
    respond = tau.Environment.respond

    def digest(self):
        """The state of all instances, as a hash."""
        state = {name: plain(vars(instance)) for name, instance in self.instances.items()}
        return hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()

    def reset(self):
        self.start(next(iter(self.entries)))

    def after(self, actions):
        """The digest after these (tool, arguments)."""
        self.reset()
        for tool, arguments in actions:
            if self.writes(tool):
                try:
                    self.call(tool, arguments)
                except tau.Refused:
                    pass
        return self.digest()

    def schema(self, tool):
        document = self.documents[tool]
        return {"name": tool, "description": document["description"].partition("Tool description: ")[2], "parameters": as_schema(document["parameters"])}


def as_schema(value):
    """JSON Schema with its own names of types."""
    if isinstance(value, list):
        return [as_schema(element) for element in value]
    if not isinstance(value, dict):
        return value
    found = {key: as_schema(element) for key, element in value.items()}
    if isinstance(found.get("type"), str):
        found["type"] = JSON_TYPES.get(found["type"], found["type"])
        if found["type"] == "any":
            del found["type"]
    return found


def plain(value):
    """What can be compared of an object: its public members, and where a file system is. Files know their directory: that is left out."""
    if isinstance(value, dict):
        return {str(key): plain(element) for key, element in value.items() if not str(key).startswith("_") or key == "_current_dir"}
    if isinstance(value, (list, tuple)):
        return [plain(element) for element in value]
    if hasattr(value, "parent"):
        return {"name": value.name, "below": names_above(value), "contents": plain(value.contents)}
    if hasattr(value, "content"):
        return value.content
    return value


def names_above(directory):
    return [] if directory.parent is None else [*names_above(directory.parent), directory.parent.name]


def solved(environment, task):
    """The trace of a task's solution."""
    environment.start(task.name)
    trace = traces.blank(environment, task.name)
    trace["request"] = task.turns[0]
    turn = 0
    for at, call in enumerate(task.calls, 1):
        while turn < call.turn:
            turn += 1
            trace["events"].append({"said": "user", "text": task.turns[turn]})
        trace["events"].append(traces.execute(environment, call.tool, call.arguments, at))
    return trace


def cases(environment, task):
    """The writes of a task's solution, each from the state before it, with what the user has said until then."""
    start = (START, {"task": task.name})
    writes = [call for call in task.calls if environment.writes(call.tool)]
    solution = [(call.tool, call.arguments) for call in writes]
    for at, call in enumerate(writes):
        calls = [(other.tool, other.arguments) for other in task.calls if other.turn <= call.turn]
        known = measure.parameters(environment, solution[at], calls, None)
        said = "\n".join(task.turns[: call.turn + 1])
        yield measure.Case(f"{task.name}/{at}", task.name, said, [start, *solution[:at]], solution[at], solution, known)


def held_out(environment, product, args):
    """Outcomes by variant of all folds."""
    found, tasks = collections.defaultdict(list), environment.tasks()
    for number in range(evaluate.FOLDS):
        seen = [solved(environment, task) for at, task in enumerate(tasks) if at % evaluate.FOLDS != number]
        asked = [case for at, task in enumerate(tasks) if at % evaluate.FOLDS == number for case in cases(environment, task)]
        asked = [case for case in asked if len(set(measure.warm.expected(environment, case.before, case.write))) == 2][: args.limit]
        if "copying" in args.variant:
            programs = naive.learn(seen, environment)
            found["copying"] += [(case, measure.copied(environment, programs, case)) for case in asked]
        evaluate.run_all(product, f"fold{number}", seen, asked, args.variant, found, args)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--etude", required=True, help="the program")
    parser.add_argument("--checkout", required=True, help="a checkout of ShishirPatil/gorilla")
    parser.add_argument("--domain", nargs="+", choices=DOMAINS, default=list(DOMAINS))
    parser.add_argument("--variant", nargs="+", choices=[*evaluate.VARIANTS, "copying"], default=["perfect", "errors", "judged", "copying"])
    parser.add_argument("--draws", type=int, default=1, help="how often the wrong answers are drawn")
    parser.add_argument("--limit", type=int, help="at most so many writes of each fold")
    parser.add_argument("--scratch", type=pathlib.Path, help="keeps apps, traces and documents there")
    parser.add_argument("--out", type=pathlib.Path, help="writes every outcome as a line of JSON")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    args.pipelines = None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        scratch = args.scratch or pathlib.Path(directory)
        for name in args.domain:
            environment = Environment(args.checkout, name)
            product = measure.Product(args.etude, environment, args.checkout, scratch / name)
            found = held_out(environment, product, args)
            print(evaluate.table(f"BFCL, {name}, five folds", found), end="\n\n", flush=True)
            if args.out:
                evaluate.keep(args.out, name, found)


if __name__ == "__main__":
    main()

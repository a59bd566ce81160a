"""The environments of tau-bench, run locally: their data and tools from a checkout, without their packages.

A checkout is a directory with `tau_bench/`. Its tools are imported under their own names; of what they import only `Tool` and the
records of tasks exist here, so that no client of a model is needed."""

import copy
import hashlib
import importlib
import inspect
import json
import pathlib
import sys
import types

DOMAINS = ("retail", "airline")
# Tools that change the database, by what their sources do; `transfer_to_human_agents` ends a conversation, and a person notices.
WRITES = {
    "retail": {
        "cancel_pending_order",
        "exchange_delivered_order_items",
        "modify_pending_order_address",
        "modify_pending_order_items",
        "modify_pending_order_payment",
        "modify_user_address",
        "return_delivered_order_items",
    },
    "airline": {
        "book_reservation",
        "cancel_reservation",
        "send_certificate",
        "update_reservation_baggages",
        "update_reservation_flights",
        "update_reservation_passengers",
    },
}
TRANSFER = "transfer_to_human_agents"


class Record:
    """A task or an action, with whatever fields it is written with."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


class Refused(Exception):
    """A tool said no; the message is its own."""


def load_package(checkout):
    """Makes `tau_bench` importable from a checkout, with records instead of its models and without its clients."""
    root = pathlib.Path(checkout).resolve() / "tau_bench"
    if not (root / "envs").is_dir():
        raise SystemExit(f"error: {checkout} has no `tau_bench/envs`; see bench/learn/README.md")
    for name, place in {"tau_bench": root, "tau_bench.envs": root / "envs", **{f"tau_bench.envs.{d}": root / "envs" / d for d in DOMAINS}}.items():
        module = types.ModuleType(name)
        module.__path__ = [str(place)]
        sys.modules[name] = module
    records = types.ModuleType("tau_bench.types")
    records.Task = records.Action = Record
    sys.modules["tau_bench.types"] = records
    return root


class Table(dict):
    """Records by id that are copied when a tool looks one up, so that a fresh table costs what was touched. Tools that change a record look
    it up by its id; those that go through all records only read."""

    def __init__(self, records):
        super().__init__(records)
        self.fresh, self.touched = records, set()

    def __getitem__(self, key):
        if key not in self.touched:
            self[key] = copy.deepcopy(super().__getitem__(key))
        return super().__getitem__(key)

    def __setitem__(self, key, record):
        self.touched.add(key)
        super().__setitem__(key, record)

    def get(self, key, default=None):
        return self[key] if key in self else default

    def reset(self):
        for key in self.touched:
            if key in self.fresh:
                super().__setitem__(key, self.fresh[key])
            else:
                del self[key]
        self.touched.clear()

    def changed(self):
        return {key: self[key] for key in self.touched if self[key] != self.fresh.get(key)}


class Environment:
    """One domain: its policy, tools, tasks, and a database that is reset at will."""

    def __init__(self, checkout, domain):
        root = load_package(checkout)
        place = f"tau_bench.envs.{domain}"
        self.domain = domain
        self.policy = (root / "envs" / domain / "wiki.md").read_text()
        listed = importlib.import_module(f"{place}.tools").ALL_TOOLS
        self.tools = {tool.get_info()["function"]["name"]: tool for tool in listed}
        # Of copies of the benchmark, some have a tool that asks the person at the keyboard.
        self.tools = {name: tool for name, tool in self.tools.items() if "data" in inspect.signature(tool.invoke).parameters}
        loaded = importlib.import_module(f"{place}.data").load_data()
        self.data = {name: Table(records) for name, records in loaded.items()}

    def reset(self):
        for table in self.data.values():
            table.reset()

    def tasks(self, split="test"):
        module = importlib.import_module(f"tau_bench.envs.{self.domain}.tasks_{split}")
        return getattr(module, f"TASKS_{split.upper()}", None) or module.TASKS

    def writes(self, tool):
        return tool in WRITES[self.domain]

    def call(self, tool, arguments):
        """The tool's value as JSON: text that is one object or array is that value. Raises `Refused`."""
        if tool not in self.tools:
            raise Refused(f"unknown action {tool}")
        try:
            text = self.tools[tool].invoke(data=self.data, **arguments)
        except Exception as error:  # the benchmark's own loop reports any exception of a tool as its answer
            raise Refused(f"{type(error).__name__}: {error}") from error
        if text.startswith("Error"):
            raise Refused(text.removeprefix("Error").lstrip(": "))
        return as_value(text)

    def respond(self, call):
        """What a tool of an app prints for a call."""
        try:
            return {"ok": True, "value": self.call(call["tool"], call["args"])}
        except Refused as refusal:
            return {"ok": False, "error": {"class": "ToolTerminal", "code": "Refused", "message": str(refusal)}}

    def digest(self):
        """What differs from the fresh database, as a hash."""
        changed = {name: table.changed() for name, table in self.data.items()}
        return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()

    def after(self, actions):
        """The digest of the database after these (tool, arguments), from a fresh one."""
        self.reset()
        for tool, arguments in actions:
            if self.writes(tool):
                try:
                    self.call(tool, arguments)
                except Refused:
                    pass
        return self.digest()

    def schema(self, tool):
        return self.tools[tool].get_info()["function"]


def as_value(text):
    """Text that consists of one JSON object or array is that value; other text is a string."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError:
            pass
    return text


def solution(task):
    """The (tool, arguments) of a task's own solution."""
    return [(action.name, action.kwargs) for action in task.actions]

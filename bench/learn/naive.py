"""Naive copying, for comparison: replay the most frequent way to a write, each value from where it was last seen.

A program is the tools up to the write, in order, and for each argument one source: a parameter of its name if the user said the value,
else the last earlier result that has it, by position and pointer, else the value itself. Programs are replayed, those that most training
runs agree on first, until one comes to its write; nothing is checked."""

import collections
import json

import oracle
import tau


def learn(traces, environment):
    """By tool that writes its programs, the most frequent first; each is a list of [tool, {argument: source}]."""
    votes = collections.defaultdict(collections.Counter)
    for trace in traces:
        calls = [event for event in trace["events"] if "tool" in event and event["error"] is None]
        text = words(trace)
        for at, call in enumerate(calls):
            if environment.writes(call["tool"]):
                votes[call["tool"]][json.dumps(program(calls[: at + 1], text))] += 1
    return {tool: [json.loads(text) for text in sorted(counts, key=lambda text: (-counts[text], len(text), text))] for tool, counts in votes.items()}


def words(trace):
    """Everything that the user said."""
    return "\n".join([trace["request"], *(event["text"] for event in trace["events"] if event.get("said") == "user")])


def program(calls, text):
    """The slice of the last call: backwards through results, and nothing that feeds nothing."""
    needed, rows = {len(calls) - 1}, {}
    for at in range(len(calls) - 1, -1, -1):
        if at in needed:
            rows[at] = {name: source(value, calls[:at], text) for name, value in calls[at]["arguments"].items()}
            needed |= {found[1] for found in rows[at].values() if found[0] == "result"}
    order = {at: position for position, at in enumerate(sorted(rows))}
    return [[calls[at]["tool"], {name: moved(found, order) for name, found in rows[at].items()}] for at in sorted(rows)]


def moved(found, order):
    return ["result", order[found[1]], found[2]] if found[0] == "result" else found


def source(value, earlier, text):
    if value not in ("", []) and all(oracle.occurs(leaf, text) for leaf in oracle.scalars(value)):
        return ["said"]
    for at in range(len(earlier) - 1, -1, -1):
        path = find(value, earlier[at]["result"])
        if path is not None:
            return ["result", at, path]
    return ["constant", value]


def find(value, result, path=()):
    """The path of the first place with this value."""
    if result == value:
        return list(path)
    children = result.items() if isinstance(result, dict) else enumerate(result) if isinstance(result, list) else ()
    for key, child in children:
        found = find(value, child, (*path, key))
        if found is not None:
            return found
    return None


def replay(steps, environment, parameter):
    """Makes the program's calls; `parameter` gives what the user said by the argument's name, or None. True if it came to its end."""
    results = []
    for tool, sources in steps:
        given = {}
        for name, found in sources.items():
            value = parameter(name) if found[0] == "said" else found[1] if found[0] == "constant" else at(results[found[1]], found[2])
            if value is None:
                return False
            given[name] = value
        try:
            results.append(environment.call(tool, given))
        except tau.Refused:
            return False
    return True


def at(value, path):
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value

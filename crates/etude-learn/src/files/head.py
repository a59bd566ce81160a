"""Bindings of a learned pipeline: one function for each value that a template cannot express.

A function returns None where a value is missing or has another type. The run then deviates before it writes.
"""

import json
import math
import sys


def at(value, *path):
    for name in path:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def elements(value, kind):
    if kind == "list":
        return value if isinstance(value, list) else []
    if not isinstance(value, dict):
        return []
    inner = [one for one in value.values() if isinstance(one, dict)]
    if kind == "members":
        return inner if len(inner) == len(value) else []
    shapes = [sorted(one) for one in inner]
    same = [one for one in inner if one and shapes.count(sorted(one)) > 1]
    return same if len({tuple(sorted(one)) for one in same}) == 1 else []


def whole(values):
    return values if values and all(value is not None for value in values) else None


def are_numbers(values):
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def number(value):
    if isinstance(value, int):
        return value if abs(value) < 2**53 else None
    cents = math.floor(abs(value) * 100 + 0.5) / 100
    if abs(abs(value) - cents) > min(1e-9 + abs(value) * 1e-14, 1e-4):
        return None  # more than cents: nothing says how it would be rounded
    return -cents if value < 0 else cents


def total(values):
    if not values or not are_numbers(values):
        return None
    result = 0
    for value in values:
        result = result + value
    return number(result)


def canonical(value):
    if isinstance(value, dict):
        return {name: canonical(one) for name, one in value.items()}
    if isinstance(value, list):
        return [canonical(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def same(one, other):
    return one is not None and json.dumps(canonical(one), sort_keys=True) == json.dumps(canonical(other), sort_keys=True)


def listed(value):
    return value if isinstance(value, list) else []


def only(values):
    return values[0] if len(values) == 1 else None


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def text(parts):
    if any(part is None for part in parts):
        return None
    return "".join(part if isinstance(part, str) else compact(part) for part in parts)

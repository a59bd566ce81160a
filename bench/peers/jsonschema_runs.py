"""Python's `jsonschema`, its validator made once. `jsonschema_runs.py SCHEMA VALUE` tells the milliseconds of 500 validations,
each of which finds every violation; the median of three times after one that does not count."""

import json
import statistics
import sys
import time

from jsonschema import Draft202012Validator


def once():
    since = time.perf_counter()
    for _ in range(500):
        if list(validator.iter_errors(value)):
            sys.exit("the value is not what the schema wants")
    return (time.perf_counter() - since) * 1e3


schema, value = (json.loads(open(path, encoding="utf-8").read()) for path in sys.argv[1:])
validator = Draft202012Validator(schema)
once()
print(json.dumps({"ms": statistics.median(once() for _ in range(3))}))

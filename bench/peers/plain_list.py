"""What a plain Python runner does to know its pipelines: it reads each file, with the C loader of PyYAML. `plain_list.py APP`
prints what `etude list` prints of each; steps are not checked but for being a list."""

import json
import pathlib
import sys

import yaml


def summary(file):
    read = yaml.load(file.read_bytes(), yaml.CSafeLoader)
    properties = {name: {"type": kind} for name, kind in read.get("input", {}).items()}
    return {
        "name": read["name"],
        "description": read["description"],
        "triggers": read.get("triggers", []),
        "input": {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False},
        "valid": read["name"] == file.parent.name and isinstance(read["steps"], list),
    }


files = sorted(pathlib.Path(sys.argv[1]).glob("pipelines/*/pipeline.yaml"))
print(json.dumps({"pipelines": [summary(file) for file in files]}))

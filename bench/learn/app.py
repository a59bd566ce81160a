"""An app whose tools are those of a tau-bench environment and whose skill is its policy."""

import json
import pathlib
import shutil

import tau

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA_MEMBERS = ("type", "properties", "required")


def write(directory, environment, checkout):
    """Writes the app; what is there stays, except for the files that are written."""
    app = pathlib.Path(directory)
    tools = app / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    state = (app / "state").resolve()
    state.mkdir(exist_ok=True)
    (app / "SKILL.md").write_text(skill(environment))
    shutil.copy(HERE / "call.py", tools / "call.py")
    where = {"checkout": str(pathlib.Path(checkout).resolve()), "domain": environment.domain, "scripts": str(HERE), "state": str(state)}
    (tools / "environment.json").write_text(json.dumps(where, indent=2) + "\n")
    for name in environment.tools:
        (tools / f"{name}.yaml").write_text(tool(environment, name))
    return app


def skill(environment):
    front = f"---\nname: {environment.domain}\ndescription: Serves the customers of the {environment.domain} desk.\n---\n"
    return front + environment.policy


def tool(environment, name):
    """The sidecar of a tool; JSON is YAML."""
    described = environment.schema(name)
    schema = {key: described["parameters"][key] for key in SCHEMA_MEMBERS if key in described["parameters"]}
    changes = environment.writes(name) or name == tau.TRANSFER
    lines = {
        "name": name,
        "description": described["description"],
        "inputSchema": schema,
        "command": "python3 -I -S tools/call.py",
        "gated": changes,
        "effects": changes,
    }
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in lines.items())

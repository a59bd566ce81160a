"""The reference of the HTTP API, from the document that the program serves at `/v1/openapi.json`."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import urllib.request

METHODS = ("get", "post", "put", "patch", "delete")


def document(binary):
    """The OpenAPI document of a server that this starts, with an app that has nothing but a pipeline."""
    with tempfile.TemporaryDirectory(prefix="etude-api-") as scratch:
        app = pathlib.Path(scratch) / "app"
        (app / "pipelines/p").mkdir(parents=True)
        (app / "pipelines/p/pipeline.yaml").write_text("name: p\ndescription: P\nsteps: [{name: a, type: code, command: 'true'}]\n")
        variables = {"PATH": os.environ["PATH"], "HOME": scratch}
        words = [binary, "token", "new", "site", "--scope", "read", "--format", "json"]
        token = json.loads(subprocess.run(words, env=variables, capture_output=True, check=True).stdout)["token"]
        words = [binary, "serve", str(app), "--listen", "127.0.0.1:0"]
        with subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
            try:
                address = next(found[0] for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
                request = urllib.request.Request(f"{address}/v1/openapi.json", headers={"authorization": f"Bearer {token}"})
                with urllib.request.urlopen(request, timeout=60) as response:
                    return json.load(response)
            finally:
                server.terminate()


def page(binary):
    """One table of the requests for programs, and one for each request with parameters."""
    api = document(binary)
    requests = [
        (method, path, operation)
        for path, operations in sorted(api["paths"].items())
        if path.startswith("/v1/") or path in ("/mcp", "/metrics", "/healthz", "/readyz")
        for method, operation in operations.items()
        if method in METHODS
    ]
    lines = ["# HTTP API", "", "Every request for programs, as `/v1/openapi.json` of a server describes it. [Serve](../serve.md) explains them.", ""]
    lines += ["| request | effect |", "|---|---|"]
    lines += [f"| `{method.upper()} {path}` | {cell(operation.get('summary', ''))} |" for method, path, operation in requests]
    for method, path, operation in requests:
        parameters = [one for one in operation.get("parameters", []) if "name" in one]
        if parameters:
            lines += ["", f"## `{method.upper()} {path}`", "", "| parameter | in | type | meaning |", "|---|---|---|---|"]
            lines += [f"| `{one['name']}` | {one['in']} | {kind(one.get('schema', {}))} | {cell(one.get('description', ''))} |" for one in parameters]
    return "\n".join(lines) + "\n"


def kind(schema):
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kinds = schema.get("type", "")
    return " or ".join(kinds) if isinstance(kinds, list) else kinds


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")

#!/usr/bin/env python3
"""Writes traces of tau-bench in the form of `etude learn --traces`, and an app for each domain whose tools call the environment.

    bench/learn/traces.py --tasks CHECKOUT --runs CHECKOUT --out DIRECTORY

`--tasks` is a checkout of sierra-research/tau-bench, `--runs` one of avaljotsingh/tau-bench (README.md says how to get them). Every
recorded run is executed again in the environment; a run is good if the database is then that of the task's own solution and the
recording has its reward. Writes into DIRECTORY:

    DOMAIN-good.jsonl       good runs, judged good
    DOMAIN-failed.jsonl     all other recorded runs, judged bad
    DOMAIN-solutions.jsonl  the tasks' own solutions, with the instruction of the simulated user as the request
    retail-generated.jsonl  the solutions of the generated tasks (split `train`)
    app-DOMAIN/             SKILL.md and tools/
"""

import argparse
import ast
import collections
import json
import pathlib
import sys

sys.dont_write_bytecode = True

import app  # noqa: E402  (it lies beside this file)
import tau  # noqa: E402

# Recorded runs of the plain tool-calling agent, and of the same agent with advice.
RUNS = {
    "retail": [
        ("runs", "final_results/tool-calling-none-0.1_range_0-100_user-none-llm_06232025.json"),
        ("runs", "final_results/tool-calling-with-preconditions-none-0.1_range_0-100_user-none-llm_0626123715.json"),
    ],
    "airline": [("tasks", "historical_trajectories/gpt-4o-airline.json")],
}
END = "###STOP###"

Run = collections.namedtuple("Run", "task user is_good trace differences")


def recorded(environment, checkouts):
    """Every recorded run of the domain, executed again."""
    tasks = environment.tasks()
    solved = {}
    for source, (checkout, path) in enumerate(RUNS[environment.domain]):
        for record in json.loads((pathlib.Path(checkouts[checkout]) / path).read_text()):
            number = record["task_id"]
            task = tasks[number]
            if number not in solved:
                solved[number] = environment.after(tau.solution(task))
            name = f"{environment.domain}-{number:03}-{source}{record['trial'] if environment.domain == 'airline' else 0}"
            trace, differences = replay(environment, record["traj"], name)
            is_good = record["reward"] == 1.0 and environment.digest() == solved[number]
            trace["judged"] = "good" if is_good else "bad"
            yield Run(number, task.user_id, is_good, trace, differences)


def replay(environment, messages, name):
    """The trace of a trajectory with the results of this environment, and how many of these are not those recorded."""
    environment.reset()
    trace = blank(environment, name)
    differences = turn = 0
    for at, message in enumerate(messages):
        text = (message.get("content") or "").replace(END, "").strip() if message["role"] in ("user", "assistant") else ""
        if message["role"] == "user" and text:
            if trace["request"] is None:
                trace["request"] = text
            else:
                trace["events"].append({"said": "user", "text": text})
        if message["role"] == "assistant":
            turn += 1
            trace["usage"]["calls"] += 1
            if text:
                trace["events"].append({"said": "agent", "text": text})
            # Of several calls in one message the benchmark makes the first.
            for call in (message.get("tool_calls") or [])[:1]:
                event = execute(environment, call["function"]["name"], arguments(call), turn)
                trace["events"].append(event)
                differences += outcome(messages[at + 1]["content"]) != seen(event)
    # The last text is the answer, not an event.
    if trace["events"] and trace["events"][-1].get("said") == "agent":
        trace["answer"] = trace["events"].pop()["text"]
    return trace, differences


def blank(environment, name):
    return {
        "trace": 1,
        "run": name,
        "request": None,
        "input": {},
        "skill": environment.domain,
        "status": "succeeded",
        "judged": "good",
        "events": [],
        "answer": "",
        "usage": {"calls": 0, "input_tokens": 0, "output_tokens": 0},
    }


def arguments(call):
    """Arguments as the agent wrote them; calls that the benchmark's own program made are Python literals."""
    text = call["function"]["arguments"]
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def execute(environment, tool, given, turn):
    """Makes a call in the environment, and gives it as an event."""
    event = {
        "effect": f"skill/{environment.domain}/turn{turn}/{tool}[0]",
        "tool": tool,
        "effect_class": "writes" if environment.writes(tool) or tool == tau.TRANSFER else "reads",
        "arguments": given,
        "approval": "none",
        "result": None,
        "error": None,
        "duration_ms": 0,
    }
    response = environment.respond({"tool": tool, "args": given})
    event["result" if response["ok"] else "error"] = response["value"] if response["ok"] else response["error"]
    return json.loads(json.dumps(event))


def outcome(text):
    """A recorded result, comparable with `seen`."""
    return text if text.startswith("Error") else tau.as_value(text)


def seen(event):
    if event["error"] is None:
        return event["result"]
    message = event["error"]["message"]
    return f"Error: {message.partition(': ')[2]}" if message.split(":")[0].endswith(("Error", "Exception")) else f"Error: {message}"


def solved(environment, split, name):
    """The tasks' own solutions, executed."""
    for number, task in enumerate(environment.tasks(split)):
        environment.reset()
        trace = blank(environment, f"{name}-{number:03}")
        trace["request"] = task.instruction
        trace["events"] = [execute(environment, tool, given, turn) for turn, (tool, given) in enumerate(tau.solution(task), 1)]
        yield Run(number, task.user_id, True, trace, 0)


def write(path, runs):
    with open(path, "w") as file:
        for run in runs:
            file.write(json.dumps(run.trace, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", required=True, help="a checkout of sierra-research/tau-bench")
    parser.add_argument("--runs", required=True, help="a checkout of avaljotsingh/tau-bench")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for domain in tau.DOMAINS:
        environment = tau.Environment(args.tasks, domain)
        runs = list(recorded(environment, {"tasks": args.tasks, "runs": args.runs}))
        good = [run for run in runs if run.is_good]
        write(args.out / f"{domain}-good.jsonl", good)
        write(args.out / f"{domain}-failed.jsonl", [run for run in runs if not run.is_good])
        write(args.out / f"{domain}-solutions.jsonl", solved(environment, "test", f"{domain}-solution"))
        if domain == "retail":
            write(args.out / "retail-generated.jsonl", solved(environment, "train", "retail-generated"))
        app.write(args.out / f"app-{domain}", environment, args.tasks)
        calls = sum("tool" in event for run in good for event in run.trace["events"])
        differences = sum(run.differences for run in good)
        print(f"{domain}: {len(good)} of {len(runs)} runs are good, of {len({run.task for run in good})} tasks; {differences} of {calls} results differ from the recording")


if __name__ == "__main__":
    main()

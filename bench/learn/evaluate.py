#!/usr/bin/env python3
"""Measures `etude learn` on tau-bench: what is learned from some users is run on the writes of others.

    bench/learn/evaluate.py --etude PROGRAM --tasks CHECKOUT --runs CHECKOUT [--set NAME…] [--variant NAME…]

    folds       retail, five folds by user: the writes of tasks with a good run
    airline     the same for airline
    generated   retail, learned from all good runs: the writes of generated tasks
    forbidden   retail and airline: writes that agents made in tasks that allow none
    agent       retail: the recorded agents themselves in skill mode, for calls, tokens and time of the same tasks

A hit leaves the database as the task's own solution does. A write is wrong if the database is then neither that nor as it was before. The
variants differ in what the model answers:

    perfect     as the solution; that the call is asked for and allowed is not judged by the call, so that no wrong program is hidden
    errors      the same, but one of 20 answers is wrong
    judged      one of 20 answers is wrong, and the question before the write is answered by the call that it shows
    confirmed   one of 20 answers is wrong, and the write is confirmed by the model (`assisted`, `learn.confirm: model`)
    both        `judged` and `confirmed`
    right       `both` without wrong answers: no correct write is lost
    silent      answers none
    copying     naive copying instead of `etude learn`, for comparison
"""

import argparse
import collections
import itertools
import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True

import measure  # noqa: E402  (they lie beside this file)
import naive  # noqa: E402
import tau  # noqa: E402
import traces  # noqa: E402

FOLDS = 5
SETS = ("folds", "airline", "generated", "forbidden", "agent")
VARIANTS = {
    "perfect": {},
    "errors": {"error_rate": 0.05},
    "judged": {"error_rate": 0.05, "is_judge": True},
    "confirmed": {"error_rate": 0.05, "is_assisted": True},
    "both": {"error_rate": 0.05, "is_judge": True, "is_assisted": True},
    "right": {"is_judge": True, "is_assisted": True},
    "silent": {"is_silent": True},
}


class Bench:
    def __init__(self, args):
        self.args = args
        self.checkouts = {"tasks": args.tasks, "runs": args.runs}
        self.domains, self.runs = {}, {}

    def domain(self, name):
        """The environment, the recorded runs and the product for a domain, made once."""
        if name not in self.domains:
            environment = tau.Environment(self.args.tasks, name)
            self.runs[name] = list(traces.recorded(environment, self.checkouts))
            self.domains[name] = environment, measure.Product(self.args.etude, environment, self.args.tasks, self.args.scratch / name)
        return self.domains[name]

    def folds(self, name):
        """For each fold: its number, the traces that are learned from, and the good runs of its users."""
        self.domain(name)
        users = sorted({run.user for run in self.runs[name] if run.is_good})
        fold = {user: at % FOLDS for at, user in enumerate(users)}
        for number in range(FOLDS):
            # Users without a good run are in no fold: they serve as contrast in every one.
            seen = [run.trace for run in self.runs[name] if fold.get(run.user) != number]
            yield number, seen, [run for run in self.runs[name] if run.is_good and fold[run.user] == number]

    def cases(self, name, runs):
        """The writes of the tasks of these runs, each once, in the words of the task's first run."""
        environment, _ = self.domain(name)
        tasks, done = environment.tasks(), set()
        for run in runs:
            if run.task not in done:
                done.add(run.task)
                calls = [(event["tool"], event["arguments"]) for event in run.trace["events"] if "tool" in event and event["error"] is None]
                yield from writes(environment, run.trace["run"], tasks[run.task], naive.words(run.trace), calls)


def writes(environment, name, task, text, calls):
    """The writes of a task's solution as cases."""
    actions = [action for action in tau.solution(task) if environment.writes(action[0])]
    calls = [*accepted(environment, tau.solution(task)), *calls]
    for at, action in enumerate(actions):
        known = measure.parameters(environment, action, calls, task.user_id)
        yield measure.Case(f"{name}/{at}", task.user_id, text, actions[:at], action, actions, known)


def accepted(environment, calls):
    """Without reads that a tool refuses: who gives an address of mail and then corrects it means the second one."""
    environment.reset()
    found = []
    for tool, arguments in calls:
        try:
            if not environment.writes(tool):
                environment.call(tool, arguments)
            found.append((tool, arguments))
        except tau.Refused:
            pass
    return found


def held_out(bench, name, variants):
    """Outcomes by variant of all folds of a domain."""
    environment, product = bench.domain(name)
    found = collections.defaultdict(list)
    for number, seen, runs in bench.folds(name):
        cases = list(bench.cases(name, runs))
        if "copying" in variants:
            programs = naive.learn([trace for trace in seen if trace["judged"] == "good"], environment)
            found["copying"] += [(case, measure.copied(environment, programs, case)) for case in cases]
        run_all(product, f"fold{number}", seen, cases, variants, found, bench.args)
    return found


def generated(bench, variants):
    """Outcomes by variant on the generated tasks, learned from all good runs."""
    environment, product = bench.domain("retail")
    seen = [run.trace for run in bench.runs["retail"]]
    cases = []
    for number, task in enumerate(environment.tasks("train")):
        cases += writes(environment, f"generated-{number:03}", task, task.instruction, [])
    cases = cases[: bench.args.limit]
    found = collections.defaultdict(list)
    if "copying" in variants:
        programs = naive.learn([trace for trace in seen if trace["judged"] == "good"], environment)
        found["copying"] = [(case, measure.copied(environment, programs, case)) for case in cases]
    run_all(product, "all", seen, cases, variants, found, bench.args)
    return found


def forbidden(bench, name, variants):
    """Outcomes by variant for writes that agents made in tasks that allow none, each once. The right answer is that it is not allowed;
    `permissive` answers that it is, so that only guards are left."""
    environment, product = bench.domain(name)
    tasks = environment.tasks()
    found = collections.defaultdict(list)
    users = sorted({run.user for run in bench.runs[name] if run.is_good})
    done = set()
    asked = []
    for run in bench.runs[name]:
        if any(environment.writes(tool) for tool, _ in tau.solution(tasks[run.task])):
            continue
        calls = [(event["tool"], event["arguments"]) for event in run.trace["events"] if "tool" in event and event["error"] is None]
        made = [call for call in calls if environment.writes(call[0])]
        for at, action in enumerate(made):
            key = json.dumps([run.task, action], sort_keys=True)
            if key not in done:
                done.add(key)
                known = measure.parameters(environment, action, calls, run.user)
                asked.append((run.user, measure.Case(f"{run.trace['run']}/{at}", run.user, naive.words(run.trace), made[:at], action, [], known)))
    # Learned from everybody but the users of these tasks.
    banned = {user for user, _ in asked}
    seen = [run.trace for run in bench.runs[name] if run.user not in banned]
    directory, definitions = product.learned("forbidden", seen, given(bench.args, name))
    answers = {variant: {**VARIANTS[variant], "allowed": "no"} for variant in variants if variant in VARIANTS}
    for variant, given_answers in {**answers, "permissive": {"allowed": "yes"}}.items():
        for draw in draws(given_answers, bench.args):
            found[variant] += [(case, product.measure(directory, definitions, case, is_forbidden=True, draw=draw, **given_answers)) for _, case in asked]
    print(f"  {len(asked)} writes of {len(banned)} users; {len(users)} users have good runs", file=sys.stderr)
    return found


def agents(bench):
    """What the recorded agents cost in skill mode: a run for each task with a good one."""
    environment, product = bench.domain("retail")
    tasks, rows, done = environment.tasks(), [], set()
    directory = product.app("agent")
    for run in bench.runs["retail"]:
        actions = [action for action in tau.solution(tasks[run.task]) if environment.writes(action[0])]
        if not run.is_good or run.task in done or not actions:
            continue
        done.add(run.task)
        calls = [(event["tool"], event["arguments"]) for event in run.trace["events"] if "tool" in event]
        case = measure.Case(run.trace["run"], run.user, naive.words(run.trace), actions[:-1], actions[-1], actions, {})
        rows.append((case, product.agent(directory, case, calls, run.trace["answer"]), len(actions)))
    writes = sum(count for _, _, count in rows)
    outcomes = [outcome for _, outcome, _ in rows]
    hits = sum(outcome.kind == "hit" for outcome in outcomes)
    spent = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in ("calls", "tokens", "ms")}
    print(f"{len(rows)} tasks with {writes} writes, {hits} as the solution: a write takes " + ", ".join(f"{spent[name] / writes:.1f} {name}" for name in spent))
    return {"agent": [(case, outcome) for case, outcome, _ in rows]}


def given(args, name):
    """Pipelines that are measured instead of learned ones, for a test of the scripts."""
    return args.pipelines / name if args.pipelines else None


def draws(answers, args):
    """Without wrong answers there is nothing to draw."""
    return range(args.draws if answers.get("error_rate") else 1)


def run_all(product, name, seen, cases, variants, found, args):
    """Learns once, and measures every variant on every case."""
    chosen = [variant for variant in variants if variant in VARIANTS]
    if not chosen:
        return
    directory, definitions = product.learned(name, seen, given(args, product.environment.domain))
    for variant in chosen:
        for draw, case in itertools.product(draws(VARIANTS[variant], args), cases):
            outcome = product.measure(directory, definitions, case, draw=draw, **VARIANTS[variant])
            found[variant].append((case, outcome))
            if args.verbose or outcome.kind == "wrong":
                print(f"  {variant} {case.name} {outcome.family}: {outcome.kind} {outcome.detail}", file=sys.stderr)


def table(title, found):
    """The outcomes as a table of Markdown, by variant and by family of the first variant."""
    lines = [f"| {title} | n | hit | wrong | bound | falls back | failed | no program | per hit: calls of models, tokens, ms |", "|---|---|---|---|---|---|---|---|---|"]
    for variant, rows in found.items():
        lines.append(line(variant, [outcome for _, outcome in rows]))
    first = next((variant for variant in ("perfect", "permissive") if variant in found), None)
    for family in sorted({outcome.family for _, outcome in found.get(first, [])}):
        lines.append(line(f"{first}: `{family}`", [outcome for _, outcome in found[first] if outcome.family == family]))
    return "\n".join(lines)


def line(name, outcomes):
    counts = collections.Counter(outcome.kind for outcome in outcomes)
    n, tried = len(outcomes), len(outcomes) - counts["no program"]
    hits = [outcome for outcome in outcomes if outcome.kind == "hit"]
    mean = lambda name: sum(getattr(outcome, name) for outcome in hits) / len(hits)  # noqa: E731
    per_hit = f"{mean('calls'):.1f}, {mean('tokens'):.0f}, {mean('ms'):.0f}" if hits else "-"
    share = lambda kind: f"{counts[kind]} ({100 * counts[kind] / n:.1f} %)" if n else "0"  # noqa: E731
    bound = f"{100 * measure.bound(counts['wrong'], tried):.1f} %"
    return f"| {name} | {n} | {share('hit')} | {share('wrong')} | {bound} | {share('falls back')} | {share('failed')} | {share('no program')} | {per_hit} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--etude", required=True, help="the program")
    parser.add_argument("--tasks", required=True, help="a checkout of sierra-research/tau-bench")
    parser.add_argument("--runs", required=True, help="a checkout of avaljotsingh/tau-bench")
    parser.add_argument("--set", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--variant", nargs="+", choices=[*VARIANTS, "copying"], default=[*VARIANTS, "copying"])
    parser.add_argument("--draws", type=int, default=1, help="how often the wrong answers are drawn")
    parser.add_argument("--limit", type=int, help="at most so many generated writes")
    parser.add_argument("--pipelines", type=pathlib.Path, help="a directory DOMAIN/PIPELINE/ to measure instead of learning")
    parser.add_argument("--scratch", type=pathlib.Path, help="keeps apps, traces and documents there")
    parser.add_argument("--out", type=pathlib.Path, help="writes every outcome as a line of JSON")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        args.scratch = args.scratch or pathlib.Path(directory)
        bench = Bench(args)
        measures = {
            "folds": lambda: [("retail, five folds by user", held_out(bench, "retail", args.variant))],
            "airline": lambda: [("airline, five folds by user", held_out(bench, "airline", args.variant))],
            "generated": lambda: [("retail, generated tasks", generated(bench, args.variant))],
            "forbidden": lambda: [(f"{name}, forbidden writes", forbidden(bench, name, args.variant)) for name in tau.DOMAINS],
            "agent": lambda: [("retail, agents in skill mode", agents(bench))],
        }
        for name in args.set:
            for title, found in measures[name]():
                print(table(title, found), end="\n\n", flush=True)
                if args.out:
                    keep(args.out, title, found)


def keep(path, title, found):
    with open(path, "a") as file:
        for variant, rows in found.items():
            for case, outcome in rows:
                file.write(json.dumps({"set": title, "variant": variant, "case": case.name, **outcome._asdict()}) + "\n")


if __name__ == "__main__":
    main()

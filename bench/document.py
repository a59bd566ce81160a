"""docs/performance.md from the figures, and which budgets they exceed."""

import math
import tomllib

from peers import driver as peers
from peers import workloads

RUNS = {
    "one": ("one-step run, the whole program", "ms"),
    "cpu": ("its processor time", "ms"),
    "memory": ("its memory at its highest", "MiB"),
    "steps": ("100 chained steps that each start `cat`", "ms"),
    "resumed": ("resume of 100 such steps, killed in the last, the whole program", "ms"),
    "durable": ("a durable step in the process", "ms"),
    "concurrent": ("100 runs at once, ten waits of 100 ms each", "ms"),
}
WORK = {
    "large": ("100 MB from one step to the next", "ms"),
    "large-strict": ("the same on the disk", "ms"),
    "discovery": ("10,000 pipelines listed, the whole program", "ms"),
    "llm": ("a model step, over a bare call", "ms"),
    "llm-strict": ("a model step on the disk, over a bare call", "ms"),
}
VALIDATORS = {"schema": ("500 answers against a schema (20 objects each)", "ms")}
KINDS = RUNS | WORK | VALIDATORS

# Which budgets say something about each step of a figure: the figure, and how many steps it has.
EACH = {"llm/strict": ("ms", 200), "sandbox": ("difference_ms", 40)}


def derived(figures):
    """The figures that follow from others."""
    for figure in figures["baselines"].values():
        if "baseline_ms" in figure:
            figure["ratio"] = figure["ms"] / figure["baseline_ms"]
            figure["difference_ms"] = figure["ms"] - figure["baseline_ms"]
    baselines, size = figures["baselines"], figures["footprint"]
    if {"concurrent", "concurrent/ideal"} <= baselines.keys():
        baselines["concurrent"]["over_ideal"] = baselines["concurrent"]["ms"] / baselines["concurrent/ideal"]["value"]
    for name, (of, count) in EACH.items():
        if name in baselines:
            baselines[name]["each_ms"] = baselines[name][of] / count
    if "python/step" in baselines:
        baselines["python/step"]["saved"] = baselines["python/step"]["baseline_ms"] / baselines["python/step"]["ms"]
    for name in [name for name in size if name.endswith("_kib")]:
        size[name.replace("_kib", "_mib")] = size[name] / 1024
    if "program_bytes" in size:
        size["program_mib"] = size["program_bytes"] / 1024 / 1024
    if "one_kib" in size:
        size["one_over_step_mib"] = (size["one_kib"] - size["step_kib"]) / 1024


def find(figures, path):
    """The figure that a budget is about; the names of scenarios have no dots."""
    found = figures
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def number(value):
    """Three digits that count."""
    if value is None:
        return "not measured"
    if isinstance(value, str):
        return value
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def budgets_of(root):
    """What was promised, and what must not grow, as `bench/budgets.toml` has it."""
    return tomllib.loads((root / "bench/budgets.toml").read_text())["budget"]


def budgets(root, figures):
    """The rows of the table, and which budgets are broken, be it by a figure that is not there."""
    rows, exceeded = [], []
    for budget in budgets_of(root):
        value = find(figures, budget["of"])
        is_most = "most" in budget
        bound = budget["most"] if is_most else budget["least"]
        is_kept = value is not None and (value <= bound if is_most else value >= bound)
        kept = "yes" if is_kept else "**not measured**" if value is None else "**no**"
        kind = "promise" if budget.get("promised", False) else "budget"
        unit = budget["unit"]
        rows.append(f"| {budget['what']} | {kind} | {'at most' if is_most else 'at least'} {number(bound)} {unit} | {number(value)} {unit if value is not None else ''} | {kept} |")
        if not is_kept:
            found = number(value) if value is None else f"{number(value)} {unit}"
            exceeded.append(f"{budget['what']}: {found}, {'at most' if is_most else 'at least'} {number(bound)} {unit}")
    return ["| what | kind | bound | measured | kept |", "|---|---|---|---|---|", *rows], exceeded


def is_service(name):
    """A scenario of `etude serve`."""
    return name.startswith("serve/")


def is_fleet(name):
    """A scenario of a fleet."""
    return name.startswith("fleet/")


def baselines(figures, wanted):
    """Two tables of the scenarios whose names are `wanted`: those with a baseline, and single figures."""
    chosen = [figure for name, figure in figures["baselines"].items() if wanted(name)]
    rows = ["| measurement | median | baseline | ratio | difference | the baseline is |", "|---|--:|--:|--:|--:|---|"]
    for figure in chosen:
        if "ms" in figure:
            rows.append(
                f"| {figure['what']} | {number(figure['ms'])} ms | {number(figure['baseline_ms'])} ms | {figure['ratio']:.2f} | "
                f"{number(max(figure['difference_ms'], 0))} ms | {figure['baseline_is']} |"
            )
    rows += ["", "| what | figure |", "|---|--:|"]
    rows += [f"| {figure['what']} | {number(figure['value'])} {figure['unit']} |" for figure in chosen if "value" in figure]
    return rows


def pages(figures):
    rows = ["| page | first paint | of the same bytes, static | compressed | elements | heap | longest task |", "|---|--:|--:|--:|--:|--:|--:|"]
    return rows + [
        f"| {page['what']} | {number(page['paint_ms'])} ms | {number(page['static_paint_ms'])} ms | {number(page['compressed_kib'])} KiB | "
        f"{number(page['elements'])} | {number(page['heap_mib'])} MiB | {number(page['longest_task_ms'])} ms |"
        for page in figures["pages"].values()
    ]


def of_peer(figures, kind, who):
    """What `who`, ours or a peer, took for `kind`: a number, the text of a failure, or nothing."""
    if kind in ("cpu", "memory"):
        return find(figures, f"peers.weights.{who}.{'cpu_ms' if kind == 'cpu' else 'memory_mib'}")
    value = find(figures, f"peers.kinds.{kind}.{who}")
    return value.get("ms", value.get("sync")) if isinstance(value, dict) else value


def asked_for(kind):
    """The kind of work that a figure comes from."""
    return "one" if kind in ("cpu", "memory") else kind


def peer_rows(figures, kinds):
    """Ours, and each peer that can be asked for any of `kinds`."""
    found = figures["peers"].get("versions", {})
    rows = ["| | " + " | ".join(f"{what}, {unit}" for what, unit in kinds.values()) + " |", "|---|" + "--:|" * len(kinds)]
    rows.append("| **etude** | " + " | ".join(f"**{number(of_peer(figures, kind, 'etude'))}**" for kind in kinds) + " |")
    for peer, (name, _, can) in peers.PEERS.items():
        if not any(asked_for(kind) in can for kind in kinds):
            continue
        if not found.get(peer):
            rows.append(f"| {name} | {'not installed' if peer in found else 'not measured'} |" + " |" * (len(kinds) - 1))
            continue
        cells = [peer_cell(figures, kind, peer) if asked_for(kind) in can else "-" for kind in kinds]
        version = found[peer] if peer != "python" else found[peer].removeprefix("Python ")
        rows.append(f"| {name} {version} | " + " | ".join(cells) + " |")
    return rows


def peer_cell(figures, kind, peer):
    """What a peer took, and how many times ours that is, in bold where we are not ahead."""
    value, base = of_peer(figures, kind, peer), of_peer(figures, kind, "etude")
    if isinstance(value, str):
        return "fails"
    if value is None or base is None:
        return number(value)
    times = f"{number(value / base)}x"
    return f"{number(value)} ({times if value > base else f'**{times}**'})"


def fleet_rows(figures):
    """Ours on PostgreSQL and each peer that is a fleet as well: how much of each a second."""
    who = {"etude": "**etude**"} | {peer: f"{name} {find(figures, f'peers.versions.{peer}')}" for peer, (name, _, can) in peers.PEERS.items() if "fleet" in can}
    measured = {name: reported for peer, name in who.items() if isinstance(reported := find(figures, f"peers.kinds.fleet.{peer}"), dict)}
    if len(measured) < 2:
        return []
    rows = ["", "| a second | submissions, 32 at once | whole runs of ten steps | steps of 64 runs at once |", "|---|--:|--:|--:|"]
    return rows + [f"| {name} | {number(reported['submit'])} | {number(reported['runs'])} | {number(reported['records'])} |" for name, reported in measured.items()]


def bare_call(figures):
    each = find(figures, "peers.bare_call_ms")
    return "what a bare call takes" + (f" ({number(each)} ms)" if each else "")


def failures(figures):
    """What the peers that failed said."""
    reported = [
        f"- {name} fails at *{what}*: {value[:200]}"
        for peer, (name, _, _) in peers.PEERS.items()
        for kind, (what, _) in KINDS.items()
        if isinstance(value := of_peer(figures, kind, peer), str)
    ]
    return "\n" + "\n".join(reported) + "\n" if reported else ""


def ahead(figures):
    """In how many of the cells we are ahead, and where we are not."""
    behind, cells = [], 0
    for peer, (name, _, _) in peers.PEERS.items():
        for kind, (what, _) in KINDS.items():
            value, base = of_peer(figures, kind, peer), of_peer(figures, kind, "etude")
            if isinstance(value, (int, float)) and base is not None:
                cells += 1
                if value <= base:
                    behind.append(f"{name} in *{what}*")
    but = ": all but " + ", ".join(behind) if behind else ""
    return f"etude is ahead in {cells - len(behind)} of {cells} cells that could be compared{but}." if cells else ""


def warm(figures):
    """From how many steps on a warm worker makes Python steps five times cheaper, its start included."""
    ten, step = figures["baselines"].get("python/warm"), figures["baselines"].get("python/step")
    if not ten or not step:
        return ""
    start, saved = ten["ms"] - 10 * step["ms"], step["baseline_ms"] - 5 * step["ms"]
    if saved <= 0:
        return ""
    many = math.ceil(max(5 * start, 0) / saved)
    return f"""
A warm worker makes ten steps of Python {ten['baseline_ms'] / ten['ms']:.1f} times cheaper, because the run and the interpreter start once, in {number(max(start, 0))} ms;
five times is reached with {many} steps.
"""


def apart(figures):
    """What was measured by itself, and when."""
    found = figures.get("apart", {})
    return "\n" + "Measured apart: " + ", ".join(f"{what} ({when})" for what, when in sorted(found.items())) + ".\n" if found else ""


def footprint_rows(figures):
    size = figures["footprint"]
    named = {
        "program_mib": ("the program, stripped", "MiB"),
        "crates": ("crates in it, ours included", ""),
        "version_mib": ("memory of `etude --version`, at its highest", "MiB"),
        "step_mib": ("memory of the step alone (`cat`)", "MiB"),
        "one_mib": ("memory of a one-step run, at its highest", "MiB"),
        "rest_mib": ("memory of a run whose step sleeps", "MiB"),
        "rest_anonymous_mib": ("of that what is not pages of files", "MiB"),
        "chain_mib": ("memory of a run of 1,000 steps, at its highest", "MiB"),
        "one_cpu_ms": ("processor time of a one-step run, with its step", "ms"),
        "chain_cpu_ms": ("processor time of a run of 1,000 steps, with its steps", "ms"),
        "clean_build_s": ("build from nothing (`--profile dist`), downloads apart", "s"),
    }
    rows = ["| what | figure |", "|---|--:|"]
    return rows + [f"| {what} | {number(size[name])} {unit} |" for name, (what, unit) in named.items() if name in size]


def concurrency(root, figures):
    """Why the promise about concurrent runs cannot be kept on this machine, as far as that was measured."""
    names = ("ideal", "cpu", "bare-cpu", "server-cpu", "plain", "plain-cpu")
    reported = {name: find(figures, f"baselines.concurrent/{name}.value") for name in names}
    cores, both = find(figures, "machine.cores"), figures["baselines"].get("concurrent", {})
    promised = next(budget["most"] for budget in budgets_of(root) if budget["of"] == "baselines.concurrent.over_ideal")
    if None in reported.values() or not cores or both["over_ideal"] <= promised:
        return ""
    over = lambda ms: f"{ms / reported['ideal']:.2f}"
    end = "So the promise is out of reach here for anyone who writes answers down: it leaves less than such a client takes.\n" if reported["plain"] / reported["ideal"] > promised else ""
    return f"""
What keeps 1,000 runs from the ideal is the processor. In the ideal {number(reported['ideal'])} ms {cores} cores have {number(cores * reported['ideal'])} ms to give. The server that stands
for the models takes {number(reported['server-cpu'])} ms of them. Asked of it in the same rounds:

| who asks | times the ideal | processor time |
|---|--:|--:|
| bytes written to sockets, and the answers read | {over(both['baseline_ms'])} | {number(reported['bare-cpu'])} ms |
| an ordinary HTTP client, and a row in SQLite for each answer; nothing checked, nothing to resume | {over(reported['plain'])} | {number(reported['plain-cpu'])} ms |
| 1,000 runs of `etude` | {over(both['ms'])} | {number(reported['cpu'])} ms |

{end}"""


def write(root, figures):
    """Writes the document and returns what is over its budget."""
    derived(figures)
    rows, exceeded = budgets(root, figures)
    machine, measured = figures.get("machine", {}), figures.get("measured", {})
    settings = [f"- {name}: {setting}." for name, setting, _ in peers.PEERS.values() if setting]
    notes = (root / "bench/notes.md").read_text().strip()
    text = f"""# Performance

This page lists the speed, memory and size of etude, beside baselines and beside other runners. A **baseline** is a minimal program that does the same work.

`bench/run` measures the figures and writes this page; do not edit it. Rows with a baseline show the median of interleaved runs, so that both meet the same noise: compare ratios
rather than times. Only steps into the journal are measured in one series and their baseline in another. Figures without a baseline, such as the footprint, are medians or single
measurements.

Machine: {machine.get('cores')} cores ({machine.get('processor')}), {machine.get('memory_gib')} GiB, {machine.get('system')}, Rust {machine.get('rust')},
Python {machine.get('python')}, Node {figures['peers'].get('node')}. Measured on {measured.get('at')} with `--profile {measured.get('profile')}`; load average of the machine before and after: {
    ' and '.join(str(load) for load in measured.get('load', []))}.
{apart(figures)}
## Promises and budgets

`bench/run --check` fails if a figure exceeds its bound, or was not measured. The bounds are in `bench/budgets.toml`.

{chr(10).join(rows)}
{concurrency(root, figures)}{warm(figures)}
## Against the baseline

The same work without a runner.

{chr(10).join(baselines(figures, lambda name: not is_service(name) and not is_fleet(name)))}

## The service

`etude serve` and `etude mcp`, each beside the least that does the same: a route or a loop with the same bytes, a bare query, a bare process.

{chr(10).join(baselines(figures, is_service))}

Pages in Chromium, each beside a static page of the same bytes:

{chr(10).join(pages(figures))}

## A fleet

The engine on PostgreSQL, which runs on the same machine with commits on the disk, beside that disk, beside SQLite, and beside `pgbench` with the statement of an append. Clients and server share
the processors. Leases have their default times.

{chr(10).join(baselines(figures, is_fleet))}

Interleaved with other runners. Ours are records that the process has made; Restate's are steps of one Python service, which do nothing and share the processors too, and its submissions come from Python.
{chr(10).join(fleet_rows(figures))}

## Against other runners

In brackets: times ours, in bold where etude is not ahead. {ahead(figures)} Ours and theirs are taken in turn, but for memory and processor time, which are of one run each. Peers are installed by `bench/run --install-peers`, as their users
install them. Whole programs are timed from outside; the two last columns, and the peers' of chained steps, are shown by the process itself. Ours of *a durable
step* is a model step with `--strict`, its HTTP call to a local server and its wait for the disk included; a peer's is a function that does
nothing. Ours of *100 runs at once* makes 1,000 HTTP calls; the peers only sleep.

{chr(10).join(peer_rows(figures, RUNS))}

*100 MB* of letters, others each time, are printed by one process and given to the next; all but Lobster read them as JSON and write them down.
Ours, the plain runner's and Lobster's are whole programs, the others tell their own time. *10,000 pipelines* are read and listed; the plain
runner does it with PyYAML and its C loader, no other peer finds its pipelines by itself. *A model step* is one of {workloads.CALLS} in a run, each with a
call of a local server without latency. The server notes when a call is there, so that no start counts, and {bare_call(figures)}
is taken off. Peers call with the HTTP client of their language's standard library on one kept connection, which is less than a model's SDK
does. *On the disk*: before what follows begins; ours with `--strict`. A peer stands in the columns that go with its durability: DBOS and
Restate always wait for the disk, Lobster and Mastra do not.

{chr(10).join(peer_rows(figures, WORK))}

Validation is in the process, of the same value against the same schema, which is compiled once; all violations are looked for.

{chr(10).join(peer_rows(figures, VALIDATORS))}
{failures(figures)}
Durability, as each sets it up:

- etude: SQLite, write-ahead log; each outcome is with the operating system before what follows from it begins, and on the disk at most one group
  later (`--strict`: before it).
{chr(10).join(settings)}

## Footprint

{chr(10).join(footprint_rows(figures))}

{notes}
"""
    (root / "docs/performance.md").write_text(text)
    return exceeded

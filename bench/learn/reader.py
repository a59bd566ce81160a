#!/usr/bin/env python3
"""A model that reads a skill by plain rules, for `etude convert`: no key, no network, the same result each time.

    reader.py SKILL.md < PROMPT

It labels by words and marks (`must`, `if`, code spans, fences), and drafts one pipeline for each section with something to run or to
decide. It understands nothing: its drafts are those of a careless author, which conversion has to refuse or to make safe.
"""

import json
import re
import sys

sys.dont_write_bytecode = True

SHELLS = {"sh", "bash", "shell", "zsh", "console", "shell-session", "terminal"}
RULE = re.compile(r"\b(must|never|always|required|mandatory|do not|don't|avoid|only)\b", re.I)
CONDITION = re.compile(r"^\W*(if|when|unless|once|in case|for each|before|after)\b", re.I)
EXAMPLE = re.compile(r"\b(for example|e\.g\.|for instance)|^\W*example", re.I)
COMMAND = re.compile(r"`[^`\s]+\s+[^`]+`|`[^`\s]*\.(?:py|sh|js|rb|pl)`")
RUNS = re.compile(r"\b(run|execute|call|use|invoke|check|start|install|launch)\b", re.I)
DECIDES = re.compile(
    r"^\W*(decide|choose|determine|identify|assess|evaluate|review|analy[sz]e|compare|classify|verify|check|summari[sz]e|prioriti[sz]e|"
    r"consider|select|group|rank|judge|estimate|diagnose)\b",
    re.I,
)
# What only an agent can do.
ACTS = re.compile(
    r"^\W*(write|draft|read|create|add|update|edit|fix|apply|implement|ask|present|report|search|fetch|open|save|send|post|commit|push|"
    r"merge|remove|delete|install|configure|deploy|generate|build|test)\b",
    re.I,
)
# Sections that are no path: what they say is for readers, or for other times.
ASIDE = re.compile(
    r"example|troubleshoot|install|prerequisite|requirement|reference|mistake|anti.?pattern|pitfall|when (not )?to use|overview|"
    r"fallback|resource|limitation|rationali|red flag|\btips?\b|faq|configura|configure|configuring|purpose|background|see also|related|glossary|license",
    re.I,
)
STEP = re.compile(r"^(step|phase|stage)?\s*\d+\s*[:.)—–-]|^(step|phase|stage)\s+\d+", re.I)
MAX_STEPS = 15


def places(path):
    """What is on each line of the skill: a heading with its level, the start of a code block with its language, or neither."""
    found, fence = {}, None
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            mark = re.match(r"[\s>]*(?:[-*]\s+|\d+\.\s+)?(`{3,}|~{3,})\s*([\w-]*)", line)
            if mark and fence is None:
                fence = mark[1]
                found[number] = ("code", mark[2].lower())
            elif mark and mark[1].startswith(fence or "") and not mark[2]:
                fence = None
            elif fence is None and (heading := re.match(r"(#{1,6})\s", line)):
                found[number] = ("heading", len(heading[1]))
    return found


def statements(prompt):
    """The statements in a prompt."""
    for line in prompt.splitlines():
        if line.startswith('{"id":'):
            yield json.loads(line)


def label(statement, where):
    kind, detail = where.get(statement["line"], ("text", None))
    text = statement["text"]
    if kind == "heading":
        return "background"
    if kind == "code" and "\n" in text or kind == "code" and "`" not in text:
        return "main_path" if detail in SHELLS else "example"
    if EXAMPLE.search(text):
        return "example"
    if CONDITION.search(text):
        return "condition"
    if COMMAND.search(text) and RUNS.search(text):
        return "main_path"
    if RULE.search(text):
        return "rule"
    if DECIDES.search(text):
        return "judgement"
    return "main_path" if ACTS.search(text) else "background"


def sections(found, where):
    """The statements below each heading of the outermost level with several; consecutive steps of one path are one section."""
    levels = [where[s["line"]][1] for s in found if where.get(s["line"], ("",))[0] == "heading"]
    outer = next((level for level in range(1, 7) if levels.count(level) > 1), 6)
    sections, path = [], None
    for statement in found:
        kind, level = where.get(statement["line"], ("", 0))
        if kind == "heading" and level <= outer:
            title = statement["text"]
            if not (STEP.search(title) and path == "steps"):
                sections.append((title, []))
            path = "steps" if STEP.search(title) else None
        elif sections:
            sections[-1][1].append(statement)
    return sections


def slug(text, other):
    words = re.findall(r"[a-z0-9]+", re.sub(STEP, "", text).lower())
    return "-".join(words)[:40].strip("-") or other


def runs(statement, where):
    """Whether a statement has something to run."""
    is_block = where.get(statement["line"], ("",))[0] == "code"
    return is_block or bool(COMMAND.search(statement["text"]) and RUNS.search(statement["text"]))


def is_step(statement, label, where):
    """Whether a statement can be a step: something to run, to decide, or to leave to an agent."""
    return label in ("judgement", "main_path") or label == "condition" and runs(statement, where)


def drafts(found, labels, where):
    pipelines = []
    for title, inside in sections(found, where):
        if ASIDE.search(title):
            continue
        steps = [s for s in inside if is_step(s, labels.get(s["id"]), where)][:MAX_STEPS]
        decisions = sum(labels[s["id"]] == "judgement" for s in steps)
        if decisions > 2 or any(labels[s["id"]] != "judgement" and runs(s, where) for s in steps):
            name = slug(title, "steps")
            named = [{"name": slug(s["text"], "step")[:24].strip("-"), "statement": s["id"]} for s in steps]
            pipelines.append({"name": name, "description": title, "triggers": [name.replace("-", " ")], "steps": named})
    return pipelines


def repaired(prompt):
    """The earlier drafts without what failed."""
    earlier, errors = re.search(r"^Earlier drafts: (.*?)\n\nThese drafts failed\. Errors:\n(.*)", prompt, re.S | re.M).groups()
    pipelines = json.loads(earlier)["pipelines"]
    failed = set(re.findall(r"pipeline `([^`]+)`, step `([^`]+)`", errors))
    whole = set(re.findall(r"pipeline `([^`]+)`(?!, step)", errors))
    kept = []
    for pipeline in pipelines:
        steps = [step for step in pipeline["steps"] if (pipeline["name"], step["name"]) not in failed]
        if steps and pipeline["name"] not in whole:
            kept.append({**pipeline, "steps": steps})
    return kept


def main():
    prompt, where = sys.stdin.read(), places(sys.argv[1])
    found = list(statements(prompt))
    if "Draft one pipeline" not in prompt:
        print(json.dumps({"labels": [{"id": s["id"], "label": label(s, where)} for s in found]}))
    elif "These drafts failed." in prompt:
        print(json.dumps({"pipelines": repaired(prompt)}))
    else:
        given = re.search(r"^Their labels: (\[.*\])$", prompt, re.M)
        labels = {one["id"]: one["label"] for one in json.loads(given[1])}
        print(json.dumps({"pipelines": drafts(found, labels, where)}))


main()

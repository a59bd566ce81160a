//! Constructs to kill: an app for each, whose steps keep the ledger themselves.
//!
//! A step writes `+ID@TRY` when it begins and `-ID@TRY` when it has done its work, with the id of its idempotency key.

use serde_json::json;

mod attempts;
mod combined;
mod machines;
mod ways;

use super::stop::Stop;
use crate::machines::stage_of;
use crate::server::{Reply, Seen, Server};
use crate::test::{Pipeline, Test, skipped};

/// An app to kill.
#[derive(Clone, Copy)]
pub(super) struct Construct {
    pub(super) name: &'static str,
    pub(super) build: fn(Test) -> Test,
    pub(super) run: &'static [&'static str],
    /// Expected status: a construct that fails for another reason would show nothing.
    pub(super) ends: &'static str,
    /// True if finished parts of an unfinished stage are repeated with it (B-ST6).
    pub(super) restarts: bool,
    /// Maximum number of concurrent model calls.
    pub(super) at_once: usize,
    /// Edit after the first death.
    pub(super) edit: Option<fn(&Test)>,
    /// Action while the run waits, before it is approved.
    pub(super) meanwhile: Option<fn(&Test)>,
    /// Way of the cancellation.
    pub(super) stop: Option<Stop>,
    /// Continuation after its end.
    pub(super) further: Option<Further>,
}

/// A further attempt at a run that has ended.
#[derive(Clone, Copy)]
pub(super) struct Further {
    /// Action before the attempt.
    pub(super) repair: fn(&Test),
    /// Words after `runs`, around the id.
    pub(super) words: (&'static str, &'static [&'static str]),
}

const RUN: &[&str] = &["run", "-p", "p", "--format", "json"];
const MACHINE: &[&str] = &["machine", "run", "m", "--format", "json"];

const fn plain(name: &'static str, build: fn(Test) -> Test) -> Construct {
    let ends = "succeeded";
    Construct {
        name,
        build,
        run: RUN,
        ends,
        restarts: false,
        at_once: 1,
        edit: None,
        meanwhile: None,
        stop: None,
        further: None,
    }
}

/// Concurrent stages have a model call each, and restart.
const fn staged(name: &'static str, build: fn(Test) -> Test) -> Construct {
    Construct { restarts: true, at_once: 4, ..plain(name, build) }
}

const fn stopped(name: &'static str, stop: Stop) -> Construct {
    Construct { stop: Some(stop), ends: "cancelled", ..plain(name, ways::slow) }
}

pub(super) const SEQUENCE: Construct = plain("sequence", sequence);
pub(super) const LARGE_VALUES: Construct = plain("large values", large_values);
pub(super) const PARALLEL: Construct = plain("parallel", parallel);
pub(super) const FAN_OUT: Construct = plain("for_each", fan_out);
pub(super) const SUB_PIPELINE: Construct = plain("sub-pipeline", sub_pipeline);
pub(super) const NESTED: Construct = plain("for_each of sub-pipelines with parallel, when, retry", nested);
pub(super) const RETRIES: Construct = plain("retries", retries);
pub(super) const MODEL: Construct = plain("model, asked again", model);
pub(super) const FAILING: Construct =
    Construct { ends: "failed", ..plain("failing step, failing destructor", failing) };
pub(super) const APPROVAL: Construct = plain("approval", approval);
pub(super) const APPROVALS: Construct = plain("approvals in for_each and sub-pipeline", approvals);
pub(super) const APPROVAL_RETRIES: Construct = plain("approvals with retries before and after", approval_retries);
pub(super) const APPLICATION: Construct = plain("application call", application);
pub(super) const EDITED: Construct = Construct { edit: Some(edit), ..plain("edited definition", sequence) };
pub(super) const AGENT: Construct =
    Construct { run: &["run", "--skill", "work", "--yolo", "--format", "json"], ..plain("agent loop", agent) };
pub(super) const AGENT_STEP: Construct = Construct {
    run: &["run", "-p", "p", "--yolo", "--format", "json"],
    ..plain("agent as a step, with constructor and destructor", agent_step)
};
pub(super) const AGENTS: Construct =
    Construct { run: AGENT_STEP.run, at_once: 2, ..plain("agents in for_each, two at once", agents) };
pub(super) const FALLBACK: Construct =
    Construct { run: AGENT_STEP.run, ..plain("tool steps that deviate, continued in skill mode", fallback) };
pub(super) const COMBINED: Construct = Construct {
    run: &["run", "-p", "p", "--yolo", "--timeout", "1h", "--max-tokens", "1000000", "--format", "json"],
    ..plain("elements, cache, approvals, agent, deviation", combined::deviating)
};
pub(super) const HELD: Construct =
    Construct { at_once: 2, ..plain("agents in for_each with approved calls", combined::held) };
pub(super) const STAGES: Construct =
    Construct { run: MACHINE, ..staged("stage machine with fan-out", machines::stages) };
pub(super) const STAGES_STEP: Construct = staged("stage machine as a step", machines::step);
pub(super) const MIGRATION: Construct = Construct {
    run: MACHINE,
    meanwhile: Some(machines::declare),
    ..staged("stage machine whose slot is migrated", machines::drifting)
};
pub(super) const MIDDLEWARE: Construct = plain("middleware around every step", ways::middleware);
pub(super) const WARM: Construct = plain("warm Python steps", ways::warm);
pub(super) const INTERRUPTED: Construct = stopped("cancelled by a signal", Stop::Signal);
pub(super) const CANCELLED: Construct = stopped("cancelled from another process", Stop::Command);
pub(super) const DEAD: Construct = stopped("cancelled after its runner died", Stop::Death);

pub(super) const CONTINUED: Construct = Construct {
    further: Some(Further { repair: attempts::repair, words: ("resume", &[]) }),
    ..plain("failed element, resumed", attempts::failing)
};
pub(super) const RETRIED: Construct = Construct {
    further: Some(Further { repair: |_| (), words: ("retry", &["--from", "two"]) }),
    ..plain("succeeded, retried from a step", sequence)
};
pub(super) const RAISED: Construct = Construct {
    run: &["run", "-p", "p", "--max-tokens", "1", "--format", "json"],
    further: Some(Further { repair: |_| (), words: ("resume", &["--max-tokens", "100000"]) }),
    ..plain("over budget, resumed with a larger one", model)
};
pub(super) const STAGES_CONTINUED: Construct = Construct {
    run: MACHINE,
    further: Some(Further { repair: |_| (), words: ("retry", &["--from", "plan"]) }),
    ..staged("stage machine, retried from its first stage", machines::stages)
};

/// All constructs, in the order of the table.
pub(super) const ALL: &[&Construct] = &[
    &SEQUENCE, &LARGE_VALUES, &PARALLEL, &FAN_OUT, &SUB_PIPELINE, &NESTED, &RETRIES, &MODEL, &FAILING, &APPROVAL,
    &APPROVALS, &APPROVAL_RETRIES, &APPLICATION, &AGENT, &AGENT_STEP, &AGENTS, &HELD, &FALLBACK, &COMBINED, &STAGES,
    &STAGES_STEP, &MIGRATION, &MIDDLEWARE, &WARM, &INTERRUPTED, &CANCELLED, &DEAD, &EDITED, &CONTINUED, &RETRIED,
    &RAISED, &STAGES_CONTINUED,
];

impl Construct {
    /// True if a requirement is missing on this machine; the skip is reported.
    pub(super) fn is_missing(&self) -> bool {
        let is_missing = self.name == WARM.name && !ways::has_python();
        if is_missing {
            skipped(self.name, "Python is not installed");
        }
        is_missing
    }
}

/// A script that keeps the ledger.
fn script(end: &str) -> String {
    let id = "$ETUDE_EFFECT_ID@$ETUDE_ATTEMPT";
    format!("echo \"+{id}\" >> \"$LEDGER\"; cat >/dev/null; echo \"-{id}\" >> \"$LEDGER\"; {end}")
}

fn prints(output: &str) -> String {
    script(&format!("echo '{{\"output\":{output}}}'"))
}

/// A step that keeps the ledger and prints `output`.
fn step(pipeline: Pipeline, name: &str, output: &str, fields: &str) -> Pipeline {
    pipeline.sh_with(name, &prints(output), fields)
}

fn scoped(test: Test) -> Test {
    test.pipeline("_constructor", |p| step(p, "begin", "1", "")).pipeline("_destructor", |p| step(p, "end", "1", ""))
}

/// The last step prints its argument, which is empty until the [`edit`].
fn sequence(test: Test) -> Test {
    let reported = "{\"done\":\"'$1'\"}";
    scoped(test).pipeline("p", |p| step(step(step(p, "one", "1", ""), "two", "2", ""), "three", reported, ""))
}

/// Gives the last step another argument, so that its input and output change.
fn edit(test: &Test) {
    let path = "app/pipelines/p/pipeline.yaml";
    test.put(path, &test.read(path).replace("command: sh steps/three.sh", "command: sh steps/three.sh edited"));
}

/// The sequence after the edit.
pub(super) fn edited_sequence(test: Test) -> Test {
    let test = sequence(test);
    edit(&test);
    test
}

/// Values too large for a record, from one step to the next: 300 KB each.
fn large_values(test: Test) -> Test {
    let large = |letter: &str| {
        script(&format!("printf '{{\"output\":\"'; yes {letter} | tr -d '\\n' | head -c 300000; echo '\"}}'"))
    };
    scoped(test).pipeline("p", |p| {
        let p = p.sh("one", &large("a")).sh("two", &large("b"));
        step(p, "three", "3", "").with("output: two")
    })
}

fn both(fields: &str) -> String {
    format!(
        "name: both\ntype: parallel\n{fields}steps:\n  - {{name: left, type: code, command: sh steps/left.sh}}\n  \
         - {{name: right, type: code, command: sh steps/right.sh}}"
    )
}

fn with_sides(pipeline: Pipeline) -> Pipeline {
    pipeline.file("steps/left.sh", &prints("\"l\"")).file("steps/right.sh", &prints("\"r\""))
}

fn parallel(test: Test) -> Test {
    scoped(test).pipeline("p", |p| step(with_sides(p.step(&both(""))), "last", "1", "").with("output: both"))
}

fn fan_out(test: Test) -> Test {
    scoped(test).pipeline("p", |p| {
        let p = step(p, "list", "[1,2,3,4]", "");
        let p = step(p, "each", "\"e\"", "for_each: \"{{list.output}}\"\nmax_parallel: 2");
        step(p, "last", "1", "").with("output: each")
    })
}

fn sub_pipeline(test: Test) -> Test {
    let test = test.pipeline("inner", |p| step(step(p, "first", "1", ""), "second", "\"inner\"", ""));
    scoped(test).pipeline("p", |p| {
        let p = step(p, "one", "1", "").step("name: sub\ntype: pipeline\npipeline: inner");
        step(p, "last", "1", "").with("output: sub")
    })
}

/// Script that fails once, then succeeds.
fn flaky(output: &str) -> String {
    script(&format!("[ \"$ETUDE_ATTEMPT\" -gt 1 ] || exit 7; echo '{{\"output\":{output}}}'"))
}

fn nested(test: Test) -> Test {
    let test = test.pipeline("inner", |p| {
        let p = with_sides(p.with("input: {n: {type: integer}}").step(&both("")));
        let p = step(p, "odd", "\"odd\"", "when: {value: \"{{input.n}}\", equals: 1}");
        p.sh_with("flaky", &flaky("\"inner\""), "retry: {max: 3, backoff: 1ms}")
    });
    scoped(test).pipeline("p", |p| {
        let p = step(p, "list", "[1,2,3]", "");
        let p = p.step(
            "name: each\ntype: pipeline\npipeline: inner\ninput: {n: \"{{item}}\"}\nfor_each: \"{{list.output}}\"\nmax_parallel: 2",
        );
        step(p, "last", "1", "").with("output: each")
    })
}

fn retries(test: Test) -> Test {
    let twice = script("[ \"$ETUDE_ATTEMPT\" -gt 2 ] || exit 7; echo '{\"output\":\"third\"}'");
    scoped(test).pipeline("p", |p| {
        let p = step(p, "one", "1", "").sh_with("flaky", &twice, "retry: {max: 4, backoff: 5ms}");
        step(p, "last", "1", "").with("output: flaky")
    })
}

fn model(test: Test) -> Test {
    scoped(test).pipeline("p", |p| {
        let p = step(p, "one", "1", "");
        let p = p.llm("ask", "give n", "schema: n.json\nvalidate: steps/check.sh\nretry: 3");
        let check = "case \"$(cat)\" in\n*'\"n\":7'*) v='{\"valid\":true}' ;;\n\
             *) v='{\"valid\":false,\"errors\":[\"n is not 7\"]}' ;;\nesac";
        let id = "$ETUDE_EFFECT_ID@$ETUDE_ATTEMPT";
        let p = p.file("n.json", r#"{"type":"object","required":["n"]}"#).file(
            "steps/check.sh",
            &format!("echo \"+{id}\" >> \"$LEDGER\"\n{check}\necho \"-{id}\" >> \"$LEDGER\"\necho \"$v\"\n"),
        );
        step(p, "last", "\"after\"", "").with("output: ask")
    })
}

fn failing(test: Test) -> Test {
    test.pipeline("_constructor", |p| step(p, "begin", "1", ""))
        .pipeline("_destructor", |p| step(p.sh("undo", &script("exit 4")), "end", "1", ""))
        .pipeline("p", |p| step(step(p, "one", "1", "").sh("two", &script("exit 3")), "three", "1", ""))
}

fn approval(test: Test) -> Test {
    scoped(test).pipeline("p", |p| {
        let p = step(p, "one", "1", "").step("name: gate\ntype: approval\nmessage: go on?");
        step(p, "two", "\"went on\"", "")
    })
}

fn approvals(test: Test) -> Test {
    let test = test.pipeline("inner", |p| {
        let p = step(p, "before", "1", "").step("name: gate\ntype: approval\nmessage: go on?");
        step(p, "after", "\"went on\"", "")
    });
    scoped(test).pipeline("p", |p| {
        let p = step(p, "list", "[1,2]", "");
        let p = p.step("name: each\ntype: pipeline\npipeline: inner\nfor_each: \"{{list.output}}\"\nmax_parallel: 2");
        step(p, "last", "1", "").with("output: each")
    })
}

/// The approval is between attempts: those before it count on after the approval, and so do later ones.
fn approval_retries(test: Test) -> Test {
    let twice = |p: Pipeline, name: &str| p.sh_with(name, &flaky("\"second\""), "retry: {max: 3, backoff: 5ms}");
    let test = test.pipeline("inner", |p| {
        let p = twice(p, "before").step("name: gate\ntype: approval\nmessage: go on?");
        twice(p, "after")
    });
    scoped(test).pipeline("p", |p| {
        let p = twice(step(p, "list", "[1,2]", ""), "flaky");
        let p = p.step("name: each\ntype: pipeline\npipeline: inner\nfor_each: \"{{list.output}}\"\nmax_parallel: 2");
        step(p, "last", "1", "").with("output: each")
    })
}

fn application(test: Test) -> Test {
    let contract = "---\nschema: agentapplications/v1\nkind: app\nslug: counter\nname: Counter\n\
        description: Notes that it was called\nversion: 0.1.0\nentry:\n  command: sh app/note.sh\n\
        commands: [note, reset]\nskills: [counter-usage]\nscheduling: notSupported\nconfirmationRequired: [reset]\n---\n# Counter\n\n\
        ## Purpose\nIt notes.\n\n## CLI\n`sh app/note.sh COMMAND`\n\n## Commands\n### note\nNotes.\n### reset\nAsks.\n\n\
        ## Output\nJSON.\n\n## State\nNone.\n\n## Scheduling\nNot supported.\n\n## Confirmations\n`reset`.\n\n\
        ## Skills\n`counter-usage`: how it is used.\n";
    let skill = "---\nname: counter-usage\ndescription: How the counter is used.\n---\nCall `note`.\n";
    // An application does not get the variables of the test.
    let note = format!("LEDGER='{}'\n{}", test.path("ledger").display(), script("echo '{\"ok\":true}'"));
    let root = "home/.agents/apps/counter";
    test.put(&format!("{root}/APP.md"), contract);
    test.put(&format!("{root}/app/note.sh"), &format!("{note}\n"));
    test.put(&format!("{root}/skills/counter-usage/SKILL.md"), skill);
    let call = |name: &str, command: &str| {
        format!("name: {name}\ntype: application\napplication: counter\ncommand: {command}\nargs: [\"x\"]")
    };
    scoped(test).pipeline("p", |p| {
        let p = step(p, "one", "1", "").step(&call("noted", "note")).step(&call("confirmed", "reset"));
        step(p, "last", "1", "").with("output: noted")
    })
}

/// Number of turns of the agent, with one call or two in each.
const TURNS: usize = 6;

fn with_tool(test: Test, name: &str) -> Test {
    let ends = script("echo '{\"ok\":true,\"value\":1}'");
    test.file(
        &format!("tools/{name}.yaml"),
        &format!("name: {name}\ndescription: Works.\ncommand: sh tools/{name}.sh\n"),
    )
    .file(&format!("tools/{name}.sh"), &format!("{ends}\n"))
}

fn agent(test: Test) -> Test {
    with_tool(test.skill("", "Work.\n"), "work")
}

fn with_helper(test: Test) -> Test {
    let skill = "---\nname: helper\ndescription: Helps.\n---\nWork.\n";
    scoped(with_tool(test, "work").file("skills/helper/SKILL.md", skill))
}

fn agent_step(test: Test) -> Test {
    with_helper(test).pipeline("p", |p| {
        let p = step(p, "one", "1", "");
        let p = p.step("name: agent\ntype: skill\nskill: helper\nrequest: work");
        step(p, "last", "1", "").with("output: agent")
    })
}

fn agents(test: Test) -> Test {
    with_helper(test).pipeline("p", |p| {
        let p = step(p, "list", "[1,2,3]", "");
        let p = p.step(
            "name: each\ntype: skill\nskill: helper\nrequest: \"work {{item}}\"\nfor_each: \"{{list.output}}\"\nmax_parallel: 2",
        );
        step(p, "last", "1", "").with("output: each")
    })
}

/// The last step requires a value that the first one did not print.
fn fallback(test: Test) -> Test {
    scoped(agent(test)).pipeline("p", |p| {
        let call = |name: &str, n: u32| format!("name: {name}\ntype: tool\ntool: work\nargs: {{n: {n}}}");
        let p = step(p, "one", "1", "").step(&call("first", 1));
        let p = p.step(&format!("{}\nrequire: {{value: \"{{{{one.output}}}}\", equals: 2}}", call("second", 2)));
        step(p, "last", "1", "").with("fallback: skill")
    })
}

/// Responds by the conversation alone, so that order and repetition do not matter.
pub(super) fn answers() -> Server {
    let bash = || ("Bash", json!({"command": script("echo worked")}));
    Server::by(move |seen, _| {
        let tools = seen.tools();
        if let Some(done) = tools.iter().find(|tool| tool.starts_with("submit_")) {
            return match seen.turn() {
                0 if tools.iter().any(|tool| tool == "look") => Reply::call("look", json!({})),
                _ => Reply::call(done, json!({"summary": stage_of(seen)})),
            };
        }
        match seen.conversation().len() {
            _ if !tools.is_empty() => match (seen.turn(), turns(seen)) {
                (turn, turns) if turn < turns / 2 => Reply::calls([bash()]),
                (turn, turns) if turn < turns => Reply::calls([("work", json!({})), bash()]),
                _ => Reply::says(&format!("worked {} times", seen.results().len())),
            },
            1 => Reply::says("not json"),
            3 => Reply::says("{\"n\":6}"),
            _ => Reply::says("{\"n\":7}"),
        }
    })
}

/// Number of turns; an agent with a short request has a few.
fn turns(seen: &Seen) -> usize {
    if seen.request().contains("short") { 2 } else { TURNS }
}

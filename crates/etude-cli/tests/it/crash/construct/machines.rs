//! Stage machines to kill: alone, as a step, and during a migration of their state slot.

use super::{scoped, script, with_tool};
use crate::test::{IN_HOOKS, Test};

/// A stage that looks once and submits a summary.
fn stage(test: Test, id: &str) -> Test {
    let text = format!(
        "---\nid: {id}\nname: {id}\nallowedTools: [look]\ncompletionTool: submit_{id}\n\
         completionSchema: {{type: object, required: [summary]}}\nretryPolicy: {{maxAttempts: 2, backoff: none}}\n\
         turnCap: 4\nresolutionPolicy: retry-later\n---\nSTAGE-{id}. Task: {{{{ctx.task}}}}\n"
    );
    test.file(&format!("machines/m/stages/{id}.md"), &text)
}

fn with_stages(test: Test) -> Test {
    let setup = format!("{IN_HOOKS}{}\n", script("echo '{\"ctx\":{\"task\":\"T\"}}'"));
    let test = test.file("machines/m/scripts/setup.sh", &setup);
    ["plan", "left", "right", "last"].into_iter().fold(with_tool(test, "look"), stage)
}

/// Three stages, two of them concurrent, with hooks and a tool; and one that follows both.
pub(super) fn stages(test: Test) -> Test {
    let machine = "kind: StateMachine\nid: m\nentryStage: plan\nstateSlot: {slotVersion: \"1.0.0\", schema: {type: object}}\n\
        pipeline:\n  \
        plan: {setup: {script: sh scripts/setup.sh}, next: [{else: true, parallel: [left, right, last], join: last}]}\n  \
        left: {setup: {script: sh scripts/setup.sh}}\n  right: {setup: {script: sh scripts/setup.sh}}\n  \
        last: {exit: {output: {first: {from: \"upstream[0].parsed.summary\"}, second: {from: \"upstream[1].parsed.summary\"}}}}\n";
    with_stages(test).file("machines/m/machine.yaml", machine)
}

/// The same machine between two steps, within constructor and destructor.
pub(super) fn step(test: Test) -> Test {
    scoped(stages(test)).pipeline("p", |p| {
        let p = super::step(p, "one", "1", "").step("name: machine\ntype: machine\nmachine: m\ninput: {}");
        super::step(p, "two", "2", "").with("output: machine")
    })
}

/// A machine with two branches: one waits until its gate opens, the other has changed the slot. So there are two forms of it to
/// migrate.
pub(super) fn drifting(test: Test) -> Test {
    let slot = "{slotVersion: \"0.9.0\", schema: {type: object}}";
    let machine = format!(
        "kind: StateMachine\nid: m\nentryStage: plan\nstateSlot: {slot}\npipeline:\n  \
         plan: {{setup: {{script: sh scripts/setup.sh}}, exit: {{slot: {{n: 1}}}}, \
         next: [{{else: true, parallel: [left, right, last], join: last}}]}}\n  \
         left: {{setup: {{script: sh scripts/setup.sh}}, exit: {{slot: {{x: 2}}}}}}\n  \
         right: {{gate: {{script: sh scripts/gate.sh}}}}\n  \
         last: {{setup: {{script: sh scripts/slot.sh}}, exit: {{output: {{kept: {{from: ctx.kept}}}}}}}}\n"
    );
    // A new form of the data has one member more.
    let stored =
        "sed -n 's/.*\"stored\":{[^{}]*\"data\":{\\([^}]*\\)}.*/{\"slotVersion\":\"1.0.0\",\"data\":{\\1,\"m\":3}}/p'";
    let id = "$ETUDE_EFFECT_ID@$ETUDE_ATTEMPT";
    let migrate = format!(
        "{IN_HOOKS}echo \"+{id}\" >> \"$LEDGER\"\nnew=$({stored})\necho \"-{id}\" >> \"$LEDGER\"\necho \"$new\"\n"
    );
    let slot = "sed 's/.*\"slot\":{[^{}]*\"data\":\\({[^}]*}\\).*/{\"ctx\":{\"task\":\"T\",\"kept\":\\1}}/'\n";
    let test = with_stages(test);
    let asks = test.read("app/machines/m/stages/right.md").replace("retry-later", "ask");
    test.file("machines/m/stages/right.md", &asks)
        .file("machines/m/machine.yaml", &machine)
        .file("machines/m/scripts/migrate.sh", &migrate)
        .file("machines/m/scripts/gate.sh", "cat >/dev/null\necho '{\"outcome\":\"block\",\"reason\":\"frozen\"}'\n")
        .file("machines/m/scripts/slot.sh", slot)
}

/// Makes the machine declare another form.
pub(super) fn declare(test: &Test) {
    let path = "app/machines/m/machine.yaml";
    let now = "{slotVersion: \"1.0.0\", schema: {type: object, required: [m]}, drift: migrate, migrate: {script: sh scripts/migrate.sh}}";
    let before = "{slotVersion: \"0.9.0\", schema: {type: object}}";
    test.put(path, &test.read(path).replace(before, now));
}

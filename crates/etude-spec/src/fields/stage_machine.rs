//! The fields of stage files and machine.yaml (`b-stages` §2, §20).

use crate::fields::FieldKind::{
    Bool, Data, Either, Entries, Inputs, Integer, List, Literal, Object as Of, Prose, Text, Word,
};
use crate::fields::pipeline::TIERS;
use crate::fields::{Field, FieldKind, Object};

/// Words for `resolutionPolicy` (B-G5).
pub const RESOLUTIONS: &[&str] = &["retry-later", "skip", "fail", "ask"];

/// Words for `drift` (B-ST3).
pub const DRIFTS: &[&str] = &["reject", "warn", "migrate"];

const SCHEMA: FieldKind = Entries(&Data);

/// Hooks take values by path, not by template.
const INSTEAD_OF_VALUE: &str = "take the value from its place: `{from: PATH}`, such as `{from: input.task}`";

/// Hooks receive their data on stdin.
const INSTEAD_IN_SCRIPT: &str = "the script reads `ctx`, `input` and more as JSON from stdin";

/// Paths have no braces.
const INSTEAD_OF_PATH: &str = "write the path without braces: `path: parsed.summary`";

/// The frontmatter of a stage file.
pub static STAGE: Object = Object {
    name: "a stage",
    doc: "A stage: the tools of the model and the result that it must submit. Unknown keys are for the author.",
    fields: &[fields! {
        required "id": Text, "outline", "Its name for transitions: lower case, with `-` between words.";
        required "name": Text, "Outline", "Its name for people.";
        required "allowedTools": List(&Text), "[Read, Grep]", "The tools that it may call without asking.";
        required "completionTool": Text, "submit_outline", "The tool that the model calls to submit its result.";
        required "completionSchema": SCHEMA, "{type: object, required: [summary], properties: {summary: {type: string}}}",
            "JSON Schema of the submitted result.";
        required "retryPolicy": Of(&RETRY_POLICY), "{maxAttempts: 2, backoff: none}",
            "Maximum attempts, and the wait between them.";
        required "turnCap": Integer(i64::MIN, i64::MAX), "20", "Maximum turns of the model in one attempt, at least 1.";
        required "resolutionPolicy": Word(RESOLUTIONS), "retry-later", "Effects of `defer` and `block` of its gate.";
        optional "description": Prose, "Plans the change.", "Purpose of the stage.";
        optional "inputsSchema": Either(&[SCHEMA, Bool]), "{type: object, required: [parsed]}",
            "JSON Schema of the result of each stage before it.";
        optional "tags": List(&Text), "[read-only]", "Tags for the author.";
    }],
};

/// The value of `retryPolicy` in a stage's frontmatter.
pub static RETRY_POLICY: Object = Object {
    name: "a retry policy",
    doc: "Retry policy of a stage.",
    fields: &[fields! {
        required "maxAttempts": Integer(1, 1_000), "2", "Maximum attempts, including the first.";
        required "backoff": Either(&[Word(&["none"]), Integer(0, 86_400_000), Of(&BACKOFF)]), "none",
            "The wait before another attempt: `none`, milliseconds, or a growing wait.";
    }],
};

/// A growing `backoff` (B-R6).
pub static BACKOFF: Object = Object {
    name: "a backoff",
    doc: "The wait between attempts.",
    fields: &[fields! {
        required "kind": Word(&["fixed", "exponential"]), "exponential", "Growth of the wait.";
        required "initialMs": Integer(0, 86_400_000), "500", "The first wait, in milliseconds.";
        optional "factor": FieldKind::Number(1.0, 100.0), "2", "Growth factor." => default "2";
        optional "maxMs": Integer(0, 86_400_000), "30000", "Maximum wait, in milliseconds." => default "60000";
        optional "jitter": Bool, "false", "Waits never vary: the same run waits the same." => default "false";
    }],
};

/// A whole `machine.yaml`.
pub static MACHINE: Object = Object {
    name: "a machine",
    doc: "A state machine: the order of its stages belongs to it, and a model works inside each of them.",
    fields: &[fields! {
        optional "kind": Word(&["StateMachine"]), "StateMachine", "Kind of the file." => default "StateMachine";
        required "id": Text, "doc-update", "Its name; the same as its directory's.";
        optional "contractVersion": Text, "\"1.0.0\"", "The version of stage definitions that it is written for.";
        optional "requiredCoreVersion": Text, "\">=1\"", "The versions of stage definitions whose runners may run it.";
        optional "description": Prose, "Updates the documentation", "Description; the router compares requests with it.";
        optional "triggers": List(&Prose), "[update the docs]", "Example requests that routing compares with.";
        optional "input": Inputs, "{task: string}", "Its parameters; without them any input is taken.";
        required "entryStage": Text, "outline", "The stage that runs first.";
        optional "stages": Either(&[Text, List(&Text)]), "stages/*.md",
            "Its stage files: paths below its directory, `*` for any name." => default "stages/*.md";
        required "stateSlot": Of(&SLOT), "{slotVersion: \"1.0.0\", schema: {type: object}, drift: reject}",
            "State that it keeps from stage to stage.";
        optional "model": Word(TIERS), "standard",
            "The capability level of the model for all stages." => default "standard";
        optional "capabilities": Data, "[]", "Required capabilities of the model, besides tool calls.";
        optional "context": Of(&CONTEXT), "{required: [task]}", "The fields that stages may refer to as `{{ctx.…}}`.";
        optional "config": Entries(&Data), "{strict: true}", "Value of `machine.config` in scripts.";
        optional "grants": Either(&[List(&Of(&GRANT)), Of(&SCRIPT)]), "[{stage: check, tool: Bash, decision: approve, times: 1}]",
            "Policies for calls of other tools, applied before a person is asked.";
        optional "guards": List(&Of(&GUARD)), "[{script: python3 scripts/guard.py}]", "Programs that may deny a call.";
        optional "onFailure": Of(&SCRIPT), "{script: python3 scripts/failed.py}", "Is notified when a fan-out was aborted.";
        optional "maxStageExecutions": Integer(1, 100_000), "100",
            "Maximum stage executions of a run." => default "100";
        optional "pipeline": Entries(&Of(&HOOKS)), "{outline: {next: [{terminal: true}]}}",
            "Hooks of each stage, by stage id.";
        optional "enabled": Bool, "true", "For other runners; not interpreted here.";
        optional "autoAttach": Bool, "false", "For other runners; not interpreted here.";
        optional "reloadBehavior": Text, "between-turns", "For other runners; not interpreted here.";
    }],
};

/// `stateSlot`.
pub static SLOT: Object = Object {
    name: "a state slot",
    doc: "State that a machine keeps from stage to stage, with its version policy.",
    fields: &[fields! {
        required "slotVersion": Text, "\"1.0.0\"", "The version of its form.";
        required "schema": SCHEMA, "{type: object}", "JSON Schema of its data.";
        optional "drift": Word(DRIFTS), "reject", "Policy for data of another version." => default "reject";
        optional "migrate": Of(&SCRIPT), "{script: python3 scripts/migrate.py}", "Changes data of another version.";
    }],
};

/// The value of `context` in `machine.yaml`.
pub static CONTEXT: Object = Object {
    name: "a context",
    doc: "The fields of a stage's context.",
    fields: &[fields! {
        optional "required": List(&Text), "[task]", "Fields that every setup gives.";
        optional "optional": List(&Text), "[branch]", "Fields that a setup may give.";
    }],
};

/// The long form of a hook, a guard or a migration: a command with its timeout.
pub static SCRIPT: Object = Object {
    name: "a script",
    doc: "A program that reads one JSON object from stdin and prints one to stdout.",
    fields: &[SCRIPT_FIELDS],
};

const SCRIPT_FIELDS: &[Field] = fields! {
    required "script": Text, "python3 scripts/judge.py",
        "The command; it runs in the machine's directory." => instead INSTEAD_IN_SCRIPT;
    optional "timeoutMs": Integer(1, 86_400_000), "30000", "Maximum time, in milliseconds." => default "600000";
};

/// An element of `guards`.
pub static GUARD: Object = Object {
    name: "a guard",
    doc: "A program that may deny a call of a tool.",
    fields: &[fields! {
        optional "script": Text, "python3 scripts/guard.py",
            "The command; it runs in the machine's directory." => instead INSTEAD_IN_SCRIPT;
        optional "command": Text, "python3 scripts/guard.py", "The same as `script`." => instead INSTEAD_IN_SCRIPT;
        optional "timeoutMs": Integer(1, 86_400_000), "30000", "Maximum time, in milliseconds." => default "600000";
    }],
};

/// An element of `grants`.
pub static GRANT: Object = Object {
    name: "a grant",
    doc: "Decides about calls of a tool outside a stage's `allowedTools`.",
    fields: &[fields! {
        optional "stage": Text, "check", "The stage; without it any.";
        required "tool": Text, "Bash", "The tool.";
        required "decision": Word(&["approve", "deny", "defer"]), "approve", "The decision; `defer` asks a person.";
        optional "times": Integer(1, 100_000), "1", "Maximum number of uses in one run; by default unlimited.";
    }],
};

/// The hooks around a stage.
pub static HOOKS: Object = Object {
    name: "a stage's hooks",
    doc: "Hooks of a stage.",
    fields: &[fields! {
        optional "setup": Of(&SETUP), "{set: {task: {from: input.task}}}",
            "Fills the context before the prompt is made.";
        optional "gate": Of(&GATE), "{script: sh scripts/gate.sh}", "Decides if the stage runs now.";
        optional "assert": Of(&ASSERT), "{script: python3 scripts/judge.py}", "Judges the work.";
        optional "exit": Of(&EXIT), "{output: {digest: {from: parsed.summary}}}", "Sets the output and the kept state.";
        optional "next": Either(&[List(&Of(&CASE)), Of(&SCRIPT)]), "[{else: true, terminal: true}]",
            "Selects the next stage.";
    }],
};

/// The value of `setup` among the hooks of a stage (B-20.3).
pub static SETUP: Object = Object {
    name: "a setup",
    doc: "Fills the context: either `set` or `script`.",
    fields: &[
        fields! {
            optional "set": Entries(&Data), "{task: {from: input.task}}",
                "Fields with their values, or where to take them from. Braces in a value are text.";
        },
        OPTIONAL_SCRIPT,
    ],
};

const OPTIONAL_SCRIPT: &[Field] = fields! {
    optional "script": Text, "python3 scripts/hook.py",
        "A command that decides; it runs in the machine's directory." => instead INSTEAD_IN_SCRIPT;
    optional "timeoutMs": Integer(1, 86_400_000), "30000", "Maximum time, in milliseconds." => default "600000";
};

/// The value of `gate` among the hooks of a stage (B-20.3).
pub static GATE: Object = Object {
    name: "a gate",
    doc: "Decides if a stage runs: either `rules` or `script`.",
    fields: &[
        fields! {
            optional "rules": List(&Of(&GATE_RULE)), "[{when: {path: slot.ready, equals: false}, outcome: defer}]",
                "The first that holds decides; none: the stage runs.";
        },
        OPTIONAL_SCRIPT,
    ],
};

/// An element of `gate.rules`.
pub static GATE_RULE: Object = Object {
    name: "a gate's rule",
    doc: "An outcome and its conditions.",
    fields: &[fields! {
        optional "when": WHEN, "{path: slot.ready, equals: false}", "All must be true; by default always true.";
        required "outcome": Word(&["proceed", "defer", "block"]), "defer", "The decision.";
        optional "reason": Text, "not ready", "Why.";
    }],
};

const WHEN: FieldKind = Either(&[Of(&TEST), List(&Of(&TEST))]);

/// A comparison of one value of the run with a written one.
pub static TEST: Object = Object {
    name: "a test",
    doc: "A comparison of a value with a constant.",
    fields: &[fields! {
        required "path": Text, "parsed.summary",
            "The value: a source, then members and elements." => instead INSTEAD_OF_PATH;
        optional "equals": Literal, "ok", "The same value.";
        optional "notEquals": Literal, "ok", "Another value, or none.";
        optional "in": List(&Literal), "[a, b]", "One of these values.";
        optional "exists": Bool, "true", "Whether there is such a value.";
        optional "matches": Text, "\"^fix\"", "Text in which this regular expression is found.";
        optional "gt": Literal, "3", "Greater: numbers or texts.";
        optional "lt": Literal, "3", "Less: numbers or texts.";
    }],
};

/// The value of `assert` among the hooks of a stage (B-20.3).
pub static ASSERT: Object = Object {
    name: "an assert",
    doc: "Judges the work of a stage: one of `rules`, `validate` and `script`.",
    fields: &[
        fields! {
            optional "rules": List(&Of(&ASSERT_RULE)), "[{when: {path: parsed.steps, exists: false}, verdict: retry, reason: list the steps}]",
                "The first that holds decides; none: `retry` after the cap, else `ok`.";
            optional "validate": Text, "python3 scripts/validate.py",
                "A validator as llm steps have it." => instead INSTEAD_IN_SCRIPT;
        },
        OPTIONAL_SCRIPT,
    ],
};

/// An element of `assert.rules`.
pub static ASSERT_RULE: Object = Object {
    name: "an assert's rule",
    doc: "A verdict and its conditions.",
    fields: &[fields! {
        optional "when": WHEN, "{path: parsed.steps, exists: false}", "All must be true; by default always true.";
        required "verdict": Word(&["ok", "retry", "fail", "skip"]), "retry", "The decision.";
        optional "reason": Text, "list the steps", "Why; on `retry` the model is informed.";
    }],
};

/// The value of `exit` among the hooks of a stage (B-20.3).
pub static EXIT: Object = Object {
    name: "an exit",
    doc: "Sets the output and the kept state of a stage: either `output` and `slot`, or `script`.",
    fields: &[
        fields! {
            optional "output": Entries(&Literal), "{digest: {from: parsed.summary}}",
                "Value of `output` in the next stage." => instead INSTEAD_OF_VALUE;
            optional "slot": Entries(&Literal), "{outlineDone: true}",
                "Members that replace members of the slot." => instead INSTEAD_OF_VALUE;
        },
        OPTIONAL_SCRIPT,
    ],
};

/// A case of `next`.
pub static CASE: Object = Object {
    name: "a case of next",
    doc: "The next stages and their conditions.",
    fields: &[fields! {
        optional "when": WHEN, "{path: result.verdict, equals: ok}", "All must be true.";
        optional "else": Bool, "true", "Always true.";
        optional "sequential": List(&Text), "[build]", "These stages, one after the other.";
        optional "parallel": List(&Text), "[test, lint, review]", "These stages at once.";
        optional "join": Text, "review", "One of `parallel` that runs when all others succeeded.";
        optional "terminal": Bool, "true", "No next stage: the machine ends.";
    }],
};

/// Every table, for checks of the tables themselves.
#[cfg(test)]
pub(crate) static TABLES: &[&Object] = &[
    &STAGE, &RETRY_POLICY, &BACKOFF, &MACHINE, &SLOT, &CONTEXT, &SCRIPT, &GUARD, &GRANT, &HOOKS, &SETUP, &GATE,
    &GATE_RULE, &TEST, &ASSERT, &ASSERT_RULE, &EXIT, &CASE,
];

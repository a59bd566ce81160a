//! The fields of tests/*.yaml.

use crate::fields::FieldKind::{Data, Entries, List, Path, Prose, Text, Word};
use crate::fields::{FieldKind, Object};

/// Final statuses of a run.
const STATUSES: &[&str] = &["succeeded", "failed", "cancelled", "waiting"];

/// A whole file of `tests/`.
pub static TEST: Object = Object {
    name: "a test",
    doc: "A test: a pipeline or a machine, its input, and the expected result.",
    fields: &[fields! {
        optional "name": Prose, "Greets Ada", "A title for readers; the file's name identifies the test.";
        optional "pipeline": Text, "greet", "The pipeline that runs; a test has `pipeline` or `machine`.";
        optional "machine": Text, "change", "The machine that runs.";
        optional "input": Entries(&Data), "{name: Ada}", "Its input." => default "{}";
        optional "recordings": Path, "tests/recordings/greet",
            "Directory of the recorded model responses; by default `tests/recordings/` and the test's name.";
        optional "request": Prose, "Return order A-17", "The request, for `{{run.request}}`.";
        optional "digest": Text, "9c04d2aa31e7b650", "Digest of the request that a case was learned from.";
        optional "tools": List(&RECORDED_CALL_KIND), "[{tool: get_order, arguments: {order_id: A-17}, result: {status: open}}]",
            "Recorded calls. With them no tool is started: a call gets the result of an equal one.";
        optional "answers": Entries(&Data), "{which: A-17}",
            "Recorded answers of models, by step; then nothing is read from `recordings`.";
        optional "expect": FieldKind::Object(&EXPECT), "{status: failed}", "The expected result.";
    }],
};

/// `expect` of a test.
pub static EXPECT: Object = Object {
    name: "an expectation",
    doc: "The expected result of a run.",
    fields: &[fields! {
        optional "status": Word(STATUSES), "failed", "The final status of the run." => default "succeeded";
        optional "output": Entries(&Data), "{/total: 3}",
            "Expected parts of the output, by JSON pointer; `\"\"` is the whole output.";
        optional "error": Text, "step_failed", "The kind of the first error.";
        optional "calls": List(&EXPECTED_CALL_KIND), "[{tool: return_items, arguments: {order_id: A-17}}]",
            "All calls that write, in order.";
        optional "fell_back": Data, "{step: which, reason: choose_none}",
            "Where and why the run continues in skill mode; `null`: it does not.";
    }],
};

/// One of `tools`.
pub static RECORDED_CALL: Object = Object {
    name: "a recorded call",
    doc: "A call of a tool, and its result.",
    fields: &[fields! {
        required "tool": Text, "get_order", "The tool.";
        optional "arguments": Entries(&Data), "{order_id: A-17}", "Its arguments." => default "{}";
        optional "result": Data, "{status: open}", "The returned value." => default "null";
        optional "error": Data, "{class: ToolTerminal, code: NotFound, message: no such order}",
            "The error: an object, or only the message." => default "null";
    }],
};

/// One of `calls` of an expectation.
pub static EXPECTED_CALL: Object = Object {
    name: "an expected call",
    doc: "A call that a run must make.",
    fields: &[fields! {
        required "tool": Text, "return_items", "The tool.";
        optional "arguments": Entries(&Data), "{order_id: A-17}", "Its arguments." => default "{}";
    }],
};

static RECORDED_CALL_KIND: FieldKind = FieldKind::Object(&RECORDED_CALL);

static EXPECTED_CALL_KIND: FieldKind = FieldKind::Object(&EXPECTED_CALL);

/// `fell_back` of an expectation.
pub static FELL_BACK: Object = Object {
    name: "a deviation",
    doc: "Where and why a run leaves its pipeline.",
    fields: &[fields! {
        required "step": Text, "which", "The step.";
        required "reason": Text, "choose_none", "The reason.";
    }],
};

//! The fields of tests/*.yaml.

use crate::fields::Kind::{Data, Entries, Path, Prose, Text, Word};
use crate::fields::{Kind, Object};

/// How a run can end.
const STATUSES: &[&str] = &["succeeded", "failed", "cancelled", "waiting"];

/// A whole file.
pub static TEST: Object = Object {
    name: "a test",
    doc: "A test: a pipeline or a machine, its input, and what must come of it.",
    fields: &[fields! {
        optional "name": Prose, "Greets Ada", "A title for readers; the file's name identifies the test.";
        optional "pipeline": Text, "greet", "The pipeline that runs; a test has `pipeline` or `machine`.";
        optional "machine": Text, "change", "The machine that runs.";
        optional "input": Entries(&Data), "{name: Ada}", "Its input." => default "{}";
        optional "recordings": Path, "tests/recordings/greet",
            "Directory of the recorded model responses; by default `tests/recordings/` and the test's name.";
        optional "expect": Kind::Object(&EXPECT), "{status: failed}", "What must come of it.";
    }],
};

/// `expect` of a test.
pub static EXPECT: Object = Object {
    name: "an expectation",
    doc: "What must come of a run.",
    fields: &[fields! {
        optional "status": Word(STATUSES), "failed", "How the run ends." => default "succeeded";
        optional "output": Entries(&Data), "{/total: 3}",
            "Expected parts of the output, by JSON pointer; `\"\"` is the whole output.";
        optional "error": Text, "step_failed", "The kind of the first error.";
    }],
};

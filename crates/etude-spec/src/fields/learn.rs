//! The fields of `learn` in etude.yaml, and of learn.yaml (`learn.md` 1.5, 1.7).

use crate::fields::FieldKind::{Bool, Data, Entries, Integer, List, Number, Text, Word};
use crate::fields::{FieldKind, Object};

/// The states of a learned pipeline, from the first to the last.
pub const STATES: &[&str] = &["proposed", "shadow", "assisted", "active", "demoted"];

/// `learn` of a configuration.
pub static LEARN: Object = Object {
    name: "a learning setting",
    doc: "Settings of `etude learn`: learning from runs in skill mode, and limits of promotions.",
    fields: &[fields! {
        optional "enabled": Bool, "false", "False to read no traces, and to propose and count nothing."
            => default "true";
        optional "notice": Bool, "false", "True to print a note at the end of a run in skill mode when its family can be learned."
            => default "true";
        optional "min_requests": Integer(1, 10_000), "5", "Distinct requests before a family is learned." => default "3";
        optional "writes": Word(&["shadow", "assisted", "active"]), "active",
            "The highest state that a pipeline with writes reaches without `--accept-risk`." => default "assisted";
        optional "shadow": Number(0.0, 1.0), "0.5", "Share of the runs in skill mode that candidates shadow."
            => default "0.2";
        optional "confirm": Word(&["person", "model"]), "model", "Approver of writes in the state `assisted`."
            => default "person";
        optional "promote": FieldKind::Object(&PROMOTE), "{wrong_rate: 0.01}", "The evidence that a promotion needs.";
        optional "demote": FieldKind::Object(&DEMOTE), "{after: 3}", "Limit of deviations before a demotion.";
        optional "exclude": List(&Text), "[\"mcp__bank__*\", Bash]",
            "Tools that are never learned, in the pattern language of `allowed-tools`." => default "[]";
        optional "redact": List(&Text), "[email, \"card_.*\"]",
            "Names of fields whose values are not written to files of the app: regular expressions on the whole name."
            => default "[]";
    }],
};

/// `learn.promote`.
pub static PROMOTE: Object = Object {
    name: "a condition of promotions",
    doc: "The evidence that a promotion needs.",
    fields: &[fields! {
        optional "wrong_rate": Number(0.0001, 1.0), "0.01", "The largest upper bound of the rate of wrong writes."
            => default "0.05";
        optional "confidence": Number(0.5, 0.9999), "0.99", "The confidence of that bound." => default "0.95";
    }],
};

/// `learn.demote`.
pub static DEMOTE: Object = Object {
    name: "a condition of demotions",
    doc: "Limit of deviations before a demotion.",
    fields: &[fields! {
        optional "after": Integer(1, 1_000), "3", "Deviations of the same kind that demote." => default "2";
        optional "window": Integer(1, 10_000), "50", "Runs among which they are counted." => default "20";
    }],
};

/// A whole learn.yaml.
pub static LEARN_FILE: Object = Object {
    name: "a learn.yaml",
    doc: "The state of a learned pipeline, and what it was learned from.",
    fields: &[fields! {
        required "learn": Integer(1, 1), "1", "The version of this format.";
        required "state": Word(STATES), "active", "The state that a person has chosen.";
        required "family": Text, "return_items", "The family of runs that it was learned from.";
        optional "content": Text, "9c04d2aa31e7b650",
            "Hash of what was learned: pipeline, steps, schemas, tools, rules. `etude learn` writes it.";
        optional "accept_risk": Bool, "true", "A promotion was accepted without its evidence." => default "false";
        optional "program": Text, "etude", "The program that learned it.";
        optional "evidence": Entries(&Data), "{requests: 4, runs: 5}", "What it was learned from, and how it was checked.";
        optional "bindings": List(&Data), "[]", "The source of each argument.";
        optional "holes": List(&Data), "[]", "Values that the runs do not determine.";
        optional "guards": List(&Data), "[]", "Conditions that must hold.";
        optional "eligibility": Data, "asked",
            "Check of permission for the write: `asked` (a model checks), or `trusted` with a reason.";
        optional "covers": List(&Text), "[\"9c04d2aa31e7b650\"]", "Digests of the requests that it covers.";
        optional "not_covered": List(&Data), "[]", "Requests that it does not cover.";
    }],
};

/// `evidence.leave_one_out`.
pub static COUNTS: Object = Object {
    name: "counts of comparisons",
    doc: "Comparisons by their kind.",
    fields: &[fields! {
        optional "agreed": COUNT, "4", "The same writes." => default "0";
        optional "fell_back": COUNT, "1", "No write: the pipeline deviated." => default "0";
        optional "disagreed": COUNT, "0", "Other writes." => default "0";
    }],
};

const COUNT: FieldKind = Integer(0, 1_000_000_000);

//! Deviations: a `require` that does not hold, or a choice with no result. The run leaves its pipeline there (L-50).

use serde_json::json;

use super::SHOWS_VALUES;
use super::values::Values;
use crate::condition::Condition;
use crate::data::Json;
use crate::failure::{Failure, FailureKind, Reason};
use crate::plan::{Binding, Requirement};
use crate::template::Scope;

/// Reference to the answer of a permission question: a `require` that reads it has its own reason.
const PERMISSION: &str = "allowed.output.allowed";

/// Prefix of the reference to values of unknown source: a `require` that reads it has its own reason.
const OPEN_HOLE: &str = "open_hole.output";

/// Maximum length of a value in the message of a deviation, in characters.
const MAX_SHOWN: usize = 120;

/// The deviation of a step whose `require` is not met.
pub(super) fn of_requirement(step: &str, require: &Requirement, values: &Values) -> Failure {
    let unmet = require.condition.first_unmet(values);
    let reason = match () {
        () if reads(unmet, |of| of == PERMISSION) => Reason::NotAllowed,
        () if reads(unmet, |of| of.starts_with(OPEN_HOLE)) => Reason::OpenHole,
        () => Reason::Require,
    };
    let mut message = format!("the `require` of step `{step}` is false: {}", require.written);
    if values.abi() >= SHOWS_VALUES {
        message.push_str(&describe_values(unmet, values));
    }
    let mut failure = Failure::new(FailureKind::Deviated, message);
    failure.details = Some(Json::of(&json!({"reason": reason.word(), "condition": require.written})));
    failure.because(reason)
}

/// The values that a condition reads, each once: `; {{a.output}} is 3`.
fn describe_values(condition: &Condition, values: &Values) -> String {
    let mut shown: Vec<String> = Vec::new();
    for binding in condition.bindings() {
        let Binding::Reference(reference) = binding else { continue };
        let value = match binding.resolve(values) {
            // A value in the store is long, and is not read for a message.
            Ok(value) => value.inline().map_or_else(|| "a long value".to_owned(), clipped),
            Err(_) => "missing".to_owned(),
        };
        let one = format!("{{{{{reference}}}}} is {value}");
        if !shown.contains(&one) {
            shown.push(one);
        }
    }
    match shown.as_slice() {
        [] => String::new(),
        shown => format!("; {}", shown.join(", ")),
    }
}

/// The beginning of a value as JSON.
fn clipped(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn reads(condition: &Condition, is_it: impl Fn(&str) -> bool) -> bool {
    let is_read = |binding: &&Binding| matches!(binding, Binding::Reference(of) if is_it(&of.to_string()));
    condition.bindings().iter().any(is_read)
}

/// The deviation of a step that cannot choose from `list`, or whose answer is that no element fits (L-47).
pub(super) fn of_choice(step: &str, list: &Binding, reason: Reason, why: &str) -> Failure {
    let mut failure = Failure::new(FailureKind::Deviated, format!("step `{step}` has nothing to choose: {why}"));
    let condition = match list {
        Binding::Reference(reference) => Some(format!("{{{{{reference}}}}}")),
        Binding::Template(_) | Binding::Literal(_) => None,
    };
    failure.details = Some(Json::of(&json!({"reason": reason.word(), "condition": condition})));
    failure.because(reason)
}

//! Deviations: a `require` that does not hold, or a choice with no result. The run leaves its pipeline there (L-50).

use serde_json::json;

use super::values::Values;
use crate::condition::Condition;
use crate::data::Json;
use crate::failure::{Failure, FailureKind, Reason};
use crate::plan::{Binding, Requirement};

/// Reference to the answer of a permission question: a `require` that reads it has its own reason.
const PERMISSION: &str = "allowed.output.allowed";

/// Prefix of the reference to values of unknown source: a `require` that reads it has its own reason.
const OPEN_HOLE: &str = "open_hole.output";

/// The deviation of a step whose `require` is not met.
pub(super) fn of_requirement(step: &str, require: &Requirement, values: &Values) -> Failure {
    let unmet = require.condition.first_unmet(values);
    let reason = match () {
        () if reads(unmet, |of| of == PERMISSION) => Reason::NotAllowed,
        () if reads(unmet, |of| of.starts_with(OPEN_HOLE)) => Reason::OpenHole,
        () => Reason::Require,
    };
    let message = format!("the `require` of step `{step}` is false: {}", require.written);
    let mut failure = Failure::new(FailureKind::Deviated, message);
    failure.details = Some(Json::of(&json!({"reason": reason.word(), "condition": require.written})));
    failure.because(reason)
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

//! Verdicts of content validators on responses of llm steps and on the work of stages: one protocol.
//!
//! | exit   | prints                                 | means                                    |
//! |--------|----------------------------------------|------------------------------------------|
//! | 0      | `{"valid": true}`                      | valid                                    |
//! | any    | `{"valid": false, "errors": […]}`      | invalid, for these reasons               |
//! | not 0  | `{"errors": […]}`                      | the same                                 |
//! | not 0  | `{"valid": true}`                      | the validator contradicts itself         |
//! | any    | anything else                          | there is no verdict                      |

use serde_json::Value;

use crate::data::bare;

/// Verdict of a validator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    /// The content is invalid, for at least one reason.
    Bad(Vec<String>),
    /// The content is valid according to a validator that exited with an error.
    Contradiction,
    /// The output is not a verdict.
    Missing,
}

/// The verdict in a validator's output, if that is JSON. `ended_well` is true for exit status 0.
pub(super) fn verdict(printed: Option<&Value>, ended_well: bool) -> Verdict {
    let Some(says) = printed.and_then(Value::as_object) else { return Verdict::Missing };
    match says.get("valid").and_then(Value::as_bool) {
        Some(true) if ended_well => Verdict::Good,
        Some(true) => Verdict::Contradiction,
        Some(false) => Verdict::Bad(reasons(says.get("errors"))),
        None if !ended_well && says.contains_key("errors") => Verdict::Bad(reasons(says.get("errors"))),
        None => Verdict::Missing,
    }
}

/// Maximum number of reasons that go back to the model.
const MAX_REASONS: usize = 100;

/// Maximum length of a reason, in characters.
const MAX_REASON: usize = 4000;

fn reasons(errors: Option<&Value>) -> Vec<String> {
    let text = |value: &Value| {
        let text = bare(value).into_owned();
        match text.char_indices().nth(MAX_REASON) {
            Some((at, _)) => format!("{} …", &text[..at]),
            None => text,
        }
    };
    let errors: Vec<String> = match errors {
        Some(Value::Array(errors)) => errors.iter().take(MAX_REASONS).map(text).collect(),
        Some(Value::Null) | None => Vec::new(),
        Some(other) => vec![text(other)],
    };
    if errors.is_empty() {
        return vec!["the content validator rejected the answer without a reason".to_owned()];
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// B-20.4, case 139: the table above.
    #[test]
    fn a_verdict_needs_both_what_is_printed_and_how_the_program_ended() {
        let bad = |reasons: &[&str]| Verdict::Bad(reasons.iter().map(|reason| (*reason).to_owned()).collect());
        assert_eq!(verdict(Some(&json!({"valid": true})), true), Verdict::Good);
        assert_eq!(verdict(Some(&json!({"valid": true, "errors": ["a"]})), false), Verdict::Contradiction);
        assert_eq!(verdict(Some(&json!({"valid": false, "errors": ["a", {"b": 1}]})), true), bad(&["a", "{\"b\":1}"]));
        assert_eq!(verdict(Some(&json!({"errors": "a"})), false), bad(&["a"]));
        assert!(matches!(verdict(Some(&json!({"valid": false})), true), Verdict::Bad(why) if why.len() == 1));
        assert_eq!(verdict(Some(&json!({"errors": ["a"]})), true), Verdict::Missing);
        assert_eq!(verdict(Some(&json!(true)), true), Verdict::Missing);
        assert_eq!(verdict(None, false), Verdict::Missing);
    }

    /// a validator with a million reasons does not flood the model.
    #[test]
    fn reasons_go_back_in_bounds() {
        let found = reasons(Some(&json!(vec!["é".repeat(10_000); 1000])));
        assert_eq!(found.len(), MAX_REASONS);
        assert!(found.iter().all(|reason| reason.chars().count() == MAX_REASON + 2), "{}", found[0]);
    }
}

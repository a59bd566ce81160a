//! Question of a waiting run, as shown to a person.

use etude::readable;
use etude_core::shell;
use serde_json::Value;

use crate::render::text::visible;

/// Arguments of the tool call in question, or null.
pub(crate) fn given(payload: &Value) -> &Value {
    if payload["arguments"].is_null() { &payload["args"] } else { &payload["arguments"] }
}

/// Full content of a question, because nothing may be approved that was not shown.
pub(crate) fn details(given: &Value) -> String {
    readable::text(given).lines().map(|line| format!("  | {}\n", visible(line))).collect()
}

/// Steps after an approval that change the outside world, if there are any.
pub(crate) fn effects(payload: &Value) -> Option<String> {
    let names: Vec<&str> = payload["effects"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let verb = if names.len() == 1 { "changes" } else { "change" };
    (!names.is_empty()).then(|| visible(&format!("{} {verb} the outside world", names.join(", "))))
}

/// The option with the answer that a question requires besides the decision, if it has a schema.
pub(crate) fn answer(payload: &Value) -> Option<String> {
    let schema = Some(&payload["schema"]).filter(|schema| !schema.is_null())?;
    Some(visible(&format!("--answer JSON that satisfies {schema}")))
}

/// Number of hex digits of a question's id in commands: 128 bits, so that no one can craft two questions with the same ones.
const DIGITS: usize = 32;

/// Short id of a question for commands. Its suffix names a later attempt.
pub(crate) fn short(question: &str) -> String {
    let (digest, attempt) = question.split_once('@').unwrap_or((question, ""));
    let digits = digest.get(..DIGITS).unwrap_or(digest);
    if attempt.is_empty() { digits.to_owned() } else { format!("{digits}@{attempt}") }
}

/// True if `named` is this question: its whole id, or that of [`short`].
pub(crate) fn is_named(question: &str, named: &str) -> bool {
    !named.is_empty() && (named == question || named == short(question))
}

/// Arguments with which `etude approve` and `etude deny` answer this question and no other.
pub(crate) fn command(waiting: &Value) -> String {
    let id = shell::word(&visible(waiting["id"].as_str().unwrap_or_default()));
    match waiting["payload"]["question"].as_str() {
        Some(question) => format!("{id} --question {}", short(question)),
        None => id,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_shown_to_the_last_character_and_steer_nothing() {
        let given = json!({"command": "git push", "script": "a\nb \u{1b}[2J"});
        assert_eq!(details(&given), "  | command: git push\n  | script:\n  |   a\n  |   b \\u{1b}[2J\n");
        assert_eq!(details(&Value::Null), "");
    }

    /// an approval names the steps after it that change the outside world.
    #[test]
    fn steps_that_change_the_outside_world_are_named() {
        let of = |names: Value| effects(&json!({ "effects": names }));
        assert_eq!(of(json!(["pay"])).as_deref(), Some("pay changes the outside world"));
        assert_eq!(of(json!(["pay", "tell"])).as_deref(), Some("pay, tell change the outside world"));
        assert_eq!((of(json!([])), of(Value::Null)), (None, None));
    }

    /// a question with a schema names the option that `etude approve` requires.
    #[test]
    fn a_required_answer_is_named_with_its_schema() {
        let payload = json!({"message": "Ship?", "schema": {"enum": ["fast", "\u{1b}slow"]}});
        assert_eq!(
            answer(&payload).as_deref(),
            Some("--answer JSON that satisfies {\"enum\":[\"fast\",\"\\u001bslow\"]}")
        );
        assert_eq!((answer(&json!({"schema": null})), answer(&json!({"message": "Ship?"}))), (None, None));
    }

    /// SECURITY.md: a short id is long enough to name one question, and a part of it names none.
    #[test]
    fn a_question_is_named_by_its_id_only() {
        let question = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef@2";
        assert_eq!(short(question), "0123456789abcdef0123456789abcdef@2");
        assert!(is_named(question, question) && is_named(question, &short(question)));
        for other in ["", "0123456789abcdef", "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef@3"]
        {
            assert!(!is_named(question, other), "{other}");
        }
    }
}

//! What a run waits for, as a question to a person.

use etude::readable;
use serde_json::Value;

use crate::render::text::visible;

/// What exactly is asked about, to its last character: nothing may be approved that was not shown.
pub(crate) fn details(given: &Value) -> String {
    readable::text(given).lines().map(|line| format!("  | {}\n", visible(line))).collect()
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
}

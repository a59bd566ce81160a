//! Verdicts of guards on calls (`b-stages` §11.3, §20.4): the same protocol for machines and agents.

use serde_json::{Map, Value};

use super::hook::reply;
use super::reply::{decision, text};
use crate::outcome::ProcessEnd;

/// The value of `slot` in a guard's input.
pub const SLOT: &str = "TOOL_CALL/pre";

/// Text for the model if a guard is broken.
pub const UNDECIDED: &str = "a guard failed, so the call is denied";

/// The words that a guard may decide with.
pub(super) const WORDS: &[&str] = &["allow", "deny"];

/// Verdict of a guard on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call may be made.
    Allow,
    /// The call is denied, with code and reason as text.
    Deny(String),
    /// The guard gave no valid decision, for this reason. The call is denied (B-H3).
    Broken(String),
}

/// The verdict in the output of a guard's process.
pub fn verdict(end: &ProcessEnd) -> Verdict {
    match decision(reply(end), WORDS) {
        Ok((word, _)) if word == "allow" => Verdict::Allow,
        Ok((_, members)) => {
            let (code, reason) = denial(&members);
            Verdict::Deny(denied(&code, &reason))
        }
        Err((why, _)) => Verdict::Broken(why),
    }
}

/// Code and reason of a denial.
pub(super) fn denial(members: &Map<String, Value>) -> (String, String) {
    let code = text(members, "code").unwrap_or_else(|| "GuardDenied".to_owned());
    let reason = text(members, "reason").unwrap_or_else(|| "a guard denied the call".to_owned());
    (code, reason)
}

/// The text of a denial for the model.
pub(super) fn denied(code: &str, reason: &str) -> String {
    format!("{code}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Json;
    use crate::outcome::{Exit, Stderr, Stdout};

    fn verdict_of_exit(exit: Exit, stdout: &str) -> Verdict {
        let stdout = match Json::parse(stdout) {
            Ok(json) => Stdout::Value(json),
            Err(_) => Stdout::Unusable { problem: "it is no JSON".to_owned(), found: stdout.to_owned() },
        };
        verdict(&ProcessEnd { exit, stdout, stderr: Stderr::default(), conditions: Default::default() })
    }

    /// B-H3, B-20.4: a denial is a verdict, and every other output except `allow` means that the guard is broken.
    #[test]
    fn only_allow_lets_a_call_through() {
        let well = |stdout: &str| verdict_of_exit(Exit::Status(0), stdout);
        assert_eq!(well(r#"{"decision":"allow"}"#), Verdict::Allow);
        let denied = |text: &str| Verdict::Deny(text.to_owned());
        assert_eq!(well(r#"{"decision":"deny","code":"NoBash","reason":"never"}"#), denied("NoBash: never"));
        assert_eq!(well(r#"{"decision":"deny"}"#), denied("GuardDenied: a guard denied the call"));
        for stdout in ["", "{}", "[]", "no", r#"{"decision":"maybe"}"#, r#"{"decision":"allow","ctx":{}}"#] {
            assert!(matches!(well(stdout), Verdict::Broken(_)), "{stdout}");
        }
        let failed = verdict_of_exit(Exit::Status(1), r#"{"decision":"allow"}"#);
        assert_eq!(failed, Verdict::Broken("exited with status 1".to_owned()));
        let missing = verdict_of_exit(Exit::NotStarted("there is no `guard`".to_owned()), "");
        assert!(matches!(missing, Verdict::Broken(_)));
    }
}

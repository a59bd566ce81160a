//! Grants: each permits one call, once (B-GT4 to B-GT7).

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::digest::hex;
use crate::tool::{exact_arguments, shown_arguments};

/// The five fields that bind a grant to its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tuple {
    pub(super) stage_execution: String,
    pub(super) attempt: u32,
    pub(super) proposal: String,
    pub(super) tool: String,
    pub(super) args_digest: String,
}

impl Tuple {
    /// All five fields as one key.
    pub(super) fn key(&self) -> String {
        let attempt = self.attempt.to_string();
        [&self.stage_execution, &attempt, &self.proposal, &self.tool, &self.args_digest].map(String::as_str).join("\0")
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "stageExecutionId": self.stage_execution, "attempt": self.attempt, "proposalId": self.proposal,
            "tool": self.tool, "argsDigest": self.args_digest,
        })
    }
}

/// The grants of a run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// By key: the stage execution, and the state of the grant.
    issued: BTreeMap<String, (String, State)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    Consumed,
    Expired,
}

impl Ledger {
    pub(super) fn issue(&mut self, tuple: &Tuple) {
        self.issued.insert(tuple.key(), (tuple.stage_execution.clone(), State::Good));
    }

    /// Uses a grant up.
    ///
    /// # Errors
    /// The code word: the grant was never issued, is used up, or its stage is over.
    pub(super) fn consume(&mut self, tuple: &Tuple) -> Result<(), &'static str> {
        let Some((_, state)) = self.issued.get_mut(&tuple.key()) else { return Err("GrantNotFound") };
        match state {
            State::Good => {
                *state = State::Consumed;
                Ok(())
            }
            State::Consumed => Err("GrantAlreadyConsumed"),
            State::Expired => Err("GrantStageExpired"),
        }
    }

    /// Expires the grants of a stage execution that is over.
    pub(super) fn expire(&mut self, stage_execution: &str) {
        for (execution, state) in self.issued.values_mut() {
            if execution == stage_execution {
                *state = State::Expired;
            }
        }
    }
}

/// SHA-256 of the arguments as canonical JSON: members in the order of their names (B-GT5). Arguments that are not JSON
/// are hashed as they are. Numbers keep their digits, so that a permission covers no call with others; a run that an
/// earlier `abi` began rounds them.
pub(super) fn args_digest(arguments: &str, abi: u32) -> String {
    let mut text = String::new();
    match exact_arguments(arguments, abi) {
        Some(exact) => text = exact.to_string(),
        None => canonical(&shown_arguments(arguments), &mut text),
    }
    hex(&Sha256::digest(text.as_bytes()))
}

fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut names: Vec<_> = members.keys().collect();
            names.sort_unstable();
            out.push('{');
            for (at, name) in names.into_iter().enumerate() {
                let _ = write!(out, "{}{}:", if at > 0 { "," } else { "" }, Value::from(name.as_str()));
                canonical(&members[name], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                canonical(item, out);
            }
            out.push(']');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::ABI;

    fn tuple() -> Tuple {
        let [stage_execution, proposal, tool, args_digest] = ["r/a#1", "p1", "Bash", "d"].map(str::to_owned);
        Tuple { stage_execution, attempt: 1, proposal, tool, args_digest }
    }

    /// B-GT5, case 93: the order of members does not change the digest, any other difference does.
    #[test]
    fn the_digest_of_arguments_is_that_of_their_canonical_form() {
        let now = |arguments| args_digest(arguments, ABI);
        let digest = now(r#"{"a":1,"b":{"d":[1,2],"c":"x"}}"#);
        assert_eq!(digest, now(r#" {"b": {"c": "x", "d": [1, 2]}, "a": 1} "#));
        assert_ne!(digest, now(r#"{"a":1,"b":{"d":[2,1],"c":"x"}}"#));
        assert_eq!(now(""), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
        assert_ne!(now("{bad"), now("{bad2"));
        // Numbers that a tree rounds: all digits count, except in runs that an earlier version began.
        let (one, other) = (r#"{"b":2,"a":12345678901234567890123}"#, r#"{"b":2,"a":12345678901234567890124}"#);
        assert_ne!(now(one), now(other));
        assert_eq!(now(one), now(r#" {"a": 12345678901234567890123, "b": 2} "#));
        assert_eq!(args_digest(one, 13), args_digest(other, 13));
        assert_ne!(now(r#"{"a":0.1234567890123456789}"#), now(r#"{"a":0.1234567890123456788}"#));
    }

    /// B-GT4, case 94: another value in any of the five fields means another grant.
    #[test]
    fn every_field_of_the_tuple_binds() {
        let other = "x".to_owned();
        let changed = [
            Tuple { stage_execution: other.clone(), ..tuple() },
            Tuple { attempt: 2, ..tuple() },
            Tuple { proposal: other.clone(), ..tuple() },
            Tuple { tool: other.clone(), ..tuple() },
            Tuple { args_digest: other, ..tuple() },
        ];
        for tuple in changed {
            assert_ne!(tuple.key(), self::tuple().key());
            let mut ledger = Ledger::default();
            ledger.issue(&self::tuple());
            assert_eq!(ledger.consume(&tuple), Err("GrantNotFound"));
        }
    }

    /// B-GT6, B-GT7, case 94: a grant is valid once, and not after the exit of its own stage.
    #[test]
    fn a_grant_is_used_once_and_ends_with_its_stage() {
        let mut ledger = Ledger::default();
        let other = Tuple { stage_execution: "r/b#1".to_owned(), ..tuple() };
        ledger.issue(&tuple());
        ledger.issue(&other);
        assert_eq!(ledger.consume(&tuple()), Ok(()));
        assert_eq!(ledger.consume(&tuple()), Err("GrantAlreadyConsumed"));
        ledger.expire("r/a#1");
        assert_eq!(ledger.consume(&tuple()), Err("GrantStageExpired"));
        assert_eq!(ledger.consume(&other), Ok(()));
    }
}

//! Permissions of a stage by people and rules. They are used up by the batch of calls that they let run (B-GT4, B-0.1.5).

use std::collections::BTreeMap;

/// The first version of the interpreter that returns permissions if their batch does not run.
const GIVES_BACK: u32 = 6;

/// A person's answer to a question that halted the stage. It covers one call, once.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    pub(super) tool: String,
    pub(super) args_digest: String,
    pub(super) approved: bool,
    pub(super) reason: Option<String>,
    /// Time of the answer, as RFC 3339.
    pub(super) at: String,
}

/// The answers in one stage execution, with the permissions that the batch under decision has taken.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    answers: Vec<Kept>,
    /// Rules of the grant policy that the batch under decision has used.
    rules: Vec<usize>,
}

#[derive(Debug)]
struct Kept {
    answer: Answer,
    /// True if a call of the batch under decision has taken the answer.
    is_taken: bool,
}

impl Allowed {
    /// Keeps an answer until its call is proposed again.
    pub(super) fn note(&mut self, answer: Answer) {
        self.answers.push(Kept { answer, is_taken: false });
    }

    /// The first answer about this call that no other call of the batch has taken.
    pub(super) fn take(&mut self, tool: &str, args_digest: &str) -> Option<Answer> {
        let fits =
            |kept: &&mut Kept| !kept.is_taken && kept.answer.tool == tool && kept.answer.args_digest == args_digest;
        let kept = self.answers.iter_mut().find(fits)?;
        kept.is_taken = true;
        Some(kept.answer.clone())
    }

    /// Counts a use of a rule in `used`, which all executions share: so no other execution can use it meanwhile.
    pub(super) fn use_rule(&mut self, rule: usize, used: &mut BTreeMap<usize, u32>) {
        *used.entry(rule).or_default() += 1;
        self.rules.push(rule);
    }

    /// Uses up the permissions of the batch, which is decided.
    pub(super) fn spend(&mut self) {
        self.answers.retain(|kept| !kept.is_taken);
        self.rules.clear();
    }

    /// Returns the permissions of a batch that does not run, for when it is proposed again. In runs of an earlier `abi`
    /// they are used up.
    pub(super) fn give_back(&mut self, abi: u32, used: &mut BTreeMap<usize, u32>) {
        if abi < GIVES_BACK {
            return self.spend();
        }
        self.answers.iter_mut().for_each(|kept| kept.is_taken = false);
        for rule in self.rules.drain(..) {
            if let Some(uses) = used.get_mut(&rule) {
                *uses = uses.saturating_sub(1);
            }
        }
    }
}

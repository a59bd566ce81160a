//! Faults of learned pipelines, and of the configuration for learning.

use std::sync::Arc;

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{SourceFile, Span};
use crate::wording::quoted;

pub(crate) fn bad_field_pattern(file: &Arc<SourceFile>, at: Span, pattern: &str, why: &str) -> Diagnostic {
    let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
    let message = format!("{} in `redact` is not a regular expression: {why}", quoted(pattern));
    Diagnostic::error(Code::BadCondition, file, at, message)
        .hint("the pattern must match the whole name of a field: `email`, `card_.*`")
}

/// A learned pipeline that receives no requests. `place` is that of its state.
pub(crate) fn demoted(file: &Arc<SourceFile>, place: Span, name: &str) -> Diagnostic {
    let message = format!("learned pipeline {} is demoted: no request is routed to it", quoted(name));
    Diagnostic::error(Code::Demoted, file, place, message)
        .severity(Severity::Warning)
        .hint(format!("see why: etude learn status; use it again: etude learn promote {name}"))
}

/// A learned pipeline whose files have changed since it was learned.
pub(crate) fn edited(file: &Arc<SourceFile>, place: Span, name: &str) -> Diagnostic {
    let message = format!(
        "learned pipeline {} or one of its tools has changed since it was learned: it has no evidence",
        quoted(name)
    );
    Diagnostic::error(Code::EditedPipeline, file, place, message)
        .severity(Severity::Warning)
        .hint(format!("test the change: etude learn test {name}; then promote it: etude learn promote {name}"))
}

/// A learned pipeline whose question before the write has rules that SKILL.md does not have, or lacks some of them.
pub(crate) fn other_rules(file: &Arc<SourceFile>, place: Span, name: &str) -> Diagnostic {
    let message =
        format!("the question before the write of learned pipeline {} has other rules than SKILL.md", quoted(name));
    Diagnostic::error(Code::EditedPipeline, file, place, message)
        .severity(Severity::Warning)
        .hint("learn it again: etude learn; or change the rules in the prompt of its step `allowed`")
}

/// A state that its directory contradicts.
pub(crate) fn misplaced(file: &Arc<SourceFile>, place: Span, name: &str, state: &str) -> Diagnostic {
    let message = format!(
        "learned pipeline {} is {}, but it is in `learned/`, which the router ignores",
        quoted(name),
        quoted(state)
    );
    Diagnostic::error(Code::Contradiction, file, place, message)
        .hint(format!("let the command move it: etude learn promote {name}"))
}

//! Diagnostics: one fault in a definition, with its place.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::code::Code;
use crate::source::{SourceFile, Span};

etude_core::words! {
    /// Severity of a diagnostic; only errors stop a run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Severity {
        /// The definition is invalid and does not run.
        Error = "error",
        /// The definition is valid, but probably not as intended.
        Warning = "warning",
        /// A fact worth knowing.
        Note = "note",
    }
}

/// A fault in a definition. Made by the named constructors of this crate only.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Code of the broken rule; each has a page of its own.
    pub code: Code,
    /// The severity: only errors stop a definition from running.
    pub severity: Severity,
    /// Description of the fault: lower case, no full stop, names in back-quotes.
    pub message: String,
    /// File with the fault.
    pub file: Arc<SourceFile>,
    /// Place of the fault; `None` if the file as a whole (or a directory) is at fault.
    pub span: Option<Span>,
    /// Remark under the marked place.
    pub label: Option<String>,
    /// Further places of the same file.
    pub related: Vec<Label>,
    /// Next action for the user.
    pub hint: Option<String>,
    /// System B's classification of the fault; `None` for definitions of the other systems.
    pub rule: Option<Rule>,
    /// Word of the definition's own specification for the fault, such as `AA_MISSING_FIELD`.
    pub name: Option<&'static str>,
    /// Field at fault, as that specification writes it, such as `entry.command`.
    pub path: Option<String>,
    /// Table field that is missing or is an extension, for callers that add details.
    pub(crate) field: Option<&'static str>,
}

/// System B's name for a fault (`b-stages` §18), and its rank among the checks (§2.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// One of the eight classes, such as `Validation`.
    pub class: &'static str,
    /// The code word, such as `StageTurnCapTooLow`.
    pub name: &'static str,
    /// JSON pointer to the value at fault.
    pub path: String,
    /// Rank of the check: of several faults of a machine, the lowest rank is reported first.
    pub rank: u8,
    /// Subject of the fault, by its name in §2.5 (`duplicateId`, `stageId` or `entryStage`), with its value.
    pub subject: Option<(&'static str, String)>,
}

/// A further place, with a remark on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The place in the file of the diagnostic, in bytes.
    pub span: Span,
    /// A remark in the form of the message: lower case, no full stop.
    pub text: String,
}

impl Diagnostic {
    pub(crate) fn error(code: Code, file: &Arc<SourceFile>, span: impl Into<Option<Span>>, message: String) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message,
            file: Arc::clone(file),
            span: span.into(),
            label: None,
            related: Vec::new(),
            hint: None,
            rule: None,
            name: None,
            path: None,
            field: None,
        }
    }

    pub(crate) fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    pub(crate) fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    pub(crate) fn field(mut self, field: &'static str) -> Self {
        self.field = Some(field);
        self
    }

    pub(crate) fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// The same diagnostic, with at most this severity.
    pub(crate) fn at_most(mut self, severity: Severity) -> Self {
        self.severity = self.severity.max(severity);
        self
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    pub(crate) fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push(Label { span, text: text.into() });
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    pub(crate) fn rule(mut self, class: &'static str, name: &'static str, path: impl Into<String>, rank: u8) -> Self {
        self.rule = Some(Rule { class, name, path: path.into(), rank, subject: None });
        self
    }

    /// Sets the subject of a system B fault, unless it is set.
    pub(crate) fn about(mut self, name: &'static str, id: &str) -> Self {
        if let Some(rule) = &mut self.rule {
            rule.subject.get_or_insert_with(|| (name, id.to_owned()));
        }
        self
    }

    /// True for errors: the definition is invalid.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Line and column of the start, both from 1; `None` if the file as a whole is at fault.
    pub fn position(&self) -> Option<(u32, u32)> {
        self.span.map(|span| self.file.position(span.start))
    }

    /// Display order of diagnostics: by file, then by place and by code. The files of a stage machine count as one:
    /// earlier checks come first, in any of its files (`b-stages` §2.5).
    pub fn order(&self, other: &Self) -> Ordering {
        let key = |d: &Self| (d.span, d.code);
        let rank = |d: &Self| d.rule.as_ref().map(|rule| rule.rank);
        (self.definition(), rank(self), self.file.path())
            .cmp(&(other.definition(), rank(other), other.file.path()))
            .then_with(|| key(self).cmp(&key(other)))
            .then_with(|| self.message.cmp(&other.message))
    }

    /// Directory of the stage machine that the file belongs to; otherwise the path of the file.
    fn definition(&self) -> &str {
        let path = self.file.path();
        let name = path.strip_prefix("machines/").and_then(|rest| rest.find('/'));
        name.map_or(path, |end| &path[.."machines/".len() + end])
    }
}

/// Sorts diagnostics for display and removes duplicates.
pub fn sort(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(Diagnostic::order);
    diagnostics.dedup();
}

//! Files that a call on a folder must leave out, because a pattern withholds them.

use super::{Pattern, Subject, Verdict, glob, path};
use crate::tool::{ApprovalKey, Tool};

/// Files that a search or listing must leave out. A pattern with `$deny` or `$policy=ask` about paths applies to each file
/// that a call would read, not only to the folder that the call names.
#[derive(Debug, Clone, Default)]
pub struct Withheld {
    patterns: Vec<Pattern>,
}

impl Withheld {
    /// The files that `patterns` withhold from this call. A file withheld from `Read` is also withheld from `Grep` and `Edit`,
    /// whose results quote files. A question about the call itself has been answered already.
    pub fn new<'p>(call: &Subject<'_>, patterns: impl IntoIterator<Item = &'p Pattern>) -> Self {
        if !matches!(call.tool.approval_key, ApprovalKey::Path(_)) {
            return Self::default();
        }
        let is_kept = |pattern: &&Pattern| match pattern.effect() {
            Verdict::Deny => true,
            Verdict::Ask => !pattern.touches(call),
            Verdict::Allow | Verdict::Unlisted => false,
        };
        let names = |pattern: &&Pattern| {
            pattern.names(call.tool) || matches!(&*call.tool.name, "Grep" | "Edit") && pattern.names_read(call.tool)
        };
        let patterns = patterns.into_iter().filter(names).filter(is_kept);
        Self { patterns: patterns.filter(|pattern| !pattern.is_unconditional()).cloned().collect() }
    }

    /// True if the file is left out. Its path is relative to the app.
    pub fn holds(&self, file: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.withholds(file))
    }
}

impl Pattern {
    fn names_read(&self, grep: &Tool) -> bool {
        let read = Tool { name: "Read".to_owned(), ..grep.clone() };
        self.names(&read)
    }

    fn withholds(&self, file: &str) -> bool {
        match self.description().strip_prefix("path=") {
            Some(pattern) => path(pattern, file) || glob(pattern, file),
            None => path(&self.description(), file),
        }
    }
}

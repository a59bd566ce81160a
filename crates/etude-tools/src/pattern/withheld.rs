//! Files that a call on a folder must leave out, because a pattern withholds them.

use std::path::Path;

use globset::GlobMatcher;

use super::{Pattern, Subject, Verdict, matcher, path_glob};
use crate::confine::PathArgument;
use crate::tool::{ApprovalKey, Tool};

/// Files that a search or listing must leave out. A pattern with `$deny` or `$policy=ask` about paths applies to each file
/// that a call would read, not only to the folder that the call names.
#[derive(Debug, Clone, Default)]
pub struct Withheld {
    files: Vec<Files>,
}

/// Files that one pattern withholds: those that one of the globs names, or all if the pattern has no valid glob.
#[derive(Debug, Clone)]
struct Files {
    globs: Option<Vec<GlobMatcher>>,
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
        Self { files: patterns.filter(|pattern| !pattern.is_unconditional()).map(Pattern::files).collect() }
    }

    /// True if the file `below` the path of the call is left out; an empty `below` means the path itself. As for the path of a
    /// call, every name of the file counts.
    pub(crate) fn holds(&self, path: &PathArgument, below: &Path) -> bool {
        // Most calls have nothing to leave out.
        if self.files.is_empty() {
            return false;
        }
        let names = path.all_names(below);
        self.files.iter().any(|files| {
            files
                .globs
                .as_ref()
                .is_none_or(|globs| globs.iter().any(|glob| names.iter().any(|name| glob.is_match(name))))
        })
    }
}

impl Pattern {
    fn names_read(&self, grep: &Tool) -> bool {
        let read = Tool { name: "Read".to_owned(), ..grep.clone() };
        self.names(&read)
    }

    fn files(&self) -> Files {
        let description = self.description();
        let globs = match description.strip_prefix("path=") {
            Some(pattern) => path_glob(pattern).into_iter().chain(matcher(pattern, false)).collect(),
            None => Vec::from_iter(path_glob(&description)),
        };
        Files { globs: Some(globs).filter(|globs| !globs.is_empty()) }
    }
}

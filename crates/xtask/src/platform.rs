//! Check that platform code stays in files named for it, and that there is no `unsafe`.

use crate::rust::{line_of, occurrences};
use crate::tree::{Tree, Violation};

/// Paths that only some systems have.
const PLATFORM: &[&str] = &["std::os", "rustix", "libc", "nix", "tokio::signal::unix"];

/// Finds platform code in other files, and `unsafe`.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources() {
        let mut report =
            |offset, what: String| found.push(Violation::at(&source.path, line_of(&source.code, offset), what));
        for named in &source.paths {
            if !is_platform_file(&source.path) && PLATFORM.iter().any(|path| named.is_below(path)) {
                report(named.offset, format!("`{}` outside a file named unix.rs, and not below unix/", named.path));
            }
        }
        for word in ["unsafe", "unsafe_code"] {
            occurrences(&source.code, word).for_each(|offset| report(offset, format!("`{word}`: there is a safe way")));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn is_platform_file(path: &str) -> bool {
    path.split('/').any(|part| part == "unix" || part == "unix.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &str, text: &str) -> usize {
        check(&Tree::made_up(&[(path, text)])).len()
    }

    #[test]
    fn platform_code_is_seen_where_it_does_not_belong() {
        assert_eq!(seen("crates/a/src/lock.rs", "use std::os::fd::AsFd;"), 1);
        assert_eq!(seen("crates/a/src/lock.rs", "fn f() { rustix::process::getpid(); }"), 1);
        assert_eq!(seen("crates/a/src/unix.rs", "use std::os::fd::AsFd;"), 0);
        assert_eq!(seen("crates/a/src/process/unix/linux.rs", "use rustix::fs;"), 0);
        assert_eq!(seen("crates/a/src/linux.rs", "use rustix::fs;"), 1);
    }

    #[test]
    fn unsafe_code_is_seen_even_where_a_lint_is_switched_off() {
        assert_eq!(seen("crates/a/src/a.rs", "fn f() { unsafe { g() } }"), 1);
        assert_eq!(seen("crates/a/src/a.rs", "#![allow(unsafe_code)]"), 1);
    }
}

//! Paths that code names: imports written out in full, and paths in expressions with imports resolved.

use std::collections::BTreeMap;

use super::{is_word, occurrences};

/// A path, such as `std::fs::read`, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Full path; a glob import ends with `::*`.
    pub path: String,
    /// Position in the code, in bytes.
    pub offset: usize,
}

impl Named {
    /// True if the path is `ban`, is below it, or is a glob that could import it.
    pub fn is_below(&self, ban: &str) -> bool {
        let is_prefix = |prefix: &str, path: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        is_prefix(ban, &self.path) || self.path.strip_suffix("::*").is_some_and(|glob| is_prefix(glob, ban))
    }
}

/// All paths in `code`, whose comments and strings are already blanked.
pub fn paths(code: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let mut aliases = BTreeMap::new();
    let mut imports = Vec::new();
    for start in occurrences(code, "use").filter(|at| begins_statement(code, *at)) {
        let end = code[start..].find(';').map_or(code.len(), |found| start + found);
        imports.push(start..end);
        expand("", code[start + 3..end].trim(), &mut |path, alias| {
            aliases.insert(alias.to_owned(), path.to_owned());
            found.push(Named { path: path.to_owned(), offset: start });
        });
    }
    for (path, offset) in inline(code).into_iter().filter(|(_, at)| !imports.iter().any(|import| import.contains(at))) {
        let (first, rest) = path.split_once("::").unwrap_or((&path, ""));
        let path = match aliases.get(first) {
            Some(full) if !full.ends_with("::*") => format!("{full}::{rest}"),
            _ => path,
        };
        found.push(Named { path, offset });
    }
    found
}

/// True if `use` at `at` begins an import, rather than a list of captured lifetimes.
fn begins_statement(code: &str, at: usize) -> bool {
    let before = code[..at].trim_end();
    before.is_empty() || before.ends_with([';', '{', '}', ']', ')']) || before.ends_with("pub")
}

/// Calls `take` with each path of an import tree and its name in the importing module.
fn expand(prefix: &str, tree: &str, take: &mut dyn FnMut(&str, &str)) {
    let tree = tree.trim().trim_start_matches("::");
    if let Some((head, group)) = tree.split_once('{') {
        let head = head.trim().trim_end_matches("::");
        let prefix = join(prefix, head);
        for part in split_group(group.trim_end().trim_end_matches('}')) {
            expand(&prefix, part, take);
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path.trim(), Some(alias.trim())));
    let path: String = path.chars().filter(|c| !c.is_whitespace()).collect();
    if path.is_empty() {
        return;
    }
    let full = if path == "self" { prefix.to_owned() } else { join(prefix, &path) };
    let last = full.rsplit("::").next().unwrap_or_default();
    take(&full, alias.unwrap_or(last));
}

fn join(prefix: &str, path: &str) -> String {
    match (prefix, path) {
        ("", path) => path.to_owned(),
        (prefix, "") => prefix.to_owned(),
        (prefix, path) => format!("{prefix}::{path}"),
    }
}

/// Parts of a group, split at commas outside of inner groups.
fn split_group(group: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_usize, 0);
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[from..]);
    parts
}

/// Paths of at least two parts, anywhere in the code.
fn inline(code: &str) -> Vec<(String, usize)> {
    let bytes = code.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            at += 1;
            continue;
        }
        let start = at;
        loop {
            at += bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
            let goes_on = bytes[at..].starts_with(b"::") && bytes.get(at + 2).copied().is_some_and(is_word);
            if !goes_on {
                break;
            }
            at += 2;
        }
        let path = &code[start..at];
        if path.contains("::") {
            found.push((path.to_owned(), start));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(code: &str, ban: &str) -> bool {
        paths(code).iter().any(|path| path.is_below(ban))
    }

    #[test]
    fn a_path_is_found_however_it_is_written() {
        for code in [
            "use std::fs;",
            "use std::fs::File;",
            "use std::{io, fs::{self, File}};",
            "use std::{\n    sync::Arc,\n    fs,\n};",
            "pub(crate) use std::fs as files;",
            "use ::std::fs;",
            "use std::*;",
            "fn f() { std::fs::read(p); }",
            "fn f(x: ::std::fs::File) {}",
            "use std as s;\nfn f() { s::fs::read(p) }",
        ] {
            assert!(names(code, "std::fs"), "{code}");
        }
    }

    #[test]
    fn imports_are_taken_into_account() {
        assert!(names("use std::time; fn f() { time::Instant::now(); }", "std::time::Instant"));
        assert!(names("use std::time as t; fn f() { t::Instant::now(); }", "std::time::Instant"));
        assert!(names("use std::time::{Duration, Instant};", "std::time::Instant"));
        assert!(!names("use std::time::Duration; fn f() { Duration::from_secs(1); }", "std::time::Instant"));
    }

    #[test]
    fn what_only_looks_alike_is_not_found() {
        for code in ["use std::fsx;", "use my::std::fs;", "fn f() -> impl I + use<'a> { fs::x() }", "use std::{io};"] {
            assert!(!names(code, "std::fs"), "{code}");
        }
    }
}

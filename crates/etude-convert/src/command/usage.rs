//! The notation of usage lines: `[--limit N]` may be left out, `...` is not a word of a command.

use std::sync::LazyLock;

use regex::Regex;

use super::Command;
use super::words::{parameter, parameter_name};

/// `[--limit N]`, `[--limit=<n>]`, `[path]`.
static OPTION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\[(--?[A-Za-z][A-Za-z0-9-]*)?([ =])?<?([A-Za-z][A-Za-z0-9_ -]*)?>?\.{0,3}\]$").ok());

/// Words that stand for any number of options.
const OPTIONS: [&str; 5] = ["flags", "options", "opts", "args", "arguments"];

/// An option of a usage line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Optional {
    /// A value that may be left out: the words before it, and its name.
    Value(String, String),
    /// Nothing that a parameter could give.
    Nothing,
}

/// Whether a word stands for text that its author left out.
pub(super) fn is_elision(word: &str) -> bool {
    matches!(word.trim_matches(['"', '\'']), "..." | "…")
}

/// Whether a word of a usage line stands for a value: `FILE`, `THREAD_ID`.
pub(super) fn is_placeholder(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    word.len() > 2 && word.starts_with(|c: char| c.is_ascii_uppercase()) && word.chars().all(is_part)
}

/// The end of an option that a text begins with: `[` and a letter, `-` or `<`, up to a `]` that ends its word. `[ -f x ]` and
/// `[a-z]*` are no options.
pub(super) fn end_of_option(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let starts =
        inner.starts_with(|c: char| c.is_ascii_alphabetic() || c == '-' || c == '<') || inner.starts_with("...");
    let end = inner.find([']', '\n', '['])?;
    let after = inner.get(end + 1..)?.chars().next();
    let ends_word = after.is_none_or(|c| c.is_whitespace() || matches!(c, ';' | '|' | ')'));
    (starts && inner[end..].starts_with(']') && ends_word).then_some(end + 2)
}

/// Reads a whole word as the notation of an option, such as `[--all]`; `None`: it is none.
pub(super) fn option(word: &str) -> Option<Optional> {
    if end_of_option(word) != Some(word.len()) {
        return None;
    }
    let Some(found) = OPTION.as_ref().and_then(|pattern| pattern.captures(word)) else {
        return Some(Optional::Nothing);
    };
    let group = |at| found.get(at).map(|group| group.as_str());
    Some(match (group(1), group(3)) {
        (None, Some(name)) if !OPTIONS.contains(&name.to_ascii_lowercase().trim_end_matches('.')) => {
            Optional::Value(String::new(), name.to_owned())
        }
        (Some(flag), Some(_)) => {
            let separator = group(2).unwrap_or(" ");
            Optional::Value(format!("{flag}{separator}"), flag.trim_start_matches('-').to_owned())
        }
        _ => Optional::Nothing,
    })
}

/// An option as shell text: it is left out if its parameter has no value.
pub(super) fn replaced(option: &Optional, command: &mut Command) -> String {
    match option {
        Optional::Nothing => String::new(),
        Optional::Value(before, name) => {
            let variable = parameter(name, command);
            command.optional.insert(parameter_name(name));
            format!("${{{variable}:+{before}\"${variable}\"}}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_neither_tests_nor_patterns() {
        let value = |before: &str, name: &str| Some(Optional::Value(before.to_owned(), name.to_owned()));
        assert_eq!(option("[--pr NUMBER]"), value("--pr ", "pr"));
        assert_eq!(option("[--limit=<n>]"), value("--limit=", "limit"));
        assert_eq!(option("[path]"), value("", "path"));
        assert_eq!(["[FLAGS]", "[...]", "[--all]", "[-a|-b]"].map(option), [const { Some(Optional::Nothing) }; 4]);
        assert_eq!(["[ -f x ]", "[a-z]*", "a[0]", "[[ x ]]"].map(option), [const { None }; 4]);
    }
}

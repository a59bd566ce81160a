//! Notation of usage lines: `[--limit N]` may be left out, `{fast,slow}` is one of several, `...` is not a word of a command.

use std::sync::LazyLock;

use regex::Regex;

use super::Command;
use super::words::{parameter, parameter_name};

/// `[--limit N]`, `[--limit=<n>]`, `[path]`.
static OPTION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\[(--?[A-Za-z][A-Za-z0-9-]*)?([ =])?<?([A-Za-z][A-Za-z0-9_ -]*)?>?\.{0,3}\]$").ok());

/// `{fast,slow}`, `{fast|slow}`, `<fast|slow>`, `--mode=<fast|slow>`.
static CHOICE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const WORD: &str = r"[A-Za-z0-9][A-Za-z0-9_.+-]*";
    let all = format!(
        r"^(?:(--?[A-Za-z][A-Za-z0-9-]*)=)?(?:\{{({WORD}(?:,{WORD})+)\}}|\{{({WORD}(?:\|{WORD})+)\}}|<({WORD}(?:\|{WORD})+)>)$"
    );
    Regex::new(&all).ok()
});

/// `--mode`, `-m`.
static FLAG: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^--?[A-Za-z][A-Za-z0-9-]*$").ok());

/// Words that stand for any number of options.
const OPTIONS: [&str; 5] = ["flags", "options", "opts", "args", "arguments"];

/// Optional part of a usage line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Optional {
    /// A value that may be left out: the words before it, and its name.
    Value(String, String),
    /// No value that a parameter could give.
    Nothing,
}

/// One of several words that a usage line lists.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice<'w> {
    /// Option whose value it is, if the word has it as `--mode=`.
    pub(super) option: Option<&'w str>,
    pub(super) alternatives: Vec<String>,
    /// True if a shell would read something else: `{a,b}` is two words.
    pub(super) is_ambiguous: bool,
}

/// Reads a whole word as a choice; `None` if it is something else.
pub(super) fn choice(word: &str) -> Option<Choice<'_>> {
    let found = CHOICE.as_ref()?.captures(word)?;
    let words = [2, 3, 4].into_iter().find_map(|group| found.get(group))?.as_str();
    Some(Choice {
        option: found.get(1).map(|option| option.as_str()),
        alternatives: words.split([',', '|']).map(str::to_owned).collect(),
        is_ambiguous: found.get(2).is_some(),
    })
}

/// End of a choice between `|` that a text begins with: one word, and not a pipe.
pub(super) fn end_of_choice(text: &str) -> Option<usize> {
    let end = text.find(|c: char| c.is_whitespace() || ";&()".contains(c)).unwrap_or(text.len());
    choice(&text[..end]).is_some().then_some(end)
}

/// Name of an option such as `--mode`; `None` if the word is something else.
pub(super) fn flag(word: &str) -> Option<&str> {
    FLAG.as_ref()?.is_match(word).then(|| word.trim_start_matches('-'))
}

/// True if a word stands for text that its author left out.
pub(super) fn is_elision(word: &str) -> bool {
    matches!(word.trim_matches(['"', '\'']), "..." | "…")
}

/// True if a word of a usage line stands for a value: `FILE`, `THREAD_ID`.
pub(super) fn is_placeholder(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    word.len() > 2 && word.starts_with(|c: char| c.is_ascii_uppercase()) && word.chars().all(is_part)
}

/// End of an option that a text begins with: `[` and a letter, `-` or `<`, up to a `]` that ends its word. `[ -f x ]` and
/// `[a-z]*` are not options.
pub(super) fn end_of_option(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let starts =
        inner.starts_with(|c: char| c.is_ascii_alphabetic() || c == '-' || c == '<') || inner.starts_with("...");
    let end = inner.find([']', '\n', '['])?;
    let after = inner.get(end + 1..)?.chars().next();
    let ends_word = after.is_none_or(|c| c.is_whitespace() || matches!(c, ';' | '|' | ')'));
    (starts && inner[end..].starts_with(']') && ends_word).then_some(end + 2)
}

/// Reads a whole word as the notation of an option, such as `[--all]`; `None` if it is something else.
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

/// Shell text of an option: the option is left out if its parameter has no value.
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
    fn choices_are_neither_groups_nor_pipes() {
        let alternatives =
            |word: &str| choice(word).map(|choice| (choice.option.map(str::to_owned), choice.alternatives.join(" ")));
        let of = |option: Option<&str>, words: &str| Some((option.map(str::to_owned), words.to_owned()));
        assert_eq!(alternatives("{fast,slow}"), of(None, "fast slow"));
        assert_eq!(alternatives("<a|b|c-1>"), of(None, "a b c-1"));
        assert_eq!(alternatives("--mode={fast|slow}"), of(Some("--mode"), "fast slow"));
        let none =
            ["{fast}", "{a,b}.csv", "x{a,b}", "{a, b}", "{a,b|c}", "<name>", "{1..3}", "a|b", "{*.c,*.h}", "{ls"];
        assert_eq!(none.map(choice), [const { None }; 10]);
        assert_eq!(
            [
                end_of_choice("<a|b> x"),
                end_of_choice("{a|b};"),
                end_of_choice("<in|sort>out"),
                end_of_choice("{ls|wc -l;}")
            ],
            [Some(5), Some(5), None, None]
        );
        assert_eq!(
            [flag("--dry-run"), flag("-m"), flag("--mode=x"), flag("x")],
            [Some("dry-run"), Some("m"), None, None]
        );
    }

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

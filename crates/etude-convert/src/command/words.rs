//! The words of shell text: placeholders become parameters, files of the skill are named from the app's directory.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::{Captures, NoExpand, Regex};

use super::{Command, Values};
use crate::skill::Skill;

/// The prefix of variables that have values of parameters, so that none has the name of a variable of the system.
const PREFIX: &str = "INPUT_";

/// The app's directory, in which the files of the skill are.
const APP: &str = "$ETUDE_APP_DIR";

/// Variables that a shell or a user has anyway.
const KNOWN: [&str; 12] =
    ["HOME", "PATH", "PWD", "USER", "TMPDIR", "SHELL", "LANG", "OLDPWD", "HOSTNAME", "EDITOR", "IFS", "RANDOM"];

/// Names of directories of a skill in other programs.
static BASE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\$\{?(?:CLAUDE_SKILL_DIR|CLAUDE_PLUGIN_ROOT|SKILL_DIR|SKILL_ROOT)\}?|\{(?:baseDir|SKILL_DIR|skill_dir)\}",
    )
    .ok()
});

/// `{{name}}`, `<name>`, `{name}`, `$NAME`, `${NAME}`, `$1`, `$@`.
static PLACEHOLDER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\{\{ *([A-Za-z][A-Za-z0-9_. -]*?) *\}\}|<([A-Za-z][A-Za-z0-9_. -]*)>|\$\{([A-Z][A-Z0-9_]+)\}|\$([A-Z][A-Z0-9_]+|[1-9@*])|(?:^|[^$])\{([A-Za-z][A-Za-z0-9_-]*)\}").ok()
});

/// `NAME=`, `for NAME`, `read NAME`.
static ASSIGNED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b([A-Za-z_][A-Za-z0-9_]*)=|\b(?:for|read)\s+([A-Za-z_][A-Za-z0-9_]*)").ok());

/// The text with its placeholders and paths replaced; parameters and scripts are added to `command`.
pub(super) fn replace(skill: &Skill, text: &str, values: &Values, command: &mut Command) -> String {
    let assigned = assigned(text);
    let mut out = String::new();
    for piece in pieces(text) {
        match piece {
            Piece::Between(between) => out.push_str(between),
            Piece::Word(word) => out.push_str(&replaced(skill, word, (values, &assigned), command)),
        }
    }
    out
}

/// The variables to which a text gives values itself.
fn assigned(text: &str) -> BTreeSet<&str> {
    let found = ASSIGNED.iter().flat_map(|pattern| pattern.captures_iter(text));
    found.filter_map(|found| Some(found.get(1).or(found.get(2))?.as_str())).collect()
}

enum Piece<'t> {
    Word(&'t str),
    Between(&'t str),
}

/// Words, with their quotes, and what is between them.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut found, mut start, mut quote, mut angle) = (Vec::new(), 0, None, false);
    let mut is_word = false;
    let mut cut = |range: std::ops::Range<usize>, is_word: bool| {
        if let Some(part) = text.get(range).filter(|part| !part.is_empty()) {
            found.push(if is_word { Piece::Word(part) } else { Piece::Between(part) });
        }
    };
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            _ => {}
        }
        // `<input file>` is one word, `< file` is not.
        match c {
            '<' if quote.is_none() && text[at + 1..].starts_with(|c: char| c.is_ascii_alphabetic()) => {
                let inner = text[at + 1..].split_once('>').map(|(inner, _)| inner);
                angle =
                    inner.is_some_and(|inner| inner.chars().all(|c| c.is_ascii_alphanumeric() || "_. -".contains(c)));
            }
            '>' => angle = false,
            _ => {}
        }
        let divides = quote.is_none() && !angle && (c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | ')'));
        if divides == is_word {
            cut(start..at, is_word);
            (start, is_word) = (at, !divides);
        }
    }
    cut(start..text.len(), is_word);
    found
}

fn replaced(
    skill: &Skill,
    word: &str,
    (values, assigned): (&Values, &BTreeSet<&str>),
    command: &mut Command,
) -> String {
    let bare = word.trim_matches(['"', '\'']);
    let plain = bare.strip_prefix("./").unwrap_or(bare).trim_end_matches('/');
    if let Some(file) = skill.file(plain) {
        if file.interpreter().is_some() {
            command.scripts.push(plain.to_owned());
        }
        return format!("\"{APP}/{plain}\"");
    }
    if plain.len() > 1 && skill.directories().contains(plain) {
        return format!("\"{APP}/{plain}\"");
    }
    if let Some((name, _)) = values.iter().find(|(_, known)| bare.len() > 1 && known.iter().any(|value| value == bare))
    {
        return format!("\"${}\"", parameter(name, command));
    }
    let word = match BASE.as_ref() {
        Some(base) => base.replace_all(word, NoExpand(APP)).into_owned(),
        None => word.to_owned(),
    };
    if let Some(path) = word.trim_matches(['"', '\'']).strip_prefix(&format!("{APP}/"))
        && skill.file(path).is_some_and(|file| file.interpreter().is_some())
    {
        command.scripts.push(path.to_owned());
    }
    placeholders(&word, assigned, command)
}

/// Replaces placeholders, each as the quotes around it need it.
fn placeholders(word: &str, assigned: &BTreeSet<&str>, command: &mut Command) -> String {
    let Some(pattern) = PLACEHOLDER.as_ref() else { return word.to_owned() };
    let mut out = String::new();
    let (mut from, mut quotes) = (0, Quotes::new(word));
    for found in pattern.captures_iter(word) {
        let (Some(all), Some(name)) = (found.get(0), name(&found)) else { continue };
        let is_braces = found.get(5).is_some();
        let lead = if is_braces { all.as_str().find('{').unwrap_or(0) } else { 0 };
        let quote = quotes.open_at(all.start() + lead);
        let is_variable = found.get(3).or(found.get(4)).is_some();
        // In single quotes braces belong to another language, and `$` is only a character.
        if quote == Some('\'') && (is_braces || is_variable) || is_variable && !is_parameter(name, assigned) {
            continue;
        }
        let variable = parameter(name, command);
        out.push_str(&word[from..all.start() + lead]);
        out.push_str(&expansion(quote, &variable));
        from = all.end();
    }
    out.push_str(&word[from..]);
    out
}

fn name<'w>(found: &Captures<'w>) -> Option<&'w str> {
    (1..=5).find_map(|group| found.get(group)).map(|group| group.as_str())
}

/// A variable in shell text, as the quotes around it need it.
pub(crate) fn expansion(quote: Option<char>, variable: &str) -> String {
    match quote {
        None => format!("\"${variable}\""),
        Some('"') => format!("${{{variable}}}"),
        Some(_) => format!("'\"${variable}\"'"),
    }
}

/// Follows the quotes of shell text from its start.
pub(crate) struct Quotes<'t> {
    text: &'t str,
    at: usize,
    open: Option<char>,
}

impl<'t> Quotes<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, at: 0, open: None }
    }

    /// The quote that is open at a place, which is not before the last one.
    pub(crate) fn open_at(&mut self, at: usize) -> Option<char> {
        let passed = self.text.get(self.at..at).unwrap_or_default();
        self.open = passed.chars().fold(self.open, |open, c| match open {
            Some(quote) if quote == c => None,
            None if matches!(c, '"' | '\'') => Some(c),
            _ => open,
        });
        self.at = at;
        self.open
    }
}

/// Whether a variable stands for a value that the user gives: neither the system has it, nor the text, nor is it a secret.
fn is_parameter(name: &str, assigned: &BTreeSet<&str>) -> bool {
    let is_secret = ["KEY", "TOKEN", "SECRET", "PASSWORD"].iter().any(|part| name.contains(part));
    !assigned.contains(name) && !is_secret && !KNOWN.contains(&name) && !name.starts_with("ETUDE_")
}

/// Adds a parameter; its variable.
fn parameter(name: &str, command: &mut Command) -> String {
    let name = match name {
        "ARGUMENTS" | "@" | "*" => "arguments".to_owned(),
        digit if digit.bytes().all(|byte| byte.is_ascii_digit()) => format!("argument_{digit}"),
        other => other.to_ascii_lowercase().replace([' ', '-', '.'], "_"),
    };
    let variable = format!("{PREFIX}{}", name.to_ascii_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
    command.parameters.insert(name, variable.clone());
    variable
}

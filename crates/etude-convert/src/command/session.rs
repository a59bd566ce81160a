//! Effects of a command on later commands in the same shell: variables, and another directory.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::{find, words};
use crate::skill::Skill;
use crate::statement::Statement;

/// `cd` or a similar word at the start of a command, outside of a subshell.
static MOVES: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?m)(?:^[ \t]*|(?:&&|;)[ \t]*)(?:cd|pushd|source|\.)[ \t]+\S").ok());

/// Line that only assigns a variable.
static SETS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"^\s*(?:export\s+)?[A-Za-z_][A-Za-z0-9_]*=(?:"[^"]*"|'[^']*'|\$\(.*\)|[^\s"'$]*|\$\{?\w+\}?)*\s*(?:#.*)?$"#,
    )
    .ok()
});

/// A variable that a text reads.
static READS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)").ok());

/// Effects of a command on its shell, and the variables that it needs from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Session {
    /// Variables that the command sets.
    pub(crate) sets: BTreeSet<String>,
    /// Variables that the command reads before it sets them itself.
    pub(crate) reads: BTreeSet<String>,
    /// True if the commands after it run in another directory.
    pub(crate) moves: bool,
    /// True if it does nothing but set variables or change the directory.
    pub(crate) is_only_setting: bool,
}

/// Effects and needs of the command of a statement.
pub(crate) fn session(skill: &Skill, statement: &Statement) -> Session {
    let Ok(Some(found)) = find::lines(skill, statement) else { return Session::default() };
    let sets: BTreeSet<String> = words::assigned(&found.text).into_iter().map(str::to_owned).collect();
    let reads = READS.iter().flat_map(|pattern| pattern.captures_iter(&found.text));
    let reads = reads.filter_map(|found| Some(found.get(1)?.as_str().to_owned()));
    let lines = found.text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let moves = |text: &str| MOVES.as_ref().is_some_and(|pattern| pattern.is_match(text));
    let is_setting = |line: &str| SETS.as_ref().is_some_and(|pattern| pattern.is_match(line));
    Session {
        reads: reads.filter(|name| !sets.contains(name)).collect(),
        moves: moves(&found.text),
        is_only_setting: lines.clone().all(|line| is_setting(line) || moves(line) && !line.contains(['&', ';', '|'])),
        sets,
    }
}

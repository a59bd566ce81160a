//! Where a statement has a command: code blocks for a shell, code spans, links to scripts.

use std::sync::LazyLock;

use regex::Regex;

use crate::skill::Skill;
use crate::statement::{Form, Statement};

/// The commands of a statement, as written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) text: String,
    /// The block names `bash` or `zsh` as its language.
    pub(super) is_bash: bool,
}

const SHELLS: [&str; 8] = ["sh", "bash", "shell", "zsh", "console", "shell-session", "shellsession", "terminal"];

/// Programs that start a command in a text without a language.
const PROGRAMS: [&str; 36] = [
    "awk", "bash", "cargo", "cat", "cp", "curl", "deno", "docker", "find", "gh", "git", "go", "grep", "head", "jq",
    "kubectl", "ls", "make", "mkdir", "mv", "node", "npm", "npx", "pip", "pnpm", "python", "python3", "rg", "ruby",
    "sed", "sh", "sort", "tail", "terraform", "uv", "yarn",
];

/// A statement that forbids its command.
static FORBIDS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)\b(never|not|don't|avoid|forbidden|without|instead of|unless)\b").ok());

/// A code span, or the target of a link.
static SPANS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"`+([^`]+)`+|\]\(([^)\s]+)\)").ok());

/// Most bytes of a statement in which commands are looked for.
const MAX_BYTES: usize = 64 * 1024;

/// The commands in a statement.
pub(super) fn lines(skill: &Skill, statement: &Statement) -> Option<Found> {
    if statement.text.len() > MAX_BYTES {
        return None;
    }
    match &statement.form {
        Form::Code { language } => of_block(skill, &statement.text, language),
        Form::Item | Form::Sentence | Form::Row => of_prose(skill, &statement.text),
        Form::Heading | Form::Html => None,
    }
}

fn of_block(skill: &Skill, text: &str, language: &str) -> Option<Found> {
    let is_shell = SHELLS.contains(&language);
    let is_command = |line: &str| starts_a_command(skill, line.trim_start_matches("$ "));
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))?;
    if !(is_shell || language.is_empty() && is_command(first)) {
        return None;
    }
    let text = match text.lines().any(|line| line.starts_with("$ ")) {
        true => prompts(text),
        false => text.trim().to_owned(),
    };
    let is_empty = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    (!is_empty).then_some(Found { text, is_bash: matches!(language, "bash" | "zsh") })
}

/// The lines that were typed after `$ `, those that continue them included; the others are output.
fn prompts(text: &str) -> String {
    let mut typed = Vec::new();
    let mut continues = false;
    for line in text.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => typed.push(command),
            None if continues => typed.push(line),
            None => continue,
        }
        continues = line.ends_with('\\');
    }
    typed.join("\n")
}

/// Code spans that are commands, and else the scripts that a text names. A text that forbids something has none.
fn of_prose(skill: &Skill, text: &str) -> Option<Found> {
    if FORBIDS.as_ref()?.is_match(text) {
        return None;
    }
    let spans = SPANS.as_ref()?.captures_iter(text);
    let spans: Vec<&str> = spans.filter_map(|found| Some(found.get(1).or(found.get(2))?.as_str().trim())).collect();
    let commands: Vec<String> = spans.iter().filter_map(|span| command(skill, span)).collect();
    let found = match commands.is_empty() {
        true => text
            .split_whitespace()
            .filter_map(|word| script(skill, word.trim_matches(['.', ',', ';', ':', '"', '(', ')'])))
            .collect(),
        false => commands,
    };
    let mut unique: Vec<String> = Vec::new();
    for command in found {
        if !unique.contains(&command) {
            unique.push(command);
        }
    }
    (!unique.is_empty()).then(|| Found { text: unique.join("\n"), is_bash: false })
}

/// A code span as a command: a script of the skill, or a known program with at least one argument.
fn command(skill: &Skill, span: &str) -> Option<String> {
    script(skill, span)
        .or_else(|| (span.split_whitespace().count() > 1 && starts_a_command(skill, span)).then(|| span.to_owned()))
}

/// The command that runs the script at `path`.
fn script(skill: &Skill, path: &str) -> Option<String> {
    let plain = path.strip_prefix("./").unwrap_or(path);
    let interpreter = skill.file(plain)?.interpreter()?;
    Some(if interpreter.is_empty() { plain.to_owned() } else { format!("{interpreter} {plain}") })
}

fn starts_a_command(skill: &Skill, line: &str) -> bool {
    let Some(first) = line.split_whitespace().next() else { return false };
    let plain = first.strip_prefix("./").unwrap_or(first);
    PROGRAMS.contains(&first) || skill.file(plain).is_some_and(|file| file.interpreter().is_some())
}

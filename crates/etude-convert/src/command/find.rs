//! Search for commands in a statement: code blocks for a shell, code spans, links to scripts.

use std::sync::LazyLock;

use regex::Regex;

use crate::skill::Skill;
use crate::statement::{Form, Statement};

/// The commands of a statement, as written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) text: String,
    /// True if the block names `bash` or `zsh` as its language.
    pub(super) is_bash: bool,
}

const SHELLS: [&str; 8] = ["sh", "bash", "shell", "zsh", "console", "shell-session", "shellsession", "terminal"];

/// Programs that start a command in a text without a language.
const PROGRAMS: [&str; 64] = [
    "ansible-playbook", "awk", "aws", "az", "bash", "black", "bun", "bunx", "cargo", "cat", "cp", "curl", "deno",
    "docker", "dotnet", "eslint", "ffmpeg", "find", "gcloud", "gh", "git", "go", "gradle", "grep", "head", "helm",
    "jq", "kubectl", "ls", "make", "mkdir", "mv", "mvn", "mypy", "node", "npm", "npx", "packer", "pandoc", "pip",
    "pnpm", "prettier", "psql", "pytest", "python", "python3", "rg", "ruby", "ruff", "sed", "semgrep", "sh", "sort",
    "sqlite3", "swift", "tail", "terraform", "tsc", "uv", "uvx", "vercel", "wc", "wget", "yarn",
];

/// Programs whose second word is a verb, and whose third word names the program that they run.
const RUNNERS: [&str; 10] = ["bun", "cargo", "docker", "gh", "go", "kubectl", "npm", "pnpm", "uv", "yarn"];

/// A statement that forbids its command.
static FORBIDS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)\b(never|not|don't|avoid|forbidden|without|instead of|unless)\b").ok());

/// Condition with an action, which stands after it, or before it with a code span.
static ACTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)^\W*(?:if|when|whenever|in case|once|after|as soon as)\b[^,:]*[,:]\s*(?:then\s+)?(\w+)|^\W*(\w+)\b[^`]*`[^`]+`.*\b(?:if|when|whenever|in case)\b").ok()
});

/// Actions that end the work: all later steps depend on such a condition.
const ENDS: [&str; 10] = ["abort", "cancel", "end", "exit", "fail", "halt", "quit", "refuse", "reject", "stop"];

/// True if a condition has an action of its own, and is not only a condition for later work.
pub(crate) fn has_action(text: &str) -> bool {
    let (Some(action), Some(forbids)) = (ACTION.as_ref(), FORBIDS.as_ref()) else { return false };
    let verb = action.captures(text).and_then(|found| found.get(1).or(found.get(2)));
    verb.is_some_and(|verb| !ENDS.contains(&verb.as_str().to_lowercase().as_str())) && !forbids.is_match(text)
}

/// A code span, or the target of a link.
static SPANS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"`+([^`]+)`+|\]\(([^)\s]+)\)").ok());

/// Comment of shell text that says when or if the lines below it, or the line before it, are run.
static CHOICE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?im)(?:^|\s)#+\W*(?:bad|wrong|incorrect|good|correct|better|never|don't|do not|avoid|not recommended|instead|or|alternatively|option|alternative|otherwise|if|when|unless|for|only|preferred|too|macos|mac|osx|linux|ubuntu|debian|fedora|windows|wsl|example|usage|e\.g\.)\b|#.*(?:❌|✗)|#.*\bDO NOT\b|#.*\bNEVER\b|#.*\bnot recommended\b|#.*\b(?:if (?:needed|necessary|desired|required|applicable|available)|optional(?:ly)?)\b").ok()
});

/// A code span that only gives an example.
static MENTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)(?:e\.g\.|i\.e\.|for example|for instance|such as|like|same as|equivalent to|or)[,: (]*$").ok()
});

/// Syntax that only `bash` understands.
static BASHISM: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\[\[ |<\(|(?m:^|[;&] *)source |\$\{\w+(?:\[|//|\^|,)|=\(|<<<|&>|\|&|\bpushd\b|\bmapfile\b|\{\w+(?:,\w+)+\}|\bset -o pipefail|-euo pipefail").ok()
});

/// True if only `bash` understands a text.
pub(super) fn needs_bash(text: &str) -> bool {
    BASHISM.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Maximum length of a statement that is searched for commands, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// Commands in a statement; `None` if there are none.
///
/// # Errors
/// The reason why they are not for running.
pub(super) fn lines(skill: &Skill, statement: &Statement) -> Result<Option<Found>, &'static str> {
    if statement.text.len() > MAX_BYTES {
        return Ok(None);
    }
    match &statement.form {
        Form::Code { language } => of_block(skill, &statement.text, language),
        Form::Item | Form::Sentence | Form::Row => of_prose(skill, &statement.text),
        Form::Heading { .. } | Form::Html => Ok(None),
    }
}

fn of_block(skill: &Skill, text: &str, language: &str) -> Result<Option<Found>, &'static str> {
    let is_shell = SHELLS.contains(&language);
    let is_command = |line: &str| starts_a_command(skill, line.trim_start_matches("$ "));
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let Some(first) = lines.next() else { return Ok(None) };
    if !(is_shell || language.is_empty() && is_command(first)) {
        return Ok(None);
    }
    if CHOICE.as_ref().is_some_and(|pattern| pattern.is_match(text)) {
        return Err("its comments give alternatives or conditions");
    }
    if shows_ways(text) {
        return Err("it shows several ways to call one program");
    }
    let text = match text.lines().any(|line| line.starts_with("$ ")) {
        true => prompts(text),
        false => text.trim().to_owned(),
    };
    Ok(Some(Found { text, is_bash: matches!(language, "bash" | "zsh") }))
}

/// True if a text calls one program below several comments, with other arguments each time.
fn shows_ways(text: &str) -> bool {
    let (mut seen, mut is_below_comment) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        let words = line.split_whitespace();
        // `uv run a.py` calls another program than `uv run b.py`.
        let is_runner = words.clone().next().is_some_and(|word| RUNNERS.contains(&word));
        let call: Vec<&str> = words.take(if is_runner { 3 } else { 2 }).collect();
        match call.as_slice() {
            [mark, ..] if mark.starts_with('#') => is_below_comment = true,
            [_, _, ..] if is_below_comment => {
                if seen.contains(&call) {
                    return true;
                }
                seen.push(call);
                is_below_comment = false;
            }
            _ => {}
        }
    }
    false
}

/// Lines that were typed after `$ `, with the lines that continue them; the others are output.
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

/// Commands in code spans, otherwise the scripts that a text names. A text that forbids something has none.
fn of_prose(skill: &Skill, text: &str) -> Result<Option<Found>, &'static str> {
    let (Some(forbids), Some(spans), Some(mention)) = (FORBIDS.as_ref(), SPANS.as_ref(), MENTION.as_ref()) else {
        return Ok(None);
    };
    if forbids.is_match(text) {
        return Ok(None);
    }
    let (mut commands, mut mentions) = (Vec::new(), 0);
    for found in spans.captures_iter(text) {
        let (Some(all), Some(span)) = (found.get(0), found.get(1).or(found.get(2))) else { continue };
        if let Some(command) = command(skill, span.as_str().trim()) {
            match mention.is_match(&text[..all.start()]) {
                true => mentions += 1,
                false => commands.push(command),
            }
        }
    }
    if mentions > 0 {
        return Err("it names commands as examples or alternatives");
    }
    if commands.is_empty() {
        let words = text.split_whitespace().map(|word| word.trim_matches(['.', ',', ';', ':', '"', '(', ')']));
        commands.extend(words.filter_map(|word| script(skill, word)));
    }
    let mut unique: Vec<String> = Vec::new();
    for (at, command) in commands.iter().enumerate() {
        // A script that is only named, next to the command that calls it.
        let path = command.rsplit(' ').next().unwrap_or_default();
        let is_named =
            |other: &String| skill.file(path).is_some() && other.len() > command.len() && other.contains(path);
        let is_called = commands.iter().enumerate().any(|(other, text)| other != at && is_named(text));
        if !unique.contains(command) && !is_called {
            unique.push(command.clone());
        }
    }
    Ok((!unique.is_empty()).then(|| Found { text: unique.join("\n"), is_bash: false }))
}

/// Command in a code span: a script of the skill, or a known program with at least one argument.
fn command(skill: &Skill, span: &str) -> Option<String> {
    script(skill, span)
        .or_else(|| (span.split_whitespace().count() > 1 && starts_a_command(skill, span)).then(|| span.to_owned()))
}

/// Command that runs the script at `path`.
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

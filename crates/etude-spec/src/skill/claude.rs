//! Rendering of a skill's body as in Claude Code: arguments and variables are inserted, commands are found (C-3.3,
//! C-3.4). Opt-in; the default mode keeps the body unchanged (C-3.6).
//!
//! One pass over the body as written. Inserted text is never scanned again: neither an argument nor the output of a
//! command can add a command or a placeholder.

mod arguments;
mod placeholder;
mod quotes;

pub use arguments::words;

use placeholder::Substitution;

/// Replacement for a command that must not run.
pub const DISABLED: &str = "[shell command execution disabled by policy]";

/// Values to insert into a body.
#[derive(Debug, Clone, Copy, Default)]
pub struct Values<'a> {
    /// Text typed after the skill's name; `None` or blank means no arguments.
    pub arguments: Option<&'a str>,
    /// Names of arguments, by position.
    pub names: &'a [String],
    /// The skill's directory: `${CLAUDE_SKILL_DIR}` and `{baseDir}`.
    pub skill_dir: &'a str,
    /// The project's directory: `${CLAUDE_PROJECT_DIR}`.
    pub project_dir: &'a str,
    /// Value of `${CLAUDE_SESSION_ID}`.
    pub session_id: Option<&'a str>,
    /// Value of `${CLAUDE_EFFORT}`.
    pub effort: Option<&'a str>,
}

/// A part of a rendered body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Finished text.
    Text(String),
    /// A command whose output goes here; its arguments stay text, whatever they contain.
    Command(String),
}

/// Renders a body, except for its commands.
pub fn render(body: &str, values: &Values<'_>) -> Vec<Piece> {
    let mut substitution = Substitution::new(values);
    let mut pieces = Vec::new();
    let mut text_from = 0;
    let mut at = 0;
    while let Some(found) = next_command(body, at) {
        push_text(&mut pieces, substitution.text(&body[text_from..found.start]));
        pieces.push(Piece::Command(substitution.command(found.line)));
        (text_from, at) = (found.end, found.end);
    }
    push_text(&mut pieces, substitution.text(&body[text_from..]));
    let given = values.arguments.map(str::trim).filter(|given| !given.is_empty());
    if let Some(given) = given.filter(|_| !substitution.has_placeholder()) {
        if let Some(Piece::Text(last)) = pieces.last_mut() {
            last.truncate(last.trim_end().len());
        }
        push_text(&mut pieces, format!("\n\nARGUMENTS: {given}"));
    }
    pieces
}

fn push_text(pieces: &mut Vec<Piece>, text: String) {
    match pieces.last_mut() {
        Some(Piece::Text(last)) => last.push_str(&text),
        _ if text.is_empty() => {}
        _ => pieces.push(Piece::Text(text)),
    }
}

/// A command in a body: its byte range, including its marks, and its text.
struct Found<'b> {
    start: usize,
    end: usize,
    line: &'b str,
}

/// Finds the next command from `at` on: `` !`command` `` at the start of a line or after white space, or a fence that
/// is opened with ```` ```! ````.
fn next_command(body: &str, at: usize) -> Option<Found<'_>> {
    let mut from = at;
    while let Some(bang) = body[from..].find('!').map(|offset| from + offset) {
        let before = &body[..bang];
        let rest = &body[bang + 1..];
        let found = if before.ends_with("```") { block(body, bang) } else { None };
        let starts = before.chars().next_back().is_none_or(char::is_whitespace);
        let inline = || {
            let line = rest.strip_prefix('`')?;
            let length = line.find(['`', '\n']).filter(|end| line[*end..].starts_with('`'))?;
            let line = &line[..length];
            let end = bang + 1 + length + 2;
            (!line.trim().is_empty()).then_some(Found { start: bang, end, line })
        };
        if let Some(found) = found.or_else(|| starts.then(inline).flatten()) {
            return Some(found);
        }
        from = bang + 1;
    }
    None
}

/// Reads the fence whose opening line ends with the `!` at `bang`.
fn block(body: &str, bang: usize) -> Option<Found<'_>> {
    let line_start = body[..bang].rfind('\n').map_or(0, |newline| newline + 1);
    let is_fence = body[line_start..bang].trim_start() == "```";
    let open_end = body[bang..].find('\n').map(|newline| bang + newline + 1)?;
    if !is_fence || !body[bang + 1..open_end].trim().is_empty() {
        return None;
    }
    let mut at = open_end;
    for line in body[open_end..].split_inclusive('\n') {
        if line.trim() == "```" {
            let end = at + line.trim_end_matches(['\n', '\r']).len();
            return Some(Found { start: line_start, end, line: &body[open_end..at] });
        }
        at += line.len();
    }
    None
}

/// Programs whose exit status 1 means "nothing found" or "different" instead of a failure (C-3.4).
const SEARCHES: &[&str] = &["grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "diff", "cmp", "test", "["];

/// True if the activation may continue after this exit status of a command.
pub fn is_tolerated(command: &str, status: i32) -> bool {
    if status == 0 {
        return true;
    }
    let last = command.trim().rsplit(['|', ';', '&', '\n']).next().unwrap_or_default();
    let mut words = last.split_whitespace();
    let program = words.next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let is_search = SEARCHES.contains(&program) || program == "git" && matches!(words.next(), Some("grep" | "diff"));
    status == 1 && is_search
}

/// First paragraph of a body: the description of a skill without one (C-3.1).
pub fn first_paragraph(body: &str) -> Option<String> {
    let paragraphs = body.split("\n\n").map(str::trim).filter(|text| !text.is_empty() && !text.starts_with('#'));
    paragraphs.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).next()
}

#[cfg(test)]
mod tests;

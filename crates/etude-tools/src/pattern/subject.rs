//! A tool call in the form that patterns match.

use std::sync::Arc;

use etude_core::tool::argument_at;
use serde_json::Value;

use super::paths;
use super::shell::{self, Line};
use crate::confine::{PathArgument, Roots};
use crate::tool::{ApprovalKey, Args, Tool};

/// Names of arguments that contain command lines, in any tool.
const COMMANDS: &[&str] = &[
    "bash", "cmd", "cmdline", "command", "command_line", "commandline", "script", "sh", "shell", "shell_command",
    "shellcommand",
];

/// A tool call, prepared for patterns: its tool, arguments, path and commands.
#[derive(Debug)]
pub struct Subject<'a> {
    pub(super) tool: &'a Tool,
    pub(super) args: &'a Args,
    pub(super) roots: Roots,
    /// The resolved path that the call will use.
    pub(super) path: Option<Arc<PathArgument>>,
    /// The command line, path or text that identifies the call; `None` if only the tool's name does.
    pub(super) primary: Option<Primary>,
}

#[derive(Debug)]
pub(super) enum Primary {
    /// A command line, and the commands in it.
    Command {
        text: String,
        line: Line,
    },
    Path(Arc<PathArgument>),
    /// A text from a template, and the commands of the command line in it, if it contains one.
    Text {
        key: paths::Key,
        line: Option<Line>,
    },
}

impl<'a> Subject<'a> {
    /// Prepares a call of `tool` with `args`. Paths are relative to the base of `roots`.
    pub fn new(tool: &'a Tool, args: &'a Args, roots: &Roots) -> Self {
        Self::of(tool, args, roots, None)
    }

    /// Prepares a call whose path was resolved before and will be used in that form.
    pub fn of(tool: &'a Tool, args: &'a Args, roots: &Roots, path: Option<&Arc<PathArgument>>) -> Self {
        let text = |name: &str| args.get(name).and_then(Value::as_str);
        let primary = match &tool.approval_key {
            ApprovalKey::Name => None,
            ApprovalKey::Command(name) => {
                let text = text(name).unwrap_or_default();
                Some(Primary::Command { text: text.to_owned(), line: shell::read(text) })
            }
            ApprovalKey::Path(_) => {
                path.cloned().or_else(|| Some(Arc::new(roots.resolve(tool.path(args)?)))).map(Primary::Path)
            }
            ApprovalKey::Template(template) => {
                let key = paths::Key::of(template, tool, args, roots);
                Some(Primary::Text { key, line: line_in(template, args) })
            }
        };
        let path = match &primary {
            Some(Primary::Path(path)) => Some(Arc::clone(path)),
            _ => path.cloned(),
        };
        Self { tool, args, roots: roots.clone(), path, primary }
    }

    /// The approval key, which people see, and under which a decision is remembered. Text, not a pattern.
    pub fn key(&self) -> String {
        match &self.primary {
            None => self.tool.name.clone(),
            Some(Primary::Command { text, .. }) => format!("{}({})", self.tool.name, trimmed(text)),
            Some(Primary::Path(path)) => format!("{}({})", self.tool.name, path.shown()),
            Some(Primary::Text { key, .. }) => key.remembered.clone(),
        }
    }

    /// The written path, if links lead from it to another one.
    pub fn written(&self) -> Option<&str> {
        match &self.primary {
            Some(Primary::Path(path)) if path.is_elsewhere() => Some(path.written()),
            _ => None,
        }
    }

    /// True if the text of the command line does not show which programs run.
    pub fn is_unreadable(&self) -> bool {
        match &self.primary {
            Some(Primary::Command { line, .. } | Primary::Text { line: Some(line), .. }) => *line == Line::Unreadable,
            _ => false,
        }
    }

    /// The command line in the argument `key`; `None` if that does not contain one.
    pub(super) fn line_at(&self, key: &str) -> Option<Line> {
        let is_command =
            matches!(&self.tool.approval_key, ApprovalKey::Command(name) if *name == key) || names_command(key);
        let value = argument_at(self.args, key).filter(|_| is_command)?;
        // The way in which a tool joins a list to a command is unknown.
        Some(value.as_str().map_or(Line::Unreadable, shell::read))
    }
}

/// A command line without the blanks around it, unless the last one is quoted.
fn trimmed(text: &str) -> &str {
    let trimmed = text.trim_matches([' ', '\t', '\n']);
    if trimmed.ends_with('\\') { text } else { trimmed }
}

/// True if the argument at `key`, such as `steps[0].command`, contains a command line by its name.
fn names_command(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key).split('[').next().unwrap_or_default();
    COMMANDS.contains(&name.to_ascii_lowercase().replace('-', "_").as_str())
}

/// The commands of the command line that a template inserts; `None` if it inserts none.
fn line_in(template: &str, args: &Args) -> Option<Line> {
    let references = template.split("{{").skip(1).filter_map(|rest| rest.split_once("}}"));
    let keys = references.map(|(key, _)| key.trim()).map(|key| key.strip_prefix("args.").unwrap_or(key));
    let keys: Vec<&str> = keys.collect();
    let mut lines = keys.iter().filter(|key| names_command(key)).map(|key| match argument_at(args, key) {
        Some(Value::String(text)) => shell::read(text),
        Some(_) => Line::Unreadable,
        None => Line::Literal(Vec::new()),
    });
    match (lines.next(), lines.next()) {
        (Some(_), None) if !is_one_word_each(template, &keys, args) => Some(Line::Unreadable),
        (line, None) => line,
        (_, Some(_)) => Some(Line::Unreadable),
    }
}

/// True if each argument beside the command line is a single word of the key, so that none is taken for a part of the command.
fn is_one_word_each(template: &str, keys: &[&str], args: &Args) -> bool {
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "._-@/".contains(c));
    let mut others = keys.iter().filter(|key| !names_command(key));
    let is_apart = template.split("{{").skip(1).all(|rest| {
        let after = rest.split_once("}}").map_or("", |(_, after)| after);
        after.is_empty() || after.starts_with([' ', ',', ':', ';', ')', '('])
    });
    others.all(|key| match argument_at(args, key) {
        Some(Value::String(text)) => is_word(text),
        Some(Value::Number(_) | Value::Bool(_)) => true,
        _ => false,
    }) && (keys.len() == 1 || is_apart)
}

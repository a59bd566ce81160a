//! Patterns that name tools and calls: `Read`, `mcp__github__*`, `#files`, `Bash(git *)`, `Write(docs/**)`,
//! `shell(cmd=ls,$deny)`.
//!
//! One language for `allowed-tools`, `approvals: allow` and the rules of `d-cascade` §3.1. A pattern is a glob on the
//! name of a tool, and in parentheses may say more about the call:
//!
//! | in parentheses | holds for |
//! |---|---|
//! | `git status` | exactly that command |
//! | `git *`, `git:*` | commands of these words; `git:*` also `git` alone |
//! | `src/**` | paths, relative to the app, `*` within one part, `**` across parts |
//! | `key=glob,key2=glob` | arguments of these names (`d-cascade` §3.1) |
//! | `$deny`, `$policy=deny`, `$policy=ask` | not for the calls that the rest describes |
//!
//! A command line of several commands is let through only if each of its parts is, and one that redirects its output
//! or computes a part of itself only by a pattern for every command: a rule for `git` must not let `git; rm` through.

use std::borrow::Cow;
use std::fmt;

use etude_core::tool::{approval_key, argument_at};
use globset::{GlobBuilder, GlobMatcher};
use serde_json::Value;

use crate::confine::Roots;
use crate::tool::{ApprovalKey, Args, Tool};

mod shell;

/// A list of patterns: `allowed-tools` of a skill or tool.
#[derive(Debug, Clone)]
pub struct AllowedTools {
    text: String,
    patterns: Vec<Pattern>,
}

/// One pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    name: Name,
    specifier: Option<String>,
}

#[derive(Debug, Clone)]
enum Name {
    Glob(Box<GlobMatcher>),
    Tag(String),
    /// Not a glob: matches nothing.
    Broken,
}

/// What a list says of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A pattern lets it through.
    Allow,
    /// A pattern says `$policy=ask`.
    Ask,
    /// A pattern says `$deny`.
    Deny,
    /// No pattern holds for it.
    Unlisted,
}

/// A call as patterns see it.
#[derive(Debug)]
pub struct Subject<'a> {
    tool: &'a Tool,
    args: &'a Args,
    /// The command line or the path, if the tool has one.
    primary: Option<Primary>,
}

#[derive(Debug)]
enum Primary {
    Command(String),
    Path(String),
    Text(String),
}

impl<'a> Subject<'a> {
    /// A call of `tool` with `args`; paths are taken relative to the base of `roots`.
    pub fn new(tool: &'a Tool, args: &'a Args, roots: &Roots) -> Self {
        let text = |name: &str| args.get(name).and_then(Value::as_str);
        let primary = match &tool.approval_key {
            ApprovalKey::Name => None,
            ApprovalKey::Command(name) => Some(Primary::Command(text(name).unwrap_or_default().trim().to_owned())),
            ApprovalKey::Path(name) => Some(Primary::Path(roots.normal(text(name).unwrap_or(".")))),
            ApprovalKey::Template(template) => Some(Primary::Text(approval_key(template, args))),
        };
        Self { tool, args, primary }
    }

    /// The approval key: what people are shown, and what an answer is remembered by. Text, not a pattern.
    pub fn key(&self) -> String {
        match &self.primary {
            None => self.tool.name.clone(),
            Some(Primary::Command(text) | Primary::Path(text)) => format!("{}({text})", self.tool.name),
            Some(Primary::Text(text)) => text.clone(),
        }
    }
}

impl AllowedTools {
    /// A list as written: patterns with blanks or commas between them (`d-cascade` §3.1, `c-applications` 2.4). What
    /// stands in parentheses or braces stays together.
    pub fn parse(text: &str) -> Self {
        let patterns = split(text, |c| c.is_whitespace() || c == ',').map(Pattern::parse).collect();
        Self { text: text.trim().to_owned(), patterns }
    }

    /// A list of several texts, as in a YAML list.
    pub fn from_list<T: AsRef<str>>(items: &[T]) -> Self {
        let texts: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
        Self::parse(&texts.join(" "))
    }

    /// The list as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The patterns, in order.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// True if some call of the tool may be let through.
    pub fn lists(&self, tool: &Tool) -> bool {
        let named = || self.patterns.iter().filter(|pattern| pattern.names(tool));
        named().any(|pattern| pattern.effect() == Verdict::Allow || pattern.effect() == Verdict::Ask)
            && !named().any(|pattern| pattern.effect() == Verdict::Deny && pattern.is_unconditional())
    }

    /// What the list says of a call. A denial wins, wherever it stands.
    pub fn verdict(&self, call: &Subject<'_>) -> Verdict {
        verdict(&self.patterns, call)
    }

    /// False if no pattern can name a tool of that MCP server, so that it need not be started.
    pub(crate) fn may_list_server(&self, server: &str) -> bool {
        let prefix = crate::mcp::tool_name(server, "");
        self.patterns.iter().any(|pattern| {
            let name = pattern.name_text();
            let literal = name.find(['*', '?', '[', '{', '#']).map_or(name, |at| &name[..at]);
            literal.starts_with(&prefix)
                || prefix.starts_with(literal) && (literal.len() < name.len() || is_server(name, &prefix))
        })
    }
}

/// What patterns say of a call together. A command line of several commands may be let through by several of them.
pub(crate) fn verdict(patterns: &[Pattern], call: &Subject<'_>) -> Verdict {
    let named: Vec<&Pattern> = patterns.iter().filter(|pattern| pattern.names(call.tool)).collect();
    let some = |effect: Verdict| named.iter().any(|pattern| pattern.effect() == effect && pattern.touches(call));
    if some(Verdict::Deny) {
        Verdict::Deny
    } else if some(Verdict::Ask) {
        Verdict::Ask
    } else if lets_through(&named, call) {
        Verdict::Allow
    } else {
        Verdict::Unlisted
    }
}

fn lets_through(named: &[&Pattern], call: &Subject<'_>) -> bool {
    let mut allowing = named.iter().filter(|pattern| pattern.effect() == Verdict::Allow);
    let Some(Primary::Command(line)) = &call.primary else {
        return allowing.any(|pattern| pattern.holds(call, None));
    };
    if allowing
        .clone()
        .any(|pattern| pattern.is_for_every_command() || pattern.names_arguments(call) && pattern.holds(call, None))
    {
        return true;
    }
    let parts = shell::parts(line);
    parts.is_some_and(|parts| {
        !parts.is_empty() && parts.iter().all(|part| allowing.clone().any(|pattern| pattern.holds(call, Some(part))))
    })
}

impl Pattern {
    /// A pattern as written.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let (name, specifier) = match text.split_once('(') {
            Some((name, rest)) => (name.trim_end(), Some(rest.strip_suffix(')').unwrap_or(rest).trim().to_owned())),
            None => (text, None),
        };
        let name = match name.strip_prefix('#') {
            Some(tag) => Name::Tag(tag.to_owned()),
            None => matcher(name, false).map_or(Name::Broken, |glob| Name::Glob(Box::new(glob))),
        };
        // `Bash()` and `Bash(*)` say no more than `Bash`.
        let specifier = specifier.filter(|text| !text.is_empty() && text != "*" && text != "**" && text != ":*");
        Self { text: text.to_owned(), name, specifier }
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn name_text(&self) -> &str {
        self.text.split('(').next().unwrap_or_default().trim_end()
    }

    fn names(&self, tool: &Tool) -> bool {
        match &self.name {
            Name::Glob(glob) => {
                glob.is_match(&tool.name)
                    || matches!(&tool.origin, crate::tool::Origin::Mcp { server, .. }
                        if is_server(self.name_text(), &crate::mcp::tool_name(server, "")))
            }
            Name::Tag(tag) => tool.tags.contains(tag),
            Name::Broken => false,
        }
    }

    fn items(&self) -> impl Iterator<Item = &str> {
        split(self.specifier.as_deref().unwrap_or_default(), |c| c == ',')
    }

    fn effect(&self) -> Verdict {
        let mut effect = Verdict::Allow;
        for item in self.items() {
            match item {
                "$deny" | "$policy=deny" => return Verdict::Deny,
                "$policy=ask" => effect = Verdict::Ask,
                _ => {}
            }
        }
        effect
    }

    /// True if it says nothing about the call, or only what is to become of it.
    fn is_unconditional(&self) -> bool {
        self.items().all(|item| item.starts_with('$'))
    }

    fn is_for_every_command(&self) -> bool {
        self.is_unconditional()
    }

    /// True if what it says is about arguments by name.
    fn names_arguments(&self, call: &Subject<'_>) -> bool {
        let mut items = self.items().filter(|item| !item.starts_with('$')).peekable();
        let properties = call.tool.input_schema.get("properties");
        let has_primary = call.primary.is_some();
        items.peek().is_some()
            && items.all(|item| match item.split_once('=') {
                // Where there is a command or a path, `FOO=1 make` is one, unless the tool has such an argument.
                Some((key, _)) if has_primary => properties.is_some_and(|all| all.get(head(key)).is_some()),
                Some((key, _)) => !key.is_empty() && !key.contains(char::is_whitespace),
                None => false,
            })
    }

    /// True if it speaks of the call, or of a part of its command line. For denials, which must not miss a part.
    fn touches(&self, call: &Subject<'_>) -> bool {
        match &call.primary {
            Some(Primary::Command(line)) if !self.names_arguments(call) => {
                self.holds(call, Some(line)) || shell::pieces(line).iter().any(|part| self.holds(call, Some(part)))
            }
            _ => self.holds(call, None),
        }
    }

    /// True if it holds for the call; `part` stands for the command line where there is one.
    fn holds(&self, call: &Subject<'_>, part: Option<&str>) -> bool {
        if self.is_unconditional() {
            return true;
        }
        if self.names_arguments(call) {
            let mut items = self.items().filter(|item| !item.starts_with('$'));
            return items.all(|item| item.split_once('=').is_some_and(|(key, glob)| argument(call.args, key, glob)));
        }
        let specifier: Vec<&str> = self.items().filter(|item| !item.starts_with('$')).collect();
        let whole = self.specifier.as_deref().unwrap_or_default();
        let specifier = if whole.contains('$') { specifier.join(",") } else { whole.to_owned() };
        match &call.primary {
            Some(Primary::Command(line)) => command(&specifier, part.unwrap_or(line)),
            Some(Primary::Path(path)) => self::path(&specifier, path),
            // A key made by a template may have parentheses of its own.
            Some(Primary::Text(text)) => glob(&self.text, text) || glob(&specifier, text),
            None => false,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `mcp__github` stands for all tools of that server.
fn is_server(name: &str, prefix: &str) -> bool {
    prefix.strip_suffix("__") == Some(name)
}

fn command(specifier: &str, line: &str) -> bool {
    if let Some(words) = specifier.strip_suffix(":*") {
        return line.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
    }
    // `git *` means `git` with or without more, as people write it.
    glob(specifier, line) || specifier.strip_suffix(" *").is_some_and(|words| glob(words, line))
}

fn path(specifier: &str, path: &str) -> bool {
    let specifier = specifier.strip_prefix("./").unwrap_or(specifier);
    matcher(specifier, true).is_some_and(|glob| glob.is_match(path))
}

fn glob(pattern: &str, text: &str) -> bool {
    matcher(pattern, false).is_some_and(|glob| glob.is_match(text))
}

fn matcher(pattern: &str, separator: bool) -> Option<GlobMatcher> {
    let built = GlobBuilder::new(pattern).literal_separator(separator).empty_alternates(true).build();
    built.ok().map(|glob| glob.compile_matcher())
}

/// The first part of a path such as `items[0].name`.
fn head(key: &str) -> &str {
    key.split(['.', '[']).next().unwrap_or_default()
}

/// True if the argument at `key` matches `pattern`; an argument that is not there does not (`d-cascade` §3.1).
fn argument(args: &Args, key: &str, pattern: &str) -> bool {
    argument_at(args, key).is_some_and(|value| glob(pattern, &shown(value)))
}

fn shown(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        value => Cow::Owned(value.to_string()),
    }
}

/// The pieces of a text between separators that stand outside parentheses, braces and brackets.
fn split(text: &str, is_separator: impl Fn(char) -> bool) -> impl Iterator<Item = &str> {
    let mut pieces = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth = depth.saturating_sub(1),
            c if depth == 0 && is_separator(c) => {
                pieces.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    pieces.into_iter().map(str::trim).filter(|piece| !piece.is_empty())
}

#[cfg(test)]
mod tests;

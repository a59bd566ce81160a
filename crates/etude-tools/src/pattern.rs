//! Patterns that name tools and calls: `Read`, `mcp__github__*`, `#files`, `Bash(git *)`, `Write(docs/**)`,
//! `shell(cmd=ls,$deny)`.
//!
//! One language serves `allowed-tools`, `approvals: allow` and the rules of `d-cascade` §3.1. A pattern is a glob on the name
//! of a tool. Parentheses may add conditions on the call:
//!
//! | in parentheses | holds for |
//! |---|---|
//! | `git status` | commands of exactly these words |
//! | `git *`, `git:*` | commands that begin with these words |
//! | `src/**` | paths without links, relative to the app, `*` within one part, `**` across parts |
//! | `key=glob,key2=glob` | arguments of these names (`d-cascade` §3.1) |
//! | `$deny`, `$policy=deny`, `$policy=ask` | not for the calls that the rest describes |
//!
//! Any other text that begins with `$`, such as `$HOME/bin/x *` or a misspelled `$Deny`, describes no known call: a pattern
//! with it allows nothing, and a denial with it covers every call of its tool.
//!
//! A command line is parsed with the grammar of a shell, and each of its commands is matched by its words. A line is allowed
//! only if all of its commands are. A line that redirects or computes something is allowed only by a pattern for every
//! command. A denial matches every line that may run a described command, and so every line that cannot be parsed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use etude_core::data::bare;
use etude_core::tool::readings;
use globset::GlobMatcher;
use serde_json::Value;

use crate::tool::Tool;

mod command;
mod paths;
mod programs;
mod shell;
mod subject;
mod withheld;
pub mod words;

use command::CommandPattern;
use shell::{Command, Line};
use subject::Primary;

pub use subject::Subject;
pub use withheld::Withheld;

/// A list of patterns: `allowed-tools` of a skill or tool.
#[derive(Debug, Clone)]
pub struct AllowedTools {
    text: String,
    patterns: Vec<Pattern>,
}

/// A pattern of calls, such as `Bash(git *)`: a tool's name with an optional specifier.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    name: Name,
    specifier: Option<String>,
    /// The specifier as a pattern of commands, parsed when it is needed.
    command: OnceLock<CommandPattern>,
}

#[derive(Debug, Clone)]
enum Name {
    Glob(Box<GlobMatcher>),
    Tag(String),
    /// Not a valid glob: matches nothing, but every tool if the pattern is a limit.
    Broken,
}

/// Decision of a list about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A pattern allows the call.
    Allow,
    /// A pattern requires a question (`$policy=ask`).
    Ask,
    /// A pattern denies the call (`$deny`).
    Deny,
    /// No pattern matches the call.
    Unlisted,
}

impl AllowedTools {
    /// Parses a list: patterns with blanks or commas between them (`d-cascade` §3.1, `c-applications` 2.4). Text in
    /// parentheses or braces stays together.
    pub fn parse(text: &str) -> Self {
        let patterns = split(text, |c| c.is_whitespace() || c == ',').map(Pattern::parse).collect();
        Self { text: text.trim().to_owned(), patterns }
    }

    /// Joins several texts, as in a YAML list, into one list.
    pub fn from_list<T: AsRef<str>>(items: &[T]) -> Self {
        let texts: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
        Self::parse(&texts.join(" "))
    }

    /// The list as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The patterns, in order.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// True if the list may allow a call of the tool.
    pub fn lists(&self, tool: &Tool) -> bool {
        let named = || self.patterns.iter().filter(|pattern| pattern.names(tool));
        named().any(|pattern| pattern.effect() == Verdict::Allow || pattern.effect() == Verdict::Ask)
            && !named().any(|pattern| pattern.effect() == Verdict::Deny && pattern.is_unconditional())
    }

    /// The decision of the list about a call. A denial wins, wherever it stands.
    pub fn verdict(&self, call: &Subject<'_>) -> Verdict {
        verdict(&self.patterns, call)
    }

    /// False if no pattern can name a tool of the MCP server `server`, so that it need not be started.
    pub(crate) fn may_list_server(&self, server: &str) -> bool {
        let prefix = crate::mcp_name::tool_name(server, "");
        self.patterns.iter().filter(|pattern| pattern.effect() != Verdict::Deny).any(|pattern| {
            let name = pattern.name_text();
            let literal = name.find(['*', '?', '[', '{', '#']).map_or(name, |at| &name[..at]);
            literal.starts_with(&prefix)
                || prefix.starts_with(literal) && (literal.len() < name.len() || is_server(name, &prefix))
        })
    }
}

/// The joint decision of patterns about a call. Several patterns together may allow a command line of several commands.
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
    let allowing = named.iter().filter(|pattern| pattern.effect() == Verdict::Allow);
    if allowing.clone().any(|pattern| pattern.lets_through(call)) {
        return true;
    }
    // Different patterns may allow the commands of a line.
    let Some(Primary::Command { line: Line::Literal(commands), .. }) = &call.primary else { return false };
    let of_commands = || allowing.clone().filter(|pattern| !pattern.names_arguments(call) && !pattern.is_unclear());
    let is_let_through = |command: &Command| of_commands().any(|pattern| pattern.command().lets_through(command));
    !commands.is_empty() && commands.iter().all(is_let_through)
}

impl Pattern {
    /// Parses a pattern.
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
        // `Bash()` and `Bash(*)` mean the same as `Bash`.
        let specifier = specifier.filter(|text| !text.is_empty() && text != "*" && text != "**" && text != ":*");
        Self { text: text.to_owned(), name, specifier, command: OnceLock::new() }
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The decision of the pattern as a guard rule. It matches if it may describe a part of the call. A pattern with
    /// `$policy=allow` matches only if it describes the whole call.
    pub fn rule(&self, call: &Subject<'_>) -> Verdict {
        let is_exemption = self.items().any(|item| item == "$policy=allow");
        let holds = match is_exemption {
            true => self.names(call.tool) && lets_through(&[self], call),
            false => self.names(call.tool) && self.touches(call),
        };
        if holds { self.effect() } else { Verdict::Unlisted }
    }

    fn name_text(&self) -> &str {
        self.text.split('(').next().unwrap_or_default().trim_end()
    }

    fn names(&self, tool: &Tool) -> bool {
        match &self.name {
            Name::Glob(glob) => {
                glob.is_match(&tool.name)
                    || matches!(&tool.origin, crate::tool::Origin::Mcp { server, .. }
                        if is_server(self.name_text(), &crate::mcp_name::tool_name(server, "")))
            }
            Name::Tag(tag) => tool.tags.contains(tag),
            // A limit may mean any tool.
            Name::Broken => self.is_limit(),
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

    /// True if the pattern denies calls or requires a question.
    pub(crate) fn is_limit(&self) -> bool {
        self.effect() != Verdict::Allow
    }

    /// The items that describe calls: all but the directives.
    fn conditions(&self) -> impl Iterator<Item = &str> {
        self.items().filter(|item| !is_directive(item))
    }

    /// True if the pattern has no conditions on the call, but directives at most.
    fn is_unconditional(&self) -> bool {
        self.conditions().next().is_none()
    }

    /// True if a condition begins with `$`: a variable, which is never expanded, or an unknown directive.
    fn is_unclear(&self) -> bool {
        self.conditions().any(|item| item.starts_with('$'))
    }

    /// True if the conditions of the pattern are about arguments by name.
    fn names_arguments(&self, call: &Subject<'_>) -> bool {
        let mut items = self.conditions().peekable();
        let properties = call.tool.input_schema.get("properties");
        let has_primary = call.primary.is_some();
        items.peek().is_some()
            && items.all(|item| match item.split_once('=') {
                // If the tool has a command or a path, `FOO=1 make` is a command, unless the tool has an argument of that
                // name.
                Some((key, _)) if has_primary => properties.is_some_and(|all| all.get(head(key)).is_some()),
                Some((key, _)) => !key.is_empty() && !key.contains(char::is_whitespace),
                None => false,
            })
    }

    /// The conditions of the pattern, without directives.
    fn description(&self) -> Cow<'_, str> {
        let whole = self.specifier.as_deref().unwrap_or_default();
        match whole.contains('$') {
            true => Cow::Owned(self.conditions().collect::<Vec<_>>().join(",")),
            false => Cow::Borrowed(whole),
        }
    }

    fn command(&self) -> &CommandPattern {
        self.command.get_or_init(|| CommandPattern::parse(&self.description()))
    }

    /// The arguments in the conditions, each with its glob.
    fn arguments(&self) -> impl Iterator<Item = (&str, &str)> {
        self.conditions().filter_map(|item| item.split_once('='))
    }

    /// True if the pattern may describe the call, or a part of it. For denials, which must not miss a part: an invalid glob
    /// may mean anything.
    fn touches(&self, call: &Subject<'_>) -> bool {
        if self.is_unconditional() || self.is_unclear() {
            return true;
        }
        if self.names_arguments(call) {
            return self.arguments().all(|(key, glob)| {
                matcher(glob, false).is_none()
                    || call.has(key, glob, false)
                    || call.line_at(key).is_some_and(|line| CommandPattern::parse(glob).touches(&line))
            });
        }
        match &call.primary {
            Some(Primary::Command { text, line }) => {
                self.command().touches(line) || glob(&self.description(), text.trim())
            }
            Some(Primary::Text { line: Some(line), .. }) => self.command().touches(line) || self.is_text(call, false),
            Some(_) => path_glob(&self.description()).is_none() || self.is_text(call, false),
            // The call has nothing to match the description with, so the pattern may mean any call.
            None => true,
        }
    }

    /// True if the pattern alone allows the whole call.
    fn lets_through(&self, call: &Subject<'_>) -> bool {
        if self.is_unconditional() {
            return true;
        }
        if self.is_unclear() {
            return false;
        }
        if self.names_arguments(call) {
            return self.arguments().all(|(key, glob)| match call.line_at(key) {
                Some(Line::Literal(commands)) => {
                    let pattern = CommandPattern::parse(glob);
                    !commands.is_empty() && commands.iter().all(|command| pattern.lets_through(command))
                }
                Some(_) => false,
                None => call.has(key, glob, true),
            });
        }
        match &call.primary {
            Some(Primary::Command { .. }) => false,
            // The words of a pattern cannot be found in a text of several parts. The line is allowed only if it is a single
            // command.
            Some(Primary::Text { line: Some(line), .. }) => {
                matches!(line, Line::Literal(commands) if matches!(commands.as_slice(), [command] if command.assignments.is_empty()))
                    && self.is_text(call, true)
            }
            _ => self.is_text(call, true),
        }
    }

    /// True if the pattern matches the path or the text that identifies the call.
    fn is_text(&self, call: &Subject<'_>, is_strict: bool) -> bool {
        match &call.primary {
            Some(Primary::Path(path)) => {
                path_glob(&self.description()).is_some_and(|glob| path.is_named(&glob, is_strict))
            }
            // A key made by a template may have parentheses of its own.
            Some(Primary::Text { key, .. }) => {
                let (name, description) = (self.name_text(), self.description());
                // The pattern as written, without its directives, or only the text in parentheses.
                let forms = [self.text.as_str(), &format!("{name}({description})"), &description];
                key.holds(is_strict, |text| forms.iter().any(|form| glob(form, text)))
            }
            Some(Primary::Command { .. }) | None => false,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// True for a directive; any other text with a `$` is not one.
fn is_directive(item: &str) -> bool {
    etude_spec::directive::DIRECTIVES.contains(&item)
}

/// True for `mcp__github`, which matches all tools of that server.
fn is_server(name: &str, prefix: &str) -> bool {
    prefix.strip_suffix("__") == Some(name)
}

fn path_glob(specifier: &str) -> Option<GlobMatcher> {
    matcher(specifier.strip_prefix("./").unwrap_or(specifier), true)
}

fn glob(pattern: &str, text: &str) -> bool {
    matcher(pattern, false).is_some_and(|glob| glob.is_match(text))
}

fn matcher(pattern: &str, separator: bool) -> Option<GlobMatcher> {
    let built = etude_spec::glob::build(pattern, |glob| glob.literal_separator(separator).empty_alternates(true));
    built.ok().map(|glob| glob.compile_matcher())
}

/// The first part of an argument path such as `items[0].name`.
fn head(key: &str) -> &str {
    key.split(['.', '[']).next().unwrap_or_default()
}

impl Subject<'_> {
    /// True if the argument at `key` matches `pattern`; a missing argument does not (`d-cascade` §3.1). If `key` can mean two
    /// arguments, a denial matches with either, and anything else only with both.
    fn has(&self, key: &str, pattern: &str, is_strict: bool) -> bool {
        let mut values = readings(self.args, key).peekable();
        match is_strict {
            true => values.peek().is_some() && values.all(|value| self.matches(key, value, pattern, true)),
            false => values.any(|value| self.matches(key, value, pattern, false)),
        }
    }

    fn matches(&self, key: &str, value: &Value, pattern: &str, is_strict: bool) -> bool {
        let (Value::String(text), Some(glob)) = (value, matcher(pattern, false)) else {
            return glob(pattern, &bare(value)) || !is_strict && self.has_element(key, value, pattern);
        };
        match &self.path {
            Some(path) if path.written() == text => path.is_named(&glob, is_strict),
            _ if paths::is_path(self.tool, key) => paths::holds(&self.roots.resolve(text), &glob, is_strict),
            _ => glob.is_match(text),
        }
    }

    /// True if an element of the list at `key` matches, each as the argument itself would. For denials.
    fn has_element(&self, key: &str, value: &Value, pattern: &str) -> bool {
        let (Value::Array(items), Some(glob)) = (value, matcher(pattern, false)) else { return false };
        items.iter().any(|item| match item {
            Value::String(text) if paths::is_path(self.tool, key) => {
                glob.is_match(text) || paths::holds(&self.roots.resolve(text), &glob, false)
            }
            item => glob.is_match(&*bare(item)),
        })
    }
}

/// The pieces of a text between separators outside parentheses, braces and brackets.
pub(crate) fn split(text: &str, is_separator: impl Fn(char) -> bool) -> impl Iterator<Item = &str> {
    let ends = enclosed(text);
    let mut pieces = Vec::new();
    let (mut start, mut end) = (0, 0);
    for (at, c) in text.char_indices().filter(|(_, c)| "({[".contains(*c) || is_separator(*c)) {
        match ends.get(&at) {
            _ if at < end => {}
            Some(close) => end = *close,
            None if is_separator(c) => {
                pieces.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            None => {}
        }
    }
    pieces.push(&text[start..]);
    pieces.into_iter().map(str::trim).filter(|piece| !piece.is_empty())
}

/// Ends of the parentheses, braces and brackets of a text, by their starts. An unclosed brace or bracket encloses nothing, so
/// that it hides neither a directive nor the next pattern. An unclosed parenthesis encloses the rest.
fn enclosed(text: &str) -> BTreeMap<usize, usize> {
    let (mut open, mut ends) = (Vec::new(), BTreeMap::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' | '{' | '[' => open.push((at, c)),
            '}' | ']' => {
                let opening = if c == '}' { '{' } else { '[' };
                if let Some((start, _)) = open.pop_if(|(_, kind)| *kind == opening) {
                    ends.insert(start, at);
                }
            }
            ')' => {
                while let Some((start, kind)) = open.pop() {
                    if kind == '(' {
                        ends.insert(start, at);
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    ends.extend(open.into_iter().filter(|(_, kind)| *kind == '(').map(|(start, _)| (start, text.len())));
    ends
}

#[cfg(test)]
mod tests;

//! A skill of system D: a `*.skill.md` file, or the `SKILL.md` of a folder (D-2).

mod members;

use std::sync::{Arc, OnceLock};

use etude_core::effect::Command;
use etude_core::pointer::unescaped;
use memchr::memmem;
use serde_json::{Map, Value};

use self::members::{Members, Outline, Places, json};
use crate::cascade::directive;
use crate::cascade::own_faults::Checks;
use crate::diagnose::{cascade as diagnose, values};
use crate::diagnostic::{Diagnostic, Severity};
use crate::fields::FieldKind;
use crate::fields::package::TOOLS;
use crate::frontmatter::{self, Parts};
use crate::skill::{SKILL_FILE, without};
use crate::source::{SourceFile, Span};
use crate::yaml::{Entries, Node};

/// Suffix of a skill file: `NAME.skill.md`.
pub const SUFFIX: &str = ".skill.md";

/// Suffixes of modules: `NAME.skill.js`, `NAME.skill.mjs`.
pub const MODULES: &[&str] = &[".skill.js", ".skill.mjs"];

/// A tool as its file defines it.
#[derive(Debug, Clone)]
pub struct Skill {
    /// Name of the tool; derived from the file's name if the frontmatter has none.
    pub name: String,
    /// Description in one sentence; may be empty.
    pub description: String,
    /// Tools that it may call, as patterns separated by blanks; `None` means all tools.
    pub allowed_tools: Option<String>,
    /// The program or text that an invocation of it runs.
    pub body: SkillHandler,
    /// The file, for diagnostics.
    pub file: Arc<SourceFile>,
    /// Absolute directory of the file; empty for a tool without a file.
    pub dir: Arc<str>,
    /// True for a folder with a `SKILL.md`.
    pub is_folder: bool,
    is_main: bool,
    /// Facts that chains need; present for a file in the usual notation.
    outline: Option<Outline>,
    /// The frontmatter, parsed on first use.
    members: OnceLock<Members>,
    /// Faults of its own values, if they were checked while its frontmatter was parsed.
    own_faults: Option<Box<[Diagnostic]>>,
    /// Spans of frontmatter and text in the file.
    parts: Parts,
    /// Places of the parts of the metadata, found on first use.
    places: OnceLock<Places>,
}

/// Handler of a skill's calls.
#[derive(Debug, Clone, PartialEq)]
pub enum SkillHandler {
    /// The text is a prompt for the agent.
    Prompt,
    /// A program in any language, started in the skill's directory.
    Command(Command),
    /// A JavaScript module with a default function.
    Module,
    /// A part of the runtime: a middleware, a directive, or a tool of an MCP server.
    BuiltinTool,
}

/// Purpose of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Entry point of a project, and authority of the skills below it.
    Main,
    /// A middleware of chains.
    Middleware,
    /// Text for agents.
    Context,
    /// Called only by the middleware `directives`.
    Directive,
    /// Called like any tool.
    Tool,
}

impl Skill {
    /// A tool without a file. The project's main skill is its authority (D-4.1).
    pub fn programmatic(name: &str, description: &str, metadata: Map<String, Value>) -> Self {
        let head = Map::from_iter([("name".to_owned(), Value::from(name))]);
        Self::of_members(name, description, Members { head, metadata })
    }

    fn of_members(name: &str, description: &str, members: Members) -> Self {
        let member = |key: &str| members.metadata.get(key);
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            allowed_tools: None,
            is_main: is_main(member("role"), member("main")),
            outline: None,
            members: members.into(),
            own_faults: None,
            body: SkillHandler::BuiltinTool,
            file: SourceFile::new(name, ""),
            dir: "".into(),
            is_folder: false,
            parts: Parts { yaml: None, body: Span::default() },
            places: OnceLock::new(),
        }
    }

    /// Gives the tool an address instead of a file, such as `mcp://github/get-issue` (D-12).
    #[must_use]
    pub fn at(mut self, uri: &str) -> Self {
        // The members must be read before the file is replaced.
        self.members();
        self.outline = None;
        self.own_faults = None;
        self.file = SourceFile::new(uri, "");
        self
    }

    /// Builds a JavaScript module from its `frontmatter` export.
    pub fn module(file: Arc<SourceFile>, dir: &str, frontmatter: &Value) -> Self {
        let text = |key: &str| frontmatter.get(key).and_then(Value::as_str);
        let metadata = frontmatter.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        let head = frontmatter.as_object().into_iter().flatten().filter(is_head).map(owned).collect();
        let (name, description) = (text("name"), text("description").unwrap_or_default());
        let plain = Self::of_members(name.unwrap_or(stem(file.path())), description, Members { head, metadata });
        Self {
            allowed_tools: limits(|key| frontmatter.get(key).map(patterns)),
            body: SkillHandler::Module,
            dir: dir.into(),
            file,
            ..plain
        }
    }

    /// Reads a Markdown file in the absolute directory `dir`. Without a skill there is at least one error.
    pub fn read(file: &Arc<SourceFile>, dir: &Arc<str>) -> (Option<Self>, Vec<Diagnostic>) {
        let (skills, found) = Self::read_all(file, dir);
        (skills.into_iter().next(), found)
    }

    /// Same as [`Skill::read`], with all skills of a file that has several (D-2.3). A further skill begins at a line
    /// `---` that is followed by a line `name: …`, outside of code.
    pub fn read_all(file: &Arc<SourceFile>, dir: &Arc<str>) -> (Vec<Self>, Vec<Diagnostic>) {
        Self::read_all_checked(file, dir, None)
    }

    /// Same as [`Skill::read_all`]. With `checks`, the skills know [`Skill::own_faults`] without another parse.
    pub(super) fn read_all_checked(
        file: &Arc<SourceFile>,
        dir: &Arc<str>,
        mut checks: Option<&mut Checks>,
    ) -> (Vec<Self>, Vec<Diagnostic>) {
        let parts = match frontmatter::split(file) {
            Ok(parts) => parts,
            Err(fault) => return (Vec::new(), vec![*fault]),
        };
        let (mut skills, mut found) = (Vec::new(), Vec::new());
        let sections = if is_folder(file) { vec![parts] } else { sections(file, parts) };
        for parts in sections {
            skills.extend(Self::of_parts(file, dir, parts, checks.as_deref_mut(), &mut found));
        }
        (skills, found)
    }

    fn of_parts(
        file: &Arc<SourceFile>,
        dir: &Arc<str>,
        parts: Parts,
        checks: Option<&mut Checks>,
        found: &mut Vec<Diagnostic>,
    ) -> Option<Self> {
        let (root, faults) = frontmatter::parse(file, &parts);
        let is_broken = faults.iter().any(Diagnostic::is_error);
        found.extend(faults);
        if is_broken {
            return None;
        }
        let empty = Entries::default();
        let entries = match &root {
            None => &empty,
            Some(node) => match node.as_map() {
                Some(entries) => entries,
                None if node.kind() == "nothing" => &empty,
                None => {
                    found.push(values::top_level(file, node.span, "a skill's frontmatter", node.kind()));
                    return None;
                }
            },
        };
        let mut skill = Self::of_entries(file, dir, entries, parts, found);
        if let Some(checks) = checks {
            // The values are not kept: those of thousands of skills would take more time than few further parses.
            skill.members = Members::of_metadata(entries).into();
            skill.own_faults = Some(checks.faults(&skill).into());
            skill.members = OnceLock::new();
        }
        Some(skill)
    }

    fn of_entries(
        file: &Arc<SourceFile>,
        dir: &Arc<str>,
        entries: &Entries<'_>,
        parts: Parts,
        found: &mut Vec<Diagnostic>,
    ) -> Self {
        let is_folder = is_folder(file);
        let text = |key: &str| entries.get(key).and_then(Node::as_text);
        let of_place = || if is_folder { dir.rsplit('/').next().unwrap_or_default() } else { stem(file.path()) };
        let name = text("name").unwrap_or_else(of_place).to_owned();
        if !is_name(&name) {
            let at = entries.get("name").map(|node| node.span);
            found.push(diagnose::name(file, at, &name));
        }
        let metadata = entries.get("metadata").and_then(Node::as_map);
        let member = |key: &str| metadata.and_then(|metadata| metadata.get(key)).map(json);
        let skill = Self {
            name,
            description: text("description").unwrap_or_default().to_owned(),
            allowed_tools: limits(|key| entries.get(key).map(|node| tools(file, node, key, found))),
            is_main: is_main(member("role").as_ref(), member("main").as_ref()),
            outline: Outline::find(file, entries),
            members: OnceLock::new(),
            own_faults: None,
            body: entries.get("command").map_or(SkillHandler::Prompt, |node| command(file, node, found)),
            file: Arc::clone(file),
            dir: Arc::clone(dir),
            is_folder,
            parts,
            places: OnceLock::new(),
        };
        if skill.is_main && member("params").is_some() && skill.name != crate::cascade::library::DEFAULT {
            found.push(diagnose::public_params(file, skill.place("/params"), &skill.name));
        }
        skill
    }

    /// Everything below `metadata`, as written.
    pub fn metadata(&self) -> &Map<String, Value> {
        &self.members().metadata
    }

    /// Keys of the metadata and the single parent, empty if there is none. `None` if these must be looked up in
    /// [`Skill::metadata`].
    pub(crate) fn outline(&self) -> Option<(impl Iterator<Item = &str>, &str)> {
        self.outline.as_ref().map(|outline| (outline.keys(&self.file), outline.parent(&self.file)))
    }

    /// Faults of its own values, regardless of its levels: those known from reading, or those that `checks` find.
    pub(super) fn own_faults(&self, checks: &mut Checks) -> Vec<Diagnostic> {
        self.own_faults.as_ref().map_or_else(|| checks.faults(self), |known| known.to_vec())
    }

    /// Few of many skills are called, so their files are parsed a second time, once each.
    fn members(&self) -> &Members {
        self.members.get_or_init(|| {
            let (root, _) = frontmatter::parse(&self.file, &self.parts);
            root.as_ref().and_then(Node::as_map).map(Members::read).unwrap_or_default()
        })
    }

    /// Purpose of the skill. A folder without a role holds text for agents (D-2.3).
    pub fn role(&self) -> Role {
        match self.metadata().get("role").and_then(Value::as_str) {
            _ if self.is_main => Role::Main,
            Some("middleware") => Role::Middleware,
            Some("directive") => Role::Directive,
            Some("context") => Role::Context,
            None if self.is_folder && self.body == SkillHandler::Prompt => Role::Context,
            _ => Role::Tool,
        }
    }

    /// True for an entry point: `role: main` or `main: true` (D-4.1).
    pub fn is_main(&self) -> bool {
        self.is_main
    }

    /// True if the skill is left out of listings and hidden from agents (D-2.3).
    pub fn is_hidden(&self) -> bool {
        self.metadata().get("visibility").and_then(Value::as_str) == Some("hidden")
    }

    /// Labels of the skill, for `#tag`.
    pub fn tags(&self) -> Vec<String> {
        self.metadata().get("tags").map(names).unwrap_or_default()
    }

    /// The Markdown after the frontmatter.
    pub fn content(&self) -> &str {
        self.file.slice(self.parts.body).trim_start_matches(['\n', '\r'])
    }

    /// The frontmatter as a whole.
    pub fn frontmatter(&self) -> Value {
        let Members { mut head, metadata } = self.members().clone();
        if !metadata.is_empty() {
            head.insert("metadata".to_owned(), Value::Object(metadata));
        }
        Value::Object(head)
    }

    /// Span of a part of the metadata by its JSON pointer, or of its nearest existing ancestor.
    pub fn place(&self, pointer: &str) -> Option<Span> {
        let mut at = self.places.get_or_init(|| self.find_places());
        let mut place = None;
        for part in pointer.trim_start_matches('/').split('/') {
            let Some((span, inside)) = at.0.get(&unescaped(part)) else { break };
            place = Some(*span);
            at = inside;
        }
        place
    }

    /// Only faults need places and few files have faults, so the file is parsed a second time, once.
    fn find_places(&self) -> Places {
        let (root, _) = frontmatter::parse(&self.file, &self.parts);
        let metadata = root.as_ref().and_then(|root| root.as_map()?.get("metadata"));
        metadata.map(Places::read).unwrap_or_default()
    }

    /// Address of the skill: `file:///…`; `None` for a tool without a file (D-8).
    pub fn uri(&self) -> Option<String> {
        let name = self.file.path().rsplit('/').next().unwrap_or_default();
        match self.dir.is_empty() {
            true => Some(self.file.path()).filter(|path| path.contains("://")).map(str::to_owned),
            false => Some(format!("file://{}/{name}", self.dir)),
        }
    }
}

/// `role: main` or `main: true` (D-4.1).
fn is_main(role: Option<&Value>, main: Option<&Value>) -> bool {
    role.and_then(Value::as_str) == Some("main")
        || main.is_some_and(|value| value.as_bool().unwrap_or(!value.is_null()))
}

fn is_folder(file: &SourceFile) -> bool {
    file.path().rsplit('/').next() == Some(SKILL_FILE)
}

/// Parts of the skills of a file; `first` is the first one with everything after it.
fn sections(file: &SourceFile, first: Parts) -> Vec<Parts> {
    let mut sections = vec![first];
    let (text, start, end) = (file.text(), first.body.start as usize, first.body.end as usize);
    let mut next = further(text, start);
    if next.is_none() {
        return sections;
    }
    let code = directive::code_ranges(&text[start..end]);
    while let Some((mark, open)) = next {
        let mut at = open;
        if !code.iter().any(|range| range.contains(&(mark - start))) {
            let Some((close, body)) = frontmatter::end_of_yaml(text, open) else { break };
            if let Some(before) = sections.last_mut() {
                before.body = Span::new(before.body.start as usize, mark);
            }
            sections.push(Parts { yaml: Some(Span::new(open, close)), body: Span::new(body, end) });
            at = body;
        }
        next = further(text, at);
    }
    sections
}

/// The first line `---` from byte `from` on that is followed by a line `name: …`, with the start of both lines.
fn further(text: &str, from: usize) -> Option<(usize, usize)> {
    let named = memmem::find_iter(&text.as_bytes()[from..], b"\nname:").map(|at| from + at);
    let line_before = |end: usize| (text[from..end].rfind('\n').map_or(from, |at| from + at + 1), end);
    named.map(line_before).find(|(mark, end)| text[*mark..*end].trim_end() == "---").map(|(mark, end)| (mark, end + 1))
}

/// Reads names from a list, or from a text with blanks between them (D-4.7).
pub fn names(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => text.split_whitespace().map(str::to_owned).collect(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// True for a bare name; anything else is a path (D-2.4).
pub fn is_bare_name(text: &str) -> bool {
    let is_other = |c: char| matches!(c, '/' | '\\' | '_' | ':') || c.is_uppercase();
    !text.is_empty() && text.chars().count() <= 64 && !text.contains(is_other)
}

/// True for a valid name of a skill: letters, digits and single dashes inside (D-2.4).
pub fn is_name(text: &str) -> bool {
    let is_word =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    text.len() <= 64 && text.split('-').all(is_word)
}

/// Name of a skill from its file: `greet` for `skills/greet.skill.md`.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.split_once(".skill.").map_or(name, |(stem, _)| stem)
}

/// The patterns of `allowed-tools`; `None` if the value has another shape.
fn patterns(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Array(items) if items.iter().all(Value::is_string) => Some(names(value).join(" ")),
        _ => None,
    }
}

/// The patterns of `allowed-tools` with the denials of `disallowed-tools` (C-3.1). `list` reads one of them; it is `None`
/// inside if it cannot be read. Such a skill may call nothing: it asked for a limit (D-2.3).
fn limits(mut list: impl FnMut(&'static str) -> Option<Option<String>>) -> Option<String> {
    let (allowed, disallowed) = (list("allowed-tools"), list("disallowed-tools"));
    if [&allowed, &disallowed].contains(&&Some(None)) {
        return Some(String::new());
    }
    let disallowed: Vec<String> = disallowed.flatten().into_iter().collect();
    without(allowed.flatten().map(|text| vec![text]), &disallowed).map(|patterns| patterns.join(" "))
}

/// Reads a list of tools.
fn tools(file: &Arc<SourceFile>, node: &Node<'_>, key: &'static str, found: &mut Vec<Diagnostic>) -> Option<String> {
    let read = patterns(&json(node));
    if read.is_none() {
        let what = (key, &*format!("`{key}`"));
        found.push(values::wrong_type(file, node.span, what, &FieldKind::Either(&TOOLS), node));
    }
    read
}

fn command(file: &Arc<SourceFile>, node: &Node<'_>, found: &mut Vec<Diagnostic>) -> SkillHandler {
    if let Some(items) = node.as_seq() {
        let words: Vec<String> = items.iter().filter_map(|item| item.as_text().map(str::to_owned)).collect();
        if words.len() == items.len() && !words.is_empty() {
            return SkillHandler::Command(Command::Direct(words));
        }
    }
    match node.as_text().ok_or("it must be text or a list of texts").and_then(crate::command::parse) {
        Ok(command) => SkillHandler::Command(command),
        Err(why) => {
            found.push(values::bad_command(file, node.span, why).severity(Severity::Error));
            SkillHandler::Prompt
        }
    }
}

fn is_head((key, _): &(&String, &Value)) -> bool {
    *key != "metadata"
}

fn owned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(path: &str, text: &str) -> (Option<Skill>, Vec<Diagnostic>) {
        Skill::read(&SourceFile::new(path, text), &"/p/skills".into())
    }

    /// D-2.3: each part of a file is read into its field.
    #[test]
    fn a_file_says_what_the_tool_is() {
        let text = "---\nname: shout\ndescription: Says it loudly.\nallowed-tools: [file-read, shell]\n\
                    command: python3 shout.py\nmetadata: {tags: [a, b], params: {type: object}}\n---\n\nHello.\n";
        let (skill, found) = read("skills/x.skill.md", text);
        let skill = skill.unwrap();
        assert_eq!(found, []);
        assert_eq!((skill.name.as_str(), skill.content()), ("shout", "Hello.\n"));
        assert_eq!(skill.allowed_tools.as_deref(), Some("file-read shell"));
        assert_eq!(skill.body, SkillHandler::Command(Command::Direct(vec!["python3".into(), "shout.py".into()])));
        assert_eq!((skill.tags(), skill.role()), (vec!["a".to_owned(), "b".to_owned()], Role::Tool));
        assert_eq!(skill.uri().as_deref(), Some("file:///p/skills/x.skill.md"));
        assert!(!skill.metadata().contains_key("command"));
    }

    /// D-2.3: without frontmatter the name is the file's or the folder's; a folder's role is `context`.
    #[test]
    fn names_come_from_files_and_folders() {
        let plain = read("greet.skill.md", "Say hello.\n").0.unwrap();
        assert_eq!((plain.name.as_str(), &plain.body, plain.role()), ("greet", &SkillHandler::Prompt, Role::Tool));
        let folder = Skill::read(&SourceFile::new("rules/SKILL.md", "Be kind.\n"), &"/p/rules".into()).0.unwrap();
        assert_eq!((folder.name.as_str(), folder.role()), ("rules", Role::Context));
    }

    /// D-2.3, D-F04: a file may have several skills; a skill in a code block is text.
    #[test]
    fn a_file_may_have_several_skills() {
        let text = "---\nname: one\n---\nFirst.\n\n```\n---\nname: no\n---\n```\n---\nname: two\nmetadata: {$inherit: a}\n---\n\
                    Second.\n---\nno name\n---\nname: three\n---\n";
        let (skills, found) = Skill::read_all(&SourceFile::new("multi.skill.md", text), &"/p".into());
        assert_eq!(found, []);
        let of = |skill: &Skill| (skill.name.clone(), skill.content().to_owned());
        assert_eq!(of(&skills[1]), ("two".to_owned(), "Second.\n---\nno name\n".to_owned()));
        assert_eq!(skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>(), ["one", "two", "three"]);
        assert!(skills[0].content().starts_with("First.") && skills[0].content().ends_with("```\n"));
        assert_eq!(skills[1].place("/$inherit").map(|span| skills[1].file.position(span.start)), Some((13, 22)));
    }

    /// D-2.3: a further skill begins only at whole lines, with any line ending and any text after `---`.
    #[test]
    fn further_skills_are_reported_by_whole_lines() {
        let of = |text: &str| {
            let (skills, _) = Skill::read_all(&SourceFile::new("multi.skill.md", text), &"/p".into());
            skills.iter().map(|skill| (skill.name.clone(), skill.content().to_owned())).collect::<Vec<_>>()
        };
        let pair = |name: &str, content: &str| (name.to_owned(), content.to_owned());
        // A line that only begins like the mark does not end the frontmatter, so the rest is text.
        assert_eq!(of("---\nname: a\n---\nx\n---\nname: b\n---é"), [pair("a", "x\n---\nname: b\n---é")]);
        assert_eq!(of("---\nname: a\n---\nx\n---\nname: b\n---"), [pair("a", "x\n"), pair("b", "")]);
        assert_eq!(
            of("---\r\nname: a\r\n---\r\nx\r\n---\r\nname: b\r\n---\r\ny\r\n"),
            [pair("a", "x\r\n"), pair("b", "y\r\n")]
        );
        assert_eq!(of("---\nname: a\n---\n---\nname: b\n---\n---\nname: c\n---\n").len(), 3);
    }

    /// D-2: a pointer finds the place of a key that contains `/` or `~`.
    #[test]
    fn keys_with_slashes_have_places() {
        let text = "---\nmetadata:\n  $merge: {a/b: x, c~d: y, c~1d: z, list: [1, {e: 2}]}\n  empty:\n---\n";
        let skill = read("x.skill.md", text).0.unwrap();
        let at = |pointer: &str| skill.place(pointer).map(|span| skill.file.slice(span));
        assert_eq!([at("/$merge/a~1b"), at("/$merge/c~0d"), at("/$merge/c~01d")], [Some("x"), Some("y"), Some("z")]);
        assert_eq!(
            [at("/$merge/list/1/e"), at("/$merge/list/0/none"), at("/empty")],
            [Some("2"), Some("1"), Some("empty")]
        );
        assert_eq!(at("/none"), None);
    }

    /// D-2.4, D-F03: any text but a bare name is a path.
    #[test]
    fn anything_but_a_bare_name_is_a_path() {
        for path in ["./skills/a.skill.md", "MyTool", "my_tool", &"a".repeat(65), "file:///p/a.skill.md"] {
            assert!(!is_bare_name(path), "{path}");
        }
        assert!(is_bare_name("file-read") && is_name("file-read") && !is_name("-a") && !is_name("a--b"));
        assert_eq!(names(&json!("a b")), names(&json!(["a", "b"])));
    }

    /// D-2.3, D-10: a skill whose `allowed-tools` cannot be read may call nothing, and the fault is reported.
    #[test]
    fn a_limit_that_cannot_be_read_allows_nothing() {
        for value in ["", "5", "true", "{shell: true}", "[shell, 1]", "[[shell]]"] {
            let text = format!("---\nname: x\nallowed-tools: {value}\n---\n");
            let (skill, found) = read("skills/x.skill.md", &text);
            assert_eq!(skill.unwrap().allowed_tools.as_deref(), Some(""), "{value}");
            assert!(found.len() == 1 && found[0].is_error(), "{value}: {found:?}");
            assert!(found[0].message.starts_with("`allowed-tools` "), "{}", found[0].message);
        }
        for (value, expected) in [("[]", ""), ("\"\"", ""), ("shell", "shell"), ("[a, b]", "a b")] {
            let (skill, found) = read("skills/x.skill.md", &format!("---\nname: x\nallowed-tools: {value}\n---\n"));
            assert_eq!((skill.unwrap().allowed_tools.as_deref(), found.len()), (Some(expected), 0), "{value}");
        }
        let module = |value| {
            Skill::module(SourceFile::new("x.skill.js", ""), "/p", &json!({"allowed-tools": value})).allowed_tools
        };
        assert_eq!((module(json!({"shell": true})).as_deref(), module(json!(["a"])).as_deref()), (Some(""), Some("a")));
    }

    /// C-3.1, D-2.3: `disallowed-tools` denies calls, and one that cannot be read allows nothing.
    #[test]
    fn disallowed_tools_are_denied() {
        let read = |fields: &str| {
            let (skill, found) = read("skills/x.skill.md", &format!("---\nname: x\n{fields}---\n"));
            (skill.unwrap().allowed_tools, found.len())
        };
        let denied = |text: &str| (Some(text.to_owned()), 0);
        assert_eq!(read("disallowed-tools: shell\n"), denied("* shell($deny)"));
        assert_eq!(read("allowed-tools: a b\ndisallowed-tools: [b(x)]\n"), denied("a b b(x, $deny)"));
        assert_eq!(read("disallowed-tools: {shell: true}\n"), (Some(String::new()), 1));
        let module = json!({"disallowed-tools": "shell"});
        let module = Skill::module(SourceFile::new("x.skill.js", ""), "/p", &module);
        assert_eq!(module.allowed_tools.as_deref(), Some("* shell($deny)"));
    }

    /// A search for a check finds a skill's own faults in its only parse, and they are those of a later check.
    #[test]
    fn own_faults_are_found_while_reading() {
        for (metadata, count) in [
            ("params: {type: object}\n  tags: [a, b]\n  log: debug\n", 1),
            ("params: {type: 5}\n  tags: [a, {b: c}]\n  include: {a: b}\n", 3),
            ("tags: [a]\n", 0),
        ] {
            let text = format!("---\nname: a\nmetadata:\n  {metadata}---\nx\n");
            let (file, dir) = (SourceFile::new("a.skill.md", text), "/p".into());
            let (plain, _) = Skill::read(&file, &dir);
            let later = plain.unwrap().own_faults(&mut Checks::default());
            let (skills, _) = Skill::read_all_checked(&file, &dir, Some(&mut Checks::default()));
            assert_eq!(skills[0].own_faults(&mut Checks::default()), later, "{metadata}");
            assert_eq!((later.len(), skills[0].members.get().is_none()), (count, true), "{metadata}");
        }
    }

    /// D-2: faults are reported with their places, and a bad name or command does not hide the rest.
    #[test]
    fn faults_have_their_places() {
        let (skill, found) = read("skills/x.skill.md", "---\nname: Bad Name\ncommand: \"a 'b\"\n---\n");
        assert!(skill.is_some());
        assert_eq!(found.iter().map(Diagnostic::position).collect::<Vec<_>>(), [Some((2, 7)), Some((3, 10))]);
        let (skill, found) = read("skills/x.skill.md", "---\n- a\n---\n");
        assert!(skill.is_none() && found[0].is_error());
        let (_, found) = read("app.skill.md", "---\nmetadata: {role: main, params: {type: object}}\n---\n");
        assert_eq!(found[0].severity, Severity::Warning);
    }
}

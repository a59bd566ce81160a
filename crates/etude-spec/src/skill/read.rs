//! Reading of a skill's fields from its YAML.

use indexmap::IndexMap;
use serde_json::Value;

use super::portable::{Oddity, oddities};
use super::{Extensions, MAX_COMPATIBILITY, MAX_DESCRIPTION, Profile, Reading, Skill, name, recover, tool_list};
use crate::diagnose::skills as diagnose;
use crate::diagnostic::{Diagnostic, Severity, sort};
use crate::frontmatter::Head;
use crate::source::{SourceFile, Span};
use crate::yaml::{self, Entries, Node, Value as Yaml};

/// Reads the frontmatter of a skill in a directory named `directory`.
pub fn read(head: &Head, directory: &str, profile: Profile) -> Reading {
    if let Some(fault) = head.fault {
        return Reading { skill: None, diagnostics: vec![diagnose::no_frontmatter(&head.file, fault)] };
    }
    let mut diagnostics = Vec::new();
    if head.has_bom && profile == Profile::Strict {
        diagnostics.push(diagnose::byte_order_mark(&head.file));
    }
    let skill = parse(head, profile, |file, root, found| {
        if !std::sync::Arc::ptr_eq(file, &head.file) {
            diagnostics.extend(found);
            // Places in the repaired text do not apply to the file, so new findings point at the file as a whole.
            let mut second = Vec::new();
            let skill = fields(file, root, directory, profile, &mut second);
            diagnostics.extend(second.into_iter().map(|mut diagnostic| {
                (diagnostic.span, diagnostic.label) = (None, None);
                diagnostic
            }));
            return skill;
        }
        diagnostics.extend(found.into_iter().map(|fault| diagnose::yaml(fault, profile.severity())));
        if profile == Profile::Strict {
            diagnostics.extend(not_portable(head));
        }
        fields(file, root, directory, profile, &mut diagnostics)
    });
    let skill = skill.unwrap_or_else(|found| {
        diagnostics.extend(found);
        None
    });
    sort(&mut diagnostics);
    Reading { skill, diagnostics }
}

/// Parses the YAML of a frontmatter and passes it to `then`, with the file of its places and the findings. In the
/// lenient profile, invalid YAML is parsed again with values in quotes; the file is then a repaired one.
///
/// # Errors
/// The faults, if there is no YAML.
pub(super) fn parse<T>(
    head: &Head,
    profile: Profile,
    then: impl FnOnce(&std::sync::Arc<SourceFile>, &Node<'_>, Vec<Diagnostic>) -> T,
) -> Result<T, Vec<Diagnostic>> {
    let (root, found) = yaml::parse_part(&head.file, head.file.slice(head.yaml), head.yaml.start as usize);
    if let Some(root) = &root {
        return Ok(then(&head.file, root, found));
    }
    if let Some(repaired) = (profile == Profile::Lenient).then(|| recover::quoted(head.file.slice(head.yaml))).flatten()
    {
        let file = SourceFile::new(head.file.path(), repaired);
        let (root, _) = yaml::parse(&file);
        if let Some(root) = &root {
            return Ok(then(&file, root, found.into_iter().map(diagnose::recovered).collect()));
        }
    }
    Err(found.into_iter().map(|fault| diagnose::yaml(fault, Severity::Error)).collect())
}

fn not_portable(head: &Head) -> Vec<Diagnostic> {
    let one = |(oddity, at): (Oddity, Span)| match oddity {
        Oddity::Anchor => diagnose::not_portable(&head.file, at, "anchors (`&`)"),
        Oddity::Alias => diagnose::not_portable(&head.file, at, "aliases (`*`)"),
        Oddity::Tag => diagnose::not_portable(&head.file, at, "tags (`!`)"),
        Oddity::Flow => diagnose::flow_style(&head.file, at),
    };
    oddities(&head.file, head.yaml).into_iter().map(one).collect()
}

/// Reader of fields that records their faults.
struct Reader<'r, 's> {
    file: &'s std::sync::Arc<SourceFile>,
    profile: Profile,
    found: &'r mut Vec<Diagnostic>,
    /// True if a list of tools could not be read.
    has_unread_tools: bool,
}

fn fields(
    file: &std::sync::Arc<SourceFile>,
    root: &Node<'_>,
    directory: &str,
    profile: Profile,
    found: &mut Vec<Diagnostic>,
) -> Option<Skill> {
    let Some(entries) = root.as_map() else {
        if !root.is_invalid() {
            found.push(diagnose::not_a_mapping(file, root.span, root.kind()));
        }
        return None;
    };
    let start = entries.0.first().map_or(root.span, |(key, _)| key.span);
    let mut reader = Reader { file, profile, found, has_unread_tools: false };
    let name = reader.name(entries, directory, start);
    let description = reader.description(entries, start);
    let mut skill = Skill {
        name,
        description: description.clone().unwrap_or_default(),
        license: reader.text(entries, "license"),
        compatibility: reader.compatibility(entries),
        metadata: reader.metadata(entries),
        allowed_tools: reader.allowed_tools(entries),
        extensions: reader.extensions(entries),
        extra: IndexMap::new(),
    };
    for (key, key_node, value) in entries.iter().filter(|(key, ..)| crate::fields::package::SKILL.field(key).is_none())
    {
        let is_known = skill.extensions.given.contains_key(key);
        if profile == Profile::Strict || !is_known && !IGNORED.contains(&key) {
            let severity = if profile == Profile::Strict { Severity::Error } else { Severity::Note };
            reader.found.push(diagnose::unknown_field(file, key_node.span, key).severity(severity));
        }
        if !is_known {
            skill.extra.insert(key.to_owned(), as_written(value));
        }
    }
    // A lenient client leaves out a skill that no agent could choose, and one whose tools are unknown.
    let is_loaded = description.is_some() && !reader.has_unread_tools;
    (profile == Profile::Strict || is_loaded).then_some(skill)
}

/// Common fields of clients that have no effect and need no report.
const IGNORED: &[&str] = &["version", "author", "tags", "category"];

impl Reader<'_, '_> {
    /// Records a fault that leaves the skill usable.
    fn push(&mut self, fault: Diagnostic) {
        self.found.push(fault.severity(self.profile.severity()));
    }

    /// Text of a scalar, as written.
    fn scalar<'n>(&mut self, entries: &'n Entries<'_>, key: &str) -> Option<(&'n str, Span)> {
        let (key_node, node) = entries.entry(key)?;
        match &node.value {
            Yaml::Scalar(_) => Some((written(node), if node.span.is_empty() { key_node.span } else { node.span })),
            Yaml::Invalid => None,
            _ => {
                self.push(diagnose::wrong_type(self.file, node.span, key, "text", node.kind()));
                None
            }
        }
    }

    fn text(&mut self, entries: &Entries<'_>, key: &str) -> Option<String> {
        self.scalar(entries, key).map(|(text, _)| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn name(&mut self, entries: &Entries<'_>, directory: &str, start: Span) -> String {
        let own = name::normalized(directory);
        let written = self.scalar(entries, "name").filter(|(text, _)| !text.trim().is_empty());
        let Some((text, at)) = written else {
            let is_wrong_type = entries.get("name").is_some_and(|node| !matches!(node.value, Yaml::Scalar(_)));
            if !is_wrong_type {
                let at = entries.entry("name").map_or(start, |(key, _)| key.span);
                self.push(diagnose::missing_name(self.file, at, directory));
            }
            return own;
        };
        let name = name::normalized(text.trim());
        if let Some(fault) = name::fault(&name) {
            self.push(diagnose::bad_name(self.file, at, &name, fault, name::better(&name)));
        }
        if name != own {
            self.push(diagnose::name_and_directory(self.file, at, &name, directory));
        }
        name
    }

    fn description(&mut self, entries: &Entries<'_>, start: Span) -> Option<String> {
        let Some((key, node)) = entries.entry("description") else {
            self.found.push(diagnose::no_description(self.file, start, "the skill has no `description`"));
            return None;
        };
        if !matches!(node.value, Yaml::Scalar(_)) {
            self.found.push(diagnose::no_description(self.file, key.span, "`description` is not text"));
            return None;
        }
        let text = written(node);
        if text.trim().is_empty() {
            self.found.push(diagnose::no_description(self.file, key.span, "`description` is blank"));
            return None;
        }
        let length = text.chars().count();
        if length > MAX_DESCRIPTION {
            self.push(diagnose::long_description(self.file, node.span, length, MAX_DESCRIPTION));
        }
        Some(text.trim().to_owned())
    }

    fn compatibility(&mut self, entries: &Entries<'_>) -> Option<String> {
        let (text, at) = self.scalar(entries, "compatibility")?;
        let length = if text.trim().is_empty() { 0 } else { text.chars().count() };
        if length == 0 || length > MAX_COMPATIBILITY {
            self.push(diagnose::compatibility(self.file, at, length, MAX_COMPATIBILITY));
        }
        (length > 0).then(|| text.trim().to_owned())
    }

    fn metadata(&mut self, entries: &Entries<'_>) -> IndexMap<String, String> {
        let mut out = IndexMap::new();
        let Some((key, node)) = entries.entry("metadata") else { return out };
        let Some(map) = node.as_map() else {
            if !node.span.is_empty() && !node.is_invalid() {
                let expected = "a mapping from names to texts";
                self.push(diagnose::wrong_type(self.file, node.span, "metadata", expected, node.kind()));
            }
            let _ = key;
            return out;
        };
        for (name, _, value) in map.iter() {
            match &value.value {
                Yaml::Scalar(_) => {
                    out.insert(name.to_owned(), written(value).to_owned());
                }
                Yaml::Invalid => {}
                _ => {
                    let path = format!("metadata.{name}");
                    self.push(diagnose::wrong_type(self.file, value.span, &path, "text", value.kind()));
                    out.insert(name.to_owned(), value.to_json().unwrap_or_default());
                }
            }
        }
        out
    }

    fn allowed_tools(&mut self, entries: &Entries<'_>) -> Option<Vec<String>> {
        let node = entries.get("allowed-tools")?;
        if self.profile == Profile::Strict && node.as_seq().is_some() {
            self.found.push(diagnose::tools_as_list(self.file, node.span));
        }
        Some(self.tools(node, "allowed-tools"))
    }

    /// Reads a list of tools. If it is unreadable, no client loads the skill: a part of the list may be a restriction.
    fn tools(&mut self, node: &Node<'_>, key: &str) -> Vec<String> {
        match unlisted(node) {
            Some(odd) => {
                self.found.push(tools_fault(self.file, node, odd, key));
                self.has_unread_tools = true;
                Vec::new()
            }
            None => listed(node, tool_list),
        }
    }

    /// Reads a list, or a text that lists items.
    fn list(&mut self, node: &Node<'_>, key: &str, split: fn(&str) -> Vec<String>) -> Vec<String> {
        if let Some(odd) = unlisted(node).filter(|odd| !odd.is_invalid()) {
            self.push(list_fault(self.file, node, odd, key));
        }
        listed(node, split)
    }

    fn extensions(&mut self, entries: &Entries<'_>) -> Extensions {
        let mut out = Extensions::default();
        for (key, _, node) in entries.iter() {
            if let Some(shown) = self.extension(&mut out, key, node) {
                out.given.insert(key.to_owned(), shown);
            }
        }
        out
    }

    /// Reads one field of Claude Code, in the form of documents; `None` for any other field.
    fn extension(&mut self, out: &mut Extensions, key: &str, node: &Node<'_>) -> Option<Value> {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let globs =
            |text: &str| text.split(',').map(|glob| glob.trim().to_owned()).filter(|glob| !glob.is_empty()).collect();
        Some(match key {
            "when_to_use" => set(&mut out.when_to_use, self.text_of(node)),
            "argument-hint" => set(&mut out.argument_hint, self.text_of(node)),
            "model" => set(&mut out.model, self.text_of(node)),
            "effort" => set(&mut out.effort, self.text_of(node)),
            "context" => set(&mut out.context, self.text_of(node)),
            "agent" => set(&mut out.agent, self.text_of(node)),
            "shell" => set(&mut out.shell, self.text_of(node)),
            "arguments" => set(&mut out.arguments, self.list(node, key, words)),
            "disallowed-tools" => set(&mut out.disallowed_tools, self.tools(node, key)),
            "paths" => set(&mut out.paths, self.list(node, key, globs)),
            "disable-model-invocation" => {
                // Any word that does not mean "no" keeps agents away: that is the safe side.
                set(&mut out.disable_model_invocation, boolean(node).unwrap_or(!node.span.is_empty()))
            }
            "user-invocable" => set(&mut out.user_invocable, boolean(node).unwrap_or(true)),
            "background" => set(&mut out.background, boolean(node).unwrap_or(true)),
            "hooks" => set(&mut out.hooks, Some(as_written(node))),
            _ => return None,
        })
    }

    /// Text of a value; source text of a list or mapping.
    fn text_of(&self, node: &Node<'_>) -> Option<String> {
        let text = match &node.value {
            Yaml::Scalar(_) => written(node).trim().to_owned(),
            Yaml::Invalid => return None,
            _ => self.file.slice(node.span).trim().to_owned(),
        };
        (!text.is_empty()).then_some(text)
    }
}

/// The value, or the element of the list, that is not text.
pub(super) fn unlisted<'n, 's>(node: &'n Node<'s>) -> Option<&'n Node<'s>> {
    match &node.value {
        Yaml::Scalar(_) => None,
        Yaml::Seq(items) => items.iter().find(|item| !matches!(item.value, Yaml::Scalar(_))),
        Yaml::Map(_) | Yaml::Invalid => Some(node),
    }
}

/// Texts of a list, or of a text that lists items.
pub(super) fn listed(node: &Node<'_>, split: fn(&str) -> Vec<String>) -> Vec<String> {
    let Some(items) = node.as_seq() else { return split(written(node)) };
    let texts = items.iter().map(|item| written(item).trim().to_owned());
    texts.filter(|text| !text.is_empty()).collect()
}

fn list_fault(file: &std::sync::Arc<SourceFile>, node: &Node<'_>, odd: &Node<'_>, key: &str) -> Diagnostic {
    match node.as_seq() {
        Some(_) => diagnose::element(file, odd.span, key, odd.kind()),
        None => diagnose::wrong_type(file, odd.span, key, "text or a list of texts", odd.kind()),
    }
}

/// The error about a list of tools that cannot be read; `odd` is the part that is not text.
pub(super) fn tools_fault(file: &std::sync::Arc<SourceFile>, node: &Node<'_>, odd: &Node<'_>, key: &str) -> Diagnostic {
    list_fault(file, node, odd, key).hint(format!("write the tools as text, for example `{key}: Read Grep`"))
}

fn set<T: Into<Value> + Clone>(place: &mut T, value: T) -> Value {
    place.clone_from(&value);
    value.into()
}

/// Text of a scalar as written; empty if there is none.
fn written<'n>(node: &'n Node<'_>) -> &'n str {
    match &node.value {
        Yaml::Scalar(scalar) if !node.span.is_empty() => &scalar.text,
        _ => "",
    }
}

fn boolean(node: &Node<'_>) -> Option<bool> {
    if matches!(node.value, Yaml::Scalar(_)) { boolean_word(written(node)) } else { None }
}

/// Meaning of a word: `true`, `yes`, `on` and `1`, and their opposites, in any case. An empty word means false (C-3.1).
pub fn boolean_word(word: &str) -> Option<bool> {
    match word.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" | "" => Some(false),
        _ => None,
    }
}

/// Converts a value, with its scalars as written.
fn as_written(node: &Node<'_>) -> Value {
    match &node.value {
        Yaml::Scalar(_) => Value::from(written(node)),
        Yaml::Seq(items) => items.iter().map(as_written).collect(),
        Yaml::Map(entries) => entries.iter().map(|(key, _, value)| (key.to_owned(), as_written(value))).collect(),
        Yaml::Invalid => Value::Null,
    }
}

//! Reading of a contract from the YAML of an `APP.md` (C-1.8).

use std::sync::Arc;

use serde_json::{Map, Value};

use super::slug::{is_slug, slugified};
use super::{Contract, Reading, SCHEMA};
use crate::code::Code;
use crate::diagnose::applications as diagnose;
use crate::diagnostic::{Diagnostic, sort};
use crate::fields::package::APPLICATION;
use crate::frontmatter::Head;
use crate::source::{SourceFile, Span};
use crate::yaml::{self, Entries, Node, Value as Yaml};

/// Reads the contract of a package whose directory is named `directory`.
pub fn read(head: &Head, directory: &str) -> Reading {
    let mut found = Vec::new();
    let contract = match head.fault {
        Some(fault) => {
            found.push(diagnose::no_frontmatter(&head.file, fault));
            None
        }
        None => {
            let (root, faults) = yaml::parse_part(&head.file, head.file.slice(head.yaml), head.yaml.start as usize);
            let is_empty = faults.iter().any(|fault| fault.code == Code::EmptyFile);
            found.extend(faults.into_iter().filter(|fault| fault.code != Code::EmptyFile).map(diagnose::yaml));
            match root.as_ref().map(|root| (root, root.as_map())) {
                Some((_, Some(entries))) => {
                    Some(Reader { file: &head.file, found: &mut found }.contract(entries, directory))
                }
                Some((root, None)) if !root.is_invalid() => {
                    found.push(diagnose::not_a_mapping(&head.file, root.span, root.kind()));
                    None
                }
                _ if is_empty => {
                    found.push(diagnose::not_a_mapping(&head.file, head.yaml, "nothing"));
                    None
                }
                _ => None,
            }
        }
    };
    let contract = contract.unwrap_or_else(|| Contract {
        slug: derived(directory, ""),
        is_slug_derived: true,
        schema: SCHEMA.into(),
        ..Contract::default()
    });
    sort(&mut found);
    Reading { contract, diagnostics: found }
}

/// The directory's name if it is a slug, or else one derived from the package's name.
fn derived(directory: &str, name: &str) -> String {
    let candidates = [directory.to_owned(), slugified(name), slugified(directory), "app".to_owned()];
    candidates.into_iter().find(|slug| is_slug(slug)).unwrap_or_default()
}

struct Reader<'r, 's> {
    file: &'s Arc<SourceFile>,
    found: &'r mut Vec<Diagnostic>,
}

impl Reader<'_, '_> {
    fn contract(&mut self, entries: &Entries<'_>, directory: &str) -> Contract {
        if entries.get("appType").is_some() && entries.get("entry").is_none() {
            let at = entries.entry("appType").map(|(key, _)| key.span).unwrap_or_default();
            self.found.push(diagnose::foreign_dialect(self.file, at));
            return self.foreign(entries, directory);
        }
        let start = entries.0.first().map(|(key, _)| key.span).unwrap_or_default();
        let name = self.required(entries, "name", start);
        let schema = self.schema(entries);
        self.check_kind(entries);
        let mut contract = Contract {
            schema,
            description: self.required(entries, "description", start),
            version: self.version(entries, start),
            license: self.text(entries, "license").map(|(text, _)| text.to_owned()),
            authors: self.authors(entries),
            tags: self.optional_texts(entries, "tags"),
            metadata: self.metadata(entries),
            entry: self.entry(entries, start),
            commands: self.commands(entries, start),
            skills: self.skills(entries, start),
            is_scheduling_supported: self.scheduling(entries),
            ..Contract::default()
        };
        contract.confirmation_required = self.confirmations(entries, &contract.commands);
        (contract.slug, contract.is_slug_derived) = self.slug(entries, directory, &name, start);
        contract.name = name;
        for (key, node, _) in entries.iter().filter(|(key, ..)| APPLICATION.field(key).is_none()) {
            self.found.push(diagnose::unknown_field(self.file, node.span, key));
        }
        contract
    }

    /// Reads the fields that a listing can show of a package of another kind.
    fn foreign(&mut self, entries: &Entries<'_>, directory: &str) -> Contract {
        let text = |key: &str| entries.get(key).and_then(scalar).unwrap_or_default().to_owned();
        let name = text("name");
        Contract {
            slug: derived(directory, &name),
            is_slug_derived: true,
            schema: text("schema"),
            description: text("description"),
            version: text("version"),
            name,
            ..Contract::default()
        }
    }

    /// Text of a scalar as written; any other value is a fault.
    fn text<'n>(&mut self, entries: &'n Entries<'_>, key: &str) -> Option<(&'n str, Span)> {
        let (_, node) = entries.entry(key)?;
        match scalar(node) {
            Some(text) => Some((text.trim(), node.span)).filter(|(text, _)| !text.is_empty()),
            None if node.is_invalid() => None,
            None => {
                self.found.push(diagnose::bad_type(self.file, node.span, key, "text", node.kind()));
                None
            }
        }
    }

    fn required(&mut self, entries: &Entries<'_>, key: &str, start: Span) -> String {
        let faults = self.found.len();
        let text = self.text(entries, key).map(|(text, _)| text.to_owned());
        if text.is_none() && self.found.len() == faults {
            let at = entries.entry(key).map_or(start, |(key, _)| key.span);
            self.found.push(diagnose::missing(self.file, at, key));
        }
        text.unwrap_or_default()
    }

    fn schema(&mut self, entries: &Entries<'_>) -> String {
        match self.text(entries, "schema") {
            Some((schema, at)) if schema != SCHEMA => {
                self.found.push(diagnose::schema_unsupported(self.file, at, schema, SCHEMA));
                schema.to_owned()
            }
            _ => SCHEMA.to_owned(),
        }
    }

    fn check_kind(&mut self, entries: &Entries<'_>) {
        if let Some((kind, at)) = self.text(entries, "kind").filter(|(kind, _)| *kind != "app") {
            self.found.push(diagnose::kind_mismatch(self.file, at, kind));
        }
    }

    fn version(&mut self, entries: &Entries<'_>, start: Span) -> String {
        let version = self.required(entries, "version", start);
        if let Some((_, node)) = entries.entry("version").filter(|_| !version.is_empty() && !is_semantic(&version)) {
            self.found.push(diagnose::version(self.file, node.span, &version));
        }
        version
    }

    fn slug(&mut self, entries: &Entries<'_>, directory: &str, name: &str, start: Span) -> (String, bool) {
        let Some((slug, at)) = self.text(entries, "slug") else {
            let slug = derived(directory, name);
            self.found.push(diagnose::slug_derived(self.file, start, &slug));
            return (slug, true);
        };
        if is_slug(slug) {
            return (slug.to_owned(), false);
        }
        let better = derived(&slugified(slug), directory);
        self.found.push(diagnose::slug_format(self.file, at, slug, &better));
        (better, true)
    }

    fn entry(&mut self, entries: &Entries<'_>, start: Span) -> String {
        let Some((key, node)) = entries.entry("entry") else {
            self.found.push(diagnose::missing(self.file, start, "entry.command"));
            return String::new();
        };
        let Some(map) = node.as_map() else {
            if node.span.is_empty() {
                self.found.push(diagnose::missing(self.file, key.span, "entry.command"));
            } else if !node.is_invalid() {
                self.found.push(diagnose::bad_type(
                    self.file,
                    node.span,
                    "entry",
                    "a mapping with `command`",
                    node.kind(),
                ));
            }
            return String::new();
        };
        let Some((key, command)) = map.entry("command") else {
            self.found.push(diagnose::missing(self.file, key.span, "entry.command"));
            return String::new();
        };
        match scalar(command) {
            Some(text) if text.trim().is_empty() => {
                self.found.push(diagnose::missing(self.file, key.span, "entry.command"))
            }
            Some(text) => match crate::command::parse(text) {
                Ok(_) => return text.trim().to_owned(),
                Err(why) => self.found.push(diagnose::bad_entry(self.file, command.span, why)),
            },
            None => {
                self.found.push(diagnose::bad_type(self.file, command.span, "entry.command", "text", command.kind()));
            }
        }
        String::new()
    }

    /// Texts of a required list.
    fn list<'n>(&mut self, entries: &'n Entries<'_>, key: &str, start: Span) -> Vec<(&'n str, Span)> {
        let Some((key_node, node)) = entries.entry(key) else {
            self.found.push(diagnose::missing(self.file, start, key));
            return Vec::new();
        };
        let Some(items) = node.as_seq() else {
            match node.span.is_empty() {
                true => self.found.push(diagnose::missing(self.file, key_node.span, key)),
                false => self.found.push(diagnose::bad_type(self.file, node.span, key, "a list of names", node.kind())),
            }
            return Vec::new();
        };
        let is_text = |item: &&Node<'_>| scalar(item).is_some_and(|text| !text.trim().is_empty());
        if let Some(odd) = items.iter().find(|item| !is_text(item) && !item.is_invalid()) {
            self.found.push(diagnose::bad_type(
                self.file,
                odd.span,
                key,
                "a list of names",
                &format!("{} in it", odd.kind()),
            ));
        }
        items
            .iter()
            .filter_map(|item| Some((scalar(item)?.trim(), item.span)))
            .filter(|(text, _)| !text.is_empty())
            .collect()
    }

    fn commands(&mut self, entries: &Entries<'_>, start: Span) -> Vec<String> {
        let faults = self.found.len();
        let mut commands: Vec<String> = Vec::new();
        for (text, at) in self.list(entries, "commands", start) {
            let command = one_blank(text);
            if commands.contains(&command) {
                self.found.push(diagnose::duplicate_command(self.file, at, &command));
            } else {
                commands.push(command);
            }
        }
        if commands.is_empty() && self.found.len() == faults {
            let at = entries.entry("commands").map_or(start, |(key, _)| key.span);
            self.found.push(diagnose::missing(self.file, at, "commands"));
        }
        commands
    }

    fn skills(&mut self, entries: &Entries<'_>, start: Span) -> Vec<String> {
        let faults = self.found.len();
        let mut skills: Vec<String> = Vec::new();
        for (name, at) in self.list(entries, "skills", start) {
            if !is_short_name(name) {
                self.found.push(diagnose::skill_path(self.file, at, name));
            } else if !skills.iter().any(|known| known == name) {
                skills.push(name.to_owned());
            }
        }
        if skills.is_empty() && self.found.len() == faults {
            let at = entries.entry("skills").map_or(start, |(key, _)| key.span);
            self.found.push(diagnose::no_skills(self.file, at));
        }
        skills
    }

    fn scheduling(&mut self, entries: &Entries<'_>) -> bool {
        let Some((_, node)) = entries.entry("scheduling") else { return false };
        match scalar(node) {
            Some("supported") => true,
            Some("notSupported") => false,
            other => {
                let shown =
                    other.map_or_else(|| node.kind().to_owned(), |text| format!("`{}`", crate::wording::plain(text)));
                self.found.push(diagnose::scheduling_value(self.file, node.span, &shown));
                false
            }
        }
    }

    fn confirmations(&mut self, entries: &Entries<'_>, commands: &[String]) -> Vec<String> {
        let Some((_, node)) = entries.entry("confirmationRequired") else { return Vec::new() };
        let mut listed = match (scalar(node), node.as_seq()) {
            (Some(""), _) => Vec::new(),
            (Some(_), _) if node.span.is_empty() => Vec::new(),
            (Some(one), _) => {
                // More confirmation is the safe side.
                self.found.push(diagnose::confirmation_coerced(self.file, node.span, one));
                vec![(one.trim(), node.span)]
            }
            _ => self.list(entries, "confirmationRequired", node.span),
        };
        listed.dedup_by(|a, b| a.0 == b.0);
        let known = |command: &String| commands.iter().any(|known| known == command);
        let mut out = Vec::new();
        for (text, at) in listed {
            let command = one_blank(text);
            if !known(&command) {
                self.found.push(diagnose::confirmation_unknown(self.file, at, &command, commands));
            }
            out.push(command);
        }
        out
    }

    fn authors(&mut self, entries: &Entries<'_>) -> Vec<Value> {
        let Some(node) = entries.get("authors") else { return Vec::new() };
        match &node.value {
            Yaml::Seq(items) => items.iter().map(value).collect(),
            Yaml::Scalar(scalar) => vec![Value::from(scalar.text.as_ref())],
            Yaml::Map(_) => {
                self.found.push(diagnose::bad_type(self.file, node.span, "authors", "a list", node.kind()));
                Vec::new()
            }
            Yaml::Invalid => Vec::new(),
        }
    }

    /// Texts of a list that may be missing.
    fn optional_texts(&mut self, entries: &Entries<'_>, key: &str) -> Vec<String> {
        match entries.get(key) {
            Some(node) if !node.span.is_empty() => {
                self.list(entries, key, node.span).into_iter().map(|(text, _)| text.to_owned()).collect()
            }
            _ => Vec::new(),
        }
    }

    fn metadata(&mut self, entries: &Entries<'_>) -> Map<String, Value> {
        let Some((_, node)) = entries.entry("metadata") else { return Map::new() };
        match value(node) {
            Value::Object(map) => {
                self.state_paths(node);
                map
            }
            Value::Null => Map::new(),
            _ => {
                self.found.push(diagnose::bad_type(self.file, node.span, "metadata", "a mapping", node.kind()));
                Map::new()
            }
        }
    }

    /// Reports entries of `metadata.statePaths` that select no state: an approval would end with the first write there.
    fn state_paths(&mut self, metadata: &Node<'_>) {
        let Some(listed) = metadata.as_map().and_then(|entries| entries.get("statePaths")) else { return };
        let items = listed.as_seq().unwrap_or(std::slice::from_ref(listed));
        let is_sound = |item: &&Node<'_>| {
            listed.as_seq().is_some() && scalar(item).is_some_and(|text| super::state::base(text).is_some())
        };
        if let Some(odd) = items.iter().find(|item| !is_sound(item)) {
            self.found.push(diagnose::state_path(self.file, odd.span, scalar(odd).unwrap_or(odd.kind())));
        }
    }
}

/// Text of a scalar as written.
fn scalar<'n>(node: &'n Node<'_>) -> Option<&'n str> {
    match &node.value {
        Yaml::Scalar(_) if node.span.is_empty() => Some(""),
        Yaml::Scalar(scalar) => Some(&scalar.text),
        _ => None,
    }
}

/// Converts a value to JSON; a value that JSON cannot express becomes text.
fn value(node: &Node<'_>) -> Value {
    match &node.value {
        Yaml::Scalar(scalar) => {
            let text = || Value::from(scalar.text.as_ref());
            node.to_json().ok().and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_else(text)
        }
        Yaml::Seq(items) => items.iter().map(value).collect(),
        Yaml::Map(entries) => entries.iter().map(|(key, _, node)| (key.to_owned(), value(node))).collect(),
        Yaml::Invalid => Value::Null,
    }
}

fn one_blank(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// True for a name that cannot lead out of `skills/` (C-1.10).
fn is_short_name(name: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric()) && name.bytes().all(is_word)
}

/// True for `1.2.3` with any suffix.
fn is_semantic(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let parts: Vec<&str> = core.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

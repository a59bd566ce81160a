//! `schedules`, `webhooks` and `notices` of an app's etude.yaml: the work that a server starts by itself.
//!
//! A fault stops only the entry that has it, so these sections have a reader of their own. Other commands never fail
//! because of them.

mod notice;
mod schedule;
pub mod template;
#[cfg(test)]
mod tests;
mod webhook;

use std::sync::Arc;

pub use notice::Notice;
pub use schedule::{CatchUp, Overlap, Schedule};
use serde_json::{Map, Value};
pub use webhook::{Verify, VerifyKind, Webhook};

use crate::check::{Findings, Subject, object};
use crate::code::Code;
use crate::diagnose::values::config_not_a_mapping;
use crate::diagnose::{automation as diagnose, references, values};
use crate::diagnostic::{self, Diagnostic};
use crate::fields::{Object, automation as tables};
use crate::serve::{self, Mcp, PipelineLimits};
use crate::source::{SourceFile, Span};
use crate::yaml::{self, Entries, Node, text};

/// The keys of etude.yaml that this module reads.
pub(crate) const SECTIONS: [&str; 3] = ["schedules", "webhooks", "notices"];

/// The automation of one app.
#[derive(Debug, Clone, Default)]
pub struct Automation {
    /// Schedules, in the order of the file.
    pub schedules: Vec<Schedule>,
    /// Webhooks, in the order of the file.
    pub webhooks: Vec<Webhook>,
    /// Notices, in the order of the file.
    pub notices: Vec<Notice>,
    /// Limits of pipelines and stage machines, in the order of the file.
    pub limits: Vec<PipelineLimits>,
    /// The service for agents under `serve.mcp`.
    pub mcp: Mcp,
    /// All faults, including those of the entries.
    pub diagnostics: Vec<Diagnostic>,
    /// Reasons why the whole file is unreadable, such as a syntax error.
    pub unreadable: Vec<Diagnostic>,
}

impl Automation {
    /// The same automation with all schedules stopped by `why`, the errors of the current file.
    pub fn stopped(mut self, why: &[Diagnostic]) -> Self {
        for schedule in &mut self.schedules {
            schedule.broken = why.to_vec();
        }
        self.unreadable = why.to_vec();
        self
    }

    /// Same as [`Self::stopped`], for a reason that no file contains.
    pub fn stopped_by(self, why: &str) -> Self {
        let file = SourceFile::new("etude.yaml", String::new());
        let fault = diagnose::not_read(&file, why);
        self.stopped(&[fault])
    }
}

/// The pipeline or stage machine that an entry runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A pipeline by its name.
    Pipeline(String),
    /// A stage machine by its id.
    Machine(String),
}

impl Target {
    /// The name of the pipeline, or the id of the machine.
    pub fn name(&self) -> &str {
        match self {
            Self::Pipeline(name) | Self::Machine(name) => name,
        }
    }

    /// Name of the pipeline and id of the machine; at most one of them is present.
    pub fn names(target: Option<&Self>) -> (Option<&str>, Option<&str>) {
        match target {
            Some(Self::Pipeline(name)) => (Some(name), None),
            Some(Self::Machine(name)) => (None, Some(name)),
            None => (None, None),
        }
    }
}

/// Names of an app's pipelines and stage machines.
#[derive(Debug, Clone, Copy)]
pub struct Known<'k> {
    /// Names of all pipelines of the app; any other name is an error.
    pub pipelines: &'k [&'k str],
    /// Ids of all stage machines of the app; any other id is an error.
    pub machines: &'k [&'k str],
}

/// State while one entry is read.
struct Entry<'e, 'n> {
    found: &'e mut Findings<'n>,
    name: &'e str,
    entries: &'e Entries<'e>,
    /// Span for diagnostics of the whole entry.
    at: Span,
    known: Option<Known<'e>>,
    expand: Expand<'e>,
}

/// Expands the variables of a text; `None` if one is unknown.
type Expand<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Reads the three sections of a configuration file. Target names are checked against `known`, if it is given.
pub fn read(file: &Arc<SourceFile>, known: Option<Known<'_>>) -> Automation {
    read_expanded(file, known, &|text| (!text.contains("${env:")).then(|| text.to_owned()))
}

/// Same as [`read`], with values of variables: `expand` replaces each `${env:NAME}` of a text, or returns `None` if one
/// is unknown. Secrets are checked in their expanded form.
pub fn read_expanded(
    file: &Arc<SourceFile>,
    known: Option<Known<'_>>,
    expand: &dyn Fn(&str) -> Option<String>,
) -> Automation {
    let around = Around { known, expand };
    let mut automation = Automation::default();
    let (root, mut faults) = yaml::parse(file);
    let Some(root) = root else {
        // An empty file is valid.
        faults.retain(|fault| fault.is_error() && fault.code != Code::EmptyFile);
        return Automation { unreadable: faults, ..automation };
    };
    let Some(sections) = root.as_map() else {
        if !root.is_invalid() {
            faults.push(config_not_a_mapping(file, root.span, root.kind()));
        }
        return Automation { unreadable: faults, ..automation };
    };
    let section = |name: &str| sections.get(name).and_then(Node::as_map).into_iter().flat_map(Entries::iter);
    let mut found = Findings::new(file);
    for (name, key, node) in section("schedules") {
        let read = entry(&mut found, &tables::SCHEDULE, (name, key.span, node), around, schedule::read);
        automation.schedules.extend(read);
    }
    for (name, key, node) in section("webhooks") {
        let read = entry(&mut found, &tables::WEBHOOK, (name, key.span, node), around, webhook::read);
        automation.webhooks.extend(read);
    }
    for node in sections.get("notices").and_then(Node::as_seq).unwrap_or_default() {
        let name = node.as_map().and_then(|entries| text(entries, "name")).map_or("", |name| name.text);
        let read = entry(&mut found, &tables::NOTICE, (name, node.span, node), around, notice::read);
        automation.notices.extend(read);
    }
    for (key, node) in SECTIONS.iter().filter_map(|key| sections.entry(key)) {
        let is_list = key.key() == "notices";
        if !node.is_invalid() && (if is_list { node.as_seq().is_none() } else { node.as_map().is_none() }) {
            let wanted = if is_list { "a list of notices" } else { "a mapping by name" };
            found.push(diagnose::not_a_section(file, key.span, key.key(), wanted, node.kind()));
        }
    }
    let serve = serve::read(sections);
    (automation.limits, automation.mcp) = (serve.pipelines, serve.mcp);
    if let Some(known) = known {
        unknown_limits(&mut found, sections, known);
        unknown_tools(&mut found, sections, known);
    }
    automation.diagnostics = found.list;
    diagnostic::sort(&mut automation.diagnostics);
    automation
}

/// Reports limits for a pipeline that the app does not have.
fn unknown_limits(found: &mut Findings<'_>, sections: &Entries<'_>, known: Known<'_>) {
    let limits = sections.get("serve").and_then(Node::as_map).and_then(|serve| serve.get("pipelines"));
    for (name, key, _) in limits.and_then(Node::as_map).into_iter().flat_map(Entries::iter) {
        if !known.pipelines.contains(&name) && !known.machines.contains(&name) {
            let names = [known.pipelines, known.machines].concat();
            found.push(references::unknown_pipeline(found.file, key.span, name, &names));
        }
    }
}

/// Reports `read_only` tools that the app does not have.
fn unknown_tools(found: &mut Findings<'_>, sections: &Entries<'_>, known: Known<'_>) {
    let mcp = sections.get("serve").and_then(Node::as_map).and_then(|serve| serve.get("mcp")).and_then(Node::as_map);
    let names = mcp.and_then(|mcp| mcp.get("read_only")).and_then(Node::as_seq).unwrap_or_default();
    for (node, name) in names.iter().filter_map(|node| Some((node, node.as_text()?))) {
        let machine = name.strip_prefix("machine_").unwrap_or(name);
        if !known.pipelines.contains(&name) && !known.machines.contains(&machine) {
            let names = [known.pipelines, known.machines].concat();
            found.push(references::unknown_pipeline(found.file, node.span, name, &names));
        }
    }
}

/// Context of all entries.
#[derive(Clone, Copy)]
struct Around<'a> {
    known: Option<Known<'a>>,
    expand: Expand<'a>,
}

/// Checks one entry against its table, then reads it. Its errors go to the entry and to `found`.
fn entry<T>(
    found: &mut Findings<'_>,
    table: &'static Object,
    (name, key, node): (&str, Span, &Node<'_>),
    Around { known, expand }: Around<'_>,
    read: impl FnOnce(&mut Entry<'_, '_>) -> T,
) -> Option<T>
where
    T: Broken,
{
    let before = found.list.len();
    let at = if node.span.is_empty() { key } else { node.span };
    let Some(entries) = node.as_map() else {
        if !node.is_invalid() {
            found.push(diagnose::not_a_section(found.file, key, name, "a mapping", node.kind()));
        }
        return None;
    };
    let title = format!("{} `{name}`", table.name.trim_start_matches("a "));
    object(found, entries, table, Subject { name: &title, at: key }, &[]);
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
        let rule = "a name is `[A-Za-z0-9._-]{1,64}`";
        found.push(values::bad_name(found.file, key, table.name, name, rule));
    }
    let at = if key.is_empty() { at } else { key };
    let mut value = read(&mut Entry { found, name, entries, at, known, expand });
    let errors = found.list[before..].iter().filter(|diagnostic| diagnostic.is_error()).cloned().collect();
    value.set_broken(errors);
    Some(value)
}

/// An entry that records its own errors.
trait Broken {
    fn set_broken(&mut self, errors: Vec<Diagnostic>);
}

impl Entry<'_, '_> {
    /// The target: exactly one of `pipeline` and `machine`.
    fn target(&mut self) -> Option<Target> {
        let (pipeline, machine) = (text(self.entries, "pipeline"), text(self.entries, "machine"));
        let known = self.known;
        match (pipeline, machine) {
            (Some(pipeline), Some(machine)) => {
                let message = "`pipeline` and `machine` exclude each other".to_owned();
                let hint = "remove one of them";
                let _ = pipeline;
                self.found.push(values::contradiction(self.found.file, machine.at, message, "the second target", hint));
                None
            }
            (Some(name), None) => {
                if let Some(known) = known.filter(|known| !known.pipelines.contains(&name.text)) {
                    let fault = references::unknown_pipeline(self.found.file, name.at, name.text, known.pipelines);
                    self.found.push(fault);
                }
                Some(Target::Pipeline(name.text.to_owned()))
            }
            (None, Some(name)) => {
                if let Some(known) = known.filter(|known| !known.machines.contains(&name.text)) {
                    self.found.push(diagnose::unknown_machine(self.found.file, name.at, name.text, known.machines));
                }
                Some(Target::Machine(name.text.to_owned()))
            }
            (None, None) => {
                let is_given = self.entries.get("pipeline").or(self.entries.get("machine")).is_some();
                if !is_given {
                    self.found.push(diagnose::no_target(self.found.file, self.at, self.name));
                }
                None
            }
        }
    }

    /// Reads the templates of `input`; `is_known` decides which references are valid.
    fn input(&mut self, is_known: fn(&str) -> bool, forms: &str) -> Option<Map<String, Value>> {
        let node = self.entries.get("input")?;
        let given = node.as_map()?;
        let mut input = Map::new();
        for (name, _, node) in given.iter() {
            let value: Value =
                node.to_json().ok().and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
            for reference in template::references(&value) {
                if !is_known(&reference) {
                    let fault = diagnose::unknown_reference(self.found.file, node.span, &reference, forms);
                    self.found.push(fault);
                }
            }
            input.insert(name.to_owned(), value);
        }
        Some(input)
    }

    /// Duration of a field, in milliseconds; it may have days.
    fn duration(&self, field: &str) -> Option<u64> {
        crate::duration::long_of_node(self.entries.get(field)?).ok()
    }

    fn word(&self, field: &str) -> Option<&str> {
        text(self.entries, field).map(|word| word.text)
    }
}

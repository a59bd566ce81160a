//! Reading of machine.yaml, except for the hooks of its stages.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::model::Tier;
use etude_core::plan::stages::{Drift, GrantDecision, GrantRule, Grants, Guard, Script, Slot};
use etude_core::schema::Schema;

use super::core_version::{CORE, covers_core};
use super::hooks::{HookContext, script};
use super::mark::{INVALID, VALIDATION, mark, marked, rank};
use super::schema;
use super::stage::StageFileContext;
use crate::check::{Findings, Subject, object};
use crate::diagnose::{stage_machine as diagnose, values};
use crate::fields::stage_machine::MACHINE;
use crate::input::{self, InputDecl};
use crate::source::Span;
use crate::yaml::{Entries, Node, number, text, texts};

/// Independent parts of machine.yaml.
pub(super) struct Head {
    pub(super) description: String,
    pub(super) triggers: Vec<String>,
    pub(super) input: InputDecl,
    pub(super) tier: Tier,
    pub(super) entry: Option<(String, Span)>,
    /// Patterns of stage files.
    pub(super) patterns: Vec<String>,
    pub(super) context: Option<Vec<String>>,
    pub(super) slot: Option<Slot>,
    /// Capabilities that a model must have besides tool calls.
    pub(super) requires: Vec<String>,
    pub(super) max_executions: u32,
    pub(super) config: Json,
    pub(super) at: Span,
}

/// Reads the fields of machine.yaml in `entries`.
pub(super) fn head(
    found: &mut Findings<'_>,
    entries: &Entries<'_>,
    root: &Node<'_>,
    name: &str,
    cx: StageFileContext<'_>,
) -> Head {
    let at = entries.0.first().map_or(root.span, |(key, _)| key.span);
    let before = found.list.len();
    object(found, entries, &MACHINE, Subject { name: &format!("machine `{name}`"), at }, &[]);
    unversioned(found, before, entries);
    point(found, before, entries);
    if let Some(id) = text(entries, "id").filter(|id| id.text != name) {
        marked(found, "/id", rank::FIELDS, |found| {
            found.push(diagnose::machine_name(found.file, id.at, id.text, name));
        });
    }
    versions(found, entries);
    core_version(found, entries);
    let requires = capabilities(found, entries);
    let input = match entries.get("input").and_then(Node::as_map) {
        Some(parameters) => marked(found, "/input", rank::FIELDS, |found| {
            let declared = input::read(found, parameters);
            crate::input::check_parameters(found, &declared, entries.get("input"));
            declared
        }),
        None => InputDecl { is_open: true, ..InputDecl::default() },
    };
    let patterns = match text(entries, "stages") {
        Some(pattern) => vec![pattern.text.to_owned()],
        None if entries.get("stages").is_some() => texts(entries, "stages"),
        None => vec!["stages/*.md".to_owned()],
    };
    let context = entries
        .get("context")
        .and_then(Node::as_map)
        .map(|context| texts(context, "required").into_iter().chain(texts(context, "optional")).collect());
    let config = entries.get("config").and_then(|node| node.to_json().ok());
    Head {
        description: text(entries, "description").map(|text| text.text.to_owned()).unwrap_or_default(),
        triggers: texts(entries, "triggers"),
        input,
        tier: text(entries, "model").and_then(|word| Tier::from_word(word.text)).unwrap_or_default(),
        entry: text(entries, "entryStage").map(|entry| (entry.text.to_owned(), entry.at)),
        patterns,
        context,
        slot: slot(found, entries, cx),
        requires,
        max_executions: number(entries, "maxStageExecutions").map_or(100, |most| most as u32),
        config: Json::trusted(config.unwrap_or_else(|| "{}".to_owned())),
        at: text(entries, "id").map_or(at, |id| id.at),
    }
}

/// Adds the JSON pointer of the field to its faults.
fn point(found: &mut Findings<'_>, from: usize, entries: &Entries<'_>) {
    for diagnostic in &mut found.list[from..] {
        let start = diagnostic.span.map_or(0, |span| span.start);
        let inside = entries.0.iter().rfind(|(key, _)| key.span.start <= start);
        let path =
            inside.filter(|_| diagnostic.code != crate::Code::MissingField).map(|(key, _)| format!("/{}", key.key()));
        mark(diagnostic, &path.unwrap_or_default(), rank::FIELDS);
    }
}

fn versions(found: &mut Findings<'_>, entries: &Entries<'_>) {
    let slot = entries.get("stateSlot").and_then(Node::as_map);
    let contract = text(entries, "contractVersion").map(|text| ("contractVersion", "/contractVersion", text));
    let slot =
        slot.and_then(|slot| text(slot, "slotVersion")).map(|text| ("slotVersion", "/stateSlot/slotVersion", text));
    for (field, path, given) in contract.into_iter().chain(slot) {
        let core = given.text.split(['-', '+']).next().unwrap_or_default();
        let numbers: Vec<Option<u64>> = core.split('.').map(|part| part.parse().ok()).collect();
        marked(found, path, rank::FIELDS, |found| {
            if numbers.len() != 3 || numbers.contains(&None) {
                found.push(diagnose::version(found.file, given.at, field, given.text));
            } else if field == "contractVersion" && numbers[0] != Some(1) {
                found.push(diagnose::contract_version(found.file, given.at, given.text));
            }
        });
    }
}

/// Reports a slot without a version under its own name (B-ST3).
fn unversioned(found: &mut Findings<'_>, from: usize, entries: &Entries<'_>) {
    let Some(slot) = entries.get("stateSlot").and_then(Node::as_map) else { return };
    if slot.get("slotVersion").is_some() {
        return;
    }
    for diagnostic in &mut found.list[from..] {
        if diagnostic.code == crate::Code::MissingField && diagnostic.field == Some("slotVersion") {
            let fault = diagnostic.clone();
            *diagnostic = fault.rule(VALIDATION, "SlotVersionMissing", "/stateSlot/slotVersion", rank::FIELDS);
        }
    }
}

/// Checks the required version of the contract (B-M2).
fn core_version(found: &mut Findings<'_>, entries: &Entries<'_>) {
    let Some(range) = text(entries, "requiredCoreVersion") else { return };
    marked(found, "/requiredCoreVersion", rank::FIELDS, |found| match covers_core(range.text) {
        Some(true) => {}
        Some(false) => found.push(diagnose::core_version(found.file, range.at, range.text, CORE)),
        None => found.push(diagnose::version_range(found.file, range.at, range.text)),
    });
}

/// Reads the capabilities that a model must have. Tool calls are required anyway (B-CN1), and no other capability of a
/// model is known here. So a preferred capability is reported, and a required one keeps the machine from running
/// (B-CN4, B-CN6).
fn capabilities(found: &mut Findings<'_>, entries: &Entries<'_>) -> Vec<String> {
    let Some(node) = entries.get("capabilities") else { return Vec::new() };
    let mut asked: Vec<(String, String)> = Vec::new();
    let level = |node: Option<&Node<'_>>| node.and_then(Node::as_text).unwrap_or("hard").to_owned();
    for item in node.as_seq().unwrap_or_default() {
        match (item.as_text(), item.as_map()) {
            (Some(name), _) => asked.push((name.to_owned(), level(None))),
            (_, Some(map)) if map.get("name").is_some() => {
                let name = text(map, "name").map(|name| name.text.to_owned()).unwrap_or_default();
                asked.push((name, level(map.get("level"))));
            }
            (_, Some(map)) => asked.extend(map.iter().map(|(name, _, node)| (name.to_owned(), level(Some(node))))),
            _ => {}
        }
    }
    if let Some(map) = node.as_map() {
        asked.extend(map.iter().map(|(name, _, node)| (name.to_owned(), level(Some(node)))));
    }
    asked.retain(|(name, _)| name != "toolCalling");
    for (name, level) in &asked {
        marked(found, "/capabilities", rank::FIELDS, |found| {
            found.push(diagnose::unknown_capability(found.file, node.span, name, level));
        });
    }
    asked.into_iter().filter(|(_, level)| level == "hard").map(|(name, _)| name).collect()
}

fn slot(found: &mut Findings<'_>, entries: &Entries<'_>, cx: StageFileContext<'_>) -> Option<Slot> {
    let slot = entries.get("stateSlot")?.as_map()?;
    let node = slot.get("schema").filter(|node| node.as_map().is_some())?;
    let schema = schema::read(found, node, "schema", "/stateSlot/schema", INVALID, cx);
    let drift = match text(slot, "drift").map(|word| word.text) {
        Some("warn") => Drift::Warn,
        Some("migrate") => match slot.get("migrate").and_then(Node::as_map) {
            Some(migrate) => marked(found, "/stateSlot/migrate", rank::FIELDS, |found| {
                script(found, migrate, "script", &plain(cx)).map(Drift::Migrate)
            })?,
            None => {
                let at = text(slot, "drift").map_or(Span::default(), |word| word.at);
                marked(found, "/stateSlot/migrate", rank::FIELDS, |found| {
                    found.push(diagnose::migrate_missing(found.file, at));
                });
                return None;
            }
        },
        _ => Drift::Reject,
    };
    Some(Slot { version: text(slot, "slotVersion")?.text.to_owned(), schema: schema?, drift })
}

/// Slot of a stage that runs alone.
pub(super) fn open_slot() -> Slot {
    let schema = Schema::lazy("slot", serde_json::json!({"type": "object"}), BTreeMap::new());
    Slot { version: "1.0.0".to_owned(), schema: Arc::new(schema), drift: Drift::Reject }
}

/// Context for scripts outside of hooks.
pub(super) fn plain(cx: StageFileContext<'_>) -> HookContext<'_> {
    HookContext { sources: cx.sources, dir: cx.dir, stages: None, slot: None, join_outside: false, parsed: None }
}

/// Reads the decisions on calls outside the envelope: rules or a script.
pub(super) fn grants(found: &mut Findings<'_>, entries: &Entries<'_>, cx: &HookContext<'_>) -> Grants {
    let Some(node) = entries.get("grants") else { return Grants::Rules(Vec::new()) };
    marked(found, "/grants", rank::BODY, |found| {
        if let Some(hook) = node.as_map() {
            return script(found, hook, "script", cx).map_or(Grants::Rules(Vec::new()), Grants::Script);
        }
        let rules = node.as_seq().unwrap_or_default().iter().filter_map(Node::as_map);
        let mut read = Vec::new();
        for rule in rules {
            let stage = text(rule, "stage");
            if let (Some(stage), Some(known)) = (stage, &cx.stages)
                && !known.contains(&stage.text)
            {
                found.push(diagnose::unknown_stage(found.file, stage.at, "a grant", stage.text, known));
            }
            let decision = text(rule, "decision").and_then(|word| GrantDecision::from_word(word.text));
            let tool = text(rule, "tool").map(|tool| tool.text.to_owned());
            if let (Some(decision), Some(tool)) = (decision, tool) {
                let times = number(rule, "times").map(|times| times as u32);
                read.push(GrantRule { stage: stage.map(|stage| stage.text.to_owned()), tool, decision, times });
            }
        }
        Grants::Rules(read)
    })
}

/// The machine's own guards.
pub(super) fn guards(found: &mut Findings<'_>, entries: &Entries<'_>, cx: &HookContext<'_>) -> Vec<Guard> {
    let items = entries.get("guards").and_then(Node::as_seq).unwrap_or_default();
    let mut guards = Vec::new();
    for (node, item) in items.iter().filter_map(|item| Some((item, item.as_map()?))) {
        marked(found, "/guards", rank::BODY, |found| {
            let given: Vec<&str> = ["script", "command"].into_iter().filter(|word| item.get(word).is_some()).collect();
            match given.as_slice() {
                [field] => {
                    guards.extend(script(found, item, field, cx).map(|script| Guard { script, dir: cx.dir.to_owned() }))
                }
                several => found.push(diagnose::one_of(
                    found.file,
                    node.span,
                    "a guard",
                    &["script", "command"],
                    several.len(),
                )),
            }
        });
    }
    guards
}

/// Reads the script that receives failed fan-outs.
pub(super) fn on_failure(found: &mut Findings<'_>, entries: &Entries<'_>, cx: &HookContext<'_>) -> Option<Script> {
    let hook = entries.get("onFailure")?.as_map()?;
    marked(found, "/onFailure", rank::BODY, |found| script(found, hook, "script", cx))
}

/// Reports a machine file whose top level is not a mapping.
pub(super) fn not_a_mapping(found: &mut Findings<'_>, root: &Node<'_>) {
    if !root.is_invalid() {
        found.push(values::top_level(found.file, root.span, "a machine", root.kind()).hint("begin with `id: …`"));
    }
}

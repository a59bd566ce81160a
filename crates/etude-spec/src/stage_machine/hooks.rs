//! Hooks around each stage: declarative forms and scripts (`b-stages` §20.3, §20.4).

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::plan::Origin;
use etude_core::plan::stages::{
    Assert, Exit, Gate, GateOutcome, HookOrigins, NextRule, Output, Root, Script, Setup, Slot, Source, Stage, Verdict,
};
use etude_core::schema::Schema;
use serde_json::Value;

use super::mark::{INVALID, VALIDATION, marked, rank};
use super::next;
use super::paths::{self, Phase, Sight};
use super::stage::RESERVED;
use crate::check::{Findings, literal_value};
use crate::command;
use crate::command::script::script_of;
use crate::diagnose::files::missing_script;
use crate::diagnose::{stage_machine as diagnose, values};
use crate::diagnostic::Diagnostic;
use crate::files::siblings;
use crate::source::{ReadFailure, Span, join};
use crate::yaml::{Entries, Node, number, place_in, text};

/// Timeout of a script that sets none, in milliseconds.
pub(super) const DEFAULT_TIMEOUT_MS: u64 = 600_000;

/// Parts of the machine that the reading of hooks needs.
#[derive(Clone)]
pub(super) struct HookContext<'a> {
    pub(super) sources: &'a dyn crate::source::Sources,
    pub(super) dir: &'a str,
    /// Ids of all stages; `None` if some are unreadable.
    pub(super) stages: Option<Vec<&'a str>>,
    pub(super) slot: Option<&'a Slot>,
    /// True if a join may stand outside its list.
    pub(super) join_outside: bool,
    /// Schema of the completion of the stage whose hooks are read.
    pub(super) parsed: Option<&'a Schema>,
}

impl<'a> HookContext<'a> {
    /// Values that a phase can read.
    pub(super) const fn sight(&self, phase: Phase) -> Sight<'a> {
        Sight { phase, slot: self.slot, parsed: self.parsed }
    }
}

/// Reads the hooks of `stage` into it. Returns false if its `next` has errors, so that its transitions are unknown.
pub(super) fn read(found: &mut Findings<'_>, entries: &Entries<'_>, stage: &mut Stage, cx: &HookContext<'_>) -> bool {
    stage.hooks = origins(found, entries);
    let completion = Arc::clone(&stage.completion_schema);
    let cx = &HookContext { parsed: Some(&completion), ..cx.clone() };
    let id = stage.id.clone();
    let path = |hook: &str| format!("/pipeline/{id}/{hook}");
    if let Some(hook) = map(entries, "setup") {
        marked(found, &path("setup"), rank::BODY, |found| {
            stage.setup = setup(found, hook, cx).unwrap_or(Setup::Set(Vec::new()));
        });
    }
    if let Some(hook) = map(entries, "gate") {
        marked(found, &path("gate"), rank::BODY, |found| {
            stage.gate = gate(found, hook, cx).unwrap_or(Gate::Rules(Vec::new()));
        });
    }
    if let Some(hook) = map(entries, "assert") {
        marked(found, &path("assert"), rank::BODY, |found| {
            stage.assert = assert(found, hook, cx).unwrap_or(Assert::Rules(Vec::new()));
        });
    }
    if let Some(hook) = map(entries, "exit") {
        marked(found, &path("exit"), rank::BODY, |found| {
            stage.exit = exit(found, hook, cx).unwrap_or(Exit::Values { output: None, slot: Vec::new() });
        });
    }
    let before = found.list.len();
    match entries.get("next") {
        Some(node) if node.as_map().is_some_and(|hook| hook.get("script").is_some()) => {
            marked(found, &path("next"), rank::NEXT, |found| {
                if let Some(script) = node.as_map().and_then(|hook| script(found, hook, "script", cx)) {
                    stage.next = NextRule::Script(script);
                }
            });
        }
        Some(node) => next::read(found, node, stage, cx),
        None => {}
    }
    !found.list[before..].iter().any(Diagnostic::is_error)
}

/// Places of the hooks, for failures.
fn origins(found: &Findings<'_>, entries: &Entries<'_>) -> HookOrigins {
    let of = |field: &str| {
        let (key, _) = entries.entry(field)?;
        let (line, column) = found.file.position(key.span.start);
        Some(Origin { file: found.file.path().to_owned(), line, column })
    };
    HookOrigins { setup: of("setup"), gate: of("gate"), assert: of("assert"), exit: of("exit"), next: of("next") }
}

fn map<'n>(entries: &'n Entries<'n>, field: &str) -> Option<&'n Entries<'n>> {
    entries.get(field)?.as_map()
}

/// Reads the script of a hook, with its time limit.
pub(super) fn script(
    found: &mut Findings<'_>,
    entries: &Entries<'_>,
    field: &str,
    cx: &HookContext<'_>,
) -> Option<Script> {
    let line = text(entries, field)?;
    let command = match command::parse(line.text) {
        Ok(command) => command,
        Err(why) => {
            found.push(values::bad_command(found.file, line.at, why));
            return None;
        }
    };
    for word in command::words(&command) {
        let relative = word.strip_prefix("./").unwrap_or(word);
        if (relative.starts_with("scripts/") || script_of(&command) == Some(word))
            && let Some(full) = join(cx.dir, relative)
            && cx.sources.kind(&full) == Err(ReadFailure::Missing)
        {
            let beside = siblings(cx.sources, &full);
            found.push(missing_script(found.file, line.at, word, &beside, "scripts run in the machine's directory"));
        }
    }
    let timeout_ms = number(entries, "timeoutMs").map_or(DEFAULT_TIMEOUT_MS, |ms| ms as u64);
    Some(Script { command, timeout_ms })
}

/// The one exclusive field that a hook has; several are reported, and so is none.
fn only<'w>(found: &mut Findings<'_>, entries: &Entries<'_>, what: &str, words: &[&'w str]) -> Option<&'w str> {
    let given: Vec<&'w str> = words.iter().copied().filter(|word| entries.get(word).is_some()).collect();
    match given.as_slice() {
        [one] => Some(one),
        // An empty hook has no effect.
        [] if entries.0.is_empty() => None,
        several => {
            let at = entries.0.first().map_or(Span::default(), |(key, _)| key.span);
            found.push(diagnose::one_of(found.file, at, what, words, several.len()));
            None
        }
    }
}

fn setup(found: &mut Findings<'_>, entries: &Entries<'_>, cx: &HookContext<'_>) -> Option<Setup> {
    if only(found, entries, "a setup", &["set", "script"])? == "script" {
        return script(found, entries, "script", cx).map(Setup::Script);
    }
    let set = map(entries, "set")?;
    for (name, key, _) in set.iter().filter(|(name, _, _)| RESERVED.contains(name)) {
        let fault = diagnose::reserved(found.file, key.span, name, &RESERVED);
        found.push(fault.rule(VALIDATION, "ContextMutationForbidden", "/setup", rank::BODY));
    }
    Some(Setup::Set(members(found, set, cx.sight(Phase::Setup))))
}

/// Reads names with their values.
fn members(found: &mut Findings<'_>, entries: &Entries<'_>, sight: Sight<'_>) -> Vec<(String, Source)> {
    entries.iter().filter_map(|(name, _, node)| Some((name.to_owned(), source(found, node, sight)?))).collect()
}

/// Reads a value: a literal, or `{from: path}`.
fn source(found: &mut Findings<'_>, node: &Node<'_>, sight: Sight<'_>) -> Option<Source> {
    if let Some(path) = from(node) {
        return paths::read(found, path, sight).map(Source::From);
    }
    literal_value(found, node, "a value").map(Source::Literal)
}

/// Path of `{from: path}`, which has no other member.
fn from<'n>(node: &'n Node<'n>) -> Option<&'n Node<'n>> {
    let entries = node.as_map()?;
    let path = entries.get("from").filter(|path| path.as_text().is_some())?;
    (entries.0.len() == 1).then_some(path)
}

fn gate(found: &mut Findings<'_>, entries: &Entries<'_>, cx: &HookContext<'_>) -> Option<Gate> {
    if only(found, entries, "a gate", &["rules", "script"])? == "script" {
        return script(found, entries, "script", cx).map(Gate::Script);
    }
    Some(Gate::Rules(paths::rules(found, entries, cx.sight(Phase::Gate), "outcome", GateOutcome::from_word)))
}

fn assert(found: &mut Findings<'_>, entries: &Entries<'_>, cx: &HookContext<'_>) -> Option<Assert> {
    match only(found, entries, "an assert", &["rules", "validate", "script"])? {
        "script" => script(found, entries, "script", cx).map(Assert::Script),
        "validate" => script(found, entries, "validate", cx).map(Assert::Validate),
        _ => Some(Assert::Rules(paths::rules(found, entries, cx.sight(Phase::Assert), "verdict", Verdict::from_word))),
    }
}

fn exit(found: &mut Findings<'_>, entries: &Entries<'_>, cx: &HookContext<'_>) -> Option<Exit> {
    if entries.get("script").is_some() {
        if entries.get("output").is_some() || entries.get("slot").is_some() {
            only(found, entries, "an exit", &["script", "output", "slot"]);
        }
        return script(found, entries, "script", cx).map(Exit::Script);
    }
    let output = entries.get("output").and_then(|node| match from(node) {
        Some(path) => paths::read(found, path, cx.sight(Phase::Exit)).map(|path| Output::Whole(Source::From(path))),
        None => Some(Output::Members(members(found, node.as_map()?, cx.sight(Phase::Exit)))),
    });
    let slot = map(entries, "slot").map(|slot| members(found, slot, cx.sight(Phase::Exit))).unwrap_or_default();
    if let (Some(declared), Some(written)) = (cx.slot, map(entries, "slot")) {
        check_slot(found, written, &slot, declared);
    }
    Some(Exit::Values { output, slot })
}

/// Checks literal values for the slot against the schema of their members.
fn check_slot(found: &mut Findings<'_>, written: &Entries<'_>, slot: &[(String, Source)], declared: &Slot) {
    let properties = declared.schema.document().get("properties").cloned().unwrap_or(Value::Null);
    for (name, source) in slot {
        let (Source::Literal(value), Some(schema)) = (source, properties.get(name)) else { continue };
        let Ok(schema) = Schema::compile(name.as_str(), schema.clone(), BTreeMap::new()) else { continue };
        for fault in schema.violations(value) {
            let at = written.get(name).map_or(Span::default(), |node| place_in(node, &fault.pointer));
            let fault = diagnose::slot_value(found.file, at, name, &fault.to_string());
            found.push(fault.rule(VALIDATION, INVALID, "/exit/slot", rank::BODY));
        }
    }
}

/// Words for the sources of a phase, for its hints.
pub(super) fn sources(phase: Phase) -> Vec<&'static str> {
    phase.roots().iter().map(|root: &Root| root.word()).collect()
}

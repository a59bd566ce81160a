//! Paths to values, and the tests of `when`.

use etude_core::condition::Op;
use etude_core::placeholder::segments;
use etude_core::plan::stages::{Path, Root, Rule, Slot, Test};
use etude_core::schema::Schema;
use etude_core::template::Segment;
use serde_json::Value;

use super::hooks::sources;
use crate::check::{Findings, literal_value};
use crate::diagnose::{references, stage_machine as diagnose, values};
use crate::diagnostic::Severity;
use crate::value_types::ValueTypes;
use crate::wording::quoted;
use crate::yaml::{Entries, Node, text};

etude_core::words! {
    /// A phase with declarative forms.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Phase {
        Setup = "setup",
        Gate = "gate",
        Assert = "assert",
        Exit = "exit",
        Next = "next",
    }
}

impl Phase {
    /// Sources that the phase can read.
    pub(super) const fn roots(self) -> &'static [Root] {
        use Root::{Attempts, CapHit, Ctx, Input, Parsed, Result, Run, Slot, Upstream};
        match self {
            Self::Setup => &[Input, Slot, Upstream, Run],
            Self::Gate => &[Input, Ctx, Slot, Upstream, Run],
            Self::Assert => &[Input, Ctx, Slot, Upstream, Run, Parsed, Attempts, CapHit],
            Self::Exit | Self::Next => &[Input, Ctx, Slot, Upstream, Run, Parsed, Attempts, CapHit, Result],
        }
    }
}

/// Values that a phase can read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) phase: Phase,
    pub(super) slot: Option<&'a Slot>,
    /// Schema of `parsed`; `None` if there is no stage.
    pub(super) parsed: Option<&'a Schema>,
}

/// Reports a member that the declared slot does not have.
fn check_slot(found: &mut Findings<'_>, node: &Node<'_>, slot: &Slot, segments: &[Segment]) {
    const OPEN: [&str; 7] = ["patternProperties", "$ref", "allOf", "anyOf", "oneOf", "if", "unevaluatedProperties"];
    let schema = slot.schema.document();
    let (Some(Segment::Field(name)), Some(declared)) = (segments.first(), schema["properties"].as_object()) else {
        return;
    };
    let (more, is_open) = (&schema["additionalProperties"], OPEN.iter().any(|word| schema.get(word).is_some()));
    if declared.is_empty() || declared.contains_key(name) || is_open || !(more.is_null() || *more == false) {
        return;
    }
    let known: Vec<&str> = declared.keys().map(String::as_str).collect();
    let fault = diagnose::no_slot_member(found.file, node.span, name, &known);
    // If the schema does not forbid it, a hook may still put the member there.
    found.push(if more.is_null() { fault.severity(Severity::Warning) } else { fault });
}

/// Reads the path in `node`; an invalid one is reported.
pub(super) fn read(found: &mut Findings<'_>, node: &Node<'_>, sight: Sight<'_>) -> Option<Path> {
    let phase = sight.phase;
    let text = node.as_text()?;
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let known = sources(phase);
    let Some(root) = Root::from_word(&text[..end]).filter(|root| phase.roots().contains(root)) else {
        found.push(diagnose::unknown_source(found.file, node.span, &text[..end], phase.word(), &known));
        return None;
    };
    match segments(&text[end..]) {
        Some(segments) => {
            if let (Root::Slot, Some(slot)) = (root, sight.slot) {
                check_slot(found, node, slot, &segments);
            }
            Some(Path { root, segments })
        }
        None => {
            found.push(diagnose::bad_path(found.file, node.span, text));
            None
        }
    }
}

/// Reads the rules of a gate or an assert. `field` holds their decision, and `word` reads it.
pub(super) fn rules<T>(
    found: &mut Findings<'_>,
    entries: &Entries<'_>,
    sight: Sight<'_>,
    field: &str,
    word: impl Fn(&str) -> Option<T>,
) -> Vec<Rule<T>> {
    let items = entries.get("rules").and_then(Node::as_seq).unwrap_or_default();
    let mut rules = Vec::with_capacity(items.len());
    for entries in items.iter().filter_map(Node::as_map) {
        let when = when(found, entries, sight);
        let reason = text(entries, "reason").map(|reason| reason.text.to_owned());
        // An unknown word was reported with the field.
        let then = text(entries, field).and_then(|given| word(given.text));
        if let (Some(when), Some(then)) = (when, then) {
            rules.push(Rule { when, then, reason });
        }
    }
    rules
}

/// Reads the tests of `when`; empty without the field. `None` if one of them is invalid.
pub(super) fn when(found: &mut Findings<'_>, entries: &Entries<'_>, sight: Sight<'_>) -> Option<Vec<Test>> {
    let Some(node) = entries.get("when") else { return Some(Vec::new()) };
    let tests: Vec<&Node<'_>> = match node.as_seq() {
        Some(items) => items.iter().collect(),
        None => vec![node],
    };
    let read: Vec<Option<Test>> =
        tests.into_iter().map(|node| node.as_map().and_then(|entries| test(found, entries, node, sight))).collect();
    read.into_iter().collect()
}

/// Comparisons with their words (`b-stages` §20.3).
const OPS: [(&str, Op); 7] = [
    ("equals", Op::Equals),
    ("notEquals", Op::NotEquals),
    ("in", Op::In),
    ("exists", Op::Exists),
    ("matches", Op::Matches),
    ("gt", Op::Gt),
    ("lt", Op::Lt),
];

/// Types of the value at a path, if the schema of the slot or of the completion names them.
fn types(path: &Path, sight: Sight<'_>) -> Option<ValueTypes> {
    let schema = match path.root {
        Root::Slot => sight.slot?.schema.document(),
        Root::Parsed => sight.parsed?.document(),
        _ => return None,
    };
    let inner = path.segments.iter().try_fold(&**schema, |schema, segment| match segment {
        Segment::Field(name) => schema.get("properties")?.get(name),
        Segment::Index(_) => schema.get("items"),
    });
    ValueTypes::of_schema(inner?)
}

fn test(found: &mut Findings<'_>, entries: &Entries<'_>, node: &Node<'_>, sight: Sight<'_>) -> Option<Test> {
    let path = entries.get("path").and_then(|path| read(found, path, sight));
    let given: Vec<_> = OPS.iter().filter(|(word, _)| entries.get(word).is_some()).collect();
    let [(word, op)] = given.as_slice() else {
        let why = if given.is_empty() { "it has none" } else { "it has several" };
        found.push(diagnose::comparison(found.file, node.span, why));
        return None;
    };
    let with = entries.get(word)?;
    let literal = literal_value(found, with, &format!("`{word}`"))?;
    match (op, &literal) {
        (Op::Matches, Value::String(pattern)) => {
            if let Err(why) = regex::Regex::new(pattern) {
                found.push(values::bad_pattern(found.file, with.span, &why.to_string()));
                return None;
            }
        }
        (Op::Gt | Op::Lt, Value::Number(_) | Value::String(_)) => {}
        (Op::Gt | Op::Lt, _) => {
            found.push(diagnose::comparison(found.file, with.span, &format!("`{word}` needs a number or text")));
            return None;
        }
        _ => {}
    }
    let path = path?;
    if let Some(types) = types(&path, sight)
        && let Some(is_true) = types.decided(*op, &literal)
        && let Some(shown) = entries.get("path").and_then(Node::as_text)
    {
        let (shown, said) = (quoted(shown), types.shown());
        let fault = (shown.as_str(), said.as_str());
        let meant = types.meant(&literal);
        found.push(references::decided_comparison(found.file, with.span, fault, (*word, is_true), meant));
    }
    Some(Test { path, op: *op, literal })
}

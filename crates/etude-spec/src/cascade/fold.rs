//! Merging of the metadata of all levels, from `default` down to the tool (D-4.4 to D-4.7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etude_core::data::bare;
use etude_core::pointer::escaped;
use serde_json::{Map, Value};

use crate::cascade::elements;
use crate::cascade::interpolate;
use crate::cascade::order::Order;
use crate::cascade::overrides::Overrides;
use crate::cascade::path;
use crate::cascade::skill::{Skill, names};
use crate::cascade::strategy::{PrivateScope, RemoveTiming, Strategy};
use crate::diagnose::cascade as diagnose;
use crate::diagnostic::Diagnostic;
use crate::source::SourceFile;

/// Merge policies of `$merge` (D-4.6).
pub const POLICIES: &[&str] = &["prepend", "append", "shallow", "replace", "deep"];

/// Merged levels of a tool.
#[derive(Debug, Clone, Default)]
pub struct Folded {
    /// Merged values without annotations; keys are in the order of their first occurrence.
    pub merged: Map<String, Value>,
    /// True if values are left out ([`Wanted::Keys`]).
    pub is_outline: bool,
    /// The merged `$order`.
    pub order: Arc<Order>,
    /// Keys that `$static` removes from the chain; `None` stands for all keys.
    pub statics: Option<BTreeSet<String>>,
    /// Keys that `$dynamic` keeps in the chain.
    pub dynamics: BTreeSet<String>,
    /// Tools that `$hook` runs around every entry.
    pub hooks: Vec<String>,
    /// Values of the tool's own `$self`.
    pub self_defaults: Map<String, Value>,
}

/// Context of interpolation and overrides.
#[derive(Debug, Clone, Copy)]
pub struct MergeContext<'a> {
    /// The context where paths in `${…}` begin.
    pub context: &'a Value,
    /// Choices where the format leaves one open.
    pub strategy: &'a Strategy,
    /// Values from the command line and the environment that override the merged values (D-16).
    pub overrides: &'a Overrides,
    /// True for the tool that was called from outside.
    pub is_entry: bool,
}

/// Merged levels above a tool: the same for all tools with the same levels.
#[derive(Debug, Clone, Default)]
pub struct Base {
    state: State,
    /// Merged values with their lists in order, for tools that change neither.
    sorted: Map<String, Value>,
    /// Keys of the lists that are ordered.
    lists: Vec<String>,
    /// Contradictory orders of elements in `sorted`: a fault of every tool with these lists.
    cycles: Vec<elements::Cycle>,
    diagnostics: Vec<Diagnostic>,
}

/// Merges the levels above a tool, which are given nearest first.
pub fn base(levels: &[Arc<Skill>], merge_context: &MergeContext<'_>) -> Base {
    let mut state = State { statics: Some(BTreeSet::new()), ..State::default() };
    let mut diagnostics = Vec::new();
    for level in levels.iter().rev() {
        state.level(level, false, merge_context, &mut diagnostics);
    }
    let mut sorted = Value::Object(state.merged.clone());
    let cycles = elements::reorder(&mut sorted, &state.order);
    let Value::Object(sorted) = sorted else { return Base::default() };
    let lists = state.order.elements().filter_map(|(path, _)| elements::root_of(path)).map(str::to_owned).collect();
    Base { state, sorted, lists, cycles, diagnostics }
}

impl Base {
    /// True if the levels order the elements of the list `key`.
    pub fn orders(&self, key: &str) -> bool {
        self.lists.iter().any(|list| list == key)
    }

    /// The keys of the merged values.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.sorted.keys()
    }
}

/// Extent of the merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Keys and values, for an invocation.
    Values,
    /// Keys only, for a tool's chain and its faults. If values change neither, `merged` has only the tool's own keys,
    /// without their values, and [`Folded::is_outline`] is true.
    Keys,
}

/// Merges the tool, the first of `levels`, over the levels above it.
pub fn fold(
    levels: &[Arc<Skill>],
    base: &Base,
    merge_context: &MergeContext<'_>,
    wanted: Wanted,
    found: &mut Vec<Diagnostic>,
) -> Folded {
    found.extend(base.diagnostics.iter().cloned());
    let overrides = merge_context.overrides;
    let is_plain =
        levels.first().is_some_and(|tool| !tool.metadata().keys().any(|key| key == "$order" || key == "$remove"));
    let touches = |key: &String| levels.first().is_some_and(|tool| tool.metadata().contains_key(key));
    let is_sorted = is_plain
        && overrides.local.is_empty()
        && overrides.global.is_empty()
        && base.state.removed_at_end.is_empty()
        && !base.lists.iter().any(touches);
    let is_outline = is_sorted && wanted == Wanted::Keys;
    let mut state = match (is_outline, is_sorted) {
        (true, _) => base.state.clone_with(&Map::new()),
        (false, true) => base.state.clone_with(&base.sorted),
        (false, false) => base.state.clone_with(&base.state.merged),
    };
    if let Some(tool) = levels.first() {
        if is_outline {
            state.outline(tool, merge_context, found)
        } else {
            state.level(tool, true, merge_context, found)
        }
    }
    for key in std::mem::take(&mut state.removed_at_end) {
        state.remove(&key);
    }
    let mut merged = Value::Object(state.merged);
    let cycles = if is_sorted {
        base.cycles.clone()
    } else {
        overrides.apply(&mut merged, merge_context.is_entry);
        elements::reorder(&mut merged, &state.order)
    };
    found.extend(cycles.iter().map(|cycle| order_cycle(levels, cycle)));
    let Value::Object(merged) = merged else { return Folded::default() };
    Folded {
        merged,
        is_outline,
        order: state.order,
        statics: state.statics,
        dynamics: state.dynamics,
        hooks: state.hooks,
        self_defaults: state.self_defaults,
    }
}

#[derive(Debug, Clone, Default)]
struct State {
    merged: Map<String, Value>,
    policies: Arc<BTreeMap<String, String>>,
    private: Arc<BTreeSet<String>>,
    order: Arc<Order>,
    statics: Option<BTreeSet<String>>,
    dynamics: BTreeSet<String>,
    hooks: Vec<String>,
    self_defaults: Map<String, Value>,
    removed_at_end: Vec<String>,
}

impl State {
    /// A copy with other merged values.
    fn clone_with(&self, merged: &Map<String, Value>) -> Self {
        Self {
            merged: merged.clone(),
            policies: Arc::clone(&self.policies),
            private: Arc::clone(&self.private),
            order: Arc::clone(&self.order),
            statics: self.statics.clone(),
            dynamics: self.dynamics.clone(),
            hooks: self.hooks.clone(),
            self_defaults: self.self_defaults.clone(),
            removed_at_end: self.removed_at_end.clone(),
        }
    }

    fn level(&mut self, level: &Skill, is_tool: bool, merge_context: &MergeContext<'_>, found: &mut Vec<Diagnostic>) {
        let metadata = interpolate::object(level.metadata(), merge_context.context, merge_context.strategy);
        self.annotations(level, &metadata, is_tool, found);
        let hidden = match merge_context.strategy.private_scope {
            PrivateScope::Cumulative => self.private.clone(),
            PrivateScope::DeclaringLevel => {
                let own: BTreeSet<String> =
                    metadata.get("$private").map(names).unwrap_or_default().into_iter().collect();
                Arc::new(own)
            }
        };
        let removed = metadata.get("$remove").map(names).unwrap_or_default();
        for (key, value) in metadata {
            if key.starts_with('$') || (!is_tool && hidden.contains(&key)) {
                continue;
            }
            let policy = self.policies.get(&key).map(String::as_str);
            match self.merged.get_mut(&key) {
                Some(known) => combine(policy, known, value),
                None => drop(self.merged.insert(key, value)),
            }
        }
        match merge_context.strategy.remove_timing {
            RemoveTiming::AtLevel => removed.iter().for_each(|key| self.remove(key)),
            RemoveTiming::AtEnd => self.removed_at_end.extend(removed),
        }
    }

    /// Merges a tool without its values.
    fn outline(&mut self, tool: &Skill, merge_context: &MergeContext<'_>, found: &mut Vec<Diagnostic>) {
        let is_annotation = |key: &str| key.starts_with('$') && !key.starts_with("${");
        let metadata = interpolate::object_of(
            tool.metadata().iter().filter(|(key, _)| is_annotation(key)),
            merge_context.context,
            merge_context.strategy,
        );
        self.annotations(tool, &metadata, true, found);
        for key in tool.metadata().keys().filter(|key| !is_annotation(key)) {
            self.merged.insert(interpolate::key(key, merge_context.context, merge_context.strategy), Value::Null);
        }
    }

    fn annotations(
        &mut self,
        level: &Skill,
        metadata: &Map<String, Value>,
        is_tool: bool,
        found: &mut Vec<Diagnostic>,
    ) {
        for (key, value) in metadata.iter().filter(|(key, _)| key.starts_with('$')) {
            let fits = match key.as_str() {
                "$merge" => self.policies_of(level, value, found),
                "$private" => take(value, |names| Arc::make_mut(&mut self.private).extend(names)),
                "$order" => Arc::make_mut(&mut self.order).merge(value),
                "$static" => match (value, &mut self.statics) {
                    (Value::Bool(true), statics) => {
                        *statics = None;
                        true
                    }
                    (Value::Bool(false), _) | (_, None) => true,
                    (value, Some(keys)) => take(value, |names| keys.extend(names)),
                },
                "$dynamic" => take(value, |names| self.dynamics.extend(names)),
                "$remove" => take(value, |_| ()),
                "$hook" => take(value, |names| {
                    for name in names {
                        if !self.hooks.contains(&name) {
                            self.hooks.push(name);
                        }
                    }
                }),
                "$self" => match value {
                    Value::Object(values) => {
                        if is_tool {
                            self.self_defaults.clone_from(values);
                        }
                        true
                    }
                    _ => false,
                },
                // `$inherit` was read for the levels; any other key that begins with `$` belongs to another reader.
                _ => true,
            };
            if !fits {
                let at = level.place(&format!("/{key}"));
                found.push(diagnose::annotation(&level.file, at, &level.name, key, shape(key)));
            }
        }
    }

    fn policies_of(&mut self, level: &Skill, value: &Value, found: &mut Vec<Diagnostic>) -> bool {
        let Value::Object(policies) = value else { return false };
        for (key, policy) in policies {
            match policy.as_str().filter(|policy| POLICIES.contains(policy)) {
                Some(policy) => drop(Arc::make_mut(&mut self.policies).insert(key.clone(), policy.to_owned())),
                None => {
                    let (at, policy) = (level.place(&format!("/$merge/{}", escaped(key))), bare(policy));
                    found.push(diagnose::unknown_policy(&level.file, at, &level.name, key, &policy, POLICIES));
                }
            }
        }
        true
    }

    fn remove(&mut self, key: &str) {
        if self.merged.shift_remove(key).is_none() && key.contains(['.', '[']) {
            let mut merged = Value::Object(std::mem::take(&mut self.merged));
            path::remove(&mut merged, key);
            if let Value::Object(merged) = merged {
                self.merged = merged;
            }
        }
    }
}

/// Reports entries that must come before themselves, at the first level that orders one of them.
pub(super) fn order_cycle(levels: &[Arc<Skill>], names: &[String]) -> Diagnostic {
    let place = |skill: &Arc<Skill>| {
        let order = skill.metadata().get("$order")?;
        let name = names.iter().find(|name| order.get(name.as_str()).is_some())?;
        Some((Arc::clone(&skill.file), skill.place(&format!("/$order/{}", escaped(name)))))
    };
    let (file, at) = levels.iter().find_map(place).unwrap_or_else(|| (SourceFile::new("", ""), None));
    diagnose::order_cycle(&file, at, names)
}

fn take(value: &Value, into: impl FnOnce(Vec<String>)) -> bool {
    let fits = match value {
        Value::String(_) | Value::Null => true,
        Value::Array(items) => items.iter().all(Value::is_string),
        _ => false,
    };
    if fits {
        into(names(value));
    }
    fits
}

fn shape(annotation: &str) -> &'static str {
    match annotation {
        "$merge" => "a mapping from keys to policies",
        "$order" => "a mapping from names to `before` and `after`",
        "$self" => "a mapping",
        "$static" => "a list of keys, or true",
        _ => "a list of names",
    }
}

/// Merges a nearer value over a farther one (D-4.6).
fn combine(policy: Option<&str>, known: &mut Value, nearer: Value) {
    let list = |value: Value| match value {
        Value::Array(items) => items,
        Value::Null => Vec::new(),
        value => vec![value],
    };
    match policy {
        // Null adds nothing to a list, and a single value stays as written.
        Some("prepend" | "append") if nearer.is_null() => {}
        Some("prepend" | "append") if known.is_null() => *known = nearer,
        Some("prepend") => *known = Value::Array(list(nearer).into_iter().chain(list(known.take())).collect()),
        Some("append") => *known = Value::Array(list(known.take()).into_iter().chain(list(nearer)).collect()),
        Some("shallow") => match (known, nearer) {
            (Value::Object(known), Value::Object(nearer)) => known.extend(nearer),
            (known, nearer) => *known = nearer,
        },
        Some("deep") => deep(known, nearer),
        _ => *known = nearer,
    }
}

fn deep(known: &mut Value, nearer: Value) {
    match (known, nearer) {
        (Value::Object(known), Value::Object(nearer)) => {
            for (key, value) in nearer {
                match known.get_mut(&key) {
                    Some(known) => deep(known, value),
                    None => drop(known.insert(key, value)),
                }
            }
        }
        (known, nearer) => *known = nearer,
    }
}

//! Cost of a schema for one value: `allOf` of ten references to `allOf` of ten references, thirty times, is a page of
//! text and more work than any machine can do.
//!
//! References are followed by the validator's own registry. So no spelling of a reference (percent-encoded, an anchor,
//! an `$id`, another path to the same file) takes the validator to a schema that is not weighed here. If the target of
//! a reference depends on the way to it, the heaviest possible target counts.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use jsonschema::{Registry, Uri};
use serde_json::{Map, Value};

/// Maximum number of schemas that may be applied to the same value, references followed. Generated schemas of whole
/// APIs have a few thousand.
pub(super) const MAX_COUNT: u64 = 100_000;

/// Maximum length of a chain of schemas that apply each other to the same value. A validator's call depth is this times
/// the depth of the value, which is at most 128; a thread's stack of 2 MiB must hold that.
pub(super) const MAX_DEPTH: usize = 100;

/// Keywords with one or more schemas that apply to the value itself.
const IN_PLACE: &[&str] = &["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];

/// Keywords that refer to a schema that applies to the value itself.
const REFERENCES: &[&str] = &["$ref", "$dynamicRef", "$recursiveRef"];

/// Weight of a built-in schema of the validator: those of the drafts are finite.
const BUILT_IN: Weight = Weight { schemas: 100, depth: 10, leads_to: usize::MAX };

/// True if some part may be a reference.
pub(super) fn refers(part: &Value) -> bool {
    match part {
        Value::Object(members) => {
            REFERENCES.iter().any(|keyword| members.get(*keyword).is_some_and(Value::is_string))
                || members.values().any(refers)
        }
        Value::Array(items) => items.iter().any(refers),
        _ => false,
    }
}

/// True if some part of these documents applies more than [`MAX_COUNT`] schemas to one value, or a chain of more than
/// [`MAX_DEPTH`]. A reference back to a schema on its way adds nothing. `registry` borrows the same documents, each by
/// its URI. Without a registry no reference is followed.
pub(super) fn is_too_heavy<'s>(documents: &[(Uri<String>, &'s Value)], registry: Option<&'s Registry<'s>>) -> bool {
    let mut scale = Scale {
        registry,
        bases: BTreeMap::new(),
        dynamic: BTreeMap::new(),
        recursive: Vec::new(),
        known: BTreeMap::new(),
        seen: BTreeSet::new(),
        path: BTreeMap::new(),
        repeated: 0,
    };
    if registry.is_some() {
        for (uri, document) in documents {
            scale.survey(document, &Rc::from([Arc::new(uri.clone())]));
        }
    }
    documents.iter().any(|(_, document)| scale.has_too_heavy(document))
}

/// The base URIs of references: that of the document and those of every `$id` around.
type Bases = Rc<[Arc<Uri<String>>]>;

/// Number of schemas that a schema applies to its value, itself included.
#[derive(Debug, Clone, Copy)]
struct Weight {
    schemas: u64,
    /// Length of the longest chain of schemas that apply each other.
    depth: usize,
    /// Position, on the current path, of the outermost schema that a reference leads back to.
    leads_to: usize,
}

struct Scale<'s> {
    registry: Option<&'s Registry<'s>>,
    bases: BTreeMap<usize, Bases>,
    /// Schemas by their `$dynamicAnchor`, anywhere in the documents.
    dynamic: BTreeMap<&'s str, Vec<&'s Value>>,
    /// Schemas with a `$recursiveAnchor`.
    recursive: Vec<&'s Value>,
    /// Weights by the address of a schema, for schemas whose weight does not depend on the path to them.
    known: BTreeMap<usize, Weight>,
    seen: BTreeSet<usize>,
    /// Schemas that are being weighed, with their position on the current path.
    path: BTreeMap<usize, usize>,
    /// Number of times that a schema was weighed again on another path.
    repeated: u64,
}

impl Weight {
    const NONE: Self = Self { schemas: 0, depth: 0, leads_to: usize::MAX };
    const TOO_MUCH: Self = Self { schemas: MAX_COUNT + 1, depth: MAX_DEPTH + 1, leads_to: usize::MAX };

    /// Combined weight of two schemas that both apply.
    fn and(self, other: Self) -> Self {
        Self { schemas: self.schemas.saturating_add(other.schemas), ..self.or(other) }
    }

    /// Weight of the heavier of two schemas.
    fn or(self, other: Self) -> Self {
        Self {
            schemas: self.schemas.max(other.schemas),
            depth: self.depth.max(other.depth),
            leads_to: self.leads_to.min(other.leads_to),
        }
    }
}

impl<'s> Scale<'s> {
    /// Records the base URIs of every schema in `part`, and the targets of dynamic references.
    fn survey(&mut self, part: &'s Value, bases: &Bases) {
        match part {
            Value::Object(members) => {
                let bases = self.inner_bases(members, bases);
                self.bases.insert(address(part), Rc::clone(&bases));
                if let Some(name) = members.get("$dynamicAnchor").and_then(Value::as_str) {
                    self.dynamic.entry(name).or_default().push(part);
                }
                if members.get("$recursiveAnchor") == Some(&Value::Bool(true)) {
                    self.recursive.push(part);
                }
                members.values().for_each(|member| self.survey(member, &bases));
            }
            Value::Array(items) => items.iter().for_each(|item| self.survey(item, bases)),
            _ => {}
        }
    }

    /// The base URIs inside a schema. An id that the validator ignores is not a resource of the registry.
    fn inner_bases(&self, members: &Map<String, Value>, bases: &Bases) -> Bases {
        let mut all: Vec<_> = bases.to_vec();
        let ids = ["$id", "id"].into_iter().filter_map(|keyword| members.get(keyword)?.as_str());
        for (id, base) in ids.flat_map(|id| bases.iter().map(move |base| (id, base))) {
            let resolved = self.registry.and_then(|registry| registry.resolve_uri(&base.borrow(), id).ok());
            let is_resource =
                |uri: &Arc<Uri<String>>| self.registry.is_some_and(|registry| registry.contains_resource(uri.as_str()));
            all.extend(resolved.filter(|uri| is_resource(uri) && !bases.contains(uri)));
        }
        if all.len() == bases.len() { Rc::clone(bases) } else { all.into() }
    }

    /// True if a schema in `part` is too heavy. Every object counts as a schema: other objects have no references.
    fn has_too_heavy(&mut self, part: &'s Value) -> bool {
        match part {
            Value::Object(members) => {
                let own = self.weigh(part);
                own.schemas > MAX_COUNT
                    || own.depth > MAX_DEPTH
                    || members.values().any(|part| self.has_too_heavy(part))
            }
            Value::Array(items) => items.iter().any(|part| self.has_too_heavy(part)),
            _ => false,
        }
    }

    fn weigh(&mut self, schema: &'s Value) -> Weight {
        let Value::Object(members) = schema else { return Weight { schemas: 1, depth: 1, ..Weight::NONE } };
        let address = address(schema);
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        if let Some(at) = self.path.get(&address) {
            return Weight { leads_to: *at, ..Weight::NONE };
        }
        if !self.seen.insert(address) {
            self.repeated += 1;
        }
        let at = self.path.len();
        if at >= MAX_DEPTH || self.repeated > MAX_COUNT {
            return Weight::TOO_MUCH;
        }
        self.path.insert(address, at);
        let mut total = Weight { schemas: 1, ..Weight::NONE };
        for part in in_place(members) {
            total = total.and(self.weigh(part));
        }
        for keyword in REFERENCES {
            let Some(reference) = members.get(*keyword).and_then(Value::as_str) else { continue };
            total = total.and(self.weigh_target(keyword, reference, address));
        }
        total.depth += 1;
        self.path.remove(&address);
        if total.leads_to >= at {
            // No schema before it is led back to, so its weight does not depend on the path.
            total.leads_to = usize::MAX;
            self.known.insert(address, total);
        }
        total
    }

    /// Weight of the heaviest possible target of a reference in the schema at `address`; a dangling reference weighs
    /// nothing.
    fn weigh_target(&mut self, keyword: &str, reference: &str, address: usize) -> Weight {
        let Some(registry) = self.registry else { return Weight::NONE };
        let bases = self.bases.get(&address).cloned().unwrap_or_else(|| Rc::from([]));
        let found = |base: &Arc<Uri<String>>| registry.resolver((**base).clone()).lookup(reference).ok();
        let mut targets: Vec<&'s Value> = Vec::new();
        targets.extend(bases.iter().filter_map(found).map(|resolved| resolved.contents()));
        let name = reference.rsplit_once('#').map_or("", |(_, fragment)| fragment);
        targets.extend(self.dynamic.get(name).into_iter().flatten());
        if keyword == "$recursiveRef" {
            targets.extend(&self.recursive);
        }
        targets.sort_by_key(|target| self::address(target));
        targets.dedup_by_key(|target| self::address(target));
        targets.into_iter().fold(Weight::NONE, |heaviest, target| {
            let is_ours = !target.is_object() || self.bases.contains_key(&self::address(target));
            heaviest.or(if is_ours { self.weigh(target) } else { BUILT_IN })
        })
    }
}

/// The subschemas that a schema applies to the same value.
fn in_place(members: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    IN_PLACE.iter().flat_map(|keyword| match members.get(*keyword) {
        Some(Value::Array(all)) => all.iter().collect(),
        Some(Value::Object(all)) if keyword.starts_with("depend") => all.values().collect(),
        Some(one) => vec![one],
        None => Vec::new(),
    })
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

#[cfg(test)]
mod tests;

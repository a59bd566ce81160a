//! Order of the entries of a chain (D-6.1 to D-6.3).

use std::collections::{BTreeSet, VecDeque};

use indexmap::{IndexMap, IndexSet};
use serde_json::Value;

use crate::cascade::path;
use crate::cascade::skill::names;
use crate::cascade::strategy::TieBreak;

/// The merged `$order` of some levels; names are in the order of their first declaration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Order(IndexMap<String, Sides>);

/// Names that one name must precede and follow. A missing side leaves that of a farther level.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sides {
    /// Names that follow it.
    pub before: Option<Vec<String>>,
    /// Names that precede it.
    pub after: Option<Vec<String>>,
}

impl Sides {
    fn read(value: &Value) -> Option<Self> {
        let members = value.as_object()?;
        let side = |key: &str| match members.get(key) {
            None | Some(Value::Null) => Some(None),
            Some(value) => are_names(value).then(|| Some(names(value))),
        };
        Some(Self { before: side("before")?, after: side("after")? })
    }

    fn is_empty(&self) -> bool {
        let is_empty = |side: &Option<Vec<String>>| side.as_ref().is_none_or(Vec::is_empty);
        is_empty(&self.before) && is_empty(&self.after)
    }
}

/// True for a text or a list of texts.
fn are_names(value: &Value) -> bool {
    value.is_string() || value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}

impl Order {
    /// Merges the `$order` of a nearer level, side by side. False if it is invalid.
    pub fn merge(&mut self, nearer: &Value) -> bool {
        let Value::Object(members) = nearer else { return nearer.is_null() };
        let mut fits = true;
        for (name, value) in members {
            let Some(sides) = Sides::read(value).or_else(|| value.is_null().then(Sides::default)) else {
                fits = false;
                continue;
            };
            let known = self.0.entry(name.clone()).or_default();
            known.before = sides.before.or(known.before.take());
            known.after = sides.after.or(known.after.take());
        }
        fits
    }

    /// Adds the order that a tool declares for itself, unless the cascade orders it.
    pub fn suggest(&mut self, name: &str, metadata: &serde_json::Map<String, Value>) {
        if self.0.contains_key(name) {
            return;
        }
        let own = metadata.get("$order").and_then(|order| order.get(name)).and_then(Sides::read);
        let plain = Sides::read(&Value::Object(metadata.clone())).unwrap_or_default();
        if let Some(sides) = own.or(Some(plain)).filter(|sides| !sides.is_empty()) {
            self.0.insert(name.to_owned(), sides);
        }
    }

    /// Orders of list elements: JSONPaths with their sides.
    pub fn elements(&self) -> impl Iterator<Item = (&str, &Sides)> {
        self.0.iter().filter(|(name, _)| path::is_json_path(name)).map(|(name, sides)| (name.as_str(), sides))
    }

    /// Orders of entries: names with their sides.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Sides)> {
        self.0.iter().filter(|(name, _)| !path::is_json_path(name)).map(|(name, sides)| (name.as_str(), sides))
    }

    /// The order as a document.
    pub fn json(&self) -> Value {
        let sides = |sides: &Sides| {
            let mut members = serde_json::Map::new();
            for (key, side) in [("before", &sides.before), ("after", &sides.after)] {
                if let Some(side) = side {
                    members.insert(key.to_owned(), Value::from(side.clone()));
                }
            }
            Value::Object(members)
        };
        Value::Object(self.0.iter().map(|(name, entry)| (name.clone(), sides(entry))).collect())
    }

    /// Sorts `keys`, the live entries.
    ///
    /// Names that are not live entries stay as anchors, so that an order through them holds. An entry without an order
    /// goes between `$configure` and `$post-configure`.
    ///
    /// # Errors
    /// The names of a cycle.
    pub fn sort(&self, keys: &[String], tie_break: TieBreak) -> Result<Vec<String>, Vec<String>> {
        let mut graph = Graph::default();
        self.entries().for_each(|(name, _)| graph.node(name));
        keys.iter().for_each(|key| graph.node(key));
        for (name, sides) in self.entries() {
            graph.sides(name, sides);
        }
        let unconstrained =
            Sides { after: Some(vec!["$configure".to_owned()]), before: Some(vec!["$post-configure".to_owned()]) };
        for key in keys {
            if self.0.get(key).is_none_or(Sides::is_empty) {
                graph.sides(key, &unconstrained);
            }
        }
        let live: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
        let sorted = graph.sort(tie_break)?;
        Ok(sorted.into_iter().filter(|name| live.contains(name.as_str())).collect())
    }
}

/// Directed graph of names and their order; nodes are in the order of declaration.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: IndexSet<String>,
    /// Edges as indices into `nodes`.
    edges: IndexSet<(usize, usize)>,
}

impl Graph {
    pub(super) fn node(&mut self, name: &str) {
        if !self.nodes.contains(name) {
            self.nodes.insert(name.to_owned());
        }
    }

    fn sides(&mut self, name: &str, sides: &Sides) {
        for other in sides.after.iter().flatten() {
            self.edge(other, name);
        }
        for other in sides.before.iter().flatten() {
            self.edge(name, other);
        }
    }

    pub(super) fn edge(&mut self, first: &str, second: &str) {
        self.node(first);
        self.node(second);
        if let (Some(first), Some(second)) = (self.nodes.get_index_of(first), self.nodes.get_index_of(second)) {
            self.edges.insert((first, second));
        }
    }

    /// Kahn's algorithm.
    pub(super) fn sort(&self, tie_break: TieBreak) -> Result<Vec<String>, Vec<String>> {
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut waits_for = vec![0_usize; self.nodes.len()];
        for (first, second) in &self.edges {
            next[*first].push(*second);
            waits_for[*second] += 1;
        }
        let mut free: VecDeque<usize> = (0..self.nodes.len()).filter(|node| waits_for[*node] == 0).collect();
        let mut sorted = Vec::new();
        loop {
            let at = match tie_break {
                TieBreak::Fifo => 0,
                TieBreak::Declaration => free.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(at, _)| at),
            };
            let Some(node) = free.remove(at) else { break };
            sorted.push(node);
            for after in &next[node] {
                waits_for[*after] -= 1;
                if waits_for[*after] == 0 {
                    free.push_back(*after);
                }
            }
        }
        if sorted.len() == self.nodes.len() {
            return Ok(sorted.into_iter().map(|node| self.nodes[node].clone()).collect());
        }
        // A node that only waits for the cycle is not part of it.
        let mut left: BTreeSet<usize> = (0..self.nodes.len()).filter(|node| waits_for[*node] > 0).collect();
        while let Some(node) = left.iter().copied().find(|node| !next[*node].iter().any(|after| left.contains(after))) {
            left.remove(&node);
        }
        Err(left.into_iter().map(|node| self.nodes[node].clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn order(levels: &[Value]) -> Order {
        let mut order = Order::default();
        assert!(levels.iter().all(|level| order.merge(level)));
        order
    }

    fn keys(names: &str) -> Vec<String> {
        names.split(' ').map(str::to_owned).collect()
    }

    /// D-6.3: of several free entries, the first to become free comes first; the alternative is
    /// `TieBreak::Declaration`.
    #[test]
    fn ties_are_broken_by_a_queue() {
        let order = order(&[json!({
            "$a": {"before": ["$b"]}, "$b": {}, "last": {"after": ["$b"]}, "end": {"after": ["last"]}, "wrap": {"after": ["$a"]},
        })]);
        let keys = keys("last end wrap");
        assert_eq!(order.sort(&keys, TieBreak::Fifo).unwrap(), ["wrap", "last", "end"]);
        assert_eq!(order.sort(&keys, TieBreak::Declaration).unwrap(), ["last", "end", "wrap"]);
    }

    /// D-6.2: a nearer level replaces only the sides that it gives, and a name keeps its place.
    #[test]
    fn nearer_sides_replace_farther_ones() {
        let far = json!({"a": {"after": ["x"], "before": ["y"]}, "b": {}});
        let order = order(&[far, json!({"b": {"after": ["a"]}, "a": {"after": ["z"]}})]);
        assert_eq!(order.json(), json!({"a": {"before": ["y"], "after": ["z"]}, "b": {"after": ["a"]}}));
        assert!(!Order::default().merge(&json!({"a": 1})));
        assert!(!Order::default().merge(&json!([1])));
    }

    /// D-6.2: a tool may order itself; the cascade's order has priority.
    #[test]
    fn a_tool_may_order_itself() {
        let mut order = order(&[json!({"a": {"before": ["$x"]}})]);
        order.suggest("a", json!({"before": ["$y"]}).as_object().unwrap());
        order.suggest("b", json!({"$order": {"b": {"after": ["a"]}}}).as_object().unwrap());
        order.suggest("c", json!({"role": "middleware"}).as_object().unwrap());
        assert_eq!(order.json(), json!({"a": {"before": ["$x"]}, "b": {"after": ["a"]}}));
    }

    /// D-6.3: only the cycle itself is named.
    #[test]
    fn a_cycle_is_named_without_what_hangs_on_it() {
        let order = order(&[json!({"a": {"after": ["b"]}, "b": {"after": ["a"]}, "c": {"after": ["a"]}})]);
        assert_eq!(order.sort(&keys("a b c"), TieBreak::Fifo), Err(keys("a b")));
    }
}

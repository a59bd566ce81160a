//! `$order` for list elements, by JSONPath (D-6.4).

use serde_json::Value;

use crate::cascade::order::{Order, Sides};
use crate::cascade::path;

/// JSONPaths whose sides contradict each other. Their list keeps its written order.
pub type Cycle = Vec<String>;

/// Reorders every list of `merged` that `order` mentions. Returns one cycle for each list that cannot be ordered.
pub fn reorder(merged: &mut Value, order: &Order) -> Vec<Cycle> {
    let mut cycles = Vec::new();
    let rules: Vec<(&str, &Sides)> = order.elements().collect();
    let mut lists: Vec<&str> = rules.iter().filter_map(|(path, _)| list_of(path)).collect();
    lists.sort_unstable();
    lists.dedup();
    for list in lists {
        let Some(Value::Array(items)) = path::get(merged, list) else { continue };
        let before = edges(items, &rules, list);
        match sort(items.len(), &before) {
            Some(places) => {
                let sorted = places.into_iter().map(|place| items[place].clone()).collect();
                path::set(merged, list, Value::Array(sorted));
            }
            None => {
                let names: Vec<String> = rules
                    .iter()
                    .filter(|(path, _)| list_of(path) == Some(list))
                    .map(|(path, _)| (*path).to_owned())
                    .collect();
                cycles.push(names);
            }
        }
    }
    cycles
}

/// Metadata key that a JSONPath begins with.
pub fn root_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("$.")?;
    Some(&rest[..rest.find(['.', '[']).unwrap_or(rest.len())])
}

/// Path of the list that a JSONPath selects from: everything before its last bracket.
fn list_of(path: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let inner = path.strip_suffix(']')?;
    for (at, c) in inner.char_indices().rev() {
        match c {
            ']' => depth += 1,
            '[' if depth == 0 => return Some(&path[..at]),
            '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Indices of the elements that a JSONPath selects from the list.
fn selected(items: &[Value], path: &str, list: &str) -> Vec<usize> {
    if list_of(path) != Some(list) {
        return Vec::new();
    }
    let parts = path::parse(path);
    let is_selected = |(at, item): (usize, &Value)| match parts.last() {
        Some(path::Part::All) => true,
        Some(path::Part::Filter(filter)) => filter.holds(item),
        Some(path::Part::Key(key)) => key.parse() == Ok(at),
        None => false,
    };
    (0..items.len()).filter(|at| is_selected((*at, &items[*at]))).collect()
}

/// For each element, the elements that must come before it.
fn edges(items: &[Value], rules: &[(&str, &Sides)], list: &str) -> Vec<Vec<usize>> {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
    for (path, sides) in rules {
        let own = selected(items, path, list);
        let others = |targets: &Option<Vec<String>>| {
            let mut all: Vec<usize> = targets.iter().flatten().flat_map(|path| selected(items, path, list)).collect();
            all.retain(|at| !own.contains(at));
            all
        };
        for other in others(&sides.before) {
            before[other].extend(&own);
        }
        for other in others(&sides.after) {
            own.iter().for_each(|at| before[*at].push(other));
        }
    }
    before
}

/// Stable topological sort: the lowest free index comes first; `None` if there is a cycle.
fn sort(count: usize, before: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut placed = vec![false; count];
    let mut sorted = Vec::with_capacity(count);
    while sorted.len() < count {
        let next = (0..count).find(|at| !placed[*at] && before[*at].iter().all(|other| placed[*other]))?;
        placed[next] = true;
        sorted.push(next);
    }
    Some(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reordered(mut merged: Value, order: Value) -> (Value, usize) {
        let mut rules = Order::default();
        assert!(rules.merge(&order));
        let cycles = reorder(&mut merged, &rules).len();
        (merged["paths"].take(), cycles)
    }

    /// D-6.4, D-O14: externals go to the end and keep their order; a pinned element comes first.
    #[test]
    fn selected_elements_move_and_keep_their_order() {
        let paths = json!({"paths": [{"external": "a"}, {"external": "b"}, "x", {"ignore": "i"}, "w"]});
        let order = json!({
            "$.paths[?(@ == 'w')]": {"before": ["$.paths[*]"]},
            "$.paths[?(@.external)]": {"after": ["$.paths[*]"]},
        });
        let (sorted, faults) = reordered(paths, order);
        assert_eq!(sorted, json!(["w", "x", {"ignore": "i"}, {"external": "a"}, {"external": "b"}]));
        assert_eq!(faults, 0);
    }

    /// D-6.4: elements that must each come before the other are a fault, and the list keeps its order.
    #[test]
    fn a_cycle_of_elements_is_a_fault() {
        let order = json!({
            "$.paths[?(@ == 'a')]": {"before": ["$.paths[*]"]}, "$.paths[?(@ == 'b')]": {"before": ["$.paths[*]"]},
        });
        assert_eq!(reordered(json!({"paths": ["b", "a"]}), order), (json!(["b", "a"]), 1));
    }
}

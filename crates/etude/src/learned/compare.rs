//! Whether an agent and a pipeline made the same writes (`learn.md` 2.10).

use serde_json::{Map, Value};

use crate::rehearsal::Call;

/// Whether both made the same calls: in any order, and with lists that stand for sets in any order.
pub fn is_same(agent: &[Call], pipeline: &[Call]) -> bool {
    let mut left: Vec<&Call> = pipeline.iter().collect();
    let all = agent.iter().all(|call| {
        let found = left.iter().position(|other| is_same_call(call, other));
        found.map(|at| left.swap_remove(at)).is_some()
    });
    all && left.is_empty()
}

fn is_same_call(a: &Call, b: &Call) -> bool {
    if a.tool != b.tool {
        return false;
    }
    match (&a.arguments, &b.arguments) {
        (Value::Object(a), Value::Object(b)) => a.len() == b.len() && rows(a) == rows(b) && scalars(a).eq(scalars(b)),
        (a, b) => a == b,
    }
}

/// Lists of the same length are the columns of one set of rows: `item_ids` and `new_item_ids` belong together.
fn rows(arguments: &Map<String, Value>) -> Vec<(usize, Vec<String>)> {
    let lists: Vec<(&String, &Vec<Value>)> = sorted(arguments).filter_map(|(k, v)| Some((k, v.as_array()?))).collect();
    let mut rows: Vec<(usize, Vec<String>)> = Vec::new();
    let mut lengths: Vec<usize> = lists.iter().map(|(_, list)| list.len()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    for length in lengths {
        let columns: Vec<_> = lists.iter().filter(|(_, list)| list.len() == length).collect();
        let row = |at: usize| columns.iter().map(|(name, list)| format!("{name}={}", list[at])).collect::<Vec<_>>();
        let mut own: Vec<_> = (0..length).map(|at| (length, row(at))).collect();
        if length == 0 {
            own.push((0, columns.iter().map(|(name, _)| (*name).clone()).collect()));
        }
        own.sort();
        rows.extend(own);
    }
    rows
}

fn scalars(arguments: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    sorted(arguments).filter(|(_, value)| !value.is_array())
}

fn sorted(arguments: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let mut all: Vec<_> = arguments.iter().collect();
    all.sort_by_key(|(name, _)| *name);
    all.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(arguments: Value) -> Call {
        Call { tool: "give".to_owned(), arguments }
    }

    /// L-54: the order of calls and of sets makes no difference; pairs and values do.
    #[test]
    fn sets_have_no_order_and_pairs_stay_together() {
        let own = [call(json!({"order": "A", "items": [1, 2], "news": [8, 9]})), call(json!({"order": "B"}))];
        let is = |other: &[Call]| is_same(&own, other);
        assert!(is(&[call(json!({"order": "B"})), call(json!({"news": [9, 8], "items": [2, 1], "order": "A"}))]));
        assert!(!is(&[call(json!({"order": "B"})), call(json!({"order": "A", "items": [2, 1], "news": [8, 9]}))]));
        assert!(!is(&own[..1]));
        assert!(!is(&[own[0].clone(), own[1].clone(), own[1].clone()]));
        assert!(!is_same(&[call(json!({"a": []}))], &[call(json!({"b": []}))]));
        assert!(!is_same(&[call(json!({"a": [1]}))], &[call(json!({"a": [1, 1]}))]));
        assert!(is_same(&[], &[]));
    }
}

//! Comparison of the writes of an agent and of a pipeline (`learn.md` 2.10).

use etude_core::exact::{self, same};
use etude_core::shell;
use etude_tools::pattern::words::{bind, canonical};
use serde_json::{Map, Value};

use crate::rehearsal::RehearsedCall;

/// True if both made the same calls: in any order, and with lists that stand for sets in any order.
pub fn is_same(agent: &[RehearsedCall], pipeline: &[RehearsedCall]) -> bool {
    let mut left: Vec<&RehearsedCall> = pipeline.iter().collect();
    let all = agent.iter().all(|call| {
        let found = left.iter().position(|other| is_same_call(call, other));
        found.map(|at| left.swap_remove(at)).is_some()
    });
    all && left.is_empty()
}

fn is_same_call(a: &RehearsedCall, b: &RehearsedCall) -> bool {
    if a.tool != b.tool {
        return false;
    }
    if a.tool == shell::TOOL
        && let (Some(a), Some(b)) = (line_of(&a.arguments), line_of(&b.arguments))
    {
        return a == b;
    }
    match (&a.arguments, &b.arguments) {
        (Value::Object(a), Value::Object(b)) => a.len() == b.len() && rows(a) == rows(b) && has_same_scalars(a, b),
        (a, b) => same(a, b),
    }
}

/// Command line in compared form: with its words inserted, in any quotes (L-33). Time limit and description are not part of
/// the write.
fn line_of(arguments: &Value) -> Option<String> {
    let line = arguments.get(shell::COMMAND)?.as_str()?;
    let words = shell::arguments(arguments);
    let line = if words.is_empty() { line.to_owned() } else { bind(line, &words).ok()? };
    Some(canonical(&line).unwrap_or(line))
}

/// Rows of the lists in some arguments. Lists of the same length are the columns of one set of rows: `item_ids` and
/// `new_item_ids` belong together.
fn rows(arguments: &Map<String, Value>) -> Vec<(usize, Vec<String>)> {
    let lists: Vec<(&String, &Vec<Value>)> = sorted(arguments).filter_map(|(k, v)| Some((k, v.as_array()?))).collect();
    let mut rows: Vec<(usize, Vec<String>)> = Vec::new();
    let mut lengths: Vec<usize> = lists.iter().map(|(_, list)| list.len()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    for length in lengths {
        let columns: Vec<_> = lists.iter().filter(|(_, list)| list.len() == length).collect();
        let row = |at: usize| {
            columns.iter().map(|(name, list)| format!("{name}={}", exact::canonical(&list[at]))).collect::<Vec<_>>()
        };
        let mut own: Vec<_> = (0..length).map(|at| (length, row(at))).collect();
        if length == 0 {
            own.push((0, columns.iter().map(|(name, _)| (*name).clone()).collect()));
        }
        own.sort();
        rows.extend(own);
    }
    rows
}

fn has_same_scalars(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    scalars(a).count() == scalars(b).count()
        && scalars(a).zip(scalars(b)).all(|((name, a), (other, b))| name == other && same(a, b))
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

    fn call(arguments: Value) -> RehearsedCall {
        RehearsedCall { tool: "give".to_owned(), arguments }
    }

    /// L-54: the order of calls and of sets makes no difference; pairs and values do.
    #[test]
    fn sets_have_no_order_and_pairs_stay_together() {
        let own = [call(json!({"order": "A", "items": [1, 2], "news": [8, 9]})), call(json!({"order": "B"}))];
        let is = |other: &[RehearsedCall]| is_same(&own, other);
        assert!(is(&[call(json!({"order": "B"})), call(json!({"news": [9, 8], "items": [2, 1], "order": "A"}))]));
        assert!(!is(&[call(json!({"order": "B"})), call(json!({"order": "A", "items": [2, 1], "news": [8, 9]}))]));
        assert!(!is(&own[..1]));
        assert!(!is(&[own[0].clone(), own[1].clone(), own[1].clone()]));
        assert!(!is_same(&[call(json!({"a": []}))], &[call(json!({"b": []}))]));
        assert!(!is_same(&[call(json!({"a": [1]}))], &[call(json!({"a": [1, 1]}))]));
        assert!(is_same(&[], &[]));
    }

    /// L-54: numbers are compared by value, also in lists and objects.
    #[test]
    fn a_number_is_the_same_however_it_is_written() {
        let own = [call(json!({"amount": 120, "items": [1, 2.5], "more": {"tax": [7.0]}}))];
        let is = |other: Value| is_same(&own, &[call(other)]);
        assert!(is(json!({"amount": 120.0, "items": [2.5, 1.0], "more": {"tax": [7]}})));
        assert!(!is(json!({"amount": 120.5, "items": [2.5, 1.0], "more": {"tax": [7]}})));
        assert!(!is(json!({"amount": "120", "items": [1, 2.5], "more": {"tax": [7]}})));
        assert!(!is(json!({"amount": 120, "items": [1, 2.5], "more": {"tax": [7.5]}})));
    }

    /// L-33, L-54: a line with arguments beside it equals the line with its words, in any quotes of the agent.
    #[test]
    fn a_line_with_arguments_is_the_line_with_its_words() {
        let bash = |arguments: Value| RehearsedCall { tool: "Bash".to_owned(), arguments };
        let bound = bash(json!({"command": "git tag \"$1\"", "argument_1": "a b"}));
        let is =
            |line: &str| is_same(&[bash(json!({"command": line, "description": "x"}))], std::slice::from_ref(&bound));
        assert!(is("git tag 'a b'") && is("git tag \"a b\"") && is("'git' tag a\\ b"));
        assert!(!is("git tag a b") && !is("git tag \"$1\"") && !is("git tag a"));
        let other = bash(json!({"command": "git tag \"$1\"", "argument_1": "-d"}));
        assert!(!is_same(&[bash(json!({"command": "git tag -d"}))], &[other]), "no such call is made");
    }
}

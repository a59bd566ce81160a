//! Edits of single values of a learn.yaml; all other bytes stay unchanged.

use serde_json::Value;

use crate::source::SourceFile;
use crate::yaml::{self, Entries, Node};

use super::{Counts, FILE, LearnedState};

/// Replaces the state of the file. `None` if it has no `state`.
pub fn with_state(text: &str, state: LearnedState) -> Option<String> {
    replaced(text, &["state"], state.word())
}

/// Replaces the content hash of the file, if it has one.
pub fn with_content(text: &str, content: &str) -> String {
    replaced(text, &["content"], &format!("\"{content}\"")).unwrap_or_else(|| text.to_owned())
}

/// Replaces the numbers of the file's evidence, where it has them.
pub fn with_evidence(text: &str, requests: u64, runs: u64, leave_one_out: Counts) -> String {
    let Counts { agreed, fell_back, disagreed } = leave_one_out;
    let of_checks = |kind| ["evidence", "leave_one_out", kind];
    let numbers: [(&[&str], u64); 5] = [
        (&["evidence", "requests"], requests),
        (&["evidence", "runs"], runs),
        (&of_checks("agreed"), agreed),
        (&of_checks("fell_back"), fell_back),
        (&of_checks("disagreed"), disagreed),
    ];
    numbers
        .into_iter()
        .fold(text.to_owned(), |text, (path, number)| replaced(&text, path, &number.to_string()).unwrap_or(text))
}

/// Removes a request from the lists of covered and uncovered requests.
pub fn without_request(text: &str, digest: &str) -> String {
    let without = |text: String, name: &str| -> Option<String> {
        let all = value_at(&text, name)?;
        let all = all.as_array()?;
        let is_other = |row: &&Value| row.as_str() != Some(digest) && row["digest"] != digest;
        let left: Vec<Value> = all.iter().filter(is_other).cloned().collect();
        (left.len() < all.len()).then(|| replaced(&text, &[name], &Value::from(left).to_string())).flatten()
    };
    let text = without(text.to_owned(), "covers").unwrap_or_else(|| text.to_owned());
    without(text.clone(), "not_covered").unwrap_or(text)
}

/// A top-level value of the file, as JSON.
fn value_at(text: &str, name: &str) -> Option<Value> {
    let file = SourceFile::new(FILE, text);
    let json = yaml::parse(&file).0?.to_json().ok()?;
    serde_json::from_str::<Value>(&json).ok()?.get(name).cloned()
}

/// Sets `accept_risk: true` in the file.
pub fn with_accepted_risk(text: &str) -> String {
    if let Some(text) = replaced(text, &["accept_risk"], "true") {
        return text;
    }
    let end = text.trim_end().len();
    match text[..end].strip_suffix('}').filter(|_| text.trim_start().starts_with('{')) {
        Some(open) => format!("{}, accept_risk: true}}\n", open.trim_end().trim_end_matches(',')),
        None => format!("{}\naccept_risk: true\n", &text[..end]),
    }
}

/// Replaces the value at `path`; `None` if there is none.
fn replaced(text: &str, path: &[&str], value: &str) -> Option<String> {
    let file = SourceFile::new(FILE, text);
    let root = yaml::parse(&file).0?;
    let mut node: &Node<'_> = &root;
    for name in path {
        node = node.as_map().and_then(|entries: &Entries<'_>| entries.get(name))?;
    }
    let range = node.span.range();
    let (before, after) = (text.get(..range.start)?, text.get(range.end..)?);
    // A list in block style ends with its last line.
    let is_open = text.get(range)?.ends_with('\n');
    Some(format!("{before}{value}{}{after}", if is_open { "\n" } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-40: a forgotten request is removed from all lists, in both notations of YAML.
    #[test]
    fn a_request_is_taken_out_of_the_lists() {
        let head = "learn: 1\nstate: proposed\n";
        let lines = format!(
            "{head}covers:\n  - \"0a\"\n  - \"0b\"\nnot_covered:\n  - {{digest: \"0c\", difference: {{got: 1}}}}\n"
        );
        let covers = |text: &str, name: &str| value_at(text, name).expect("there");
        let left = without_request(&without_request(&lines, "0a"), "0c");
        assert_eq!(covers(&left, "covers"), serde_json::json!(["0b"]), "{left}");
        assert_eq!(covers(&left, "not_covered"), serde_json::json!([]), "{left}");
        assert!(left.starts_with(head) && left.ends_with('\n'), "{left}");
        let flow = format!("{head}covers: [\"0a\", \"0b\"]\nfamily: x\n");
        assert_eq!(without_request(&flow, "0b"), format!("{head}covers: [\"0a\"]\nfamily: x\n"));
        assert_eq!(without_request(&flow, "0d"), flow);
    }

    /// L-61: a promotion changes one line, in both notations of YAML.
    #[test]
    fn one_value_changes() {
        let text = "# mine\nlearn: 1\nstate: shadow # so far\nfamily: x\nevidence: {requests: 4}\n";
        assert_eq!(with_state(text, LearnedState::Assisted), Some(text.replace("shadow", "assisted")));
        assert_eq!(with_evidence(text, 3, 3, Counts::default()), text.replace('4', "3"));
        let text =
            "learn: 1\nevidence:\n  requests: 4\n  runs: 6\n  leave_one_out: {agreed: 3, fell_back: 1, disagreed: 0}\n";
        let fewer = text.replace("4", "3").replace("6", "5").replace("agreed: 3", "agreed: 2");
        assert_eq!(with_evidence(text, 3, 5, Counts { agreed: 2, fell_back: 1, disagreed: 0 }), fewer);
        assert_eq!(with_accepted_risk(text), format!("{text}accept_risk: true\n"));
        assert_eq!(with_content(text, "abc"), text);
        let flow = "{\"learn\": 1, \"state\": \"shadow\", \"family\": \"x\", \"content\": \"1\"}\n";
        assert_eq!(with_state(flow, LearnedState::Active), Some(flow.replace("\"shadow\"", "active")));
        let risky = with_accepted_risk(flow);
        assert_eq!(risky, flow.replace("}\n", ", accept_risk: true}\n"));
        assert_eq!(with_accepted_risk(&risky), risky);
        assert_eq!(with_content(flow, "2"), flow.replace("\"1\"", "\"2\""));
        assert_eq!(with_state("family: x\n", LearnedState::Active), None);
    }
}

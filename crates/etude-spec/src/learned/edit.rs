//! Changes of single values of a learn.yaml; everything else stays byte for byte.

use crate::source::SourceFile;
use crate::yaml::{self, Entries, Node};

use super::{FILE, State};

/// The file with another state. `None` if it has no `state`.
pub fn with_state(text: &str, state: State) -> Option<String> {
    replaced(text, &["state"], state.word())
}

/// The file with another content hash, if it has one.
pub fn with_content(text: &str, content: &str) -> String {
    replaced(text, &["content"], &format!("\"{content}\"")).unwrap_or_else(|| text.to_owned())
}

/// The file with another number of requests that it was learned from, if it has one.
pub fn with_requests(text: &str, requests: u64) -> String {
    replaced(text, &["evidence", "requests"], &requests.to_string()).unwrap_or_else(|| text.to_owned())
}

/// The file with `accept_risk: true`.
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

/// The text with the value at `path` replaced by `value`.
fn replaced(text: &str, path: &[&str], value: &str) -> Option<String> {
    let file = SourceFile::new(FILE, text);
    let root = yaml::parse(&file).0?;
    let mut node: &Node<'_> = &root;
    for name in path {
        node = node.as_map().and_then(|entries: &Entries<'_>| entries.get(name))?;
    }
    let range = node.span.range();
    Some(format!("{}{value}{}", text.get(..range.start)?, text.get(range.end..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-61: a promotion changes one line, in both notations of YAML.
    #[test]
    fn one_value_changes() {
        let text = "# mine\nlearn: 1\nstate: shadow # so far\nfamily: x\nevidence: {requests: 4}\n";
        assert_eq!(with_state(text, State::Assisted), Some(text.replace("shadow", "assisted")));
        assert_eq!(with_requests(text, 3), text.replace('4', "3"));
        assert_eq!(with_accepted_risk(text), format!("{text}accept_risk: true\n"));
        assert_eq!(with_content(text, "abc"), text);
        let flow = "{\"learn\": 1, \"state\": \"shadow\", \"family\": \"x\", \"content\": \"1\"}\n";
        assert_eq!(with_state(flow, State::Active), Some(flow.replace("\"shadow\"", "active")));
        let risky = with_accepted_risk(flow);
        assert_eq!(risky, flow.replace("}\n", ", accept_risk: true}\n"));
        assert_eq!(with_accepted_risk(&risky), risky);
        assert_eq!(with_content(flow, "2"), flow.replace("\"1\"", "\"2\""));
        assert_eq!(with_state("family: x\n", State::Active), None);
    }
}

//! References in texts that are not templates.

use std::ops::Range;

use etude_core::plan::stages::Root;
use etude_core::template::Reference;

/// First words of references in prompts of stages and in keys of tools.
const OTHER_HEADS: [&str; 2] = ["stage", "args"];

/// The first text in double braces that is a reference in a pipeline, a stage or a tool. `\\{{` does not begin one.
pub(super) fn reference(text: &str) -> Option<(Range<usize>, &str)> {
    let mut at = 0;
    while let Some(open) = text[at..].find("{{").map(|found| at + found) {
        let close = text[open + 2..].find("}}").map(|found| open + 2 + found)?;
        let inner = text[open + 2..close].trim();
        if !text[..open].ends_with('\\') && is_reference(inner) {
            return Some((open..close + 2, inner));
        }
        at = open + 2;
    }
    None
}

fn is_reference(inner: &str) -> bool {
    if inner.parse::<Reference>().is_ok() {
        return true;
    }
    let Some((head, path)) = inner.split_once(['.', '[']) else { return false };
    let is_path = !path.is_empty() && path.chars().all(|c| c.is_alphanumeric() || "._-[]".contains(c));
    is_path && (Root::from_word(head).is_some() || OTHER_HEADS.contains(&head))
}

/// Name of a variable for the value of a reference: its last member in capitals.
pub(super) fn variable(reference: &str) -> String {
    let is_index = |word: &&str| word.bytes().all(|b| b.is_ascii_digit());
    let word = reference.split(['.', '[', ']']).rfind(|word| !word.is_empty() && !is_index(word));
    let word = match word {
        Some("output") => reference.split('.').next(),
        word => word,
    };
    let name: String =
        word.unwrap_or_default().chars().filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c)).collect();
    let name = name.to_ascii_uppercase().replace('-', "_");
    if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') { name } else { "VALUE".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// braces of other programs are not references.
    #[test]
    fn only_references_are_found() {
        let found = |text| reference(text).map(|(_, inner)| inner);
        assert_eq!(found("sort -n {{input.count}}"), Some("input.count"));
        assert_eq!(found("a {{.Names}} {{ fetch.output.0 }}"), Some("fetch.output.0"));
        assert_eq!(found("{{ctx.task}}"), Some("ctx.task"));
        assert_eq!(found("{{args.number}}"), Some("args.number"));
        assert_eq!(found("{{item}}"), Some("item"));
        assert_eq!(found("{{parsed.steps[0]}}"), Some("parsed.steps[0]"));
        for other in [
            "docker ps --format '{{.Names}}'",
            "{{json .State}}",
            "{{range .items}}",
            "\\{{input.a}}",
            "{{",
            "{{}}",
            "{{run}}",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn variables_are_named_after_what_they_hold() {
        for (reference, name) in [
            ("input.repo", "REPO"),
            ("fetch-diff.output", "FETCH_DIFF"),
            ("a.output.files.0", "FILES"),
            ("item", "ITEM"),
            ("input.été", "T"),
            ("input.é", "VALUE"),
        ] {
            assert_eq!(variable(reference), name, "{reference}");
        }
    }
}

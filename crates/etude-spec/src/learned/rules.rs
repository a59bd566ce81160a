//! The rules of a skill about tools, for the question before a write (`learn.md` 2.7).

use etude_core::verbatim::{holds, normal};

/// Minimum number of letters of a significant word in a tool's name.
const MIN_LETTERS: usize = 3;

/// Every section of `body` that names one of `tools` or a word of its name, including the plural, byte for byte; the
/// whole body if there is none.
///
/// A section is a heading with the text up to the next heading, or the text before the first one.
pub fn rules_of(body: &str, tools: &[&str]) -> String {
    let names: Vec<String> = tools.iter().map(|tool| normal(tool)).collect();
    let is_meant = |section: &&str| {
        let text = normal(section);
        let words = || names.iter().flat_map(|name| name.split(' ')).filter(|word| word.chars().count() >= MIN_LETTERS);
        names.iter().any(|name| holds(&text, name))
            || words().any(|word| holds(&text, word) || holds(&text, &format!("{word}s")))
    };
    let found: Vec<&str> = sections(body).into_iter().filter(is_meant).collect();
    if found.is_empty() { body.to_owned() } else { found.concat() }
}

/// Sections of a Markdown text, which together are the text. A `#` in a code block does not begin a section.
fn sections(body: &str) -> Vec<&str> {
    let (mut starts, mut at, mut is_code) = (vec![0], 0, false);
    for line in body.split_inclusive('\n') {
        let text = line.trim_start();
        if text.starts_with("```") || text.starts_with("~~~") {
            is_code = !is_code;
        } else if !is_code && is_heading(line) && at > 0 {
            starts.push(at);
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).copied().chain([body.len()]);
    starts.iter().zip(ends).map(|(start, end)| &body[*start..end]).collect()
}

fn is_heading(line: &str) -> bool {
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    (1..=6).contains(&level) && rest.starts_with([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "Intro.\n\n# Desk\n\nYou help.\n\n## Returns (return_items)\n\nOnly once.\n```\n# returned items\n```\n## Cancelling\n\nUse cancel_order.\n";

    /// 2.7: sections that name the tool or a word of it are returned byte for byte; without one, the whole body.
    #[test]
    fn sections_that_name_a_tool_are_its_rules() {
        assert_eq!(
            rules_of(BODY, &["return_items"]),
            "## Returns (return_items)\n\nOnly once.\n```\n# returned items\n```\n"
        );
        assert_eq!(rules_of(BODY, &["ship_goods"]), BODY);
        assert_eq!(rules_of(BODY, &["cancel_order"]), "## Cancelling\n\nUse cancel_order.\n");
        assert_eq!(sections(BODY).concat(), BODY);
    }
}

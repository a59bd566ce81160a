//! Checks of decisions: a unique number, four headings, and a row in the index.

use std::collections::BTreeMap;

use crate::tree::{Tree, Violation};

const DIR: &str = "docs/adr/";
const INDEX: &str = "docs/adr/README.md";

/// Form of a row of the index.
const ROW: &str = "| [NNNN](NNNN-title.md) | title | accepted |";

/// Checks that decisions are named `NNNN-title.md`, begin with `# NNNN: `, have unique numbers, and are listed in the index.
pub fn decisions(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut numbers = BTreeMap::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.starts_with(DIR) && *path != INDEX) {
        let name = path.trim_start_matches(DIR);
        let number = name.get(..4).filter(|n| n.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(number) = number.filter(|_| name.get(4..5) == Some("-") && name.ends_with(".md")) else {
            found.push(Violation::of(path, "a decision is named `NNNN-title.md`"));
            continue;
        };
        if let Some((other, _)) = numbers.insert(number, (path, text)) {
            found.push(Violation::of(path, format!("`{other}` has the number {number} as well")));
        }
        if !text.starts_with(&format!("# {number}: ")) {
            found.push(Violation::at(path, 1, format!("a decision begins with its number and title: `# {number}: …`")));
        }
        for heading in ["## Context", "## Decision", "## Rejected", "## Consequences"] {
            if !text.lines().any(|line| line == heading) {
                found.push(Violation::of(path, format!("there is no `{heading}`")));
            }
        }
    }
    found.extend(index(tree, &numbers));
    found
}

/// Checks that the index has one row per decision, in the order of the numbers, with its title and its status.
fn index(tree: &Tree, numbers: &BTreeMap<&str, (&str, &str)>) -> Vec<Violation> {
    let Some(text) = tree.text(INDEX) else {
        let first = numbers.values().next();
        return first.map(|_| Violation::of(INDEX, "there is no index of the decisions")).into_iter().collect();
    };
    let mut found = Vec::new();
    let mut listed = Vec::new();
    for (line, row) in (1..).zip(text.lines()).filter(|(_, line)| line.starts_with("| [")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [link, title, status] = cells[..] else {
            found.push(Violation::at(INDEX, line, format!("a row has the form `{ROW}`")));
            continue;
        };
        let number = link.get(1..5).unwrap_or_default();
        let Some((path, decision)) = numbers.get(number) else {
            found.push(Violation::at(INDEX, line, format!("there is no decision `{number}`")));
            continue;
        };
        let expected = format!("[{number}]({})", path.trim_start_matches(DIR));
        if link != expected {
            found.push(Violation::at(INDEX, line, format!("the first cell must be `{expected}`")));
        }
        let first = decision.lines().next().unwrap_or_default();
        let wanted = first.strip_prefix(&format!("# {number}: ")).unwrap_or(first);
        if title != wanted {
            found.push(Violation::at(INDEX, line, format!("the title of {number} is `{wanted}`")));
        }
        if !is_status(status, numbers) {
            let what = format!("`{status}` is not a status: `accepted`, or `replaced by NNNN` with a known number");
            found.push(Violation::at(INDEX, line, what));
        }
        if listed.last().is_some_and(|last| *last >= number) {
            found.push(Violation::at(INDEX, line, "rows are in the order of the numbers, one per decision"));
        }
        listed.push(number);
    }
    let missing = numbers.iter().filter(|(number, _)| !listed.contains(number));
    found.extend(missing.map(|(number, (path, decision))| {
        let title = decision.lines().next().unwrap_or_default().trim_start_matches(&format!("# {number}: ")).to_owned();
        let row = ROW.replace("NNNN-title.md", path.trim_start_matches(DIR)).replace("NNNN", number);
        Violation::of(path, format!("`{INDEX}` has no row for it: `{}`", row.replace(" title ", &format!(" {title} "))))
    }));
    found
}

/// True for `accepted` or `replaced by 0041`, where 0041 is a decision.
fn is_status(status: &str, numbers: &BTreeMap<&str, (&str, &str)>) -> bool {
    status == "accepted" || status.strip_prefix("replaced by ").is_some_and(|number| numbers.contains_key(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(files: &[(&str, &str)]) -> Vec<String> {
        decisions(&Tree::made_up(files)).into_iter().map(|violation| violation.what).collect()
    }

    fn text(number: &str) -> String {
        format!("# {number}: T\n## Context\n## Decision\n## Rejected\n## Consequences\n")
    }

    const A: &str = "| [0001](0001-a.md) | T | accepted |\n";
    const B: &str = "| [0002](0002-b.md) | T | accepted |\n";

    #[test]
    fn decisions_without_a_number_of_their_own_are_seen() {
        let seen = |files: &[(&str, &str)]| seen(files).len();
        let two = format!("{A}{B}");
        let (one, other) = (text("0001"), text("0002"));
        assert_eq!(seen(&[("docs/adr/0001-a.md", &one), ("docs/adr/0002-b.md", &other), (INDEX, &two)]), 0);
        assert_eq!(seen(&[("docs/adr/0001-a.md", &one), ("docs/adr/0001-b.md", &one), (INDEX, "")]), 2);
        assert_eq!(seen(&[("docs/adr/a.md", &one)]), 1);
        assert_eq!(seen(&[("docs/adr/0001-a.md", "# 0001: T\n## Context\n## Decision\n"), (INDEX, A)]), 2);
        assert!(seen(&[("docs/adr/0001-a.md", &other), (INDEX, A)]) > 0);
    }

    #[test]
    fn a_decision_without_a_row_in_the_index_is_seen() {
        let (one, other) = (text("0001"), text("0002"));
        let seen = |index: &str| seen(&[("docs/adr/0001-a.md", &one), ("docs/adr/0002-b.md", &other), (INDEX, index)]);
        assert_eq!(seen(&format!("# Decisions\n\n| number | title | status |\n|---|---|---|\n{A}{B}")), [""; 0]);
        assert_eq!(seen(A), ["`docs/adr/README.md` has no row for it: `| [0002](0002-b.md) | T | accepted |`"]);
    }

    #[test]
    fn rows_of_the_index_that_do_not_hold_are_seen() {
        let (one, other) = (text("0001"), text("0002"));
        let seen =
            |index: String| seen(&[("docs/adr/0001-a.md", &one), ("docs/adr/0002-b.md", &other), (INDEX, &index)]);
        let replaced = |by: &str| format!("| [0001](0001-a.md) | T | replaced by {by} |\n{B}");
        assert_eq!(seen(replaced("0002")), [""; 0]);
        assert_eq!(seen(replaced("0009")).len(), 1);
        assert_eq!(seen(format!("{A}{}", B.replace("| T |", "| U |"))), ["the title of 0002 is `T`"]);
        assert_eq!(seen(format!("{A}{}", B.replace("0002-b", "0002-c"))).len(), 1);
        assert_eq!(seen(format!("{A}{B}| [0003](0003-c.md) | T | accepted |")), ["there is no decision `0003`"]);
        assert_eq!(seen(format!("{B}{A}")), ["rows are in the order of the numbers, one per decision"]);
        assert_eq!(seen(format!("{A}{B}| [0003] |")).len(), 1);
    }

    #[test]
    fn decisions_without_an_index_are_seen() {
        assert_eq!(seen(&[("docs/adr/0001-a.md", &text("0001"))]), ["there is no index of the decisions"]);
        assert_eq!(seen(&[]), [""; 0]);
    }
}

//! Check of the threat model in `SECURITY.md`: each of its promises cites tests, and the tests exist.

use std::collections::BTreeSet;

use crate::clauses::tests_of;
use crate::tree::{Tree, Violation};

/// Document with the threat model.
const PAGE: &str = "SECURITY.md";

/// Heading of the section to check; the section ends at the next heading of its level.
const SECTION: &str = "## Threat model";

/// First line of every table of promises.
const HEAD: &str = "| promise | tests |";

/// Checks that every promise of the threat model cites tests that run, that every attacker has promises, and that nothing is
/// promised outside the tables.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let Some(text) = tree.text(PAGE) else { return vec![Violation::of(PAGE, "there is no such document")] };
    let tests: BTreeSet<String> = tree
        .ending(".rs")
        .filter(|(path, _)| path.starts_with("crates/") && !path.starts_with("crates/xtask/src/"))
        .flat_map(|(_, text)| tests_of(text))
        .collect();
    let mut found = Vec::new();
    let mut attacker: Option<(usize, &str, usize)> = None;
    let mut attackers = 0;
    let section = text.lines().enumerate().skip_while(|(_, line)| *line != SECTION).skip(1);
    for (index, line) in section.take_while(|(_, line)| !line.starts_with("## ")) {
        let at = index + 1;
        if let Some(title) = line.strip_prefix("### ") {
            found.extend(without_promises(attacker));
            attacker = Some((at, title, 0));
            attackers += 1;
        } else if line.starts_with('|') && line != HEAD && !line.starts_with("|---") {
            if let Some((_, _, promises)) = &mut attacker {
                *promises += 1;
            }
            found.extend(row(at, line, &tests));
        }
    }
    found.extend(without_promises(attacker));
    if attackers == 0 {
        found.push(Violation::of(PAGE, format!("`{SECTION}` has no attackers (`### …`), so that no rule could fail")));
    }
    found
}

fn without_promises(attacker: Option<(usize, &str, usize)>) -> Option<Violation> {
    let (at, title, promises) = attacker?;
    (promises == 0).then(|| Violation::at(PAGE, at, format!("`{title}` has no table `{HEAD}` with promises")))
}

/// Faults of one promise.
fn row(at: usize, line: &str, tests: &BTreeSet<String>) -> Vec<Violation> {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    let &[_, cited] = cells.as_slice() else {
        return vec![Violation::at(PAGE, at, "a row has two cells: the promise and its tests")];
    };
    let names: Vec<&str> = cited.split('`').skip(1).step_by(2).collect();
    if names.is_empty() {
        return vec![Violation::at(PAGE, at, "the promise cites no test (`name_of_the_test`)")];
    }
    let unknown = names.into_iter().filter(|name| !tests.contains(*name));
    unknown.map(|name| Violation::at(PAGE, at, format!("no test that is run has the name `{name}`"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: &str = "#[test]\nfn a_is_held() {}\n\n#[test]\n#[ignore]\nfn b_is_held() {}\n\nfn c_is_held() {}\n";

    fn seen(page: &str) -> Vec<(usize, String)> {
        let tree = Tree::made_up(&[("SECURITY.md", page), ("crates/a/tests/it/a.rs", TESTS)]);
        check(&tree).into_iter().map(|violation| (violation.line, violation.what)).collect()
    }

    fn page(rows: &str) -> String {
        format!("# S\n\n## Threat model\n\n### A model\n\n{HEAD}\n|---|---|\n{rows}\n## Next\n\n| x | y |\n")
    }

    #[test]
    fn promises_with_tests_pass() {
        assert_eq!(seen(&page("| x | `a_is_held` |\n")), []);
    }

    #[test]
    fn tests_that_are_not_there_or_not_run_are_seen() {
        for name in ["b_is_held", "c_is_held", "d_is_held"] {
            let found = seen(&page(&format!("| x | `a_is_held`, `{name}` |\n")));
            assert_eq!(found, [(9, format!("no test that is run has the name `{name}`"))]);
        }
    }

    #[test]
    fn promises_without_tests_are_seen() {
        assert_eq!(seen(&page("| x | everything |\n"))[0].0, 9);
        assert_eq!(seen(&page("| `a_is_held` |\n"))[0].0, 9);
        assert_eq!(seen(&page(""))[0].0, 5);
    }

    #[test]
    fn a_page_without_the_section_is_seen() {
        assert_eq!(seen("# S\n")[0].0, 0);
    }
}

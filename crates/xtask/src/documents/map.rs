//! Check that the code map of `ARCHITECTURE.md` names existing modules.

use std::collections::BTreeSet;

use crate::tree::{Tree, Violation};

const DOCUMENT: &str = "ARCHITECTURE.md";

/// Checks that every crate has its section in the code map (`### \`crate\`: …`), and that every module in the first column of a
/// section's table exists.
pub fn map(tree: &Tree) -> Vec<Violation> {
    let Some(text) = tree.text(DOCUMENT) else {
        return vec![Violation::of(DOCUMENT, "there is no such document")];
    };
    let mut found = Vec::new();
    let mut described = BTreeSet::new();
    let mut section = None;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            section = line.strip_prefix("### ").and_then(|title| names(title).next());
            described.extend(section);
        } else if let Some(package) = section
            && let Some(cell) = line.strip_prefix('|').and_then(|line| line.split('|').next())
        {
            let gone = names(cell).filter(|module| !is_module(tree, package, module));
            found.extend(
                gone.map(|module| Violation::at(DOCUMENT, number + 1, format!("`{package}` has no module `{module}`"))),
            );
        }
    }
    let packages: BTreeSet<&str> =
        tree.paths().filter(|path| path.starts_with("crates/")).filter_map(|path| path.split('/').nth(1)).collect();
    let missing = packages.difference(&described);
    found
        .extend(missing.map(|package| Violation::of(DOCUMENT, format!("the code map has no section for `{package}`"))));
    found
}

/// Texts in backticks.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_module(tree: &Tree, package: &str, module: &str) -> bool {
    let place = format!("crates/{package}/src/{}", module.replace("::", "/"));
    tree.has(&format!("{place}.rs")) || tree.has_below(&place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(map: &str) -> Vec<String> {
        let files =
            [(DOCUMENT, map), ("crates/a/src/lib.rs", ""), ("crates/a/src/x/y.rs", ""), ("crates/a/src/z.rs", "")];
        map_of(&files)
    }

    fn map_of(files: &[(&str, &str)]) -> Vec<String> {
        map(&Tree::made_up(files)).into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn a_map_that_names_what_is_there_is_fine() {
        assert_eq!(
            seen("### `a`: x\n| module | what |\n|---|---|\n| `x`, `x::y`, `z` | `gone` |\n## Other\n| `b` | |\n"),
            [""; 0]
        );
    }

    #[test]
    fn modules_that_are_gone_and_crates_that_are_missing_are_seen() {
        assert_eq!(seen("### `a`\n| `x::z` | |\n"), ["`a` has no module `x::z`"]);
        assert_eq!(seen("# Map\n"), ["the code map has no section for `a`"]);
        assert_eq!(map_of(&[]), ["there is no such document"]);
    }
}

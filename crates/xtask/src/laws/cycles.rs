//! Law 12: modules of different folders do not depend on each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust::{Named, Source};
use crate::tree::{Tree, Violation};

/// Finds folders of a crate that depend on each other.
pub fn cycles(tree: &Tree) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in tree.sources() {
        crates.entry(source.package()).or_default().push(source);
    }
    let mut found = Vec::new();
    for (package, sources) in &crates {
        for circle in circles(sources) {
            let names: Vec<_> = circle.iter().map(|name| format!("`{name}`")).collect();
            let what = format!("law 12: the folders {} need each other in a circle", names.join(", "));
            found.push(Violation::of(&format!("crates/{package}/src"), what));
        }
    }
    found
}

/// Sets of folders of a crate that reach each other, also through modules without a folder.
fn circles<'a>(sources: &[&'a Source]) -> Vec<BTreeSet<&'a str>> {
    let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut folders = BTreeSet::new();
    for source in sources {
        let parts: Vec<&str> = source.module_path().trim_end_matches(".rs").split('/').collect();
        let needed = needs.entry(parts[0]).or_default();
        needed.extend(source.paths.iter().filter_map(|named| top(&parts, named)));
        if parts.len() > 1 {
            folders.insert(parts[0]);
        }
    }
    // The roots of a crate name all of its modules.
    for root in ["lib", "main"] {
        needs.remove(root);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = folders.iter().map(|from| (*from, reached(&needs, from))).collect();
    let is_mutual = |a: &str, b: &str| reached[a].contains(b) && reached[b].contains(a);
    let mut circles = Vec::new();
    while let Some(first) = folders.pop_first() {
        let circle: BTreeSet<&str> = folders.iter().copied().filter(|other| is_mutual(first, other)).collect();
        folders.retain(|other| !circle.contains(other));
        if !circle.is_empty() {
            circles.push(circle.into_iter().chain([first]).collect());
        }
    }
    circles
}

fn reached<'a>(needs: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in needs.get(module).into_iter().flatten() {
            if seen.insert(*next) {
                open.push(next);
            }
        }
    }
    seen
}

/// Top-level module that a path leads to, if it differs from the module that names it.
fn top<'a>(module: &[&str], named: &'a Named) -> Option<&'a str> {
    let mut parts = named.path.split("::");
    match parts.next()? {
        "crate" => {}
        "super" => {
            for _ in 1..module.len() {
                parts.next().filter(|part| *part == "super")?;
            }
        }
        _ => return None,
    }
    parts.next().filter(|found| *found != module[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIRCLE: [(&str, &str); 5] = [
        ("crates/c/src/lib.rs", "mod a;\nmod b;\nmod between;"),
        ("crates/c/src/a/deep.rs", "use super::super::between;"),
        ("crates/c/src/between.rs", "fn f() { crate::b::part::g() }"),
        ("crates/c/src/b.rs", "mod part;"),
        ("crates/c/src/b/part.rs", "use crate::{a::deep::X, b::Y};"),
    ];

    #[test]
    fn folders_that_need_each_other_are_seen_over_other_modules() {
        let found = cycles(&Tree::made_up(&CIRCLE));
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("the folders `a`, `b` need each other"), "{}", found[0]);
    }

    #[test]
    fn one_direction_one_folder_and_tests_are_no_circle() {
        let mut files = CIRCLE;
        for text in ["use crate::b::Y;", "use super::Y;", "#[cfg(test)]\nmod tests { use crate::a::deep::X; }"] {
            files[4].1 = text;
            assert!(cycles(&Tree::made_up(&files)).is_empty(), "{text}");
        }
    }
}

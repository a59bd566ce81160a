//! Check that the acceptance tests are an exact copy of the reference, if the reference is beside the checkout.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::tree::{Tree, Violation};

/// Programs by name.
type Programs = BTreeMap<String, String>;

/// Folder of the copy in the repository.
const COPY: &str = "acceptance/";

/// Programs that differ from those in `reference`, and those that only one side has. Empty if there is no `reference`.
pub fn check(tree: &Tree, reference: &Path) -> Vec<Violation> {
    let Some(reference) = programs(reference) else {
        return Vec::new();
    };
    let in_copy = |(path, text): (&str, &str)| Some((path.strip_prefix(COPY)?.to_owned(), text.to_owned()));
    differences(&tree.ending(".py").filter_map(in_copy).collect(), &reference)
}

fn programs(dir: &Path) -> Option<Programs> {
    let mut found = Programs::new();
    for entry in fs::read_dir(dir).ok()?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".py") {
            found.insert(name, fs::read_to_string(entry.path()).ok()?);
        }
    }
    Some(found)
}

fn differences(copy: &Programs, reference: &Programs) -> Vec<Violation> {
    let report = |name: &str, what: &str| {
        let update = "update the copy: `cp ../shared/acceptance/*.py acceptance/`";
        Violation::of(&format!("{COPY}{name}"), format!("{what}; {update}"))
    };
    let mut found: Vec<Violation> = Vec::new();
    for (name, text) in reference {
        match copy.get(name) {
            None => found.push(report(name, "the reference has this file, the copy does not")),
            Some(copied) if copied != text => found.push(report(name, "the copy differs from the reference")),
            Some(_) => {}
        }
    }
    let extra = copy.keys().filter(|name| !reference.contains_key(*name));
    found.extend(extra.map(|name| report(name, "the reference does not have this file; delete it")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(files: &[(&str, &str)]) -> Programs {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_difference_of_the_copy_is_seen_on_either_side() {
        let reference = programs(&[("a.py", "1"), ("b.py", "2"), ("c.py", "3")]);
        let copy = programs(&[("a.py", "1"), ("b.py", "changed"), ("d.py", "4")]);
        let paths: Vec<String> = differences(&copy, &reference).into_iter().map(|found| found.path).collect();
        assert_eq!(paths, ["acceptance/b.py", "acceptance/c.py", "acceptance/d.py"]);
        assert_eq!(differences(&reference, &reference), []);
    }

    #[test]
    fn without_the_reference_nothing_is_compared() {
        let tree = Tree::made_up(&[("acceptance/a.py", "1")]);
        assert_eq!(check(&tree, Path::new("no-such-directory")), []);
    }
}

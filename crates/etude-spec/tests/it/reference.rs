//! Tables of the reference pages in `docs/`: they must equal those of the checks. `UPDATE=1` writes them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use etude_spec::reference::{TABLES, table};

const END: &str = "<!-- end -->";

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Every page of `docs/` with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(docs()).expect("docs/ exists").map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.sort();
    pages.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).expect("a page is text"))).collect()
}

/// The page with its tables replaced, and the names of its tables.
fn rendered(page: &str) -> (String, Vec<String>) {
    let mut text = String::new();
    let mut names = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find("<!-- fields: ") {
        let (before, from) = rest.split_at(at);
        let (marker, after) = from.split_once('\n').expect("a marker ends its line");
        let name = marker.trim_start_matches("<!-- fields: ").trim_end_matches(" -->");
        let end = after.find(END).unwrap_or_else(|| panic!("`{marker}` has no `{END}`"));
        let table = table(name).unwrap_or_else(|| panic!("`{marker}`: there is no table of that name"));
        text += &format!("{before}{marker}\n{}", table.markdown());
        names.push(name.to_owned());
        rest = &after[end..];
    }
    (text + rest, names)
}

#[test]
fn reference_tables_are_those_of_the_checks() {
    for (path, page) in pages() {
        let (expected, _) = rendered(&page);
        if expected != page && std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &expected).expect("a page can be written");
        } else {
            assert!(expected == page, "{} is out of date: UPDATE=1 cargo test -p etude-spec reference", path.display());
        }
    }
}

/// A field that no page shows is a field that users cannot find.
#[test]
fn every_table_is_on_a_page() {
    let shown: BTreeSet<String> = pages().iter().flat_map(|(_, page)| rendered(page).1).collect();
    let missing: Vec<&str> = TABLES.iter().map(|(name, _)| *name).filter(|name| !shown.contains(*name)).collect();
    assert!(missing.is_empty(), "no page in docs/ has these tables: {missing:?}");
}

#[test]
fn a_stale_table_is_noticed() {
    let page = format!("a\n<!-- fields: cache -->\n| old |\n{END}\nb\n");
    let (expected, names) = rendered(&page);
    assert_ne!(expected, page);
    assert_eq!(names, ["cache"]);
    assert!(expected.starts_with("a\n<!-- fields: cache -->\n| field |") && expected.ends_with(&format!("{END}\nb\n")));
    assert_eq!(rendered(&expected).0, expected);
}

/// Fields of every step are not repeated in the tables of step types.
#[test]
fn every_step_field_is_in_exactly_one_table() {
    let common: Vec<&str> = table("every-step").expect("a table").fields().iter().map(|field| field.name).collect();
    assert_eq!(common[..2], ["name", "type"]);
    assert!(common.contains(&"timeout") && common.contains(&"cache") && !common.contains(&"command"), "{common:?}");
    for (name, _) in TABLES.iter().filter(|(name, _)| ["code", "llm", "skill"].contains(name)) {
        let own = table(name).expect("a table").fields();
        assert!(own.iter().all(|field| !common.contains(&field.name)), "{name}");
    }
}

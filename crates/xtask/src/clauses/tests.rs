//! Tests of the table of clauses: it is generated from the tests' comments, and the check finds gaps.

use super::*;

const TEST: &str = "/// A-3.3, A-3.4: one document (see X-2).\n#[test]\nfn stdout_is_one_document() {}\n";

const MARKS: &str = "# T\n\n<!-- Made by `cargo run -p xtask -- clauses`. -->\n<!-- End of what is made. -->\n";

/// A tree with one file of tests, and the first document as given; the others match the tests.
fn tree(file: &str, document: &str) -> Tree {
    let made: Vec<String> = LISTS.iter().map(|list| document_for(list, file)).collect();
    let mut files = vec![("crates/etude-runtime/tests/it/a.rs", file), (LISTS[0].document, document)];
    files.extend(LISTS.iter().zip(&made).skip(1).map(|(list, text)| (list.document, text.as_str())));
    Tree::made_up(&files)
}

fn complaints(file: &str, document: &str) -> Vec<String> {
    check(&tree(file, document)).into_iter().map(|violation| violation.what).collect()
}

fn document_for(list: &List, file: &str) -> String {
    let tests = Tree::made_up(&[("crates/etude-runtime/tests/it/a.rs", file)]);
    replaced(MARKS, &table(list, &citations(&tests))).expect("the marks are there")
}

fn first(file: &str) -> String {
    document_for(&LISTS[0], file)
}

fn all_held() -> String {
    let held = clauses().filter(|clause| clause.standing == Standing::Held);
    let held: Vec<&str> = held.map(|clause| clause.id).collect();
    format!("/// {}\n#[tokio::test]\nasync fn everything_holds() {{}}\n", held.join(", "))
}

#[test]
fn the_lists_say_what_they_mean() {
    for list in LISTS {
        assert!(list.lines().all(|line| line.is_some()), "{}: a line is no clause", list.document);
        assert!(list.clauses().all(|clause| cited(clause.id) == [clause.id]), "{}: an odd id", list.document);
    }
    let ids: BTreeSet<&str> = clauses().map(|clause| clause.id).collect();
    assert_eq!(ids.len(), clauses().count(), "an id stands twice");
}

#[test]
fn clauses_are_read_from_the_doc_comments_of_tests_only() {
    for (text, expected) in [
        (TEST, vec!["A-3.3", "A-3.4", "X-2"]),
        ("/// A-1.1\n#[tokio::test(flavor = \"multi_thread\")]\nasync fn a() {}", vec!["A-1.1"]),
        ("#[test]\n/// A-1.1.\nfn a() {}", vec!["A-1.1"]),
        ("/// A-1.1\nfn no_test() {}", vec![]),
        ("/// A-1.1\n#[test]\n#[ignore = \"slow\"]\nfn a() {}", vec![]),
        ("/// A-1.1\n\n#[test]\nfn a() {}", vec![]),
        ("// A-1.1\n#[test]\nfn a() {}", vec![]),
        ("/// B-GT5 and\n/// case 93\n#[test]\nfn a() {}", vec!["B-21.93", "B-GT5"]),
    ] {
        let found: Vec<String> = in_file("crates/a/src/a.rs", text).into_iter().flat_map(|c| c.clauses).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn a_table_that_was_made_from_the_tests_is_up_to_date() {
    let file = all_held();
    assert_eq!(complaints(&file, &first(&file)), [""; 0]);
}

#[test]
fn a_table_of_other_tests_is_stale() {
    let file = all_held();
    let renamed = file.replace("everything_holds", "everything_still_holds");
    assert_eq!(complaints(&renamed, &first(&file)).len(), 1);
    assert!(complaints(&file, "# T\n")[0].contains("marks"));
}

#[test]
fn a_clause_that_no_test_cites_is_seen() {
    let file = all_held().replace("A-3.4", "");
    assert!(complaints(&file, &first(&file))[0].starts_with("no test cites A-3.4"));
}

#[test]
fn a_clause_that_does_not_exist_is_seen() {
    let file = format!("{}{}", all_held(), TEST.replace("A-3.3", "A-3.9"));
    assert_eq!(complaints(&file, &first(&file)), ["there is no clause `A-3.9`; see `crates/xtask/clauses`"]);
}

#[test]
fn the_table_names_tests_by_crate_and_says_where_there_are_none() {
    let made = table(&LISTS[0], &citations(&tree(TEST, "")));
    assert!(made.contains("| etude-runtime: `stdout_is_one_document` |"), "{made}");
    assert!(made.lines().any(|line| line.starts_with("| A-1.1 |") && line.ends_with("| none yet |")), "{made}");
}

#[test]
fn stages_of_the_run_cite_clauses_at_the_beginnings_of_lines() {
    let script = "#!/bin/sh\n# S-138, S-29: both.\n# It shows S-1 as well.\necho S-2: no\n";
    let of = |run: &str| {
        let tree =
            Tree::made_up(&[(".ci/run", run), (".ci/suite", script), (".ci/suite.py", "\"\"\"S-3: no stage.\"\"\"\n")]);
        let clauses = |citation: Citation| (citation.test, citation.clauses.into_iter().collect::<Vec<_>>());
        citations(&tree).into_iter().map(clauses).collect::<Vec<_>>()
    };
    assert_eq!(of("stage 'a suite' .ci/suite\n"), [("suite".to_owned(), vec!["S-138".to_owned(), "S-29".to_owned()])]);
    assert_eq!(of("stage 'another' .ci/suites\n"), []);
}

#[test]
fn no_reason_stands_in_for_a_test_in_a_whole_list() {
    let list = List { document: "d.md", text: "untested S-1 it works -- a reason\n", is_whole: true };
    let tree = Tree::made_up(&[("d.md", "")]);
    assert!(of_list(&tree, &list, &[])[0].what.starts_with("S-1 is untested"));
    let list = List { is_whole: false, ..list };
    assert!(!of_list(&tree, &list, &[]).iter().any(|violation| violation.what.contains("untested")));
}

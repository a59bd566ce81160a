//! The table is made from what tests say, and the check sees what is missing.

use super::*;

const TEST: &str = "/// A-3.3, A-3.4: one document (see X-2).\n#[test]\nfn stdout_is_one_document() {}\n";

fn tree(file: &str, document: &str) -> Tree {
    Tree::made_up(&[("crates/etude-runtime/tests/it/a.rs", file), (DOCUMENT, document)])
}

fn complaints(file: &str, document: &str) -> Vec<String> {
    check(&tree(file, document)).into_iter().map(|violation| violation.what).collect()
}

fn document_for(file: &str) -> String {
    let made = table(&citations(&tree(file, "")));
    replaced(&format!("# T\n\n{BEGIN}\n{END}\n"), &made).expect("the marks are there")
}

fn all_held() -> String {
    let held: Vec<&str> = CLAUSES.iter().filter(|clause| clause.must_be_held).map(|clause| clause.id).collect();
    format!("/// {}\n#[tokio::test]\nasync fn everything_holds() {{}}\n", held.join(", "))
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
        ("/// PA-1.1, A-1, X-1.2\n#[test]\nfn a() {}", vec![]),
    ] {
        let found: Vec<String> = in_file("crates/a/src/a.rs", text).into_iter().flat_map(|c| c.clauses).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn a_table_that_was_made_from_the_tests_is_up_to_date() {
    let file = all_held();
    assert_eq!(complaints(&file, &document_for(&file)), [""; 0]);
}

#[test]
fn a_table_of_other_tests_is_stale() {
    let file = all_held();
    let renamed = file.replace("everything_holds", "everything_still_holds");
    assert_eq!(complaints(&renamed, &document_for(&file)).len(), 1);
    assert!(complaints(&file, "# T\n")[0].contains("marks"));
}

#[test]
fn a_clause_that_no_test_cites_is_seen() {
    let file = all_held().replace("A-3.4", "");
    assert!(complaints(&file, &document_for(&file))[0].starts_with("no test cites A-3.4"));
}

#[test]
fn a_clause_that_does_not_exist_is_seen() {
    let file = format!("{}{}", all_held(), TEST.replace("A-3.3", "A-3.9"));
    assert_eq!(complaints(&file, &document_for(&file)), ["there is no clause `A-3.9`; see `CLAUSES`"]);
}

#[test]
fn the_table_names_tests_by_crate_and_says_where_there_are_none() {
    let made = table(&citations(&tree(TEST, "")));
    assert!(made.contains("| etude-runtime: `stdout_is_one_document` |"), "{made}");
    assert!(made.lines().any(|line| line.starts_with("| A-1.1 |") && line.ends_with("| none yet |")), "{made}");
}

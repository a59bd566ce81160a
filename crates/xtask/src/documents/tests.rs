//! Tests that every rule about documents can fail.

use super::*;

#[test]
fn links_that_lead_nowhere_are_seen() {
    let seen = |text: &str| {
        let tree = Tree::made_up(&[("docs/a.md", text), ("docs/adr/0001-x.md", ""), ("README.md", "")]);
        links(&tree).iter().map(|violation| violation.line).collect::<Vec<_>>()
    };
    for good in [
        "[a](adr/0001-x.md#context)",
        "[a](../README.md)",
        "[a](adr/)",
        "[a](..)",
        "[a](https://example.org/x)",
        "[a](#part)",
        "`[a](gone.md)`",
        "```\n[a](gone.md)\n```",
        "[a]: adr/0001-x.md",
    ] {
        assert_eq!(seen(good), [0; 0], "{good}");
    }
    for bad in ["\n[a](gone.md)", "\n[a](adr/0002.md \"title\")", "\n[a](../../x)", "\n[a]: gone.md"] {
        assert_eq!(seen(bad), [2], "{bad}");
    }
}

#[test]
fn what_examples_work_on_may_have_broken_links() {
    let seen = |path| links(&Tree::made_up(&[(path, "[a](gone.md)")])).len();
    assert_eq!(seen("examples/a/docs/x.md"), 0);
    assert_eq!(seen("examples/a/README.md"), 1);
}

#[test]
fn codes_without_a_page_and_pages_without_a_code_are_seen() {
    let source =
        ("crates/a/src/code.rs", "const A: &str = \"P0101\";\n#[cfg(test)]\nmod tests { const B: &str = \"P0999\"; }");
    let seen = |files: &[(&str, &str)]| pages(&Tree::made_up(&[&[source], files].concat())).len();
    assert_eq!(seen(&[]), 0);
    assert_eq!(seen(&[("docs/errors/README.md", "")]), 1);
    assert_eq!(seen(&[("docs/errors/P0101.md", "# P0101: a title\n\n## Cause\n")]), 0);
    assert_eq!(seen(&[("docs/errors/P0101.md", "# P0101: a title\n")]), 1);
    assert_eq!(seen(&[("docs/errors/P0101.md", "Some text.\n## Cause\n")]), 1);
    assert_eq!(seen(&[("docs/errors/P0101.md", "# P0101: a title\n## Cause\n"), ("docs/errors/P0102.md", "")]), 1);
}

#[test]
fn registries_and_places_of_one_machine_are_seen() {
    let seen = |text: &str| machine_matters(&Tree::made_up(&[("a.toml", text)])).len();
    for host in HOSTS {
        assert_eq!(seen(&format!("see https://{host}/x")), 1);
    }
    for place in PLACES {
        assert_eq!(seen(&format!("path = \"{place}x\"")), 1);
        assert_eq!(seen(&format!("path = \"some{place}x\"")), 0);
    }
    assert_eq!(machine_matters(&Tree::made_up(&[("Cargo.lock", HOSTS[0])])), []);
}

#[test]
fn documents_that_are_too_long_are_seen() {
    let seen = |lines: usize| lengths(&Tree::made_up(&[("AGENTS.md", &"x\n".repeat(lines))])).len();
    assert_eq!(seen(120), 0);
    assert_eq!(seen(121), 1);
}

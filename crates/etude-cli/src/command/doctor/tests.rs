use super::models::address;
use super::*;

#[test]
fn a_finding_is_one_line_with_its_fix() {
    let finding = Finding::new("keys", Level::Warning, "two\n  lines \u{1b}[2J").fix("set\nX");
    assert_eq!(finding.line(6), "! keys    two lines ; fix: set X\n");
    assert_eq!(Finding::ok("disk", "3 GB").line(4), "✓ disk  3 GB\n");
}

/// cli: the same fault of several tiers is printed once.
#[test]
fn a_repeated_fault_refers_to_the_first_one() {
    let finding = |check: &str, level| Finding::new(check, level, "no key").fix("set X");
    let findings = [
        finding("model lite", Level::Error),
        finding("model standard", Level::Warning),
        Finding::ok("disk", "3 GB"),
        Finding::ok("cache", "3 GB"),
    ];
    assert_eq!(
        lines(&findings, |_| true),
        "✗ model lite      no key; fix: set X\n! model standard  the same as `model lite`\n\
         ✓ disk            3 GB\n✓ cache           3 GB\n"
    );
}

#[test]
fn sizes_have_the_largest_unit() {
    let found = [0, 999, 1_500, 2_000_000, 1_100_000_000].map(files::size);
    assert_eq!(found, ["0 bytes", "999 bytes", "1.5 kB", "2.0 MB", "1.1 GB"]);
}

#[test]
fn addresses_have_a_port_and_no_password() {
    for (url, expected) in [
        ("https://api.openai.com/v1", Some("api.openai.com:443")),
        ("http://user:secret@127.0.0.1:8080/v1?key=1", Some("127.0.0.1:8080")),
        ("http://[::1]/v1", Some("[::1]:80")),
        ("http://[::1]:9/v1", Some("[::1]:9")),
        ("ftp://x", None),
        ("x", None),
    ] {
        assert_eq!(address(url).as_deref(), expected, "{url}");
    }
}

/// cli: a journal that can be read but not written is an error with its fix.
#[test]
fn a_journal_that_cannot_be_written_is_an_error() {
    let line = |is_writable| files::of_opened("/state", 1_500, is_writable).line(7);
    assert_eq!(line(true), "✓ journal  /state: 1.5 kB\n");
    let fix = "fix: set XDG_STATE_HOME to a writable directory";
    assert_eq!(line(false), format!("✗ journal  /state is not writable, so no run can start; {fix}\n"));
}

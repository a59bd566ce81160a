use super::*;

fn shown(text: &str) -> Vec<(u32, u32, String)> {
    let found = split(text, 0).expect("few statements");
    found.into_iter().map(|s| (s.id, s.line, s.text)).collect()
}

fn texts(text: &str) -> Vec<String> {
    shown(text).into_iter().map(|(_, _, text)| text).collect()
}

/// L-87: each heading, sentence, item and code block is one statement; ids count from 1 in file order.
#[test]
fn blocks_are_numbered_in_file_order() {
    let text = "# Audit\n\nRead the file. Then check it!\n\n1. Run `scripts/a.py`.\n   Twice.\n2. Decide\n\n   ```bash\n   sh go.sh\n   ls\n   ```\n   - inner\n\n> Never pay\n> twice.\n";
    let expected = [
        (1, 1, "Audit"),
        (2, 3, "Read the file."),
        (3, 3, "Then check it!"),
        (4, 5, "Run `scripts/a.py`. Twice."),
        (5, 7, "Decide"),
        (6, 9, "sh go.sh\nls"),
        (7, 13, "inner"),
        (8, 15, "Never pay twice."),
    ];
    let expected: Vec<_> = expected.into_iter().map(|(id, line, text)| (id, line, text.to_owned())).collect();
    assert_eq!(shown(text), expected);
}

/// L-87: lines are those of the file, below its frontmatter.
#[test]
fn lines_count_from_the_start_of_the_file() {
    let file = "---\nname: a\n---\n\n# A\n";
    let found = split(file, 16).expect("few statements");
    assert_eq!((found[0].line, found[0].text.as_str()), (5, "A"));
}

#[test]
fn sentences_keep_abbreviations_numbers_and_code() {
    let text = "Use a tool, e.g. Excel, for this. Version 2. 5 is fine. See `a. B. c`. It (really.) ends";
    assert_eq!(
        texts(text),
        ["Use a tool, e.g. Excel, for this.", "Version 2. 5 is fine.", "See `a. B. c`.", "It (really.) ends"]
    );
}

#[test]
fn rows_of_tables_and_html_are_statements() {
    let text = "| a | b |\n|---|---|\n| 1 | 2 |\n\n<!-- hidden.\nmore -->\n";
    assert_eq!(texts(text), ["a | b", "1 | 2", "<!-- hidden.\nmore -->"]);
}

/// 1.6: models see statements as JSON lines, whatever their text holds.
#[test]
fn statements_are_json_lines() {
    let found = split("Say \"hi\".\n\n```sh\na\nb\n```\n", 0).expect("few statements");
    assert_eq!(
        lines(&found),
        "{\"id\":1,\"line\":1,\"text\":\"Say \\\"hi\\\".\"}\n{\"id\":2,\"line\":3,\"text\":\"a\\nb\"}"
    );
}

#[test]
fn a_skill_has_a_bounded_number_of_statements() {
    assert_eq!(split(&"- a\n".repeat(MAX_STATEMENTS + 1), 0), Err(MAX_STATEMENTS + 1));
    assert!(split(&"> ".repeat(20_000), 0).is_ok_and(|found| found.is_empty()));
}

/// A mebibyte of statements takes no time that grows with the square of their number.
#[test]
fn long_skills_are_split() {
    assert_eq!(split(&"- a\n".repeat(1 << 18), 0), Err(1 << 18));
}

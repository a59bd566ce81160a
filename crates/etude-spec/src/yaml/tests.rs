use super::*;
use crate::Diagnostic;
use crate::code::Code;
use crate::source::SourceFile;

fn json(text: &str) -> String {
    let file = SourceFile::new("t.yaml", text);
    let (root, diagnostics) = parse(&file);
    assert_eq!(diagnostics, [], "{text}");
    root.unwrap().to_json().unwrap()
}

fn codes(text: &str) -> Vec<Code> {
    problems(text).iter().map(|d| d.code).collect()
}

fn problems(text: &str) -> Vec<Diagnostic> {
    parse(&SourceFile::new("t.yaml", text)).1
}

/// A-2.2: plain scalars follow the core schema of YAML 1.2.
#[test]
fn plain_scalars_follow_yaml_1_2() {
    let text = "[yes, no, on, off, y, 017, 1_000, 0x1F, 0o17, +5, -0, 1.50, .5, 1., 1e3, true, False, NULL, ~, 1:30, 2001-01-01, \"5\", '5', !!str 5]";
    let expected = r#"["yes","no","on","off","y",17,"1_000",31,15,5,-0,1.50,0.5,1,1e3,true,false,null,null,"1:30","2001-01-01","5","5","5"]"#;
    assert_eq!(json(text), expected);
}

#[test]
fn numbers_keep_their_digits() {
    assert_eq!(
        json("[123456789012345678901234567890, 0.1000000000000000000001]"),
        "[123456789012345678901234567890,0.1000000000000000000001]"
    );
}

#[test]
fn infinity_has_no_json() {
    let file = SourceFile::new("t.yaml", "[.inf]");
    assert!(parse(&file).0.unwrap().to_json().is_err());
}

/// A-2.3: aliases and anchors are allowed.
#[test]
fn aliases_are_expanded() {
    assert_eq!(json("a: &x {k: [1, 2]}\nb: *x\nc: *x\n"), r#"{"a":{"k":[1,2]},"b":{"k":[1,2]},"c":{"k":[1,2]}}"#);
}

/// A-2.3: the expansion of aliases is bounded.
#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..10 {
        let inner = vec![format!("*a{}", i - 1); 10].join(", ");
        text.push_str(&format!("a{i}: &a{i} [{inner}]\n"));
    }
    assert_eq!(codes(&text), [Code::ExpansionTooLarge]);
    let long = format!("a: &a \"{}\\n\"\nb: [{}]\n", "x".repeat(100_000), ["*a"; 100].join(", "));
    assert_eq!(codes(&long), [Code::ExpansionTooLarge]);
}

/// A-2.3: anchors count once each against the bound, even without an alias, because they may be nested.
#[test]
fn anchors_within_anchors_are_refused() {
    let nested = |depth: usize, leaves: usize| {
        let open: String = (0..depth).map(|at| format!("&a{at} [")).collect();
        format!("x: {open}{}{}\n", "a,".repeat(leaves), "]".repeat(depth))
    };
    assert_eq!(codes(&nested(100, 20_000)), [Code::ExpansionTooLarge]);
    assert_eq!(codes(&format!("{}y: *a0\n", nested(100, 20_000))), [Code::ExpansionTooLarge]);
    assert_eq!(codes(&nested(10, 5_000)), []);
}

#[test]
fn every_fault_of_the_tree_is_reported() {
    assert_eq!(
        codes("a: 1\nb: *no\na: 2\n<<: {c: 1}\n? [x]\n: 1\nd: !other 1\n"),
        [Code::UnknownAlias, Code::DuplicateKey, Code::MergeKey, Code::KeyNotText, Code::UnknownTag,]
    );
    assert_eq!(codes("a: 1\n---\nb: 1\n"), [Code::SeveralDocuments]);
    assert_eq!(codes(""), [Code::EmptyFile]);
    assert_eq!(codes("# nothing\n"), [Code::EmptyFile]);
    assert_eq!(codes("a: {{b.output}}\n"), [Code::UnquotedTemplate]);
    assert_eq!(codes("a: {{b.output}} and more\n"), [Code::UnquotedTemplate]);
    assert_eq!(codes(&"[".repeat(300)), [Code::TooDeep]);
    assert_eq!(codes(&"- ".repeat(300)), [Code::TooDeep]);
}

#[test]
fn many_duplicates_are_found() {
    let text: String = (0..100).map(|i| format!("k{}: 1\n", i % 50)).collect();
    assert_eq!(problems(&text).len(), 50);
}

#[test]
fn syntax_errors_say_what_to_do() {
    let hint = |text: &str| {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert_eq!(found[0].code, Code::Syntax, "{text}");
        let (line, column) = found[0].position().unwrap();
        format!("{line}:{column} {} / {}", found[0].message, found[0].hint.clone().unwrap_or_default())
    };
    let has = |text: &str, words: &str| {
        let found = hint(text);
        assert!(found.contains(words), "{text}\n{found}");
    };
    has("a:\n\tb: 1\n", "2:1");
    has("a:\n\tb: 1\n", "a tab is used for indentation");
    has("a: 1\nname:foo\nb: 2\n", "2:1");
    has("a: 1\nname:foo\nb: 2\n", "a space is missing after the colon of `name`");
    has("description: Review: a change\n", "contains a colon and is not quoted");
    has("a: \"x\nb: 1\n", "a quoted text is not closed");
    has("a: [1, 2\nb: 1\n", "`]`");
    has("a: @x\n", "which YAML reserves");
    has("a: {{b.output[0] and more\n", "begins with `{{` and is not quoted");
    has("a: 1\n  b: 2\n", "2:");
}

/// A-2.2: the hint on a text with both kinds of quotes names the block, in which no quote is escaped.
#[test]
fn a_text_with_both_kinds_of_quotes_goes_into_a_block() {
    let found = |text: &str| {
        let found = problems(text);
        assert_eq!((found.len(), found[0].code), (1, Code::Syntax), "{text}: {found:?}");
        format!("{} / {}", found[0].message, found[0].hint.clone().unwrap_or_default())
    };
    let colon = "the YAML cannot be parsed: the value of `command` contains a colon and is not quoted / ";
    let block = "write it as a block: `command: |`, and the text on the next line, indented further";
    assert_eq!(found("command: python3 -c 'print(\"a: b\")'\n"), format!("{colon}{block}"));
    assert_eq!(found("command: echo \"a: b\"\n"), format!("{colon}put it in quotes: `command: '…'`"));
    assert_eq!(found("command: echo 'a: b'\n"), format!("{colon}put it in quotes: `command: \"…\"`"));
    let single = "the YAML cannot be parsed: text follows the `'` that ends the value / ";
    let double = "the YAML cannot be parsed: text follows the `\"` that ends the value / ";
    let block = "write the text as a block: `command: |`, and the text on the next line, indented further";
    assert_eq!(found("- command: 'it's \"a\"'\n"), format!("{single}{block}"));
    let other = "put the whole text in `\"`, or write `''` for a quote inside it";
    assert_eq!(found("command: 'it's a'\n"), format!("{single}{other}"));
    let other = "put the whole text in `'`, or write `\\\"` for a quote inside it";
    assert_eq!(found("command: \"jq \".a\" x\"\n"), format!("{double}{other}"));
    let escaped = "write `\\\"` for a quote inside the text";
    assert_eq!(found("- {name: a, command: \"jq \".a\" 'x'\"}\n"), format!("{double}{escaped}"));
}

/// A-2.2: places inside texts of every style are found in the file.
#[test]
fn places_in_texts_are_found() {
    let text = "plain: a {{x.y}} b\nsingle: 'it''s {{x.y}}'\ndouble: \"\\\"\\n\\u00e9 {{x.y}}\"\nliteral: |\n    one\n\n      {{x.y}} two\nfolded: >-\n  one\n  two {{x.y}}\n\n  three\nlast: 1\n";
    let file = SourceFile::new("t.yaml", text);
    let (root, problems) = parse(&file);
    assert_eq!(problems, []);
    let root = root.unwrap();
    for (key, _, node) in root.as_map().unwrap().iter().take(5) {
        let value = node.as_text().unwrap();
        let at = value.find("{{").unwrap();
        let mut locator = Locator::new(&file, node).unwrap();
        assert_eq!(file.slice(locator.span(at..at + 7)), "{{x.y}}", "{key}");
    }
}

#[test]
fn spans_cover_what_is_written() {
    let text = "a: [1, 2]\nb:\n  c: |\n    x\n\nd: \"q\"\n";
    let file = SourceFile::new("t.yaml", text);
    let root = parse(&file).0.unwrap();
    let map = root.as_map().unwrap();
    assert_eq!(file.slice(map.get("a").unwrap().span), "[1, 2]");
    assert_eq!(file.slice(map.get("b").unwrap().span), "c: |\n    x");
    assert_eq!(file.slice(map.get("d").unwrap().span), "\"q\"");
}

/// A-2.2: a value of maximum depth can be read as JSON, and deeper nesting is refused.
#[test]
fn what_is_not_too_deep_is_json() {
    let nested = |levels: usize| SourceFile::new("t.yaml", format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
    let file = nested(MAX_DEPTH);
    let json = parse(&file).0.unwrap().to_json().unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    assert!(parse(&nested(MAX_DEPTH + 1)).1.iter().any(|found| found.code == Code::TooDeep));
}

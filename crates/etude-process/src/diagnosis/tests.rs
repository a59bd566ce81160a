use super::*;

fn step(bytes: &[u8]) -> (String, String) {
    match diagnose(Protocol::Step, bytes) {
        Stdout::Unusable { problem, found } => (problem, found),
        Stdout::Value(value) => panic!("a diagnosis is never a value: {value:?}"),
    }
}

/// each kind of wrong stdout is named and shown.
#[test]
fn every_mistake_has_its_own_sentence() {
    let table: &[(&str, &str, &str)] = &[
        ("", "stdout is empty", ""),
        (" \n\t", "stdout contains only whitespace", " \\n\\t"),
        ("[1]", "an array instead of an object: print it as `{\"output\": …}`", "[1]"),
        ("\"x\"", "a string instead of an object: print it as `{\"output\": …}`", "\"x\""),
        ("-12", "a number instead of an object: print it as `{\"output\": …}`", "-12"),
        ("true", "a boolean instead of an object: print it as `{\"output\": …}`", "true"),
        ("null\n", "`null` instead of an object: print it as `{\"output\": …}`", "null\\n"),
        ("{}", "the JSON object is empty: it has no member `output`", "{}"),
        ("{\"a\":1,\"b\":2}", "the JSON object has no member `output`; it has `a`, `b`", "{\"a\":1,\"b\":2}"),
        ("{\"output\":1,\"output\":2}", "the member `output` occurs twice", "{\"output\":1,\"output\":2}"),
        ("{\"output\":1}\n{\"output\":2}\n", "2 JSON values on stdout instead of one", "…{\"output\":2}\\n"),
        ("{\"output\":1} done", "text after the JSON document; print diagnostics to stderr", "…done"),
        ("hi\n{\"output\":1}", "text before the JSON document; print diagnostics to stderr", "hi\\n{\"output\":1}"),
        (
            "[INFO] hi\n{\"output\":1}",
            "text before the JSON document; print diagnostics to stderr",
            "[INFO] hi\\n{\"output\":1}",
        ),
        (
            "3 files\n{\"output\":1}",
            "text before the JSON document; print diagnostics to stderr",
            "3 files\\n{\"output\":1}",
        ),
        ("3 files", "stdout is text, not JSON; if the text is the output, set `output: text`", "3 files"),
        ("all good", "stdout is text, not JSON; if the text is the output, set `output: text`", "all good"),
        ("é", "stdout is text, not JSON; if the text is the output, set `output: text`", "é"),
        ("{\"output\": [1, 2", "the JSON document is cut off: stdout ends inside it", "{\"output\": [1, 2"),
        (
            "{\"output\": NaN}",
            "`NaN` is not JSON, at line 1 column 12; print null or a string instead",
            "{\"output\": NaN}",
        ),
        (
            "{\"output\": -Infinity}",
            "`-Infinity` is not JSON, at line 1 column 13; print null or a string instead",
            "{\"output\": -Infinity}",
        ),
        ("NaN", "`NaN` is not JSON, at line 1 column 1; print null or a string instead", "NaN"),
        (
            "{\"output\": None}",
            "`None` is not JSON, at line 1 column 12; print JSON, in Python with `json.dumps`",
            "{\"output\": None}",
        ),
        (
            "{'output': 1}",
            "JSON has no single quotes, at line 1 column 2; in Python print `json.dumps(…)`, not the object itself",
            "{'output': 1}",
        ),
        (
            "{\"output\": 1,}",
            "stdout is not valid JSON: a comma before the closing bracket at line 1 column 14",
            "{\"output\": 1,}",
        ),
        (
            "{\"a\":1,} {\"b\":2",
            "stdout is not valid JSON: a comma before the closing bracket at line 1 column 8",
            "{\"a\":1,} {\"b\":2",
        ),
        (
            "\u{feff}{\"output\":1}",
            "a byte order mark before the JSON document; print plain UTF-8",
            "\\u{feff}{\"output\":1}",
        ),
        (
            "{\"output\": \"a\nb\"}",
            "stdout is not valid JSON: control character (\\u0000-\\u001F) found while parsing a string at line 1 column 13",
            "{\"output\": \"a\\nb\"}",
        ),
    ];
    for (printed, problem, found) in table {
        assert_eq!(step(printed.as_bytes()), ((*problem).to_owned(), (*found).to_owned()), "{printed:?}");
    }
}

#[test]
fn invalid_utf8_is_shown_with_its_offset() {
    let (problem, found) = step(b"{\"output\":\"\xff\"}");
    assert_eq!(problem, "stdout is not UTF-8: byte 0xff at offset 11");
    assert_eq!(found, "{\"output\":\"\u{fffd}\"}");
}

#[test]
fn long_output_is_shown_in_part_and_escape_sequences_are_visible() {
    let long = format!("{{\"a\":\"{}\"}} \u{1b}[31mred\u{202e}", "x".repeat(100_000));
    let (problem, found) = step(long.as_bytes());
    assert!(problem.starts_with("text after"));
    assert_eq!(found, "…\\u{1b}[31mred\\u{202e}");
    let (_, found) = step("y".repeat(5_000).as_bytes());
    assert_eq!(found.chars().count(), EXCERPT + 1);
}

/// R0102: an excerpt shows emoji and Persian words as they are written. A joiner elsewhere is hidden text.
#[test]
fn joiners_are_shown_between_the_characters_that_they_join() {
    for plain in ["👨\u{200d}👩\u{200d}👧", "می\u{200c}خواهم"] {
        assert_eq!(step(plain.as_bytes()).1, plain);
    }
    assert_eq!(step("pass\u{200d}word é\u{200d}\u{200d}é".as_bytes()).1, "pass\\u{200d}word é\u{200d}\\u{200d}é");
}

#[test]
fn truncated_output_shows_its_end() {
    let long = format!("{{\"output\":\"{}END", "x".repeat(10_000));
    let (problem, found) = step(long.as_bytes());
    assert!(problem.contains("cut off"));
    assert!(found.starts_with('…') && found.ends_with("END"));
}

#[test]
fn noise_is_judged_in_bounded_work() {
    let noise = "{".repeat(2_000_000);
    assert!(step(noise.as_bytes()).0.starts_with("stdout is not valid JSON: "));
    assert_eq!(step("{} ".repeat(1_000_000).as_bytes()).0, "many JSON values on stdout instead of one");
}

/// a validator's document may be any one JSON value, so only text around it can be wrong.
#[test]
fn document_with_text_around_it_is_distinguished() {
    let problem = |printed: &str| match diagnose(Protocol::Document, printed.as_bytes()) {
        Stdout::Unusable { problem, .. } => problem,
        Stdout::Value(value) => panic!("{value:?}"),
    };
    assert!(problem("ok: [1]").starts_with("text before"));
    assert!(problem("[1] ok").starts_with("text after"));
    assert_eq!(problem("1 2 3"), "3 JSON values on stdout instead of one");
}

/// B-20.4: blanks count as no output. A lost output may have contained something.
#[test]
fn blanks_are_nothing_and_a_lost_output_is_not() {
    for (printed, is_nothing) in [("", true), ("\n", true), (" \r\n\t", true), ("0", false), ("\u{a0}", false)] {
        assert_eq!(diagnose(Protocol::Document, printed.as_bytes()).is_nothing(), is_nothing, "{printed:?}");
    }
    assert!(!crate::document::unkept("disk full").is_nothing());
}

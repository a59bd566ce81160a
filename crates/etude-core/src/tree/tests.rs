use super::*;

/// The number of values in a tree, counted recursively.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// A text is refused at its first value beyond the limit, and not before: commas, brackets and quotes in strings do not
/// count.
#[test]
fn values_are_counted_as_a_parser_makes_them() {
    for text in [
        "0",
        "[]",
        "[ ]",
        "{ \n }",
        "[0]",
        "[[],[],{}]",
        "[[[[[]]]]]",
        r#"{"a":[1,2,{"b":null}],"c":"x,[{\"y,\\"}"#,
        r#"["\\","\\\"",",","[","{",""]"#,
        r#"{"a,b":{"[":[ [ ] , [ 1 ] ]}}"#,
        "[ 1 , 2 , [ ] , { } ]",
    ] {
        let values = count(&serde_json::from_str(text).expect("it is JSON"));
        // The padding makes the text long enough to be counted.
        let padded = format!("{text}{}", " ".repeat(64));
        assert!(!exceeds(padded.as_bytes(), values), "{text}");
        assert!(exceeds(padded.as_bytes(), values - 1), "{text}");
    }
}

/// The length check does not mistake the densest text of N values for a smaller one.
#[test]
fn the_densest_text_is_not_taken_for_short() {
    let dense = format!("[{}0]", "0,".repeat(98));
    assert_eq!(count(&serde_json::from_str(&dense).expect("it is JSON")), 100);
    assert!(exceeds(dense.as_bytes(), 99) && !exceeds(dense.as_bytes(), 100));
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert!(exceeds(deep.as_bytes(), 99) && !exceeds(deep.as_bytes(), 100));
}

/// A table of a million rows of eight columns is allowed, because a program may well print one.
#[test]
fn a_million_rows_are_looked_into() {
    let rows = "[1,2,3,4,5,6,7,8],".repeat(1_000_000);
    assert!(!exceeds(format!("[{rows}0]").as_bytes(), MAX_VALUES));
    assert!(exceeds(format!("[{rows}{rows}0]").as_bytes(), MAX_VALUES));
}

/// A text that is not JSON is counted to its end, and left to the parser.
#[test]
fn a_text_that_is_cut_off_is_counted_to_its_end() {
    for text in ["[1,2,\"abc", "[1,2,\"abc\\", "{\"", "[", "\\"] {
        assert!(!exceeds(format!("{}{text}", " ".repeat(64)).as_bytes(), 10), "{text}");
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn the_limit_is_named() {
    let error = parse_response(format!("[{}0]", "0,".repeat(MAX_RESPONSE_VALUES))).expect_err("too many");
    assert_eq!(error.to_string(), "it has more than 1 million values; at most as many are looked into");
}

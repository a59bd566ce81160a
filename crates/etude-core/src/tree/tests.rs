use super::*;

/// The values of a tree, counted by going through it.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// A text is refused at its first value too many, and not before: commas, brackets and quotes in texts are none.
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
        // Long enough that it is counted at all.
        let padded = format!("{text}{}", " ".repeat(64));
        assert!(!exceeds(padded.as_bytes(), values), "{text}");
        assert!(exceeds(padded.as_bytes(), values - 1), "{text}");
    }
}

/// What is too short to have as many values is not looked through, and has not as many.
#[test]
fn the_densest_text_is_not_taken_for_short() {
    let dense = format!("[{}0]", "0,".repeat(98));
    assert_eq!(count(&serde_json::from_str(&dense).expect("it is JSON")), 100);
    assert!(exceeds(dense.as_bytes(), 99) && !exceeds(dense.as_bytes(), 100));
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert!(exceeds(deep.as_bytes(), 99) && !exceeds(deep.as_bytes(), 100));
}

/// A table of a million rows of eight columns is what a program may well print.
#[test]
fn a_million_rows_are_looked_into() {
    let rows = "[1,2,3,4,5,6,7,8],".repeat(1_000_000);
    assert!(!exceeds(format!("[{rows}0]").as_bytes(), MAX_VALUES));
    assert!(exceeds(format!("[{rows}{rows}0]").as_bytes(), MAX_VALUES));
}

/// What is no JSON ends somewhere, and is for the parser to refuse.
#[test]
fn a_text_that_is_cut_off_is_counted_to_its_end() {
    for text in ["[1,2,\"abc", "[1,2,\"abc\\", "{\"", "[", "\\"] {
        assert!(!exceeds(format!("{}{text}", " ".repeat(64)).as_bytes(), 10), "{text}");
        assert!(of(text).is_err(), "{text}");
    }
}

#[test]
fn the_limit_is_named() {
    let error = of_answer(format!("[{}0]", "0,".repeat(MAX_RESPONSE_VALUES))).expect_err("too many");
    assert_eq!(error.to_string(), "it has more than 1 million values; at most as many are looked into");
}

use super::*;

fn same(a: &str, b: &str) -> bool {
    let (a, b) = (Comparand::parse(a).unwrap(), Comparand::parse(b).unwrap());
    assert_eq!(a.is_same(&b), b.is_same(&a));
    a.is_same(&b)
}

/// A-3.3: numbers of any size differ in any digit, and are the same in every notation.
#[test]
fn numbers_are_the_same_by_value() {
    for (a, b) in [
        ("1", "1.0"),
        ("[1, {\"k\": 2}]", "[1.0, {\"k\": 2.00}]"),
        ("1e2", "100"),
        ("1E+2", "100.000000000000000000"),
        ("0.12e1", "1.2"),
        ("-0", "0.0e7"),
        ("123456789012345678901", "1.23456789012345678901e20"),
        ("{\"a\": 1e400, \"b\": 1}", "{\"b\": 1.0, \"a\": 10e399}"),
    ] {
        assert!(same(a, b), "{a} {b}");
    }
    for (a, b) in [
        ("18446744073709551616", "18446744073709551617"),
        ("-9999999999999999999", "-9999999999999999998"),
        ("[123456789012345678901]", "[123456789012345678902]"),
        ("9007199254740993", "9007199254740992.0"),
        ("0.1", "0.10000000000000000001"),
        ("1e400", "1e401"),
        ("123456789012345678901", "\"123456789012345678901\""),
        ("[1]", "[1, 1]"),
        ("{\"a\": 1}", "{\"b\": 1}"),
    ] {
        assert!(!same(a, b), "{a} {b}");
    }
}

#[test]
fn numbers_are_ordered_by_value() {
    let sorted = ["-1e400", "-18446744073709551617", "-18446744073709551616", "-0.5", "0", "1e-400", "0.05", "0.5"];
    let sorted = sorted.iter().chain(&["7", "10", "18446744073709551616", "18446744073709551617", "1e400"]);
    let numbers: Vec<Decimal> = sorted.map(|text| Decimal::parse(text)).collect();
    assert!(numbers.is_sorted() && numbers.windows(2).all(|pair| pair[0] != pair[1]), "{numbers:?}");
}

/// Values of usual size are compared as trees.
#[test]
fn only_long_numbers_are_looked_at_as_they_are_written() {
    for text in ["1", "-123456789012345678", "[0.25, \"1e400 12345678901234567890\"]", "{\"1e4\": -0.1234567890123}"] {
        assert!(!is_long(text), "{text}");
    }
    for text in ["1e4", "-1234567890123456789", "[0, 0.1234567890123456]", "{\"k\": [12345678901234567890]}"] {
        assert!(is_long(text), "{text}");
    }
}

#[test]
fn what_cannot_be_looked_into_is_an_error() {
    let deep = |depth: usize| format!("{}1e400{}", "[".repeat(depth), "]".repeat(depth));
    assert!(Comparand::parse(&deep(127)).is_ok());
    for text in [deep(128), deep(100_000), r#"["\ud800", 1e400]"#.to_owned()] {
        assert!(Comparand::parse(&text).is_err());
    }
}

#[test]
fn a_literal_keeps_its_text_and_is_a_tree_as_well() {
    let literal = |text: &'static str| Literal::from_json(&Json::trusted(text)).unwrap();
    let long = literal("[-1e400, {\"k\": 123456789012345678901}]");
    assert_eq!(long.tree(), &serde_json::json!([f64::MIN, {"k": 123456789012345678901_f64}]));
    assert_eq!(long.to_string(), "[-1e400, {\"k\": 123456789012345678901}]");
    assert!(long.exact().is_some() && literal("[1, \"x\"]").exact().is_none());
    assert_eq!(literal("[1,  2]").to_string(), "[1,2]");
}

/// Pointers into exact values lead to the same places as in trees.
#[test]
fn pointers_lead_into_exact_values() {
    let value = Comparand::parse(r#"{"a/b": [10, {"~": 1e400}], "": 2}"#).unwrap();
    let at = |pointer: &str| value.pointer(pointer).map(|found| found.exact().unwrap());
    assert_eq!(at("/a~1b/0"), Some(Exact::parse("10").unwrap()));
    assert_eq!(at("/a~1b/1/~0"), Some(Exact::parse("1e400").unwrap()));
    assert_eq!((at("/"), at("/a~1b/00"), at("/a~1b/2"), at("x")), (Some(Exact::parse("2").unwrap()), None, None, None));
    assert_eq!(value.pointer("").unwrap(), value);
    assert_eq!(value.to_string(), r#"{"":2,"a/b":[10,{"~":1e400}]}"#);
}

/// A-3.3: whole numbers that a tree would round are found at any depth.
#[test]
fn whole_numbers_that_a_tree_rounds_are_found() {
    for text in ["123456789012345678901", "18446744073709551617", "-9223372036854775809", "1.23456789012345678901e20"] {
        assert_eq!(rounded_whole(&format!(r#"{{"a": [1, {{"b": {text}}}]}}"#)).as_deref(), Some(text));
    }
    for text in
        ["18446744073709551615", "-9223372036854775808", "1e20", "0.12345678901234567890", "\"123456789012345678901\""]
    {
        assert_eq!(rounded_whole(&format!("[{text}]")), None, "{text}");
    }
}

//! Input of a pipeline on the command line (A-2.4).

use serde_json::{Value, json};

use crate::test::Test;

const KINDS: &str = "input: {s: string, i: integer, n: number, b: boolean, a: array, o: object}";

/// A pipeline `p` that returns its input.
fn echo(input: &str) -> Test {
    Test::new().pipeline("p", |p| p.with(input).sh("a", "sed 's/^{\"input\":/{\"output\":/; s/,\"steps\":{}}$/}/'"))
}

fn given(test: &Test, args: &[&str]) -> crate::ran::Ran {
    test.run(&[&["run", "-p", "p", "--format", "json"], args].concat())
}

/// A-2.4: values are coerced to the declared type, never guessed.
#[test]
fn values_are_taken_as_their_declared_type() {
    let args =
        ["-i", "s=12", "-i", "i=12", "-i", "n=1.50", "-i", "b=true", "-i", "a=[1,\"x\"]", "-i", "o={\"k\":null}"];
    let test = echo(KINDS);
    let ran = given(&test, &args).exit(0);
    assert!(
        String::from_utf8_lossy(&ran.raw)
            .contains(r#""output":{"s":"12","i":12,"n":1.50,"b":true,"a":[1,"x"],"o":{"k":null}}"#)
    );
    for text in ["true", "null", "[1]", " x ", "", "a=b", "ä\n"] {
        given(&echo("input: {s: string}"), &["-i", &format!("s={text}")]).output(json!({"s": text}));
    }
}

/// A-2.4: all invalid values are refused before anything starts, all at once.
#[test]
fn what_does_not_fit_is_refused_at_once() {
    let test = echo(KINDS);
    let bad = ["-i", "i=1.5", "-i", "n=x", "-i", "b=yes", "-i", "a={}", "-i", "o=[", "-i", "zz=1"];
    let ran = given(&test, &bad).exit(2);
    let doc = ran.doc();
    let messages: Vec<&str> =
        doc["errors"].as_array().into_iter().flatten().filter_map(|e| e["message"].as_str()).collect();
    assert_eq!(messages.len(), 7, "{messages:#?}");
    for name in ["`s`", "`i`", "`n`", "`b`", "`a`", "`o`", "`zz`"] {
        assert!(messages.iter().any(|message| message.contains(name)), "{name}: {messages:#?}");
    }
}

/// A-2.4: the long form has defaults and constraints; a parameter with a default, or that is not required, may be left out.
#[test]
fn the_long_form_has_defaults_and_constraints() {
    let test = echo(
        "input:\n  n: {type: integer, minimum: 1, default: 5}\n  tag: {enum: [a, b]}\n  note: {type: string, required: false}",
    );
    given(&test, &["-i", "tag=a"]).output(json!({"n": 5, "tag": "a"}));
    given(&test, &["-i", "tag=c"]).exit(2);
    given(&test, &["-i", "tag=a", "-i", "n=0"]).exit(2);
    given(&test, &[]).exit(2).failed_with(&["- -: input_invalid"]);
}

/// A-2.4: an object comes as text, from a file, or from stdin; pairs win over it.
#[test]
fn the_input_comes_from_text_file_or_stdin() {
    let test = echo("input: {s: string}").file("in.json", r#"{"s":"file"}"#).stdin(r#"{"s":"stdin"}"#);
    given(&test, &["--input", r#"{"s":"text"}"#]).output(json!({"s": "text"}));
    given(&test, &["--input", "@in.json"]).output(json!({"s": "file"}));
    given(&test, &["--input", "-"]).output(json!({"s": "stdin"}));
    given(&test, &["--input", "@in.json", "-i", "s=pair"]).output(json!({"s": "pair"}));
}

/// cli: input that is not a JSON object, a missing file, and a pair without `=` are wrong usage, reported as a document.
#[test]
fn input_that_cannot_be_read_is_wrong_usage() {
    let test = echo("input: {s: string}");
    for args in [
        &["--input", "{"][..],
        &["--input", "[1]"],
        &["--input", "@nowhere.json"],
        &["-i", "s"],
        &["--input", "{\"s\":1}"],
    ] {
        given(&test, args).exit(2).has("/errors/0/kind", "input_invalid").has("/run_id", Value::Null);
    }
}

/// A-2.4: a pipeline that declares no parameters accepts none.
#[test]
fn a_pipeline_without_parameters_takes_none() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    given(&test, &["-i", "x=1"]).exit(2);
    given(&test, &["--input", "{}"]).output(1);
}

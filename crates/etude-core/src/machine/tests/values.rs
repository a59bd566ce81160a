//! Stdin, byte for byte (A-3.3), and values that pass through unchanged.

use std::sync::Arc;

use super::build::*;
use super::play;
use crate::data::{Blob, Json, Stored};
use crate::digest::Digest;
use crate::effect::{Chunk, Effect};
use crate::machine::ABI;
use crate::machine::values::Values;

/// A-3.3: `{"input":…,"steps":{name:{"output":…}}}` in step order.
#[test]
fn stdin_holds_input_and_all_outputs_in_step_order() {
    let case = pipeline([code("z"), code("a"), code("m")]).input(r#"{"k": [1, 2]}"#);
    let world = play(&case, "p/z output {\"b\": 1,\"a\": 2}\np/a output null");
    assert_eq!(world.stdin("p/z"), r#"{"input":{"k": [1, 2]},"steps":{}}"#);
    assert_eq!(world.stdin("p/a"), r#"{"input":{"k": [1, 2]},"steps":{"z":{"output":{"b": 1,"a": 2}}}}"#);
    assert_eq!(
        world.stdin("p/m"),
        r#"{"input":{"k": [1, 2]},"steps":{"z":{"output":{"b": 1,"a": 2}},"a":{"output":null}}}"#
    );
}

/// A-3.3: numbers of any size and precision pass through unchanged: to stdin, output, templates and elements.
#[test]
fn the_text_of_numbers_is_kept() {
    let case = pipeline([
        code("a"),
        llm("x", "{{a.output.0}} {{a.output.1}}"),
        code("b").for_each("{{a.output}}"),
        group("g", [code("c")]),
    ]);
    let n = "123456789012345678901234567890.10";
    let world = play(&case, &format!("p/a output [{n},1e400]\np/g/c output {n}"));
    assert!(world.stdin("p/b[0]").ends_with(&format!(r#","item":{n},"index":0}}"#)));
    assert!(world.stdin("p/b[1]").ends_with(r#","item":1e400,"index":1}"#));
    assert!(world.log.contains(&format!("start p/x model standard: {n} 1e400")), "{}", world.log);
    assert_eq!(format!("{:?}", world.machine.result().unwrap().output.as_ref().unwrap()), format!(r#"{{"c":{n}}}"#));
}

/// The boundaries of stdin's pieces do not show, with any number of steps and any size of outputs.
#[test]
fn stdin_of_many_steps_is_one_document() {
    let mut values = Values::new(json(r#"{"k":"v"}"#), "".into());
    let mut expected = serde_json::Map::new();
    for n in 0..400 {
        let text = "x".repeat(if n % 50 == 7 { 40_000 } else { n });
        values.push(&format!("s{n}"), Json::string(&text));
        expected.insert(format!("s{n}"), serde_json::json!({ "output": text }));
    }
    let stdin = values.stdin();
    let text: String = stdin
        .0
        .iter()
        .map(|chunk| match chunk {
            Chunk::Text(text) => text.to_string(),
            Chunk::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Chunk::Json(json) => json.text().unwrap().to_string(),
        })
        .collect();
    assert_eq!(text.len() as u64, stdin.len());
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found, serde_json::json!({"input": {"k": "v"}, "steps": expected}));
    assert!(stdin.0.len() < 50, "{} pieces", stdin.0.len());
}

/// A-3.4: a large output is not copied per step: the stdin of every later step shares its memory.
#[test]
fn a_large_output_is_not_copied() {
    let big = Json::string(&"x".repeat(100_000));
    let mut values = Values::new(json("{}"), "".into());
    values.push("a", big.clone());
    values.push("b", json("1"));
    let stdin = values.stdin();
    let shared = stdin.0.iter().any(|chunk| match chunk {
        Chunk::Json(json) => std::ptr::eq(json.inline().unwrap(), big.inline().unwrap()),
        Chunk::Text(_) | Chunk::Bytes(_) => false,
    });
    assert!(shared, "{} pieces", stdin.0.len());
}

#[derive(Debug)]
struct Bytes(&'static str);

impl Blob for Bytes {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, String> {
        let rest = &self.0.as_bytes()[usize::try_from(offset).unwrap().min(self.0.len())..];
        let n = rest.len().min(into.len());
        into[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// A-3.4: a stored value is in stdin by reference, as input, output and element; a condition reads it.
#[test]
fn stored_values_stand_where_they_belong() {
    let text = r#"{"output":[true,2]}"#;
    let stored = || {
        let (offset, len) = (10, 8);
        let digest = Digest::of(&text.as_bytes()[10..18]);
        Json::stored(Stored { blob: Digest::of(text.as_bytes()), offset, len, digest, source: Arc::new(Bytes(text)) })
    };
    let mut values = Values::new(stored(), "".into());
    values.push("a", stored());
    let stdin = values.with_item(stored(), 3, None).stdin();
    let kept = stdin.0.iter().filter(|chunk| matches!(chunk, Chunk::Json(json) if json.as_stored().is_some())).count();
    assert_eq!(kept, 3);
    let joined: String = stdin
        .0
        .iter()
        .map(|chunk| match chunk {
            Chunk::Text(text) => text.to_string(),
            Chunk::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Chunk::Json(json) => json.text().unwrap().to_string(),
        })
        .collect();
    assert_eq!(joined, r#"{"input":[true,2],"steps":{"a":{"output":[true,2]}},"item":[true,2],"index":3}"#);
}

/// The digest of stdin depends only on its text.
#[test]
fn the_digest_of_stdin_depends_on_its_text_alone() {
    let digest = |input: &str, output: &str| {
        let world = play(&pipeline([code("a"), code("b")]).input(input), &format!("p/a output {output}"));
        match world.asked("p/b") {
            Effect::Process(call) => call.stdin.digest(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(digest("{}", "1"), digest("{}", "1"));
    assert_ne!(digest("{}", "1"), digest("{}", "2"));
    assert_ne!(digest("{}", "1"), digest(r#"{"k":1}"#, "1"));
}

/// A-3.4: an output that cannot be looked into is passed on. If it must be looked into, the failure is its maker's
/// fault, and never an internal error. Runs of earlier versions failed in other ways.
#[test]
fn an_output_that_cannot_be_looked_into_is_the_fault_of_its_maker() {
    let errors = |step: crate::plan::Step, abi: u32| {
        let mut case = pipeline([code("a"), step]);
        case.start.abi = abi;
        let log = play(&case, r#"p/a output ["\ud800"]"#).log;
        log.lines().find(|line| line.starts_with("error ")).unwrap_or_else(|| panic!("{log}")).to_owned()
    };
    let sub = || call("s", sequence("sub", [code("x")])).with("n", "{{a.output}}");
    let starts = |error: String, start: &str| assert!(error.starts_with(start), "{error}");
    starts(
        errors(sub(), ABI),
        "error input_invalid business/s the value that step `s` passes to pipeline `sub` as `n`, `{{a.output}}`, cannot be parsed: ",
    );
    starts(errors(sub(), 7), "error internal business/s the value cannot be parsed: ");
    let what = "error step_output_invalid business/b `{{a.output.0}}` in the `require` of step `b` cannot be parsed: ";
    starts(errors(code("b").require_equal("{{a.output.0}}", 1), ABI), what);
    starts(errors(code("b").require_equal("{{a.output.0}}", 1), 7), "error deviated business/b ");
}

#[test]
fn an_output_with_a_schema_is_looked_into() {
    let mut case = pipeline([code("a").schema("{\"type\": \"array\"}")]);
    let log = play(&case, r#"p/a output ["\ud800"]"#).log;
    let error = "error step_output_invalid business/a the output of code step `a` cannot be parsed: ";
    assert!(log.contains(error), "{log}");
    case.start.abi = 7;
    assert!(play(&case, r#"p/a output ["\ud800"]"#).log.contains("error environment business/a "));
}

/// A-4.1: strings are inserted bare, also with a lone surrogate, which no Rust string can hold.
#[test]
fn half_a_character_is_inserted_as_the_sign_for_one() {
    let mut case = pipeline([code("a"), llm("x", "<{{a.output}}>")]);
    let name = r#"p/a output "f\ud800\u00e4\udc00\ud83d\ude00.txt""#;
    let log = play(&case, name).log;
    assert!(log.contains("start p/x model standard: <f\u{fffd}ä\u{fffd}😀.txt>"), "{log}");
    case.start.abi = 7;
    assert!(play(&case, name).log.contains(r#"model standard: <"f\ud800"#));
}

/// The common input of a thousand elements of a `for_each` is not copied for each of them.
#[test]
fn a_large_input_is_shared() {
    let input = json(&format!("[{}]", ["17"; 10_000].join(",")));
    let stdin = Values::new(input.clone(), "".into()).with_item(json("17"), 3, None).stdin();
    let text = input.inline().unwrap();
    assert!(
        stdin.0.iter().any(|chunk| matches!(chunk, Chunk::Json(json) if std::ptr::eq(json.inline().unwrap(), text)))
    );
}

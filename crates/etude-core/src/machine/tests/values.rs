//! stdin, byte for byte (A-3.3), and that what passes through is never rewritten.

use std::sync::Arc;

use super::build::*;
use super::play;
use crate::data::{Blob, Json, Stored};
use crate::digest::Digest;
use crate::effect::{Chunk, Effect};
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

/// The pieces that stdin is cut into do not show, however many steps there are and however large their outputs.
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

/// A-3.4: no copy per step: a large output is the same memory in the stdin of every later step.
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

/// A-3.4: a stored value stands in stdin by reference, as input, output and element; a condition reads it.
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

/// The hash of what is asked follows its text alone.
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

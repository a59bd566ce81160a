use std::sync::Arc;

use super::*;
use crate::data::{Blob, Stored};
use crate::digest::Digest;

struct Values(Vec<(&'static str, &'static str)>);

impl Scope for Values {
    fn root(&self, reference: &Reference) -> Result<Json, String> {
        let name = reference.head();
        let found = self.0.iter().find(|(key, _)| *key == name);
        found.map(|(_, text)| Json::parse(text).unwrap()).ok_or_else(|| "it did not run".to_owned())
    }
}

fn render(template: &str, values: &[(&'static str, &'static str)]) -> Result<String, String> {
    let (template, problems) = parse(template);
    assert_eq!(problems, []);
    template.render(&Values(values.to_vec())).map_err(|e| e.to_string())
}

/// A-4.1: a string is inserted as it is, every other value as compact JSON.
#[test]
fn strings_are_inserted_bare_and_other_values_as_compact_json() {
    let values = [("a.output", r#"{"s": "x\ny", "n": 1.50, "l": [ 1, "a b" ]}"#)];
    assert_eq!(render("<{{a.output.s}}>", &values).unwrap(), "<x\ny>");
    assert_eq!(render("<{{ a.output.n }}>", &values).unwrap(), "<1.50>");
    assert_eq!(render("{{a.output.l}}", &values).unwrap(), r#"[1,"a b"]"#);
    assert_eq!(render("{{a.output.l.1}}", &values).unwrap(), "a b");
}

/// A value that its store has lost, for a run of a version of the interpreter.
#[derive(Debug)]
struct Lost(u32);

impl Scope for Lost {
    fn root(&self, _: &Reference) -> Result<Json, String> {
        let (blob, source) = (Digest::of(b"1"), Arc::new(Lost(self.0)));
        Ok(Json::stored(Stored { blob, offset: 0, len: 1, digest: blob, source }))
    }

    fn abi(&self) -> u32 {
        self.0
    }
}

impl Blob for Lost {
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<usize, String> {
        Err("the disk is broken".to_owned())
    }
}

/// A-4.1: a value that cannot be read is an error, not an empty text.
#[test]
fn a_stored_value_that_cannot_be_read_is_an_error() {
    let (template, _) = parse("<{{a.output}}>");
    let failed = template.render(&Lost(13)).unwrap_err().to_string();
    assert!(failed.contains("a.output") && failed.contains("the disk is broken"), "{failed}");
    assert_eq!(template.render(&Lost(12)).unwrap(), "<>");
    assert_eq!(template.render_partly(&Lost(13), 100), "<{{a.output}}>");
}

/// A-3.3: numbers of any size and precision pass through unchanged.
#[test]
fn numbers_keep_their_digits() {
    let values = [("a.output", r#"{"n": 123456789012345678901234567890}"#)];
    assert_eq!(
        render("{{a.output.n}} {{a.output}}", &values).unwrap(),
        r#"123456789012345678901234567890 {"n":123456789012345678901234567890}"#
    );
}

/// A-4.1: inserted text is never scanned again.
#[test]
fn inserted_text_is_not_scanned_again() {
    assert_eq!(render("{{input.q}}", &[("input", r#"{"q": "{{a.output}}"}"#)]).unwrap(), "{{a.output}}");
}

/// A-4.1: `\{{` writes a literal `{{`.
#[test]
fn escaped_braces_are_literal() {
    assert_eq!(render(r"\{{input.q}} {{input.q}}", &[("input", r#"{"q": 1}"#)]).unwrap(), "{{input.q}} 1");
}

/// A-4.1: a reference without a value is an error that names the reference.
#[test]
fn missing_values_are_named() {
    let values = [("a.output", r#"{"k": [1], "s": "x"}"#)];
    let error = |template| render(template, &values).unwrap_err();
    assert_eq!(error("{{a.output.z}}"), "`{{a.output.z}}` has no value: `a.output` has no member `z`; it has `k`, `s`");
    assert_eq!(
        error("{{a.output.k.3}}"),
        "`{{a.output.k.3}}` has no value: `a.output.k` has 1 elements, counted from 0"
    );
    assert_eq!(error("{{a.output.s.t}}"), "`{{a.output.s.t}}` has no value: `a.output.s` is a string");
    assert_eq!(error("{{b.output}}"), "`{{b.output}}` has no value: it did not run");
}

/// A-4.1: text in double braces that is not a reference is a problem with its position.
#[test]
fn other_text_in_braces_is_a_problem() {
    for text in [
        "{{}}", "{{a}}", "{{a.b}}", "{{a.output | upper}}", "{{a output}}", "{{2x.output}}", "{{a.output.}}",
        "{{index.x}}",
    ] {
        let (template, problems) = parse(text);
        assert_eq!(problems.len(), 1, "{text}");
        assert_eq!(problems[0].range, 0..text.len());
        assert!(template.is_literal());
    }
    assert_eq!(parse("x {{a.output").1, [Problem { range: 2..12, kind: ProblemKind::Unclosed }]);
}

#[test]
fn a_sole_reference_is_recognised() {
    assert!(parse("{{item.x}}").0.sole_reference().is_some());
    assert!(parse(" {{item.x}}").0.sole_reference().is_none());
    assert!(parse("x").0.sole_reference().is_none());
}

#[test]
fn a_partial_rendering_keeps_unknown_references() {
    let (template, _) = parse("{{input.q}} {{ a.output.x }}");
    assert_eq!(template.render_partly(&Values(vec![("input", r#"{"q": "hi"}"#)]), usize::MAX), "hi {{a.output.x}}");
}

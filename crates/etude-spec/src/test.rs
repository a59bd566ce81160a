//! Tests of an app: what a file in `tests/` may say.

use std::sync::Arc;

use serde_json::Value;

use crate::check::{Findings, Subject, object};
use crate::diagnose::fields::missing_field;
use crate::diagnose::values;
use crate::diagnostic::{self, Diagnostic};
use crate::fields::Kind;
use crate::fields::test::{FELL_BACK, TEST};
use crate::source::SourceFile;
use crate::wording::quoted;
use crate::yaml::{self, Entries, Node, Plain};

/// The value of a test, or everything that is wrong with it. `name` is the test's.
///
/// # Errors
/// At least one fault, in the order of their places.
pub fn read(file: &Arc<SourceFile>, name: &str) -> Result<Value, Vec<Diagnostic>> {
    let (root, mut diagnostics) = yaml::parse(file);
    let mut found = Findings::new(file);
    let mut value = None;
    if let Some(root) = &root {
        match root.as_map() {
            Some(entries) => fields(&mut found, entries, name),
            None if root.is_invalid() => {}
            None => found.push(values::top_level(file, root.span, "a test", root.kind())),
        }
        match root.to_json() {
            Ok(text) => value = serde_json::from_str(&text).ok(),
            Err(at) => found.push(values::not_json(file, at, "the test")),
        }
    }
    diagnostics.extend(found.list);
    diagnostics.retain(Diagnostic::is_error);
    diagnostic::sort(&mut diagnostics);
    value.filter(|_| diagnostics.is_empty()).ok_or(diagnostics)
}

fn fields(found: &mut Findings<'_>, entries: &Entries<'_>, name: &str) {
    let at = entries.0.first().map(|(key, _)| key.span).unwrap_or_default();
    let name = &format!("test {}", quoted(name));
    object(found, entries, &TEST, Subject { name, at }, &[]);
    fell_back(found, entries);
    match (entries.entry("pipeline"), entries.entry("machine")) {
        (Some(_), Some((key, _))) => {
            let message = format!("{name} has both `pipeline` and `machine`");
            let label = "a test runs one of them";
            found.push(values::contradiction(found.file, key.span, message, label, "remove one of the two"));
        }
        // Without a fault so far neither of them is misspelt.
        (None, None) if found.list.is_empty() => {
            found.list.extend(TEST.field("pipeline").map(|field| missing_field(found.file, at, field, &TEST, name)));
        }
        _ => {}
    }
}

/// Checks `fell_back`, which may be `null`.
fn fell_back(found: &mut Findings<'_>, root: &Entries<'_>) {
    let expect = root.get("expect").and_then(Node::as_map);
    let Some((key, node)) = expect.and_then(|expect| expect.entry("fell_back")) else { return };
    match node.as_map() {
        Some(entries) => object(found, entries, &FELL_BACK, Subject { name: "`fell_back`", at: key.span }, &[]),
        None if matches!(node.as_plain(), Some(Plain::Null)) => {}
        None => {
            let table = &Kind::Object(&FELL_BACK);
            found.push(values::wrong_type(found.file, node.span, ("fell_back", "`fell_back`"), table, node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// a mistake in a test has its line and column, and the word that was meant.
    #[test]
    fn mistakes_in_tests_are_located() {
        let found = |text: &str| {
            let file = SourceFile::new("tests/t.yaml", text);
            let shown = |d: &Diagnostic| {
                let (line, column) = d.position().expect("a place");
                format!("{line}:{column} {} {}", d.message, d.hint.as_deref().unwrap_or_default())
            };
            read(&file, "t").err().unwrap_or_default().iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(found("pipeline: p\ninput: {a: {b: [1]}}\nexpect: {output: {\"\": {a: 1}}, error: x}\n"), [""; 0]);
        assert_eq!(
            found("pipeline: p\nexpects: {}\nexpect: {state: failed, status: fail}\n"),
            [
                "2:1 unknown field `expects` in test `t` did you mean `expect`?",
                "3:10 unknown field `state` in `expect` did you mean `status`?",
                "3:33 `status` cannot be `fail` did you mean `failed`?",
            ]
        );
        assert_eq!(
            found("machine: m\npipeline: p\n"),
            ["1:1 test `t` has both `pipeline` and `machine` remove one of the two"]
        );
        assert_eq!(found("expect: {}\n"), ["1:1 test `t` has no `pipeline` for example: `pipeline: greet`"]);
        let infinite = found("pipeline: p\ninput: {a: .inf}\n");
        assert!(infinite[0].starts_with("2:12 the test holds a number that JSON cannot write"), "{infinite:?}");
        assert_eq!(found("pipeline: p\ninput: [1]\n"), ["2:8 `input` must be a mapping, not a list "]);
    }
}

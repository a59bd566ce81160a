//! Tests of an app: the allowed contents of files in `tests/`.

use std::sync::Arc;

use etude_core::data::Json;

use crate::check::{Findings, Subject, object};
use crate::diagnose::fields::missing_field;
use crate::diagnose::references::{misfit, unknown_pipeline};
use crate::diagnose::stage_machine::unknown_machine;
use crate::diagnose::{files, values};
use crate::diagnostic::{self, Diagnostic};
use crate::fields::FieldKind;
use crate::fields::test::{FELL_BACK, TEST};
use crate::files::{entries_of, source_text};
use crate::input::InputDecl;
use crate::source::{Entry, FileKind, SourceFile, Sources};
use crate::wording::quoted;
use crate::yaml::{self, Entries, Node, Plain, Text, Value, text};

/// The directory of an app's tests.
pub const DIR: &str = "tests";

/// Definitions that tests of an app may run.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Names of the pipelines.
    pub pipelines: &'a [&'a str],
    /// Names of the stage machines.
    pub machines: &'a [&'a str],
    /// Parameters of a pipeline or machine; `None` if they cannot be read.
    pub input: &'a dyn Fn(&str) -> Option<InputDecl>,
}

/// Checks the tests of an app: their targets must exist, and their inputs fit the parameters.
pub fn check(sources: &dyn Sources, known: Known<'_>) -> Vec<Diagnostic> {
    let entries = match entries_of(sources, DIR) {
        Ok(entries) => entries,
        Err(unreadable) => return vec![unreadable],
    };
    let mut diagnostics = misnamed(&entries);
    for entry in &entries {
        let Some(name) = entry.name.strip_suffix(".yaml") else { continue };
        let path = format!("{DIR}/{}", entry.name);
        diagnostics.extend(match source_text(sources, &path) {
            Ok(file) => read_among(&file, name, Some(known)).err().unwrap_or_default(),
            Err(diagnostic) => vec![diagnostic],
        });
    }
    diagnostic::sort(&mut diagnostics);
    diagnostics
}

/// Warns of each test file that is skipped because it ends in `.yml`.
pub fn misnamed(entries: &[Entry]) -> Vec<Diagnostic> {
    let is_misnamed = |entry: &&Entry| matches!(entry.kind, FileKind::File { .. }) && entry.name.ends_with(".yml");
    entries.iter().filter(is_misnamed).map(|entry| files::ends_in_yml(&format!("{DIR}/{}", entry.name))).collect()
}

/// Reads the test `name` as JSON, or returns its faults.
///
/// # Errors
/// At least one fault, in the order of their places.
pub fn read(file: &Arc<SourceFile>, name: &str) -> Result<Json, Vec<Diagnostic>> {
    read_among(file, name, None)
}

/// Same as [`read`]; the target of the test must be in `known`.
fn read_among(file: &Arc<SourceFile>, name: &str, known: Option<Known<'_>>) -> Result<Json, Vec<Diagnostic>> {
    let (root, mut diagnostics) = yaml::parse(file);
    let mut found = Findings::new(file);
    let mut value = None;
    if let Some(root) = &root {
        match root.as_map() {
            Some(entries) => {
                fields(&mut found, entries, name);
                known.into_iter().for_each(|known| target(&mut found, entries, known));
            }
            None if root.is_invalid() => {}
            None => found.push(values::top_level(file, root.span, "a test", root.kind())),
        }
        match root.to_json() {
            Ok(text) => value = Some(Json::trusted(text)),
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
        // Without a fault so far, neither key is misspelt.
        (None, None) if found.list.is_empty() => {
            found.list.extend(TEST.field("pipeline").map(|field| missing_field(found.file, at, field, &TEST, name)));
        }
        _ => {}
    }
}

/// Reports a target that the app does not have, and an input that does not fit the target.
fn target(found: &mut Findings<'_>, entries: &Entries<'_>, known: Known<'_>) {
    let Known { pipelines, machines, .. } = known;
    if let Some(name) = text(entries, "pipeline").filter(|name| !pipelines.contains(&name.text)) {
        found.push(unknown_pipeline(found.file, name.at, name.text, pipelines));
    }
    if let Some(name) = text(entries, "machine").filter(|name| !machines.contains(&name.text)) {
        found.push(unknown_machine(found.file, name.at, name.text, machines));
    }
    let pipeline = text(entries, "pipeline").filter(|name| pipelines.contains(&name.text));
    let machine = text(entries, "machine").filter(|name| machines.contains(&name.text));
    let ((Some(name), None) | (None, Some(name))) = (pipeline, machine) else { return };
    if let Some(declared) = (known.input)(name.text) {
        input(found, entries, name, &declared);
    }
}

/// Reports the faults of `input` for the parameters of the target.
fn input(found: &mut Findings<'_>, entries: &Entries<'_>, target: Text<'_>, declared: &InputDecl) {
    let node = entries.get("input");
    let (Ok(json), None | Some(Value::Map(_))) =
        (node.map_or_else(|| Ok("{}".to_owned()), Node::to_json), node.map(|node| &node.value))
    else {
        return;
    };
    let whole = entries.entry("input").map_or(target.at, |(key, _)| key.span);
    for problem in declared.coerce(&[], Some(&json)).err().unwrap_or_default() {
        let given = node.and_then(Node::as_map).and_then(|given| given.entry(problem.parameter.as_deref()?));
        let at = given.map_or(whole, |(key, _)| key.span);
        let hint = match given {
            Some(_) => problem.hint,
            None => Some("add it to `input` of the test".to_owned()),
        };
        found.push(misfit(found.file, at, target.text, &problem.message, hint));
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
            let table = &FieldKind::Object(&FELL_BACK);
            found.push(values::wrong_type(found.file, node.span, ("fell_back", "`fell_back`"), table, node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MemorySources;

    /// the tests of an app are checked with it, their targets must exist, and a file with another ending is
    /// reported.
    #[test]
    fn tests_of_an_app_are_checked() {
        let sources = MemorySources::new()
            .with("tests/a.yaml", "pipeline: greet\n")
            .with("tests/b.yaml", "pipeline: greeet\n")
            .with("tests/c.yaml", "machine: greet\n")
            .with("tests/d.yaml", "pipline: greet\n")
            .with("tests/e.yml", "pipeline: greet\n")
            .with("tests/notes.md", "# Notes\n")
            .with("tests/recordings/a/1.yaml", "x: 1\n");
        let known = Known { pipelines: &["greet"], machines: &[], input: &|_| None };
        let found: Vec<String> = check(&sources, known).iter().map(shown).collect();
        assert_eq!(
            found,
            [
                "tests/b.yaml 1:11 there is no pipeline `greeet` did you mean `greet`?",
                "tests/c.yaml 1:10 there is no machine `greet` ",
                "tests/d.yaml 1:1 unknown field `pipline` in test `d` did you mean `pipeline`?",
                "tests/e.yml 0:0 `tests/e.yml` is not read, because its name ends in `.yml` rename `tests/e.yml` to `tests/e.yaml`",
            ]
        );
        assert_eq!(check(&MemorySources::new(), known), []);
    }

    /// an input that the target would refuse is reported at its place.
    #[test]
    fn inputs_of_tests_fit_their_targets() {
        let schema = serde_json::json!({
            "properties": {"name": {"type": "string"}, "times": {"type": "integer"}}, "required": ["name"],
        });
        let declared = InputDecl::of_schema(&schema);
        let input = |name: &str| (name != "broken").then(|| declared.clone());
        let known = Known { pipelines: &["greet", "broken"], machines: &["m"], input: &input };
        let found = |text: &str| -> Vec<String> {
            check(&MemorySources::new().with("tests/t.yaml", text), known).iter().map(shown).collect()
        };
        assert_eq!(found("pipeline: greet\ninput: {name: Ada, times: 2}\n"), [""; 0]);
        assert_eq!(found("pipeline: broken\ninput: {names: Ada}\n"), [""; 0]);
        assert_eq!(
            found("pipeline: greet\ninput:\n  names: Ada\n  times: two\n"),
            [
                "tests/t.yaml 2:1 the input does not fit `greet`: required parameter `name` is missing add it to `input` of the test",
                "tests/t.yaml 3:3 the input does not fit `greet`: parameter `names` is not declared did you mean `name`?",
                "tests/t.yaml 4:3 the input does not fit `greet`: parameter `times` must be an integer, not a string ",
            ]
        );
        assert_eq!(
            found("machine: m\n"),
            [
                "tests/t.yaml 1:10 the input does not fit `m`: required parameter `name` is missing add it to `input` of the test"
            ]
        );
    }

    fn shown(d: &Diagnostic) -> String {
        let (line, column) = d.position().unwrap_or_default();
        format!("{} {line}:{column} {} {}", d.file.path(), d.message, d.hint.as_deref().unwrap_or_default())
    }

    /// a mistake in a test is reported with line, column and the likely word.
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

//! Definitions and configuration: files that people write.

use etude_spec::application;
use etude_spec::frontmatter::{self, Scan};
use etude_spec::skill::{self, Profile, claude};
use etude_spec::source::{SourceFile, Span};
use etude_spec::stage_machine::{Machines, Rules};
use etude_spec::yaml::{self, Locator, Node, Value};
use etude_spec::{App, Diagnostic, config, pipeline_schema, render, tool};

use super::text;
use crate::bundle;

/// Asserts that diagnostics lie in their files and can be drawn.
pub(super) fn diagnostics(all: &[Diagnostic]) {
    for diagnostic in all {
        if let Some(span) = diagnostic.span {
            inside(diagnostic.file.text(), span);
        }
        assert!(!diagnostic.message.is_empty(), "a diagnostic says something");
        render::json(diagnostic).to_string();
    }
    // Drawing is slow and similar for all diagnostics of a kind.
    for diagnostic in all.iter().take(8) {
        let plain = render::text(diagnostic, false);
        assert!(!plain.contains('\u{1b}'), "{plain:?} steers a terminal");
        render::text(diagnostic, true);
    }
}

fn inside(text: &str, span: Span) {
    assert!(text.get(span.range()).is_some(), "{span:?} is no part of a text of {} bytes", text.len());
}

fn tree(text: &str, node: &Node<'_>) {
    inside(text, node.span);
    match &node.value {
        Value::Seq(items) => items.iter().for_each(|item| tree(text, item)),
        Value::Map(entries) => entries.iter().for_each(|(_, key, value)| {
            tree(text, key);
            tree(text, value);
        }),
        _ => {}
    }
}

pub(super) fn yaml(data: &[u8]) {
    let file = SourceFile::new("file.yaml", text(data));
    let (root, found) = yaml::parse(&file);
    diagnostics(&found);
    let Some(root) = root else {
        assert!(found.iter().any(Diagnostic::is_error), "nothing came of it, and nothing is wrong");
        return;
    };
    tree(file.text(), &root);
    if let Ok(json) = root.to_json() {
        serde_json::from_str::<serde_json::Value>(&json).expect("a tree is JSON");
    }
    if let Some(mut locator) = Locator::new(&file, &root) {
        let text = root.as_text().unwrap_or_default();
        for (at, c) in text.char_indices().take(40) {
            inside(file.text(), locator.span(at..at + c.len_utf8()));
        }
        inside(file.text(), locator.span(text.len()..usize::MAX));
    }
}

/// Scans a file in pieces, as it is read from a disk.
fn scan(path: &str, data: &[u8]) -> frontmatter::Head {
    let whole = match frontmatter::scan(path, data, true) {
        Scan::Done(head) => head,
        Scan::More => panic!("there is no more of it"),
    };
    for cut in [data.len() / 3, data.len() / 2] {
        if let Scan::Done(early) = frontmatter::scan(path, &data[..cut], false) {
            assert_eq!((early.fault, early.yaml, early.body), (whole.fault, whole.yaml, whole.body), "cut at {cut}");
        }
    }
    inside(whole.file.text(), whole.yaml);
    assert!(whole.body <= data.len());
    whole
}

pub(super) fn skill(data: &[u8]) {
    let head = scan("SKILL.md", data);
    for profile in [Profile::Strict, Profile::Lenient] {
        let reading = skill::read(&head, "app", profile);
        diagnostics(&reading.diagnostics);
        if let Some(skill) = &reading.skill {
            skill::properties(skill).to_string();
        }
    }
    let file = SourceFile::new("SKILL.md", text(data));
    match frontmatter::split(&file) {
        Ok(parts) => {
            inside(file.text(), parts.body);
            let (_, found) = frontmatter::parse(&file, &parts);
            diagnostics(&found);
            body(file.slice(parts.body));
        }
        Err(fault) => diagnostics(&[*fault]),
    }
}

/// Asserts that inserted text is never parsed again: a command in an argument stays an argument.
fn body(body: &str) {
    let names = ["first".to_owned(), "second".to_owned()];
    let given = "$ARGUMENTS `!`touch escaped` \"two words\" $0";
    let values = claude::Values { arguments: Some(given), names: &names, skill_dir: "/s", ..claude::Values::default() };
    let commands = |values| {
        let pieces = claude::render(body, values);
        pieces.iter().filter(|piece| matches!(piece, claude::Piece::Command(_))).count()
    };
    assert_eq!(commands(&values), commands(&claude::Values::default()), "an argument became a command");
    claude::first_paragraph(body);
    claude::words(body);
}

pub(super) fn application(data: &[u8]) {
    let head = scan("APP.md", data);
    let reading = application::read(&head, "package");
    diagnostics(&reading.diagnostics);
    let contract = &reading.contract;
    contract.command(&["a".to_owned(), "b".to_owned()]);
    contract.state_paths();
    contract.state_command();
}

pub(super) fn config(data: &[u8]) {
    let text = text(data);
    let file = SourceFile::new("etude.yaml", &*text);
    let (_, found) = config::read(&file);
    diagnostics(&found);
    let (_, found) = tool::load(&bundle::sources(&text, "tools/tool.yaml"));
    diagnostics(&found);
}

pub(super) fn pipeline(data: &[u8]) {
    let text = text(data);
    let sources = bundle::sources(&text, "pipelines/p/pipeline.yaml").with("pipelines/p/steps/s.sh", "exit 0\n");
    let app = App::new(&sources);
    let report = app.check(&[]);
    diagnostics(&report.diagnostics);
    diagnostics(&report.extensions);
    let (plan, found) = app.pipeline("p");
    assert_eq!(plan.is_none(), found.iter().any(Diagnostic::is_error), "a plan or an error: {found:?}");
    app.summaries();
    if data.is_empty() {
        pipeline_schema();
    }
}

pub(super) fn machine(data: &[u8]) {
    let text = text(data);
    let sources = bundle::sources(&text, "machines/m/machine.yaml");
    let machines = Machines::new(&sources, Rules::default());
    let report = machines.check(&[]);
    diagnostics(&report.diagnostics);
    let (machine, found) = machines.machine("m");
    assert!(machine.is_some() || !found.is_empty(), "nothing came of it, and nothing is wrong");
    machines.summaries();
}

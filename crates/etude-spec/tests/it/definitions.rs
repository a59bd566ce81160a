//! Diagnostics of definitions, good and bad.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use etude_core::plan::StepKind;
use etude_spec::{App, Code, render};

use crate::disk::Disk;

pub(crate) fn testdata(kind: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(kind);
    let mut cases: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

pub(crate) fn compare(case: &Path, found: &str) -> Result<(), String> {
    let file = case.join("expected.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, found).unwrap();
        return Ok(());
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    if expected == found { Ok(()) } else { Err(format!("{}:\n{found}", file.display())) }
}

fn check_all(kind: &str, emit: impl Fn(&Path) -> String) {
    let cases = testdata(kind);
    assert!(!cases.is_empty());
    let wrong: Vec<String> = cases.iter().filter_map(|case| compare(case, &emit(case)).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn diagnostics(case: &Path) -> String {
    let disk = Disk(case.to_owned());
    let report = App::new(&disk).check(&[]);
    let mut text = String::new();
    for diagnostic in &report.diagnostics {
        writeln!(text, "{}\n", render::text(diagnostic, false)).unwrap();
    }
    writeln!(text, "checked {}, broken: {}", report.checked, report.broken.join(" ")).unwrap();
    text
}

/// every definition error is reported at once, each with file, line, column, the source line, the rule and a
/// hint.
#[test]
fn bad_definitions_are_explained() {
    check_all("err", diagnostics);
}

/// valid definitions are accepted, with notes on their extensions, their steps and the files that they depend on.
#[test]
fn good_definitions_are_accepted() {
    check_all("ok", |case| {
        let disk = Disk(case.to_owned());
        let app = App::new(&disk);
        let mut text = String::new();
        for name in app.discovery().all() {
            let (pipeline, diagnostics) = app.pipeline(name);
            for diagnostic in diagnostics {
                writeln!(text, "{}\n", render::text(&diagnostic, false)).unwrap();
            }
            let Some(pipeline) = pipeline else { continue };
            writeln!(text, "pipeline {}: {}", pipeline.name, pipeline.description).unwrap();
            writeln!(text, "input: {}", pipeline.input.schema()).unwrap();
            for step in &pipeline.sequence.steps {
                let (line, column) = (step.origin.line, step.origin.column);
                writeln!(text, "{line}:{column}: {} step {}{}", step.kind.word(), step.name, what(&step.kind)).unwrap();
            }
            writeln!(text, "files: {}", pipeline.files.join(" ")).unwrap();
            for note in &pipeline.extensions {
                let (line, column) = note.position().unwrap();
                writeln!(text, "{}:{line}:{column}: {}", note.file.path(), note.message).unwrap();
            }
            text.push('\n');
        }
        text
    });
}

/// Summary of a step.
fn what(kind: &StepKind) -> String {
    match kind {
        StepKind::Code(code) => {
            let sandbox = code.sandbox.as_ref().map(|rules| {
                let (network, read, write) = (rules.network, rules.read.len(), rules.write.len());
                format!(", sandboxed: network {network}, may read {read} and write {write} paths")
            });
            let from: String = code.env_from.iter().map(|(name, source)| format!(", {name} from {source}")).collect();
            let worker = code.worker.map(|worker| format!(", warm {worker:?}"));
            let sandbox = sandbox.unwrap_or_default();
            format!(" runs {:?}{}{sandbox}{from}", code.command, worker.unwrap_or_default())
        }
        StepKind::Llm(llm) => format!(" asks {} with {} references", llm.tier, llm.prompt.references().count()),
        StepKind::Parallel(group) => {
            group.steps.iter().map(|step| format!(" [{}{}]", step.name, what(&step.kind))).collect()
        }
        StepKind::Pipeline(sub) => format!(" runs {} with {:?}", sub.sequence.name, sub.input),
        StepKind::Application(call) => {
            format!(" runs {} {} with {} arguments", call.application, call.command, call.args.len())
        }
        StepKind::Tool(call) => format!(" calls {} with {} arguments", call.tool, call.args.len()),
        StepKind::Skill(agent) => format!(" follows {} with {:?}", agent.skill, agent.tool_selection.allowed),
        StepKind::Approval(approval) => format!(" asks {:?}", approval.approvers),
        StepKind::Machine(call) => format!(" enters {}", call.machine.entry),
    }
}

/// if sandboxes cannot be enforced, each step that asks for one gets a warning.
#[test]
fn steps_that_ask_for_a_sandbox_are_warned_of() {
    let case = testdata("ok").into_iter().find(|case| case.ends_with("sandboxes")).unwrap();
    let disk = Disk(case);
    let report = App::new(&disk).check(&[]);
    let warnings = report.without_sandbox("no such kernel");
    let reported: Vec<_> = warnings.iter().map(|d| (d.code, d.severity.word(), d.message.as_str())).collect();
    let message = "this machine cannot enforce a sandbox: no such kernel";
    assert_eq!(reported, vec![(Code::NoSandbox, "warning", message); 2]);
    assert!(report.diagnostics.is_empty());
}

/// Every code has a case that shows it.
#[test]
fn every_code_is_shown_by_a_case() {
    if std::env::var_os("UPDATE").is_some() {
        return;
    }
    let all: String = testdata("err")
        .iter()
        .chain(&testdata("ok"))
        .chain(&testdata("machines"))
        .map(|case| std::fs::read_to_string(case.join("expected.txt")).unwrap_or_default())
        .collect();
    let mut elsewhere = vec![Code::Extension, Code::TooLarge, Code::Unreadable, Code::NotUtf8, Code::NoSandbox];
    // Tests of an app and its configuration are not definitions of pipelines.
    elsewhere.push(Code::EndsInYml);
    // Tests of the program generate the many files that these need.
    elsewhere.extend([Code::NestedTooDeep, Code::TooManySteps]);
    // Schedules, webhooks, learned pipelines, skills, packages and cascades have their own cases, which check findings
    // by name.
    let is_elsewhere =
        |code: &Code| ["P08", "P09", "P11", "P12", "P13", "D01"].iter().any(|start| code.as_str().starts_with(start));
    let missing: Vec<_> = Code::ALL
        .iter()
        .filter(|code| !elsewhere.contains(code) && !is_elsewhere(code) && !all.contains(&format!("[{code}]")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// a pipeline with a fault never has a valid summary, and the reverse holds if no other file is involved.
#[test]
fn summaries_agree_with_checks() {
    for case in testdata("err").iter().chain(&testdata("ok")) {
        let disk = Disk(case.clone());
        let app = App::new(&disk);
        for summary in app.summaries().0 {
            let (pipeline, diagnostics) = app.pipeline(&summary.name);
            assert!(summary.valid || pipeline.is_none(), "{} {}", case.display(), summary.name);
            for diagnostic in &summary.diagnostics {
                assert!(diagnostics.contains(diagnostic), "{} {diagnostic:?}", case.display());
            }
        }
    }
}

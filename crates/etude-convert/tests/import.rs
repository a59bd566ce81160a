//! Definitions of other programs become apps: golden files for realistic inputs, and limits for hostile ones.

#![expect(clippy::disallowed_methods, reason = "a test runs the scripts that were written")]

#[path = "import/meaning.rs"]
mod meaning;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use etude_convert::import::{ImportKind, Imported, Source, import};
use etude_spec::App;
use etude_spec::source::{Entry, FileKind, ReadFailure, Sources};
use expect_test::expect_file;

fn inputs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import")
}

fn source(path: &str) -> Source {
    let text = std::fs::read_to_string(inputs().join(path)).expect("an input");
    Source { path: path.to_owned(), text: Some(text) }
}

/// Files of an app in memory.
struct Files(BTreeMap<String, String>);

impl Sources for Files {
    fn read(&self, path: &str, _: u64) -> Result<Vec<u8>, ReadFailure> {
        self.0.get(path).map(|text| text.clone().into_bytes()).ok_or(ReadFailure::Missing)
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>, ReadFailure> {
        let start = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let mut entries = BTreeMap::new();
        for below in self.0.keys().filter_map(|path| path.strip_prefix(&start)) {
            match below.split_once('/') {
                Some((name, _)) => entries.insert(name.to_owned(), FileKind::Dir),
                None => entries.insert(below.to_owned(), FileKind::File { executable: false }),
            };
        }
        if entries.is_empty() {
            return Err(ReadFailure::Missing);
        }
        Ok(entries.into_iter().map(|(name, kind)| Entry { name, kind }).collect())
    }

    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure> {
        if self.0.contains_key(path) {
            return Ok(FileKind::File { executable: false });
        }
        self.list(path).map(|_| FileKind::Dir)
    }
}

/// Everything that was imported, as text; all of it must be sound.
fn shown(imported: &Imported, sources: &[Source]) -> String {
    let mut files: BTreeMap<String, String> =
        imported.files.iter().map(|file| (file.path.clone(), file.text.clone())).collect();
    for (from, to) in &imported.copies {
        let text = sources.iter().find(|source| source.path == *from).and_then(|source| source.text.clone());
        files.insert(to.clone(), text.expect("a copy is of a source"));
    }
    let files = Files(files);
    let report = App::new(&files).check(&[]);
    let errors: Vec<_> = report.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{:#?}", files.0);
    assert_eq!(report.checked, imported.pipelines.len());
    let mut text = String::new();
    for (path, content) in &files.0 {
        writeln!(text, "== {path}\n{content}").expect("a text");
    }
    writeln!(text, "skills: {:?}", imported.skills).expect("a text");
    for pipeline in &imported.pipelines {
        writeln!(text, "pipeline: {} from {}, {} steps", pipeline.name, pipeline.source, pipeline.steps)
            .expect("a text");
    }
    for finding in &imported.not_imported {
        writeln!(text, "{}:{}: {}: {}", finding.file, finding.line, finding.what, finding.reason).expect("a text");
    }
    text
}

fn of(kind: ImportKind, paths: &[&str]) -> String {
    let sources: Vec<Source> = paths.iter().map(|path| source(path)).collect();
    shown(&import(kind, &sources), &sources)
}

/// Issue 22: commands and skills become skills of the app and pipelines that follow them.
#[test]
fn commands_and_skills_of_claude_code() {
    let paths = [
        "claude/.claude/agents/reviewer.md",
        "claude/.claude/commands/fix-issue.md",
        "claude/.claude/commands/standup.md",
        "claude/.claude/skills/audit/SKILL.md",
        "claude/.claude/skills/audit/scripts/total.py",
    ];
    expect_file!["import/expected/claude.txt"].assert_eq(&of(ImportKind::ClaudeCode, &paths));
}

/// Issue 22: jobs become pipelines of their `run` steps; conditions, actions and matrices are listed.
#[test]
fn workflows_of_github_actions() {
    expect_file!["import/expected/actions.txt"].assert_eq(&of(ImportKind::Actions, &["ci.yml", "release.yml"]));
}

/// Issue 22: steps run in the order of their dependencies; a step that must not run without its condition is listed.
#[test]
fn dags_of_dagu() {
    expect_file!["import/expected/dagu.txt"].assert_eq(&of(ImportKind::Dagu, &["modern.yaml", "nightly.yaml"]));
}

/// Issue 22: `stdin`, approvals and conditions on them become variables, approvals and `when`.
#[test]
fn workflows_of_lobster() {
    expect_file!["import/expected/lobster.txt"].assert_eq(&of(ImportKind::Lobster, &["triage.lobster"]));
}

#[test]
fn kinds_are_detected() {
    let kind = |path: &str| ImportKind::detect(path, source(path).text.as_deref().unwrap_or_default());
    assert_eq!(kind("ci.yml"), Some(ImportKind::Actions));
    assert_eq!(kind("nightly.yaml"), Some(ImportKind::Dagu));
    assert_eq!(kind("triage.lobster"), Some(ImportKind::Lobster));
    assert_eq!(
        ImportKind::detect("a.yaml", "steps:\n  - id: a\n    condition: $b.approved\n"),
        Some(ImportKind::Lobster)
    );
    assert_eq!(ImportKind::detect("a.yaml", "name: a\n"), None);
    // A byte order mark hides no key.
    assert_eq!(ImportKind::detect("a.yaml", "\u{feff}steps:\r\n  - command: a\r\n"), Some(ImportKind::Dagu));
}

/// Hostile files end as findings: deep, aliased, broken, and names that lead out of the app.
#[test]
fn hostile_files_are_findings() {
    let deep = format!("steps: {}1{}\n", "[".repeat(5_000), "]".repeat(5_000));
    let aliases = "a: &a [x, x]\nb: &b [*a, *a]\nsteps: [*b]\n";
    let name = "name: ../../etc\nsteps:\n  - name: \"../x\\n\"\n    command: echo '{{input.a}}'\n  - name: input\n    command: |\n      echo {{a.output}}\n      true\n";
    for text in [deep.as_str(), aliases, "steps: {", "- a\n", "", name, "steps: [{command: {a: 1}}, 7]\n"] {
        for kind in ImportKind::ALL {
            let sources = [Source { path: "x.yaml".to_owned(), text: Some(text.to_owned()) }];
            let imported = import(kind, &sources);
            shown(&imported, &sources);
            assert!(imported.files.iter().all(|file| !file.path.contains("..")), "{imported:?}");
        }
    }
    let unreadable = [Source { path: "x.yaml".to_owned(), text: None }];
    assert_eq!(import(ImportKind::Dagu, &unreadable).not_imported.len(), 1);
}

/// Imports one text of about a mebibyte, the maximum size of a file.
fn large(kind: ImportKind, path: &str, head: &str, part: impl Fn(usize) -> String) -> Imported {
    let mut text = head.to_owned();
    for part in (0..).map(part) {
        if text.len() + part.len() > 1 << 20 {
            break;
        }
        text.push_str(&part);
    }
    import(kind, &[Source { path: path.to_owned(), text: Some(text) }])
}

fn bytes(imported: &Imported) -> usize {
    imported.files.iter().map(|file| file.text.len()).sum()
}

/// Repetition in steps is bounded: a file of a mebibyte with variables and steps would otherwise become gigabytes.
#[test]
fn what_steps_repeat_has_a_limit() {
    let variables: String = (0..5_000).fold(String::new(), |mut text, n| {
        writeln!(text, "  V{n}: some text that is not short at all").expect("memory");
        text
    });
    let actions = format!("on: push\nenv:\n{variables}jobs:\n  a:\n    steps:\n");
    let imported = large(ImportKind::Actions, "x.yml", &actions, |n| format!("      - run: echo {n}\n"));
    assert!(imported.not_imported.iter().any(|finding| finding.reason == "the pipeline would have more than 1 MiB"));
    assert!((1..4 << 20).contains(&bytes(&imported)), "{}", bytes(&imported));
    let dagu = format!("env:\n{variables}steps:\n");
    let imported = large(ImportKind::Dagu, "x.yaml", &dagu, |n| format!("  - name: s{n}\n    command: echo {n}\n"));
    assert!(imported.not_imported.iter().any(|finding| finding.reason == "the pipeline would have more than 1 MiB"));
    assert!((1..4 << 20).contains(&bytes(&imported)), "{}", bytes(&imported));
}

/// No file takes time that grows with the square of its length: each of these took minutes to days.
#[test]
fn long_files_are_imported() {
    let chain = |n: usize| format!("  j{n}:\n    needs: [j{}]\n    steps: [run: echo {n}]\n", n + 1);
    let imported = large(ImportKind::Actions, "x.yml", "on: push\njobs:\n", chain);
    assert!(imported.pipelines.is_empty() && imported.not_imported.len() > 10_000, "{}", imported.not_imported.len());
    let expressions = |_: usize| " ${{ inputs.a }}".to_owned();
    let head = "on:\n  workflow_dispatch:\n    inputs: {a: {}}\njobs:\n  a:\n    steps:\n      - run: echo";
    assert_eq!(large(ImportKind::Actions, "x.yml", head, expressions).pipelines.len(), 1);
    let steps = |n: usize| format!("  - name: s{n}\n    command: echo {n}\n    depends: s{}\n", n + 1);
    let imported = large(ImportKind::Dagu, "x.yaml", "steps:\n", steps);
    assert!(imported.pipelines.is_empty() && imported.not_imported.len() > 10_000, "{}", imported.not_imported.len());
    let same = |_: usize| "  - name: same\n    command: echo\n".to_owned();
    assert!(large(ImportKind::Dagu, "x.yaml", "type: chain\nsteps:\n", same).pipelines[0].steps > 5_000);
    let words = large(ImportKind::Dagu, "x.yaml", "params: x", |n| format!(" p{n}"));
    assert_eq!(words.not_imported[0].reason, "there are more than 100 parameters");
    let results = |_: usize| " $a.stdout".to_owned();
    let head = "steps:\n  - id: a\n    command: echo\n  - id: b\n    command: echo";
    let imported = large(ImportKind::Lobster, "x.lobster", head, results);
    let reasons: Vec<&str> = imported.not_imported.iter().map(|finding| finding.reason.as_str()).collect();
    assert_eq!((imported.pipelines[0].steps, reasons), (1, vec!["the pipeline would have more than 1 MiB"]));
    let head = "---\nname: s\ndescription: x\n---\n";
    let path = ".claude/skills/s/SKILL.md";
    let imported = large(ImportKind::ClaudeCode, path, head, |n| format!("$ARGUMENTS[{n}] !`echo`\n"));
    assert!(imported.not_imported.len() > 50_000, "{}", imported.not_imported.len());
}

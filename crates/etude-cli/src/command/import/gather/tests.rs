//! Tests of the choice of a project's folder.

use super::*;

/// A project with commands, workflows, a DAG and a README.
fn project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let files = [
        (".claude/commands/fix.md", "Fix it.\n"),
        (".github/workflows/ci.yml", "jobs: {}\n"),
        ("dags/README.md", "# DAGs\n"),
        ("dags/nightly.yaml", "steps:\n  - command: make\n"),
    ];
    for (path, text) in files {
        let place = dir.path().join(path);
        fs::create_dir_all(place.parent().expect("a folder")).expect("folders");
        fs::write(place, text).expect("a file");
    }
    dir
}

fn paths(gathered: &Gathered) -> Vec<&str> {
    gathered.sources.iter().map(|source| source.path.as_str()).collect()
}

#[test]
fn the_kind_decides_which_folder_is_read() {
    let dir = project();
    let read = |from| gather(Path::new("p"), dir.path(), from).expect("files");
    for (from, expected) in [
        (ImportKind::Actions, vec!["p/.github/workflows/ci.yml"]),
        (ImportKind::ClaudeCode, vec!["p/.claude/commands/fix.md"]),
        (ImportKind::Dagu, vec!["p/dags/README.md", "p/dags/nightly.yaml"]),
    ] {
        let gathered = read(Some(from));
        assert_eq!(paths(&gathered), expected, "{from:?}");
        assert_eq!(gathered.findings, [], "{from:?}");
    }
}

#[test]
fn a_second_folder_is_reported() {
    let dir = project();
    let gathered = gather(Path::new("p"), dir.path(), None).expect("files");
    assert_eq!(gathered.kind(), Some(ImportKind::ClaudeCode));
    let [finding] = gathered.findings.as_slice() else { panic!("{:?}", gathered.findings) };
    assert_eq!((finding.file.as_str(), finding.what.as_str()), ("p/.github/workflows", "the folder"));
    assert!(finding.reason.ends_with("`--from github-actions`"), "{}", finding.reason);
}

#[test]
fn a_readme_beside_workflows_does_not_decide_the_kind() {
    let dir = project();
    let gathered = gather(Path::new("dags"), &dir.path().join("dags"), None).expect("files");
    assert_eq!(gathered.kind(), Some(ImportKind::Dagu));
    assert_eq!(gathered.sources_of(ImportKind::Dagu).len(), 1);
}

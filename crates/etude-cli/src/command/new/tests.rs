use etude::disk::Disk;
use etude::spec::{App, Diagnostic};

use super::*;

fn checked(dir: &Path) -> Vec<Diagnostic> {
    let disk = Disk::open(dir).unwrap();
    let report = App::new(&disk).check(&[]);
    assert!(report.checked > 0);
    report.diagnostics.into_iter().chain(report.extensions).collect()
}

/// what is made has no errors, no warnings, and needs no extension of the protocol.
#[test]
fn a_new_app_and_its_new_pipeline_hold() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("My_app");
    let made = app(&place).unwrap_or_else(|problem| panic!("{problem:?}"));
    assert_eq!(made.files.len(), templates::APP.len());
    assert_eq!(made.next.len(), 2);
    assert_eq!(checked(&place), []);
    for name in ["second", "null"] {
        pipeline(&place, name, None).unwrap_or_else(|problem| panic!("{problem:?}"));
    }
    assert_eq!(checked(&place), []);
    let skill = fs::read_to_string(place.join("SKILL.md")).unwrap();
    assert!(skill.contains("name: my-app\n") && skill.contains("# My_app\n"), "{skill}");
    assert!(!skill.contains('@'), "{skill}");
}

#[cfg(unix)]
#[test]
fn scripts_can_be_executed_and_other_files_cannot() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("a");
    app(&place).unwrap_or_else(|problem| panic!("{problem:?}"));
    let is_executable = |path: &str| fs::metadata(place.join(path)).unwrap().permissions().mode() & 0o100 != 0;
    assert!(is_executable("pipelines/explain/steps/validate_explain.py"));
    assert!(!is_executable("pipelines/explain/pipeline.yaml"));
}

#[test]
fn nothing_is_overwritten_and_everything_in_the_way_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("a");
    fs::create_dir_all(place.join("notes")).unwrap();
    fs::write(place.join("README.md"), "mine").unwrap();
    fs::write(place.join("pipelines"), "a file where a directory is needed").unwrap();
    let Err(problem) = app(&place) else { panic!("made over the user's files") };
    assert_eq!(problem.exit, Exit::Usage);
    let messages: Vec<String> = problem.failures.iter().map(|failure| failure.message.clone()).collect();
    let expected = ["README.md", "pipelines"].map(|name| format!("`{}` is already there", place.join(name).display()));
    assert_eq!(messages, expected);
    assert_eq!(fs::read_to_string(place.join("README.md")).unwrap(), "mine");
    assert!(!place.join("SKILL.md").exists());
}

#[test]
fn a_pipeline_that_is_there_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let made = pipeline(dir.path(), "p", Some(Path::new("my app"))).unwrap_or_else(|problem| panic!("{problem:?}"));
    assert_eq!(made.next, ["etude check -C 'my app' p", "etude run -C 'my app' --pipeline p -i text='some text'"]);
    let Err(problem) = pipeline(dir.path(), "p", None) else { panic!("made twice") };
    assert_eq!((problem.exit, problem.failures.len()), (Exit::Usage, 1));
}

#[test]
fn what_was_begun_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("new/app");
    let mut made = Undo::default();
    made.dirs(&place).unwrap();
    made.file(&place.join("README.md"), &templates::APP[1], "app").unwrap();
    made.undo();
    assert!(dir.path().exists());
    assert!(!dir.path().join("new").exists());
}

#[test]
fn names_that_no_pipeline_could_have_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["", "_hidden", "2nd", "a b", "a/b", "../a", ".", "a.b", "ä", "-x"] {
        let Err(problem) = pipeline(dir.path(), name, None) else { panic!("{name}") };
        assert_eq!(problem.exit, Exit::Usage, "{name}");
    }
    assert!(app(&dir.path().join("2nd")).is_err());
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
}

#[test]
fn an_app_can_be_made_in_a_directory_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("here");
    fs::create_dir_all(place.join("src")).unwrap();
    app(&place.join("src").join("..")).unwrap_or_else(|problem| panic!("{problem:?}"));
    assert!(place.join("SKILL.md").is_file());
}

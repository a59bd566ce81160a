use etude::Disk;
use etude_spec::{App, Diagnostic};

use super::*;

fn checked(dir: &Path) -> Vec<Diagnostic> {
    let disk = Disk::open(dir).unwrap();
    let report = App::new(&disk).check(&[]);
    assert!(report.checked > 0);
    report.diagnostics.into_iter().chain(report.extensions).collect()
}

/// a new app has no errors, no warnings, and needs no extension of the protocol.
#[test]
fn a_new_app_and_its_new_pipeline_hold() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("My_app");
    let made = app(&place).unwrap_or_else(|problem| panic!("{problem:?}"));
    assert_eq!(made.files.len(), templates::APP.len() + 2);
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
    fs::write(place.join("SKILL.md"), "mine").unwrap();
    fs::write(place.join("pipelines"), "a file where a directory is needed").unwrap();
    let Err(problem) = app(&place) else { panic!("made over the user's files") };
    assert_eq!(problem.exit, Exit::Usage);
    let messages: Vec<String> = problem.failures.iter().map(|failure| failure.message.clone()).collect();
    let expected = ["SKILL.md", "pipelines"].map(|name| format!("`{}` is already there", place.join(name).display()));
    assert_eq!(messages, expected);
    assert_eq!(fs::read_to_string(place.join("SKILL.md")).unwrap(), "mine");
    assert!(!place.join("README.md").exists());
}

/// cli: an existing project becomes an app, and keeps its README.
#[test]
fn the_readme_of_a_project_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("project");
    fs::create_dir_all(place.join(".git")).unwrap();
    fs::write(place.join("README.md"), "mine").unwrap();
    let made = app(&place).unwrap_or_else(|problem| panic!("{problem:?}"));
    assert_eq!(made.kept, Some(place.join("README.md")));
    assert!(!made.files.contains(&place.join("README.md")));
    assert_eq!(fs::read_to_string(place.join("README.md")).unwrap(), "mine");
    assert_eq!(checked(&place), []);
}

/// cli: `etude new .` in a project works whatever the name of its directory is; a new directory needs a valid name.
#[test]
fn a_project_of_any_name_becomes_an_app() {
    for (directory, name) in
        [("my site.com", "my-site-com"), ("2024-notes", "app-2024-notes"), ("日本", "app"), ("_x", "x"), ("a-b", "a-b")]
    {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join(directory);
        assert_eq!(app(&place).is_err(), directory != name, "{directory}");
        fs::remove_dir_all(&place).ok();
        fs::create_dir(&place).unwrap();
        app(&place).unwrap_or_else(|problem| panic!("{problem:?}"));
        assert_eq!(checked(&place), [], "{directory}");
        let skill = fs::read_to_string(place.join("SKILL.md")).unwrap();
        assert!(skill.contains(&format!("# {name}\n")), "{skill}");
    }
}

/// cli: the next steps work in the directory in which the command ran.
#[test]
fn the_next_steps_name_the_app_that_was_named() {
    let dir = tempfile::tempdir().unwrap();
    let made = skill(Some(dir.path()), "s", Some(Path::new("a"))).unwrap_or_else(|problem| panic!("{problem:?}"));
    assert_eq!(made.next[1], "etude skill show -C a s");
    let made = package(dir.path(), "p", Some(Path::new("a"))).unwrap_or_else(|problem| panic!("{problem:?}"));
    assert_eq!(made.next[2], "etude apps run -C a p count -- one two three");
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
    made.file(&place.join("README.md"), &templates::APP[1].fill("app")).unwrap();
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

/// Every pragma below `dir`, as the path of the file and that of the schema that it names.
fn pragmas(dir: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            if entry.path().is_dir() {
                dirs.push(entry.path());
            } else if entry.path().extension().is_some_and(|extension| extension == "yaml") {
                let text = fs::read_to_string(entry.path()).unwrap();
                let first = text.lines().next().unwrap();
                let schema = first.strip_prefix("# yaml-language-server: $schema=").expect("it begins with a pragma");
                found.push((entry.path(), dir.join(schema)));
            }
        }
    }
    found
}

/// cli: new files name an existing schema, and satisfy it.
#[test]
fn pragmas_name_schemas_that_are_there_and_hold() {
    use etude_core::schema::Schema as Compiled;
    use etude_spec::source::SourceFile;
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("demo");
    app(&place).unwrap_or_else(|problem| panic!("{problem:?}"));
    pipeline(&place, "second", None).unwrap_or_else(|problem| panic!("{problem:?}"));
    machine(&place, "triage", None).unwrap_or_else(|problem| panic!("{problem:?}"));
    let found = pragmas(&place);
    assert_eq!(found.len(), 7, "{found:?}");
    for (file, schema) in found {
        let schema = fs::read_to_string(&schema).unwrap_or_else(|error| panic!("{}: {error}", schema.display()));
        let schema =
            Compiled::lazy("editor", serde_json::from_str(&schema).unwrap(), std::collections::BTreeMap::new());
        let text = std::sync::Arc::new(SourceFile::new("x.yaml", fs::read_to_string(&file).unwrap()));
        let (node, _) = etude_spec::yaml::parse(&text);
        let value = serde_json::from_str(&node.unwrap().to_json().unwrap()).unwrap();
        let violations = schema.violations(&value);
        assert!(violations.is_empty(), "{}: {violations:?}", file.display());
        assert!(!schema.violations(&serde_json::json!({"nmae": "x"})).is_empty(), "the schema says nothing");
    }
}

/// cli: a new machine is valid, a new skill follows its specification to the letter, and a new package is conformant.
#[test]
fn new_machines_skills_and_packages_hold() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("demo");
    app(&place).unwrap_or_else(|problem| panic!("{problem:?}"));
    for name in ["triage", "null"] {
        machine(&place, name, None).unwrap_or_else(|problem| panic!("{problem:?}"));
    }
    let disk = Disk::open(&place).unwrap();
    let report =
        etude_spec::stage_machine::Machines::new(&disk, etude_spec::stage_machine::Rules::default()).check(&[]);
    assert_eq!(report.diagnostics, []);
    assert_eq!(checked(&place), []);
    skill(Some(&place), "word-count", None).unwrap_or_else(|problem| panic!("{problem:?}"));
    let skill = place.join(".agents/skills/word-count");
    let checked = etude_packages::skills::check(&skill, etude_spec::skill::Profile::Strict).unwrap();
    assert!(checked.is_valid && checked.diagnostics.is_empty(), "{:?}", checked.diagnostics);
    package(&place, "notes", None).unwrap_or_else(|problem| panic!("{problem:?}"));
    assert!(place.join("apps/notes/skills/notes-use/SKILL.md").is_file());
}

/// cli: an existing schema is not changed, and names of skills and packages follow their specifications.
#[test]
fn schemas_are_kept_and_slugs_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(".etude/schemas")).unwrap();
    fs::write(dir.path().join(".etude/schemas/pipeline.json"), "mine").unwrap();
    pipeline(dir.path(), "p", None).unwrap_or_else(|problem| panic!("{problem:?}"));
    assert_eq!(fs::read_to_string(dir.path().join(".etude/schemas/pipeline.json")).unwrap(), "mine");
    for name in ["", "A", "a_b", "a--b", "-a", "a-", "1a", "a/b", "a.b"] {
        assert!(skill(Some(dir.path()), name, None).is_err() && package(dir.path(), name, None).is_err(), "{name}");
    }
}

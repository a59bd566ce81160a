use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::skills::Invoker;
use crate::trust::Approvals;

const APP: &str = "---\nschema: agentapplications/v1\nslug: box\nname: Box\ndescription: A box\nversion: 0.1.0\nentry:\n  command: sh app/run\ncommands: [ping]\nskills: [usage]\n---\n# Box\n\n## CLI\n`sh app/run`\n";

/// A package in a directory of its own.
fn package() -> (TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let root = fs::canonicalize(dir.path()).expect("it is there").join("box");
    put(&root.join("APP.md"), APP);
    put(&root.join("app/run"), "echo '{}'\n");
    put(&root.join("skills/usage/SKILL.md"), "---\nname: usage\ndescription: How.\n---\nUse it.\n");
    (dir, root)
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn checked(root: &Path) -> Conformance {
    let package = Arc::new(Package::load(root, Source::Project, root));
    check(&package, &package.access(&Approvals::default()), &ProgramContext::default())
}

fn words(report: &Conformance) -> Vec<&'static str> {
    report.diagnostics.iter().filter_map(|fault| fault.name).collect()
}

/// C-1.6, AA-68: a directory without an APP.md fails C1 and reports it once.
#[test]
fn a_directory_without_an_app_file_fails_the_first_check() {
    for remove in ["APP.md", "."] {
        let (_dir, root) = package();
        match remove {
            "." => fs::remove_dir_all(&root).and_then(|()| fs::create_dir(&root)),
            file => fs::remove_file(root.join(file)),
        }
        .expect("removed");
        let report = checked(&root);
        assert!(!report.is_conformant);
        let outcomes: Vec<Outcome> = report.checks.iter().map(|check| check.outcome).collect();
        let kept = if remove == "." { Outcome::Fail } else { Outcome::Pass };
        assert_eq!(outcomes, [Outcome::Fail, kept, kept, Outcome::Fail, Outcome::Unverified]);
        let named = report.checks[0].diagnostics.iter().filter_map(|fault| fault.name).collect::<Vec<_>>();
        assert_eq!(named, ["AA_MISSING_APP_FILE"]);
        let expected: &[&str] = match remove {
            "." => &["AA_MISSING_APP_FILE", "AA_MISSING_APP_DIR", "AA_MISSING_SKILLS_DIR"],
            _ => &["AA_MISSING_APP_FILE", "AA_SKILL_UNLISTED"],
        };
        assert_eq!(words(&report), expected);
    }
}

/// C-1.11, C-1.7: packages in the user's root are the user's, even if the project is the home, that root or the package.
/// Packages elsewhere belong to the project.
#[test]
fn packages_of_the_user_are_known_by_their_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let home = fs::canonicalize(dir.path()).expect("it is there");
    let root = home.join(".agents/apps/box");
    for place in [&root, &home.join("work/apps/box")] {
        put(&place.join("APP.md"), APP);
    }
    let found = |project: &Path| {
        let catalog = Catalog::discover(&Places { project, home: Some(&home), paths: &[] });
        let package = catalog.find("box").expect("it is found");
        (package.source, package.access(&Approvals::default()).execution)
    };
    for project in [home.clone(), home.join(".agents/apps"), root] {
        assert_eq!(found(&project), (Source::User, true), "{}", project.display());
    }
    assert_eq!(found(&home.join("work")), (Source::Project, false));
}

/// C-2.4: a package skips an invalid skill as well, with a finding in its record and its activation.
#[test]
fn a_skill_that_cannot_be_read_is_skipped_with_a_finding() {
    for (text, word) in [
        ("Use it.\n", "SK_YAML"),
        ("---\nname: usage\n---\nUse it.\n", "SK_DESCRIPTION"),
        ("---\nname: [\n---\nUse it.\n", "SK_YAML"),
    ] {
        let (_dir, root) = package();
        put(&root.join("skills/usage/SKILL.md"), text);
        let package = Package::load(&root, Source::Path, &root);
        let named = |found: &[Diagnostic]| found.iter().filter(|fault| fault.name == Some(word)).count();
        assert!(package.is_compatible() && named(&package.diagnostics) == 1, "{text:?}: {:?}", package.diagnostics);
        let activated =
            activate(&package, &package.access(&Approvals::default()), Invoker::Agent, None).expect("active");
        assert!(activated.skills.is_empty() && named(&activated.diagnostics) == 1, "{:?}", activated.diagnostics);
        assert!(!activated.text().contains("SKILL.md"), "{}", activated.text());
        let report = checked(&root);
        assert!(!report.is_conformant && named(&report.diagnostics) == 1, "{:?}", report.diagnostics);
    }
}

/// C-3.6: an agent does not get a skill that opts out of models; a person who reads it does.
#[test]
fn a_skill_that_opts_out_of_models_is_for_people() {
    let (_dir, root) = package();
    let text = "---\nname: usage\ndescription: How.\ndisable-model-invocation: true\n---\nUse it.\n";
    put(&root.join("skills/usage/SKILL.md"), text);
    let package = Package::load(&root, Source::Path, &root);
    let given = |invoker| {
        let activated = activate(&package, &package.access(&Approvals::default()), invoker, None).expect("active");
        assert!(!activated.resources.contains(&"skills/usage/SKILL.md".to_owned()));
        activated.text().contains("Use it.")
    };
    assert!(given(Invoker::Reader) && !given(Invoker::Agent));
}

/// C-1.17, AA-36: state that a command has written does not change the text of a second activation.
#[test]
fn state_is_no_resource_of_an_activation() {
    let (_dir, root) = package();
    let text = || {
        let package = Package::load(&root, Source::Path, &root);
        activate(&package, &package.access(&Approvals::default()), Invoker::Agent, None).expect("active").text()
    };
    let first = text();
    assert!(first.contains("<file>app/run</file>"), "{first}");
    put(&root.join("app/state/spawned.log"), "x");
    assert_eq!(text(), first);
}

/// C-1.6: a report contains each finding once, whatever finds it.
#[test]
fn findings_are_reported_once() {
    let (_dir, root) = package();
    put(&root.join("APP.md"), &APP.replace("## CLI\n`sh app/run`", "Text."));
    put(&root.join("skills/usage/SKILL.md"), "---\nname: other\ndescription: How.\n---\nUse it.\n");
    let report = checked(&root);
    assert_eq!(words(&report), ["AA_SKILL_NAME_DIR", "AA_BODY_SECTION_MISSING"]);
    assert_eq!(report.checks[3].diagnostics, report.diagnostics[1..], "C4 has the finding about its section");
    fs::write(root.join("APP.md"), b"---\nname: \xff\n---\n").expect("a file");
    let report = checked(&root);
    let mut texts: Vec<&str> = report.diagnostics.iter().map(|fault| fault.message.as_str()).collect();
    texts.sort_unstable();
    let all = texts.len();
    texts.dedup();
    assert_eq!(texts.len(), all, "{texts:?}");
}

/// C-1.10, C-1.19: a link that leads out of `skills/` is an error, and its target is never opened.
#[test]
fn a_skill_that_a_link_leads_out_to_is_refused() {
    use std::os::unix::fs::symlink;
    let usage = "skills/usage";
    for (at, to) in
        [(usage, "../../elsewhere"), ("skills/usage/SKILL.md", "../../../elsewhere/SKILL.md"), (usage, "../app")]
    {
        let (dir, root) = package();
        put(&dir.path().join("elsewhere/SKILL.md"), "---\nname: usage\ndescription: Secret.\n---\nsecret\n");
        let place = root.join(at);
        if place.is_dir() { fs::remove_dir_all(&place) } else { fs::remove_file(&place) }.expect("removed");
        symlink(to, &place).expect("a link");
        let report = checked(&root);
        assert!(!report.is_conformant, "{at} -> {to}");
        assert_eq!(words(&report)[0], "AA_SKILL_PATH", "{at} -> {to}: {:?}", report.diagnostics);
        let package = Package::load(&root, Source::Path, &root);
        assert!(!package.is_compatible());
        assert!(
            activate(&package, &package.access(&Approvals::default()), Invoker::Reader, None)
                .is_ok_and(|activated| activated.skills.is_empty())
        );
    }
    let (_dir, root) = package();
    fs::rename(root.join(usage), root.join("skills/real")).expect("moved");
    symlink("real", root.join(usage)).expect("a link");
    assert!(!words(&checked(&root)).contains(&"AA_SKILL_PATH"), "a link within `skills/` is followed");
}

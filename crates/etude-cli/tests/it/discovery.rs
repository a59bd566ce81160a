//! Discovery of the app's directory and its pipelines.

use std::fs;

use serde_json::json;

use crate::test::Test;

fn one(test: Test) -> Test {
    test.pipeline("p", |p| p.sh("a", "printf '{\"output\":\"%s\"}' \"$(pwd)\""))
}

/// the nearest directory with `pipelines/` or `SKILL.md` at or above the current one is the app.
#[test]
fn the_nearest_app_above_is_taken() {
    let test = one(Test::new()).cwd("app/deep/er");
    test.run_json("p").output("[APP]/pipelines/p");
    let test = test.cwd("app/pipelines/p");
    test.run_json("p").output("[APP]/pipelines/p");
    // `SKILL.md` makes the inner directory an app of its own, which has no pipelines.
    test.put("app/inner/SKILL.md", "---\nname: inner\ndescription: x\n---\n");
    test.cwd("app/inner").run_json("p").exit(2).failed_with(&["- -: input_invalid"]);
}

/// cli: a directory that cannot be read is not reported as one without an app.
#[test]
fn what_cannot_be_read_is_named() {
    let test = Test::new();
    let file = test.path("elsewhere/SKILL.md");
    let test = test.cwd("elsewhere");
    // Tests may run as root, which may read every file; a link to itself is refused to all.
    std::os::unix::fs::symlink(&file, &file).expect("a link");
    let why = "SKILL.md` cannot be read: Too many levels of symbolic links";
    test.run(&["list", "-C", "../elsewhere"]).exit(4).stderr_has(why);
    test.run(&["list"]).exit(2).stderr_has("no app at or above").stderr_has(why);
}

/// `--app` and `-C` name the app from anywhere; a directory that is not an app is wrong usage.
#[test]
fn an_app_can_be_named_from_anywhere() {
    let test = one(Test::new()).cwd("elsewhere");
    let app = test.path("app").display().to_string();
    for flag in ["--app", "-C"] {
        test.run(&["run", "-p", "p", flag, &app, "--format", "json"]).output("[APP]/pipelines/p");
    }
    test.run(&["run", "-p", "p", "-C", "../app", "--format", "json"]).output("[APP]/pipelines/p");
    test.run(&["list"]).exit(2).stdout("").stderr(
        "error[R0301]: no app at or above `[ROOT]/elsewhere`\n\
         hint: an app has `SKILL.md`, `pipelines/` or `machines/`; make one with `etude new DIR`, or name it with `--app DIR`",
    );
    test.run(&["list", "-C", "../home"]).exit(2).stderr_has("`../home` is not an app");
    test.run(&["list", "-C", "../nowhere"]).exit(2).stderr_has("there is no directory `../nowhere`");
}

/// names that begin with `_` are not listed; the constructor and the destructor are picked up, others ignored.
#[test]
fn names_with_an_underscore_are_not_pipelines_of_their_own() {
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1"))
        .pipeline("_constructor", |p| p.note("c", "1"))
        .pipeline("_destructor", |p| p.note("d", "1"))
        .pipeline("_draft", |p| p.note("x", "1"));
    test.run_json("p").output(1);
    assert_eq!(test.ledger(), ["c", "a", "d"]);
    test.run(&["list", "--format", "json"]).exit(0).stdout_json(json!({
        "pipelines": [{
            "name": "p", "description": "The pipeline p.", "triggers": [],
            "input": {"type": "object", "properties": {}, "required": [], "additionalProperties": false}, "valid": true,
        }],
        "machines": [], "skills": [], "applications": [],
    }));
}

/// a bad pipeline hides no good one; it is listed as such, and run by name it shows its faults.
#[test]
fn a_bad_pipeline_hides_no_good_one() {
    let test = Test::new().pipeline("good", |p| p.note("a", "1")).yaml("bad", "name: bad\nsteps: [");
    test.run_json("good").output(1);
    test.run(&["list"]).exit(0).stdout("bad     (has errors: etude check)\ngood  The pipeline good.");
    test.run(&["run", "-p", "bad"]).exit(3).stdout("").stderr_has("pipelines/bad/pipeline.yaml");
    test.run_json("bad").exit(3).failed_with(&["- -: definition_invalid"]);
    assert_eq!(test.run(&["check", "good"]).exit(0).code(), 0);
}

/// a directory without `pipeline.yaml` is a warning, not a pipeline.
#[test]
fn a_directory_without_a_pipeline_is_a_warning() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1")).file("pipelines/empty/readme.md", "");
    let ran = test.run(&["check", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/diagnostics/0/severity"), "warning");
    assert_eq!(ran.at("/diagnostics/0/file"), "pipelines/empty");
    assert_eq!(ran.at("/diagnostics/1"), json!(null));
    test.run(&["check"]).exit(0).stderr_has("1 pipeline is fine; 1 warning");
    test.run(&["check", "--quiet"]).exit(0).stderr("");
    test.run_json("empty").exit(2).failed_with(&["- -: input_invalid"]);
}

/// cli: an unknown pipeline is wrong usage; a near name is proposed, else all are listed.
#[test]
fn an_unknown_pipeline_is_wrong_usage_with_a_hint() {
    let test = Test::new().pipeline("code-review", |p| p.note("a", "1")).pipeline("deploy", |p| p.note("a", "1"));
    test.run(&["run", "-p", "code-reveiw"])
        .exit(2)
        .stdout("")
        .stderr("error[R0301]: there is no pipeline `code-reveiw`\nhint: did you mean `code-review`?");
    test.run(&["run", "-p", "zzz"])
        .exit(2)
        .stderr("error[R0301]: there is no pipeline `zzz`\nhint: pipelines of this app: code-review, deploy");
    test.run_json("zzz").exit(2).failed_with(&["- -: input_invalid"]).has("/run_id", json!(null));
}

/// a thousand pipelines are found and listed in order.
#[test]
fn a_thousand_pipelines_are_found() {
    let mut test = Test::new();
    for n in 0..1_000 {
        let name = format!("p{n:04}");
        test = test.yaml(
            &name,
            &format!("name: {name}\ndescription: x\nsteps: [{{name: a, type: code, command: \"true\"}}]\n"),
        );
    }
    let ran = test.run(&["list"]).exit(0);
    assert_eq!(ran.out().lines().count(), 1_000);
    assert!(ran.out().starts_with("p0000  x\np0001  x\n"));
    test.run(&["check"]).exit(0).stderr("1000 pipelines are fine");
}

/// a directory of definitions that cannot be listed is reported by every command that needs it, and nothing runs.
#[test]
fn an_unreadable_directory_of_pipelines_is_reported() {
    let skill = "---\nname: app\ndescription: d\n---\nx\n";
    let bare = || {
        let test = Test::new();
        fs::remove_dir(test.path("app/pipelines")).expect("removed");
        test.file("pipelines", "not a directory")
    };
    let test = bare().file("SKILL.md", skill);
    let why = "error[P0101]: `pipelines` cannot be read: it is not a directory";
    for words in [
        &["list"][..],
        &["list", "--format", "json"],
        &["run", "-p", "p"],
        &["run", "tidy up"],
        &["run"],
        &["route", "tidy up"],
        &["check"],
        &["check", "p"],
        &["graph", "p"],
    ] {
        test.run(words).exit(3).stderr_has(why).stderr_has("hint: make it a directory");
    }
    let other = bare().file("skill.md", skill);
    other.run(&["list", "-C", "."]).exit(2).stderr_has("hint: `pipelines` in `.` is not a directory");
}

/// the message for a directory that is almost an app names the entry with the wrong name.
#[test]
fn a_near_miss_of_an_app_is_named() {
    let test = Test::new();
    fs::remove_dir(test.path("app/pipelines")).expect("removed");
    let test = test.file("skill.md", "---\nname: app\ndescription: d\n---\nx\n");
    test.run(&["list", "-C", "."]).exit(2).stderr_has("hint: `skill.md` in `.` must be named `SKILL.md`");
    test.run(&["run", "x"]).exit(2).stderr_has("must be named `SKILL.md`");
}

/// C-2.6: a skill whose file is in lower case is reported by a check, and where it is asked for.
#[test]
fn a_skill_in_lower_case_is_reported() {
    let skill = "---\nname: tidy\ndescription: d\n---\nx\n";
    let test = one(Test::new()).file(".agents/skills/tidy/skill.md", skill);
    test.run(&["check"]).exit(0).stderr_has("warning[P1207]").stderr_has("rename `skill.md` to `SKILL.md`");
    test.run(&["skill", "show", "tidy"]).exit(2).stderr_has("warning[P1207]");
}

/// C-2.6: `skill show` of a skill with errors reports them with their places; a skill with another name is unknown.
#[test]
fn a_skill_with_errors_is_shown_as_broken() {
    let skill = "---\nname: tidy\ndescription: [d\n---\nx\n";
    let test = one(Test::new()).file(".agents/skills/tidy/SKILL.md", skill);
    test.run(&["skill", "show", "tidy"]).exit(3).stderr_has("error[P").stderr_has("tidy/SKILL.md:");
    test.run(&["skill", "show", "tidy", "--format", "json"]).exit(3).has("/errors/0/kind", "definition_invalid");
    test.run(&["skill", "show", "other"]).exit(2).stderr_has("there is no skill `other`");
}

/// a configuration that is not UTF-8 is a definition error with its place.
#[test]
fn a_configuration_that_is_not_utf8_has_a_place() {
    let test = one(Test::new());
    std::fs::write(test.path("app/etude.yaml"), b"# caf\xe9\n").expect("written");
    test.run(&["check"]).exit(3).stderr_has("error[P0103]").stderr_has("etude.yaml:1:6");
}

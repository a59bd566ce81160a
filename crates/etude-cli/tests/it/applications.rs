//! Agent Applications: the catalog, and commands that run (C-1; the cases AA-* of part 6).

use serde_json::{Value, json};

use crate::echo_box::{self, Judged, PROJECT, USER, run, started, with, words};
use crate::test::{Test, wait_until};

fn listed(test: &Test) -> Value {
    test.run(&["apps", "list", "--format", "json"]).exit(0).doc()
}

fn record(test: &Test) -> Value {
    let document = listed(test);
    let all = document["applications"].as_array().expect("a list").clone();
    assert_eq!(all.len(), 1, "{document}");
    all[0].clone()
}

/// C-1.9, AA-01, AA-02: a record comes from frontmatter alone; nothing is started and `app/` is not opened.
#[test]
fn the_catalog_reads_frontmatter_and_starts_nothing() {
    let test = with(&[("# Echo Box\n", &format!("# Echo Box\n{}", "x".repeat(5_000_000)))]);
    let pipe = test.path(USER).join("echo-box/app/pipe");
    assert!(std::process::Command::new("mkfifo").arg(pipe).status().expect("mkfifo").success());
    let record = record(&test);
    assert_eq!(record["diagnostics"], json!([]));
    let expected = json!({"kind": "app", "schema": "agentapplications/v1", "slug": "echo-box", "slugDerived": false,
        "name": "Echo Box", "version": "0.1.0", "trust": "approved", "schedulingSupported": false, "compatible": true});
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&record[key], value, "{key}");
    }
    assert_eq!(record["source"]["type"], "user");
    assert!(started(&test).is_empty());
}

/// C-1.19: an error leaves a record with the reason; neither show nor run works.
#[test]
fn packages_with_errors_are_listed_and_not_run() {
    let cases: [(&str, &str, &str, &str); 9] = [
        ("name: Echo Box\n", "", "AA_MISSING_FIELD", "name"),
        ("entry:\n  command: python3 app/box.py\n", "entry: python3 app/box.py\n", "AA_BAD_TYPE", "entry"),
        ("entry:\n  command: python3 app/box.py\n", "", "AA_MISSING_FIELD", "entry.command"),
        ("[ping, args", "[{name: ping}, args", "AA_BAD_TYPE", "commands"),
        ("skills: [echo-box-usage]\n", "", "AA_MISSING_FIELD", "skills"),
        ("[echo-box-usage]", "[../../x]", "AA_SKILL_PATH", "skills"),
        ("kind: app", "kind: skill", "AA_KIND_MISMATCH", "kind"),
        ("applications/v1", "applications/v2", "AA_SCHEMA_UNSUPPORTED", "schema"),
        ("---\nschema", "--\nschema", "AA_NO_FRONTMATTER", ""),
    ];
    for (old, new, word, path) in cases {
        let test = with(&[(old, new)]);
        let record = record(&test);
        assert_eq!((&record["compatible"], &record["slug"]), (&json!(false), &json!("echo-box")), "{word}");
        let is_it = |d: &Value| d["name"] == word && (path.is_empty() || d["path"] == path);
        assert!(record["diagnostics"].as_array().is_some_and(|all| all.iter().any(is_it)), "{word}: {record}");
        test.run(&["apps", "show", "echo-box", "--format", "json"]).exit(3);
        run(&test, &[], &["ping"]).is("refused", 3, &[word]);
        assert!(started(&test).is_empty());
    }
}

/// C-1.7, AA-27 to AA-29: one package a root, the project before the user, and names in the wrong case are reported.
#[test]
fn packages_are_found_once_and_the_nearer_wins() {
    let test = with(&[]);
    test.put(&format!("{USER}/echo-box/app/vendor/APP.md"), "---\nname: x\n---\n");
    test.put(&format!("{USER}/lower/app.md"), "---\nname: x\n---\n");
    assert!(words(&listed(&test)).contains(&"AA_FILE_CASE".to_owned()));
    echo_box::put(&test, PROJECT, &[]);
    let record = record(&test);
    assert_eq!(record["source"]["type"], "project");
    assert!(words(&record).contains(&"AA_SLUG_COLLISION".to_owned()));
    // The refusal names the way to the hidden package, and that way works.
    let user = test.path(USER).join("echo-box").display().to_string();
    let refused = run(&test, &[], &["ping"]).is("refused", 4, &["AA_TRUST_REQUIRED"]);
    assert!(refused.out().contains(&format!("--apps-path [ROOT]/{USER}/echo-box")), "{}", refused.out());
    run(&test, &["--apps-path", &user], &["ping"])
        .is("succeeded", 0, &[])
        .has("/output/cwd", format!("[ROOT]/{USER}/echo-box"));
}

/// C-1.13, AA-38 to AA-52: the outcome matrix.
#[test]
fn every_end_of_a_command_has_its_outcome() {
    let test = with(&[]).cwd("elsewhere");
    let one = |command: &str, status: &str, exit: i32, expected: &[&str]| {
        run(&test, &[], &[command]).is(status, exit, expected)
    };
    one("ping", "succeeded", 0, &[]).has("/output/cwd", format!("[ROOT]/{USER}/echo-box")).has("/exitCode", 0);
    one("fail", "failed", 1, &[]).has("/exitCode", 3).has("/output/error/code", "E_FAIL").has("/stderr", "trace\n");
    one("crash", "failed", 1, &["AA_ERR_UNSTRUCTURED"]).has("/output", Value::Null);
    one("text", "contract_error", 1, &["AA_OUT_NOT_JSON"]).has("/stdoutHead", "hello\n");
    one("two", "contract_error", 1, &["AA_OUT_NOT_JSON"]).has("/output", Value::Null);
    one("noisy", "succeeded", 0, &[]).has("/stderr", "careful\n").has("/output/command", "noisy");
    one("mismatch", "succeeded", 0, &["AA_OK_MISMATCH"]);
    one("liar", "failed", 1, &[]).has("/output/ok", true).has("/exitCode", 5);
    one("die", "failed", 1, &["AA_SIGNAL"]).has("/exitCode", Value::Null).has("/signal", "SIGKILL");
    one("big", "failed", 1, &["AA_OUT_TOO_LARGE"]).has("/output", Value::Null);
    one("stdin", "succeeded", 0, &[]).has("/output/bytes", 0);
    run(&test, &["--expect", "text"], &["text"]).is("succeeded", 0, &[]).has("/output", "hello");
    run(&test, &["--max-output", "4"], &["ping"]).is("failed", 1, &["AA_OUT_TOO_LARGE"]);
    run(&with(&[("python3 app", "python4 app")]), &[], &["ping"]).is("failed", 1, &["AA_SPAWN"]);
}

/// SECURITY.md: the state directory and every file in it are private to the user, whichever file is written first.
#[test]
fn what_is_kept_for_the_user_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let shared = |root: &std::path::Path| {
        let (mut open, mut found) = (vec![root.to_owned()], Vec::new());
        while let Some(path) = open.pop() {
            if mode(&path) & 0o077 != 0 {
                found.push(format!("{}: {:o}", path.display(), mode(&path)));
            }
            if path.is_dir() {
                open.extend(std::fs::read_dir(&path).expect("a directory").flatten().map(|entry| entry.path()));
            }
        }
        found
    };
    let test = with(&[]);
    crate::echo_box::put(&test, crate::echo_box::PROJECT, &[]);
    let kept = test.path("home").join(".local/state/etude");
    test.run(&["trust", "apps"]).exit(0);
    assert_eq!(shared(&kept), Vec::<String>::new(), "after `trust`");
    run(&test, &[], &["wipe"]).exit(5);
    test.run(&["apps", "check", "apps/echo-box"]).exit(0);
    assert_eq!(shared(&kept), Vec::<String>::new(), "after a confirmation and a check");
    // Permissions of files from an earlier version are tightened, and their contents stay.
    for path in [kept.clone(), kept.join("trust.json")] {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("opened to all");
    }
    test.run(&["trust", "apps"]).exit(0);
    assert_eq!(shared(&kept), Vec::<String>::new(), "after an earlier version");
}

/// C-1.13, cli: a command reads the bytes of `--stdin` as they are, from a file and from stdin.
#[test]
fn a_command_reads_any_bytes() {
    let bytes = b"\xff\x00\xfe a\r\n\xc3";
    let hex = "ff 00 fe 20 61 0d 0a c3";
    let test = with(&[]);
    std::fs::write(test.path("home/raw.bin"), bytes).expect("a file");
    let file = test.path("home/raw.bin").display().to_string();
    run(&test, &["--stdin", &file], &["stdin"]).is("succeeded", 0, &[]).has("/output/bytes", 8).has("/output/hex", hex);
    let test = with(&[]).stdin_bytes(bytes);
    run(&test, &["--stdin", "-"], &["stdin"]).is("succeeded", 0, &[]).has("/output/hex", hex);
}

/// C-1.13, AA-45: declared commands only, the longest path; all other words are arguments, whatever they look like.
#[test]
fn arguments_are_never_shell() {
    let test = with(&[]);
    run(&test, &[], &["box", "list"]).is("succeeded", 0, &[]).has("/command", "box list");
    run(&test, &[], &["box"]).is("refused", 2, &["AA_CMD_UNDECLARED"]);
    run(&test, &[], &["schedule", "tomorrow"]).is("refused", 2, &["AA_CMD_UNDECLARED", "AA_SCHED_UNSUPPORTED"]);
    let odd = ["a b", "$HOME", ";touch x", "--flag", "`id`"];
    let argv = ["python3", "app/box.py", "args", "word"].iter().chain(&odd).copied().collect::<Vec<_>>();
    let ran = run(&test, &[], &[&["args", "word", "--"], &odd[..]].concat()).is("succeeded", 0, &[]);
    assert_eq!(ran.at("/argv"), json!(argv));
    assert_eq!(ran.at("/output/args"), json!(argv[3..]));
    // An entry with shell syntax gets its words as positional arguments.
    let test = with(&[("command: python3 app/box.py", "command: X=1 python3 app/box.py")]);
    let ran = run(&test, &[], &[&["args", "--"], &odd[..]].concat()).is("succeeded", 0, &[]);
    assert_eq!(ran.at("/output/args"), json!(odd));
}

/// C-1.13, AA-55: few variables are inherited; more only by name, and never a key.
#[test]
fn secrets_are_not_inherited() {
    let test = with(&[]).env("SECRET_X", "1").env("ANTHROPIC_API_KEY", "sk-x");
    let ran = run(&test, &[], &["env"]).is("succeeded", 0, &[]);
    assert_eq!((ran.at("/output/env/SECRET_X"), ran.at("/output/env/ANTHROPIC_API_KEY")), (Value::Null, Value::Null));
    assert_eq!(ran.at("/output/env/AGENT_APP_SLUG"), "echo-box");
    run(&test, &["--env", "SECRET_X"], &["env"]).is("succeeded", 0, &[]).has("/output/env/SECRET_X", "1");
    run(&test, &["--env", "ANTHROPIC_API_KEY"], &["env"]).exit(2);
}

/// C-1.13: time is limited, and the whole process group ends with it.
#[test]
fn a_command_that_takes_too_long_is_ended_with_its_children() {
    let test = with(&[]);
    run(&test, &["--timeout", "500ms"], &["slow"]).is("timed_out", 1, &["AA_TIMEOUT"]).has("/exitCode", Value::Null);
    let pids = test.read(&format!("{USER}/echo-box/app/state/slow.pids"));
    for pid in pids.split_whitespace() {
        wait_until("the end of the group", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}

/// C-1.15, AA-53: state belongs to the package; its ids are stable from run to run.
#[test]
fn state_is_kept_by_the_package() {
    let test = with(&[]);
    run(&test, &[], &["put", "k", "v"]).is("succeeded", 0, &[]).has("/output/item/id", "bx_0001");
    run(&test, &[], &["get", "k"]).is("succeeded", 0, &[]).has("/output/item/id", "bx_0001");
    run(&test, &[], &["get", "x"]).is("failed", 1, &[]).has("/exitCode", 4).has("/output/error/code", "E_NOT_FOUND");
}

/// C-1.16, AA-66, AA-67: schemas warn; strict ones fail; other files are ignored.
#[test]
fn schemas_are_a_second_look() {
    let test = with(&[]);
    test.put(&format!("{USER}/echo-box/schemas/output/ping.schema.json"), r#"{"type":"object","required":["pong"]}"#);
    test.put(&format!("{USER}/echo-box/schemas/output/box.list.schema.json"), "\u{0}garbage");
    run(&test, &[], &["ping"]).is("succeeded", 0, &["AA_SCHEMA_MISMATCH"]);
    run(&test, &["--strict-schemas"], &["ping"]).is("failed", 1, &["AA_SCHEMA_MISMATCH"]);
    assert!(words(&run(&test, &["--strict-schemas"], &["box", "list"]).is("succeeded", 0, &[]).doc()).is_empty());
}

/// C-1.10, AA-15, AA-34, AA-35: the contract byte for byte, the wanted skills, other files by name only.
#[test]
fn an_activation_is_the_contract_and_the_skills_that_are_wanted() {
    let test = with(&[("[echo-box-usage]", "[echo-box-usage, other]")]);
    test.put(&format!("{USER}/echo-box/skills/other/SKILL.md"), "---\nname: else\ndescription: d\n---\nOther.\n");
    let ran = test.run(&["apps", "show", "echo-box", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/skills/0/body"), "Put a value before you get it.\n");
    assert_eq!(ran.at("/skills/1/shortname"), "other");
    assert!(words(&ran.doc()).contains(&"AA_SKILL_NAME_DIR".to_owned()));
    assert_eq!(ran.at("/resources"), json!(["app/box.py"]));
    assert!(
        ran.at("/contract")
            .as_str()
            .is_some_and(|text| text.starts_with("# Echo Box\n") && text.ends_with("is used.\n"))
    );
    assert!(!ran.out().contains("import json"));
    let ran = test.run(&["apps", "show", "echo-box", "--skill", "other", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/skills/0/shortname"), "other");
    assert_eq!(ran.at("/skills/1"), Value::Null);
    test.run(&["apps", "show", "echo-box", "--skill", "ghost"]).exit(2).stderr_has("echo-box-usage");
}

/// C-1.6, AA-12, AA-68: five points; the last one is tried in a copy.
#[test]
fn conformance_is_five_points() {
    let status = |ran: &crate::ran::Ran| (0..5).map(|at| ran.at(&format!("/checks/{at}/status"))).collect::<Vec<_>>();
    let test = with(&[]);
    let ran = test.run(&["apps", "check", "--format", "json"]).exit(0).has("/conformant", true);
    assert_eq!(status(&ran), ["pass"; 5]);
    assert!(started(&test).is_empty(), "the trial runs in a copy");
    let ran = with(&[("[ping, args", "[text, ping, args")]).run(&["apps", "check", "--format", "json"]).exit(3);
    assert_eq!(status(&ran), ["pass", "pass", "pass", "pass", "fail"]);
    std::fs::remove_dir_all(test.path(USER).join("echo-box/skills")).expect("it was there");
    let ran = test.run(&["apps", "check", "--format", "json"]).exit(3);
    assert_eq!(status(&ran), ["pass", "pass", "fail", "pass", "unverified"]);
    assert!(words(&ran.doc()).contains(&"AA_MISSING_SKILLS_DIR".to_owned()));
    // A directory that is not a package fails the first point, wherever it is named.
    let test = Test::new().cwd("elsewhere");
    for place in [&["apps", "check", "--format", "json"][..], &["apps", "check", ".", "--format", "json"]] {
        let ran = test.run(place).exit(3).has("/conformant", false);
        assert_eq!(status(&ran), ["fail", "fail", "fail", "fail", "unverified"]);
    }
    let human = test.run(&["apps", "check"]).exit(3);
    assert_eq!(human.err().matches("the directory has no file `APP.md`").count(), 1, "{}", human.err());
}

/// cli: `etude list` shows skills and applications, too.
#[test]
fn the_list_of_an_app_has_its_skills_and_applications() {
    let test = with(&[]);
    test.put("home/.agents/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Tidies up.\n---\n");
    let ran = test.run(&["list", "--format", "json"]).exit(0);
    assert_eq!((ran.at("/applications/0/slug"), ran.at("/skills/0/name")), (json!("echo-box"), json!("tidy")));
    test.run(&["list"]).exit(0).stdout(
        "\nskills:\ntidy  Tidies up.\n\napplications:\necho-box  Small key-value box used to exercise a runtime\n",
    );
    let faulty = with(&[("kind: app", "kind: skill")]).run(&["list"]).exit(0);
    assert!(faulty.out().contains(" a runtime  (has errors: etude apps check)\n"), "{}", faulty.out());
}

/// C-1.15: a test starts with the delivered state of packages, whatever the user has done before; its own changes are
/// discarded.
#[test]
fn a_test_sees_no_state_of_packages() {
    let test = Test::new().pipeline("p", |p| {
        p.sh("a", "s=$ETUDE_APP_DIR/apps/echo-box/app/state; n=$(cat $s/n 2>/dev/null || echo 0); mkdir -p $s; echo 7 > $s/n; echo \"{\\\"output\\\": $n}\"")
    });
    crate::echo_box::put(&test, crate::echo_box::PROJECT, &[]);
    let test = test.file("tests/empty.yaml", "pipeline: p\nexpect: {output: {\"\": 0}}\n");
    test.run_json("p").exit(0).output(0);
    test.run_json("p").exit(0).output(7);
    test.run(&["test"]).exit(0);
    test.run(&["test"]).exit(0);
    assert_eq!(test.read("app/apps/echo-box/app/state/n"), "7\n");
}

/// C-1.3, C-1.9, AA-13, AA-21, AA-26: a missing skill leaves the contract usable; line breaks and a byte order mark at the
/// beginning are ignored; an app of pipelines is not a package.
#[test]
fn packages_are_read_as_far_as_they_go() {
    let test = with(&[("[echo-box-usage]", "[ghost]")]);
    let ran = test.run(&["apps", "show", "echo-box", "--format", "json"]).exit(0);
    assert!(words(&ran.doc()).contains(&"AA_SKILL_UNRESOLVED".to_owned()), "{}", ran.out());
    assert!(ran.at("/contract").as_str().is_some_and(|text| text.starts_with("# Echo Box")));
    for change in [|text: &str| text.replace('\n', "\r\n"), |text: &str| format!("\u{feff}{text}")] {
        let test = with(&[]);
        let file = format!("{USER}/echo-box/APP.md");
        test.put(&file, &change(&test.read(&file)));
        assert_eq!(record(&test)["diagnostics"], json!([]));
        run(&test, &[], &["ping"]).is("succeeded", 0, &[]);
    }
    let test = Test::new().pipeline("p", |p| p.note("a", "1")).skill("", "Be brief.\n");
    assert_eq!(listed(&test)["applications"], json!([]));
}

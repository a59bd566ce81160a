//! Agent Skills on the command line (C-2, C-3; the cases SK-* of part 6 that only the whole program can show).

use serde_json::{Value, json};

use crate::echo_box::words;
use crate::test::Test;

fn skill(test: &Test, place: &str, fields: &str, body: &str) {
    let name = place.rsplit('/').next().unwrap_or_default();
    test.put(
        &format!("{place}/SKILL.md"),
        &format!("---\nname: {name}\ndescription: About {name}.\n{fields}---\n{body}"),
    );
}

/// cli, C-2.6: name, place and scope of each skill, with those that it hides.
#[test]
fn a_list_says_where_skills_are_and_what_they_hide() {
    let (test, user) = (Test::new(), "home/.agents/skills/tidy");
    skill(&test, user, "", "x");
    skill(&test, "app/.etude/skills/tidy", "", "x");
    let ran = test.run(&["skill", "list", "--format", "json"]).exit(0);
    assert_eq!(
        ran.at("/skills/0"),
        json!({"name": "tidy", "description": "About tidy.", "location": "[APP]/.etude/skills/tidy/SKILL.md",
               "scope": "project", "shadows": [format!("[ROOT]/{user}/SKILL.md")]})
    );
    assert_eq!(words(&ran.doc()), ["SK_SHADOWED"]);
    let ran = test.run(&["skill", "list", "--compat", "claude-code", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/skills/0/scope"), "user");
}

/// the list names the app's own skills, which only its steps use, beside those that agents find.
#[test]
fn a_list_names_the_skills_of_steps() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    skill(&test, "app/skills/notes", "", "x");
    test.put("app/skills/draft.md", "no skill");
    let note = "note: only steps and `etude skill run` have the skills in skills/: notes";
    test.run(&["skill", "list"]).exit(0).stdout("").stderr_has(note);
    test.run(&["skill", "list", "--format", "json"]).exit(0).has("/skills", json!([]));
}

/// cli, SK-23, SK-25: agents see trusted skills and none that only people may run.
#[test]
fn the_catalog_is_what_agents_may_know() {
    let test = Test::new();
    skill(&test, "home/.agents/skills/own", "", "x");
    skill(&test, "home/.agents/skills/mine", "disable-model-invocation: true\n", "x");
    skill(&test, "app/.agents/skills/found", "", "x");
    let names = || test.run(&["skill", "catalog", "--format", "json"]).exit(0).at("/skills").as_array().map(Vec::len);
    assert_eq!(names(), Some(1));
    test.run(&["trust", ".", "--activation"]).exit(0);
    assert_eq!(names(), Some(2));
    test.run(&["untrust", "../home/.agents/skills/own", "--block"]).exit(0);
    assert_eq!(names(), Some(1));
    let xml = test.run(&["skill", "catalog"]).exit(0);
    assert!(xml.out().starts_with("<available_skills>\n  <skill>\n    <name>found</name>"), "{}", xml.out());
}

/// C-2.9: strict and lenient differ in what they call an error; exit 3 means invalid.
#[test]
fn checks_have_two_profiles() {
    let test = Test::new();
    skill(&test, "app/tidy", "version: 1\n", "x");
    let strict = test.run(&["skill", "check", "tidy", "--strict", "--format", "json"]).exit(3).has("/valid", false);
    assert_eq!(words(&strict.doc()), ["SK_UNKNOWN_FIELD"]);
    let ran = test.run(&["skill", "check", "tidy/SKILL.md", "--format", "json"]).exit(0).has("/valid", true);
    assert_eq!(ran.at("/properties/extra/version"), "1");
    test.run(&["skill", "check", "nowhere"]).exit(2);
    let human = test.run(&["skill", "check", "tidy", "--strict"]).exit(3);
    assert!(human.err().contains("`version` is not a field of a skill"), "{}", human.err());
}

/// C-3.3, C-3.4, SK-27, SK-29, SK-30, SK-35: by default a body is text; in Claude Code's mode it is rendered, and commands run
/// only in a skill that was approved for that.
#[test]
fn commands_in_bodies_run_only_after_an_approval() {
    let test = Test::new();
    skill(&test, "home/.agents/skills/tidy", "", "$0: !`echo ran; touch \"$LEDGER\"` !`exit 1 || echo $0`\n");
    let body =
        |args: &[&str]| test.run(&[&["skill", "show", "tidy", "--format", "json"], args].concat()).exit(0).at("/body");
    assert_eq!(body(&[]), "$0: !`echo ran; touch \"$LEDGER\"` !`exit 1 || echo $0`\n");
    let claude = ["--compat", "claude-code", "--args", "'a b' c"];
    let disabled = "[shell command execution disabled by policy]";
    assert_eq!(body(&claude), format!("a b: {disabled} {disabled}\n"));
    assert!(test.ledger().is_empty() && !test.path("ledger").exists());
    test.run(&["trust", "../home/.agents/skills/tidy"]).exit(0);
    // The second command fails, so nothing of the body is returned.
    let given_up = test.run(&[&["skill", "show", "tidy", "--format", "json"], &claude[..]].concat()).exit(1);
    assert_eq!(given_up.at("/body"), Value::Null);
    assert!(test.path("ledger").exists());
    skill(&test, "home/.agents/skills/tidy", "", "$0: !`echo $ARGUMENTS[1]`\n");
    assert_eq!(body(&claude), format!("a b: {disabled}\n"), "a change ends the approval");
    test.run(&["trust", "../home/.agents/skills/tidy"]).exit(0);
    assert_eq!(body(&claude), "a b: c\n");
    // The output of a command is text, whatever it looks like.
    test.put("home/.agents/skills/tidy/said", "!`touch \"$LEDGER.second\"` $0");
    skill(&test, "home/.agents/skills/tidy", "", "!`cat ../home/.agents/skills/tidy/said`\n");
    test.run(&["trust", "../home/.agents/skills/tidy"]).exit(0);
    assert!(body(&claude).as_str().is_some_and(|text| text.contains("!`touch") && text.contains("$0")));
    assert!(!test.path("ledger.second").exists());
}

/// C-2.7, SK-20: the error for an unknown name lists the existing ones.
#[test]
fn an_unknown_skill_is_answered_with_those_that_there_are() {
    let test = Test::new();
    skill(&test, "home/.agents/skills/tidy", "", "x");
    let ran = test.run(&["skill", "show", "tidi", "--format", "json"]).exit(2);
    assert!(ran.out().contains("did you mean `tidy`"), "{}", ran.out());
}

/// Runs `etude skill check` on a file with this text, below a directory of that name.
fn checked(file: &str, text: &str, flags: &[&str]) -> crate::ran::Ran {
    let test = Test::new();
    test.put(&format!("app/{file}"), text);
    let dir = file.rsplit_once('/').expect("a directory").0;
    test.run(&[&["skill", "check", dir, "--format", "json"], flags].concat())
}

/// C-2.2, C-2.9, SK-01, SK-02, SK-04 to SK-08, SK-11, SK-12: valid skills, those invalid in the strict profile, and the verdict
/// of the lenient one: nothing, a warning, or a skipped skill.
#[test]
fn each_profile_has_its_verdict() {
    let good = |more: &str| format!("---\nname: tidy\ndescription: d\n{more}---\nx\n");
    let described = |length: usize| format!("---\nname: tidy\ndescription: {}\n---\n", "x".repeat(length));
    let named = |name: &str| format!("---\nname: {name}\ndescription: d\n---\n");
    let cases = [
        ("tidy", good(""), "", ""),
        ("wrong", named("right"), "SK_NAME_DIR", "warned"),
        ("tidy", "---\nname: tidy\n---\n".to_owned(), "SK_DESCRIPTION", "skipped"),
        ("tidy", "---\nname: tidy\ndescription: \" \"\n---\n".to_owned(), "SK_DESCRIPTION", "skipped"),
        ("tidy", described(1_024), "", ""),
        ("tidy", described(1_025), "SK_DESCRIPTION", "warned"),
        ("tidy", good(&format!("compatibility: {}\n", "x".repeat(500))), "", ""),
        ("tidy", good(&format!("compatibility: {}\n", "x".repeat(501))), "SK_COMPATIBILITY", "warned"),
        ("tidy", good("compatibility: \"\"\n"), "SK_COMPATIBILITY", "warned"),
        ("tidy", good("version: 1\n"), "SK_UNKNOWN_FIELD", ""),
        ("caf\u{e9}", named("cafe\u{301}"), "", ""),
        ("\u{6280}\u{80fd}", named("\u{6280}\u{80fd}"), "", ""),
        ("\u{43d}\u{430}\u{432}\u{44b}\u{43a}", named("\u{43d}\u{430}\u{432}\u{44b}\u{43a}"), "", ""),
        (
            "\u{41d}\u{410}\u{412}\u{42b}\u{41a}",
            named("\u{41d}\u{410}\u{412}\u{42b}\u{41a}"),
            "SK_NAME_FORMAT",
            "warned",
        ),
    ];
    for (dir, text, word, leniently) in cases {
        let file = format!("{dir}/SKILL.md");
        let ran = checked(&file, &text, &["--strict"]).exit(if word.is_empty() { 0 } else { 3 });
        assert!(word.is_empty() || words(&ran.doc()).contains(&word.to_owned()), "{text}: {}", ran.out());
        let ran = checked(&file, &text, &[]).exit(if leniently == "skipped" { 3 } else { 0 });
        let severities: Vec<Value> =
            ran.doc()["diagnostics"].as_array().into_iter().flatten().map(|d| d["severity"].clone()).collect();
        assert_eq!(severities.is_empty(), leniently.is_empty(), "{text}: {}", ran.out());
        assert_eq!(severities.contains(&json!("error")), leniently == "skipped", "{text}: {}", ran.out());
    }
    let all = good("license: MIT\ncompatibility: git\nallowed-tools: Read\nmetadata:\n  version: 1.10\n  on: yes\n");
    assert_eq!(
        checked("tidy/SKILL.md", &all, &["--strict"]).exit(0).at("/properties"),
        json!({"name": "tidy", "description": "d", "license": "MIT", "compatibility": "git",
               "allowed-tools": ["Read"], "metadata": {"version": "1.10", "on": "yes"}})
    );
}

/// C-2.4, C-2.9, SK-09, SK-13, SK-14: a colon in a value is recovered leniently, file names are looked up as in the reference,
/// and a directory counts by its name also when it is the current one.
#[test]
fn files_are_found_and_read_as_far_as_possible() {
    let colon = "---\nname: tidy\ndescription: Use when: x\n---\n";
    let ran = checked("tidy/SKILL.md", colon, &["--strict"]).exit(3);
    assert_eq!(words(&ran.doc()), ["SK_YAML"]);
    checked("tidy/SKILL.md", colon, &[]).exit(0).has("/properties/description", "Use when: x");
    let good = "---\nname: tidy\ndescription: d\n---\n";
    checked("tidy/skill.md", good, &["--strict"]).exit(0);
    checked("tidy/Skill.md", good, &["--strict"]).exit(3);
    let test = Test::new();
    test.put("app/.agents/skills/tidy/skill.md", good);
    test.run(&["skill", "list", "--format", "json"]).exit(0).has("/skills", json!([]));
    test.put("app/.agents/skills/tidy/SKILL.md", &good.replace("d\n", "upper\n"));
    test.run(&["skill", "list", "--format", "json"]).exit(0).has("/skills/0/description", "upper");
    test.cwd("app/.agents/skills/tidy").run(&["skill", "check", ".", "--strict"]).exit(0);
}

/// C-2.5, SK-16 to SK-18: the catalog escapes its text, is empty without skills, and has at most a hundred tokens per skill,
/// without its body.
#[test]
fn the_catalog_is_small_and_escaped() {
    let test = Test::new();
    assert_eq!(test.run(&["skill", "catalog"]).exit(0).out(), "");
    test.put(
        "home/.agents/skills/a&b/tidy/SKILL.md",
        "---\nname: tidy\ndescription: 'Tidies <foo> & \"x\"'\n---\nBODY\n",
    );
    let ran = test.run(&["skill", "catalog"]).exit(0);
    for part in ["Tidies &lt;foo&gt; &amp; ", "a&amp;b/tidy/SKILL.md"] {
        assert!(ran.out().contains(part), "{part}: {}", ran.out());
    }
    assert!(!ran.out().contains("<foo>") && !ran.out().contains("a&b"), "{}", ran.out());
    for n in 0..30 {
        skill(&test, &format!("home/.agents/skills/skill-{n}"), "", &"BODY ".repeat(2_000));
    }
    let ran = test.run(&["skill", "catalog"]).exit(0);
    // A token is about four characters.
    assert!(ran.out().len() < 31 * 100 * 4 && !ran.out().contains("BODY"), "{} bytes", ran.out().len());
}

/// C-2.7, SK-19: an activation is the body, the directory and the names of other files, whose contents are not read.
#[test]
fn an_activation_names_resources_and_reads_none() {
    let test = Test::new();
    let place = "home/.agents/skills/tidy";
    skill(&test, place, "", "Do it.\n");
    for file in ["scripts/run.sh", "references/a.md", "assets/b.txt"] {
        test.put(&format!("{place}/{file}"), "CONTENT");
    }
    let ran = test.run(&["skill", "show", "tidy", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/body"), "Do it.\n");
    assert_eq!(ran.at("/directory"), format!("[ROOT]/{place}"));
    assert_eq!(ran.at("/resources"), json!(["assets/b.txt", "references/a.md", "scripts/run.sh"]));
    assert!(!ran.out().contains("CONTENT"));
}

/// C-2.6, SK-24: a search has bounds, which are reported; directories that never hold skills are not searched.
#[test]
fn a_search_ends_and_says_so() {
    let test = Test::new();
    skill(&test, "home/.agents/skills/1/2/3/4/5/6/deep", "", "x");
    skill(&test, "home/.agents/skills/node_modules/hidden", "", "x");
    skill(&test, "home/.agents/skills/near", "", "x");
    let ran = test.run(&["skill", "list", "--format", "json"]).exit(0);
    assert_eq!((ran.at("/skills/0/name"), ran.at("/skills/1")), (json!("near"), Value::Null));
    assert!(words(&ran.doc()).contains(&"SK_TOO_DEEP".to_owned()), "{}", ran.out());
    for n in 0..2_500 {
        std::fs::create_dir_all(test.path(&format!("home/.agents/skills/zz/{n}"))).expect("a directory can be made");
    }
    let ran = test.run(&["skill", "list", "--format", "json"]).exit(0);
    assert!(words(&ran.doc()).contains(&"SK_TOO_MANY".to_owned()), "{}", ran.out());
}

/// C-0.4, SK-26: background knowledge for agents stays in their catalog, and is not called by name.
#[test]
fn background_knowledge_is_for_agents_only() {
    let test = Test::new();
    skill(&test, "home/.agents/skills/quiet", "user-invocable: false\n", "x");
    let ran = test.run(&["skill", "catalog"]).exit(0);
    assert!(ran.out().contains("<name>quiet</name>"), "{}", ran.out());
    test.run(&["skill", "run", "quiet"]).exit(2).stderr_has("background knowledge for agents");
    for word in ["off", "\" No \"", "\"\"", "", "0"] {
        skill(&test, "app/skills/quiet", &format!("user-invocable: {word}\n"), "x");
        test.run(&["skill", "run", "quiet"]).exit(2).stderr_has("background knowledge for agents");
    }
    test.run(&["skill", "show", "quiet"]).exit(0);
}

/// cli, SK-25: a skill in the user's home is explained and run by its name, also one that no agent may activate.
#[test]
fn skills_of_the_user_are_run_by_name() {
    let server = crate::server::Server::new([crate::server::Reply::says("tidied")]);
    let test = Test::new().model(&server);
    skill(&test, "home/.agents/skills/tidy", "disable-model-invocation: yes\n", "Tidy up.");
    assert_eq!(test.run(&["skill", "explain", "tidy", "--format", "json"]).exit(0).doc()["name"], "tidy");
    assert_eq!(test.run(&["skill", "run", "tidy"]).exit(0).value(), serde_json::json!("tidied"));
    assert!(server.seen()[0].body.to_string().contains("Tidy up."));
    test.run(&["skill", "run", "tidi"]).exit(2).stderr_has("skill not found: `tidi`");
}

/// C-2.7: a long list of files is cut, with a note; a short one has no note.
#[test]
fn a_list_of_files_that_is_cut_says_so() {
    let test = Test::new();
    skill(&test, "home/.agents/skills/long", "", "Look around.");
    let shown = |format: &str| test.run(&["skill", "show", "long", "--format", format]).exit(0);
    assert_eq!(shown("json").doc().get("more"), None);
    for n in 0..=200 {
        test.put(&format!("home/.agents/skills/long/{n:03}.txt"), "");
    }
    assert_eq!(shown("json").doc()["more"], true);
    shown("human").stderr_has("and more: list the directory to see all");
}

/// D-2.3: a prompt skill runs with the model that it names; an unknown provider does not silently select another.
#[test]
fn a_prompt_skill_names_its_model() {
    let server = crate::server::Server::new([crate::server::Reply::says("done")]);
    let test = Test::new().model(&server);
    let named = |id: &str| {
        test.put("app/ask.skill.md", &format!("---\nname: ask\nmetadata: {{model: {{id: {id}}}}}\n---\nAsk.\n"));
        test.run(&["skill", "run", "ask"])
    };
    named("mock/other").exit(0);
    assert_eq!(server.seen()[0].body["model"], "other");
    named("nowhere/other").exit(4).stderr_has("nowhere");
}

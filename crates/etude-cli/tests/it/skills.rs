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

/// cli, SK-23, SK-25: agents are told of what the user trusts and of nothing that only people may run.
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

/// C-2.9: strict and lenient differ in what they call an error; exit 3 says not valid.
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
    assert!(human.err().contains("`version` is no field of a skill"), "{}", human.err());
}

/// C-3.3, C-3.4, SK-27 to SK-35: by default a body is text; in Claude Code's mode it is rendered, and commands run only
/// in a skill that was approved for that.
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
    // The second command fails, so nothing of the body is given.
    let given_up = test.run(&[&["skill", "show", "tidy", "--format", "json"], &claude[..]].concat()).exit(1);
    assert_eq!(given_up.at("/body"), Value::Null);
    assert!(test.path("ledger").exists());
    skill(&test, "home/.agents/skills/tidy", "", "$0: !`echo $ARGUMENTS[1]`\n");
    assert_eq!(body(&claude), format!("a b: {disabled}\n"), "a change ends the approval");
    test.run(&["trust", "../home/.agents/skills/tidy"]).exit(0);
    assert_eq!(body(&claude), "a b: c\n");
}

/// C-2.7, SK-20: an unknown name is answered with those that there are.
#[test]
fn an_unknown_skill_is_answered_with_those_that_there_are() {
    let test = Test::new();
    skill(&test, "home/.agents/skills/tidy", "", "x");
    let ran = test.run(&["skill", "show", "tidi", "--format", "json"]).exit(2);
    assert!(ran.out().contains("did you mean `tidy`"), "{}", ran.out());
}

use super::*;
use crate::confine::Roots;
use crate::tool::{ApprovalKey, Args, Origin};
use serde_json::{Value, json};

fn decide(policy: &Policy, effect: Effect, name: &str, args: Value) -> Decision {
    let dir = tempfile::tempdir().expect("dir");
    let roots = Roots::new(dir.path(), &[], &[]).expect("roots");
    let mut tool = Tool::new(name, "", json!({"type": "object"}), effect, Origin::BuiltIn);
    if name == "Bash" {
        tool.approval_key = ApprovalKey::Command("command");
    }
    policy.judge(&tool, &Subject::new(&tool, args.as_object().expect("object"), &roots))
}

fn bash(policy: &Policy, line: &str) -> Decision {
    decide(policy, Effect::Executes, "Bash", json!({"command": line}))
}

/// tool calls that change things ask for approval unless policy allows them.
#[test]
fn reads_are_allowed_and_changes_ask() {
    let ask = Policy::default();
    assert_eq!(decide(&ask, Effect::Reads, "Read", json!({})), Decision::Allow);
    let asked = Decision::Ask { key: "Bash(git push)".to_owned(), summary: "run: Bash(git push)".to_owned() };
    assert_eq!(bash(&ask, "git push"), asked);
    for effect in [Effect::Writes, Effect::Executes, Effect::External] {
        assert!(matches!(decide(&ask, effect, "x", json!({})), Decision::Ask { .. }));
    }
}

/// `b-stages` §11.1 (3): the three modes decide about calls that no pattern lists.
#[test]
fn modes_decide_what_is_not_listed() {
    let allow = ["Bash(git *)", "npm test", "Bash(rm *,$deny)"];
    for (mode, listed, unlisted) in
        [(Mode::Ask, true, "ask"), (Mode::Allowlist, true, "NotOnAllowlist"), (Mode::Yolo, true, "allow")]
    {
        let policy = Policy::new(mode, &allow);
        assert_eq!(bash(&policy, "git log") == Decision::Allow, listed, "{mode:?}");
        assert_eq!(bash(&policy, "npm test"), Decision::Allow, "{mode:?}");
        let word = match bash(&policy, "make") {
            Decision::Allow => "allow",
            Decision::Ask { .. } => "ask",
            Decision::Deny { code, .. } => code,
        };
        assert_eq!(word, unlisted, "{mode:?}");
        assert!(matches!(bash(&policy, "rm x"), Decision::Deny { code: "DeniedByPolicy", .. }), "{mode:?}");
    }
}

/// A directive may follow the pattern that it applies to.
#[test]
fn a_directive_behind_a_pattern_is_about_it() {
    let policy =
        Policy::new(Mode::Yolo, &["deploy, $deny", "Bash(rm *), $deny", "git push *, $deny", "send,$policy=ask"]);
    let denied = |decision: &Decision| matches!(decision, Decision::Deny { code: "DeniedByPolicy", .. });
    assert!(denied(&decide(&policy, Effect::External, "deploy", json!({}))));
    assert!(denied(&bash(&policy, "rm x")) && denied(&bash(&policy, "git push -f")));
    assert!(matches!(decide(&policy, Effect::External, "send", json!({})), Decision::Ask { .. }));
    assert_eq!(decide(&policy, Effect::External, "other", json!({})), Decision::Allow);
    assert_eq!(bash(&policy, "git log"), Decision::Allow);
}

/// ADR 0054: the denial of a line that cannot be read gives the reason and the remedy.
#[test]
fn a_denial_of_what_cannot_be_read_says_how_to_write_it() {
    let policy = Policy::new(Mode::Yolo, &["Bash(rm *, $deny)"]);
    let Decision::Deny { code, reason } = bash(&policy, "echo $(ls)") else { panic!("not denied") };
    assert!(code == Decision::BY_NAME && reason.contains("use simple commands"), "{reason}");
    assert_eq!(bash(&policy, "ls | wc -l > count"), Decision::Allow);
}

/// `design: cli`, "Policy in `etude.yaml`": a policy is read from the configuration.
#[test]
fn a_policy_is_read_from_the_configuration() {
    let allow = vec!["git *".to_owned()];
    let approvals = etude_spec::config::Approvals { mode: Some("allowlist".to_owned()), allow, unattended: None };
    let policy = Policy::from_definition(&approvals);
    assert_eq!(bash(&policy, "git log"), Decision::Allow);
    assert!(matches!(bash(&policy, "make"), Decision::Deny { .. }));
    assert_eq!(Policy::from_definition(&etude_spec::config::Approvals::default()).mode, Mode::Ask);
}

/// `b-stages` AP6: tools declared `gated: false` need no approval.
#[test]
fn tools_that_are_not_gated_need_no_approval() {
    let dir = tempfile::tempdir().expect("dir");
    let roots = Roots::new(dir.path(), &[], &[]).expect("roots");
    let mut tool = Tool::new("t", "", json!({}), Effect::Executes, Origin::BuiltIn);
    tool.gated = false;
    let policy = Policy::new::<&str>(Mode::Allowlist, &[]);
    assert_eq!(policy.judge(&tool, &Subject::new(&tool, &Args::new(), &roots)), Decision::Allow);
}

/// without a terminal the default is deny, with the reason.
#[test]
fn a_question_that_cannot_be_answered_is_a_denial_with_the_reason() {
    let Decision::Deny { code, reason } = bash(&Policy::default(), "make").unanswered() else { panic!("denied") };
    assert_eq!(code, "NobodyToAsk");
    assert!(reason.contains("`Bash(make)` needs approval"), "{reason}");
    assert_eq!(Decision::Allow.unanswered(), Decision::Allow);
}

/// the question shows the call that runs, with every character that a terminal would hide or execute.
#[test]
fn a_question_shows_control_characters() {
    for (line, shown) in [
        ("a\tb", "run: Bash(a\\tb)"),
        ("a\nb", "run: Bash(a ⏎ b)"),
        ("echo ok\rrm x", "run: Bash(echo ok\\rrm x)"),
        ("a\r\nb\u{1b}[2K", "run: Bash(a\\r ⏎ b\\u{1b}[2K)"),
    ] {
        let Decision::Ask { summary, .. } = bash(&Policy::default(), line) else { panic!("no one is asked: {line:?}") };
        assert_eq!(summary, shown);
    }
}

/// the question for a long call shows both ends, and the length of the omitted part.
#[test]
fn a_long_question_keeps_both_ends() {
    let line = format!("begin{}end", "x".repeat(700 - "Bash(beginend)".len()));
    let Decision::Ask { summary, .. } = bash(&Policy::default(), &line) else { panic!("no one is asked") };
    assert!(summary.starts_with("run: Bash(beginx") && summary.ends_with("xend)"), "{summary}");
    assert!(summary.contains("x … [100 characters, see the arguments] … x"), "{summary}");
}

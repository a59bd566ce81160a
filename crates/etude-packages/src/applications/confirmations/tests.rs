use std::sync::Arc;

use super::*;
use crate::applications::{Access, Package, Source};

const APP: &str = "---\nschema: agentapplications/v1\nkind: app\nslug: box\nname: Box\ndescription: A box\nversion: 0.1.0\n\
                   entry: {command: sh app/box.sh}\ncommands: [wipe]\nconfirmationRequired: [wipe]\nscheduling: notSupported\n---\n# Box\n";

/// A command that needs confirmation.
fn wipe(dir: &Path) -> CommandCall {
    std::fs::write(dir.join("APP.md"), APP).unwrap();
    let package = Arc::new(Package::load(dir, Source::User, dir));
    let access = Access { activation: true, execution: true, is_blocked: false, content: None };
    let argv = vec!["sh".to_owned(), "wipe".to_owned()];
    CommandCall { package, access, command: "wipe".to_owned(), args: Vec::new(), argv }
}

fn bound(digest: &str) -> Bound {
    Bound::new(digest, None, BTreeMap::new())
}

fn run_effect(key: &str) -> Option<RunEffect> {
    Some(RunEffect { run_id: "r".to_owned(), key: key.to_owned() })
}

/// C-1.14, A-5.3: an answer that an effect of a run has used stays valid for that effect when it is repeated after a crash, and
/// for nothing else.
#[test]
fn a_used_answer_holds_for_the_effect_that_used_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, call) = (Confirmations::new(&dir.path().join("state")), wipe(dir.path()));
    let ask = |by: Option<RunEffect>| store.ask(&call, &bound("sha256:1"), by.as_ref()).unwrap();
    let Verdict::Waiting { request, stale: None } = ask(run_effect("main/box/1")) else {
        panic!("no one has answered")
    };
    let answer = Answer { approved: true, by: "ada".to_owned(), at: "2026-01-01T00:00:00Z".to_owned(), reason: None };
    store.answer(&request.id, answer.clone()).unwrap();
    for _ in 0..2 {
        assert_eq!(ask(run_effect("main/box/1")), Verdict::Confirmed(answer.clone()));
        assert!(store.is_open(&call, &bound("sha256:1"), run_effect("main/box/1").as_ref()).unwrap());
    }
    for other in [run_effect("main/box/2"), None] {
        assert!(matches!(ask(other), Verdict::Waiting { stale: Some("it has been used"), .. }));
    }
    // Other content is a new question, for every caller.
    let changed = store.ask(&call, &bound("sha256:2"), run_effect("main/box/1").as_ref()).unwrap();
    assert!(matches!(changed, Verdict::Waiting { stale: Some(_), .. }));
}

/// C-1.14: an answer is valid for the stdin of its question only.
#[test]
fn an_answer_holds_for_one_stdin() {
    let dir = tempfile::tempdir().unwrap();
    let (store, call) = (Confirmations::new(&dir.path().join("state")), wipe(dir.path()));
    let ask = |stdin: Option<&[u8]>| store.ask(&call, &Bound::new("sha256:1", stdin, BTreeMap::new()), None).unwrap();
    let Verdict::Waiting { request, .. } = ask(Some(b"one")) else { panic!("there is no answer yet") };
    assert!(request.document(&Fresh::default())["stdin"].as_str().is_some_and(|digest| digest.starts_with("sha256:")));
    let answer = Answer { approved: true, by: "ada".to_owned(), at: "2026-01-01T00:00:00Z".to_owned(), reason: None };
    store.answer(&request.id, answer).unwrap();
    for other in [Some(b"all".as_slice()), None] {
        assert!(matches!(ask(other), Verdict::Waiting { stale: Some("it was for a different stdin"), .. }));
    }
    assert!(matches!(ask(Some(b"one")), Verdict::Confirmed(_)));
}

/// C-1.14: an answer is valid for the values of the added variables, which no document shows.
#[test]
fn an_answer_holds_for_the_variables_that_were_added() {
    let dir = tempfile::tempdir().unwrap();
    let (store, call) = (Confirmations::new(&dir.path().join("state")), wipe(dir.path()));
    let ask = |env: &[(&'static str, &'static str)]| {
        let env = env.iter().map(|(name, value)| (*name, OsStr::new(value))).collect();
        store.ask(&call, &Bound::new("sha256:1", None, env), None).unwrap()
    };
    let Verdict::Waiting { request, .. } = ask(&[("TARGET", "one")]) else { panic!("there is no answer yet") };
    assert_eq!(request.document(&Fresh::default())["env"], json!(["TARGET"]));
    let answer = Answer { approved: true, by: "ada".to_owned(), at: "2026-01-01T00:00:00Z".to_owned(), reason: None };
    store.answer(&request.id, answer).unwrap();
    for other in [&[("TARGET", "all")][..], &[], &[("TARGET", "one"), ("LD_PRELOAD", "x")], &[("OTHER", "one")]] {
        let stale = Some("it was for other environment variables");
        assert!(matches!(ask(other), Verdict::Waiting { stale: why, .. } if why == stale), "{other:?}");
    }
    assert!(matches!(ask(&[("TARGET", "one")]), Verdict::Confirmed(_)));
}

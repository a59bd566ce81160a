//! Small languages: templates, patterns of calls, requests in words.

use std::sync::OnceLock;

use etude_core::data::Json;
use etude_core::placeholder::Body;
use etude_core::template::{self, Reference, Scope};
use etude_route::{Route, Router};
use etude_tools::pattern::{Subject, Verdict};
use etude_tools::tool::{ApprovalKey, Effect, Origin, Tool};
use etude_tools::{AllowedTools, Roots};
use serde_json::json;

use super::{parts, text};

/// A scope in which every reference has the same value, which itself looks like a template.
struct Everywhere;

const CANARY: &str = "{{steps.secret.output}}";

impl Scope for Everywhere {
    fn root(&self, _: &Reference) -> Result<Json, String> {
        Ok(Json::of(&json!({"a": [CANARY, 1], "text": CANARY})))
    }
}

pub(super) fn template(data: &[u8]) {
    let text = text(data);
    let (template, problems) = template::parse(&text);
    for problem in &problems {
        assert!(text.get(problem.range.clone()).is_some(), "{problem:?}");
    }
    let mut expected = 0;
    for (reference, range) in template.references() {
        expected += 1;
        assert!(text.get(range).is_some_and(|text| text.starts_with("{{")), "{reference}");
        let again: Reference = reference.to_string().parse().expect("what is printed can be read");
        assert_eq!(&again, reference);
    }
    template.render_partly(&Everywhere, usize::MAX);
    // Inserted text is not parsed again: every reference adds a limited number of canaries.
    if let Ok(rendered) = template.render(&Everywhere) {
        let written = text.matches(CANARY).count();
        assert!(rendered.matches(CANARY).count() <= 2 * expected + written, "{rendered}");
    }
    let (body, malformed) = Body::parse(&text);
    for problem in &malformed {
        assert!(text.get(problem.range.clone()).is_some(), "{problem:?}");
    }
    body.ctx_names();
    body.render(&json!({"a": [CANARY]}), &json!({"id": CANARY}));
    if body.placeholders().next().is_none() {
        assert_eq!(body.render(&json!({}), &json!({})), text, "text without placeholders stays as it is");
    }
}

pub(super) fn pattern(data: &[u8]) {
    static ROOTS: OnceLock<Roots> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| Roots::read_only(std::path::Path::new("/")).expect("there is a root"));
    let text = text(data);
    let parts = parts(&text);
    let list = AllowedTools::parse(parts[0]);
    let again = AllowedTools::parse(list.as_str());
    assert_eq!(list.patterns().len(), again.patterns().len(), "a list is what it says");
    let word = parts.get(1).copied().unwrap_or("git status; rm -rf /");
    let keys = [
        ("Bash", ApprovalKey::Command("command")),
        ("Write", ApprovalKey::Path("path")),
        ("mcp__server__tool", ApprovalKey::Name),
        ("deploy", ApprovalKey::Template("deploy({{args.env}})".to_owned())),
    ];
    for (name, key) in keys {
        let mut tool = Tool::new(name, "", json!({}), Effect::Executes, Origin::BuiltIn);
        tool.approval_key = key;
        let args = json!({"command": word, "path": word, "env": word, "n": 1});
        let args = args.as_object().cloned().unwrap_or_default();
        let subject = Subject::new(&tool, &args, roots);
        list.verdict(&subject);
        list.lists(&tool);
        subject.key();
    }
}

/// A line may hide its own commands, but not those in the lines below it.
pub(super) fn command(data: &[u8]) {
    static ROOTS: OnceLock<Roots> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| Roots::read_only(std::path::Path::new("/")).expect("there is a root"));
    let mut tool = Tool::new("Bash", "", json!({"properties": {"command": {}}}), Effect::Executes, Origin::BuiltIn);
    tool.approval_key = ApprovalKey::Command("command");
    let judge = |list: &str, line: &str| {
        let args = json!({"command": line}).as_object().cloned().unwrap_or_default();
        AllowedTools::parse(list).verdict(&Subject::new(&tool, &args, roots))
    };
    let text = text(data);
    // The first line break may continue the line.
    let below = format!("{text}\n\ntouch x");
    for allow in ["Bash(git *)", "Bash(command=git *)"] {
        if judge(allow, &text) == Verdict::Allow {
            assert_eq!(judge(allow, &below), Verdict::Unlisted, "{text:?} lets a line below it through");
        }
    }
    assert_eq!(judge("Bash Bash(touch *, $deny)", &below), Verdict::Deny, "{text:?} hides a line below it");
    // A pattern may be any text.
    judge(&format!("Bash({text})"), "git status");
}

pub(super) fn route(data: &[u8]) {
    static ROUTER: OnceLock<Router> = OnceLock::new();
    let router = ROUTER.get_or_init(|| {
        let route = |name: &str, description: &str, trigger: &str| Route {
            name: name.to_owned(),
            description: description.to_owned(),
            triggers: vec![trigger.to_owned()],
        };
        Router::new(&[
            route("review", "Reviews a change for faults.", "review my branch"),
            route("index", "Makes an index of documents.", "index the docs folder"),
        ])
    });
    let text = text(data);
    let decision = router.decide(&text);
    assert!(decision.candidates.iter().all(|candidate| candidate.score.is_finite()), "{decision:?}");
    // The cache may contain foreign data.
    if let Some(stored) = Router::from_bytes(data) {
        stored.decide("review my branch");
    }
}

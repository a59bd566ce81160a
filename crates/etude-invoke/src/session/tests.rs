use std::path::Path;

use super::*;
use crate::Boxed;
use crate::project::Setup;
use etude_spec::cascade::Strategy;
use etude_spec::cascade::strategy::{Evaluation, Hooks, SchemaResolution, Unacknowledged};

/// A function of a tool in a test.
type Function = fn(Arc<Value>, Caller) -> Boxed<Outcome>;

struct Does(Function);

impl Handler for Does {
    fn run(&self, args: Arc<Value>, caller: Caller) -> Boxed<Outcome> {
        (self.0)(args, caller)
    }
}

/// Calls `name` of the project in `dir`, where `handlers` are tools without files.
fn call(dir: &Path, strategy: Strategy, name: &str, args: Value, handlers: &[(&str, Function)]) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let setup = Setup { dir: Some(dir.to_owned()), strategy, entry: name.to_owned(), ..Setup::default() };
        let builtin_tools = |does: Function| BuiltinTool {
            description: None,
            uri: None,
            metadata: Map::from_iter([("params".to_owned(), json!({}))]),
            handler: Arc::new(Does(does)),
        };
        let access = Access {
            run_id: None,
            scratch: dir.to_owned(),
            yolo: false,
            env: BTreeMap::new(),
            withheld_env: Vec::new(),
            redactor: None,
            extra_env: Vec::new(),
            gateway: None,
            handlers: handlers.iter().map(|(name, does)| ((*name).to_owned(), builtin_tools(*does))).collect(),
        };
        let session = Session::new(Project::open(setup).unwrap(), access, Box::new(Silent), false).unwrap();
        let ended = session.invoke(name, args, std::future::pending()).await;
        session.close();
        ended.outcome
    })
}

fn gives_its_prompt(args: Arc<Value>, _: Caller) -> Boxed<Outcome> {
    Box::pin(async move { Ok(args.get("prompt").cloned()) })
}

/// D-11: `:eval` stays as it is written (`Evaluation::Off`), or gives the value of `${…}` (`Evaluation::Path`).
#[test]
fn a_path_may_be_evaluated() {
    let dir = tempfile::tempdir().unwrap();
    let text = "---\nname: ask\nmetadata: {$remove: include, params: {type: object}}\n---\nHi :eval[args.who] :eval[args.no:-you]\n";
    std::fs::write(dir.path().join("ask.skill.md"), text).unwrap();
    let of = |evaluation| {
        let strategy = Strategy { evaluation, ..Strategy::default() };
        call(dir.path(), strategy, "ask", json!({"who": "Ann"}), &[("agent", gives_its_prompt)]).unwrap()
    };
    assert_eq!(of(Evaluation::Off), Some(json!("Hi :eval[args.who] :eval[args.no:-you]")));
    assert_eq!(of(Evaluation::Path), Some(json!("Hi Ann you")));
}

/// D-10: only a Markdown skill with a text has a prompt. One that only declares metadata calls no agent, whatever is included.
#[test]
fn a_skill_without_text_calls_no_agent() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("bare.skill.md"), "---\nname: bare\nmetadata: {color: red}\n---\n\n  \n").unwrap();
    let of = |name| call(dir.path(), Strategy::default(), name, json!({}), &[("agent", gives_its_prompt)]);
    assert_eq!(of("bare"), Ok(None));
    std::fs::write(dir.path().join("full.skill.md"), "---\nname: full\n---\nGo.\n").unwrap();
    assert!(of("full").unwrap().is_some_and(|prompt| prompt.as_str().is_some_and(|text| text.ends_with("Go."))));
}

fn waits_and_puts_back(_: Arc<Value>, caller: Caller) -> Boxed<Outcome> {
    Box::pin(async move {
        caller.invoke("event-subscribe", json!({"topic": "t"})).await?;
        caller.invoke("event-emit", json!({"topic": "t", "data": 7})).await?;
        let event = caller.invoke("event-wait", json!({"topic": "t", "ack": false})).await?.unwrap_or_default();
        caller.invoke("event-ack", json!({"id": event["id"], "nack": true})).await?;
        let again = caller.invoke("event-wait", json!({"topic": "t", "timeout": 1000})).await?.unwrap_or_default();
        Ok(Some(again["data"].clone()))
    })
}

/// D-15: an unacknowledged event can be put back (`Unacknowledged::Kept`), or is gone (`Unacknowledged::Dropped`).
#[test]
fn what_is_not_acknowledged_may_be_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let of = |unacknowledged| {
        let strategy = Strategy { unacknowledged, ..Strategy::default() };
        call(dir.path(), strategy, "talk", json!({}), &[("talk", waits_and_puts_back)])
    };
    assert_eq!(of(Unacknowledged::Kept), Ok(Some(json!(7))));
    assert!(of(Unacknowledged::Dropped).unwrap_err().message.contains("there is no unacknowledged event"));
}

fn throws(_: Arc<Value>, _: Caller) -> Boxed<Outcome> {
    Box::pin(async { Err(Throw::new(ThrowKind::Failed, "look", "seen")) })
}

fn gives_one(_: Arc<Value>, _: Caller) -> Boxed<Outcome> {
    Box::pin(async { Ok(Some(json!(1))) })
}

/// D-4.7, D-3.3: hooks run and `$resolve` is resolved, unless the strategy says otherwise (`Hooks::Nothing`,
/// `SchemaResolution::Literal`).
#[test]
fn hooks_and_schemas_may_be_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let text = "---\nname: app\nmetadata:\n  role: main\n  $hook: look\n  $private: params\n  params: {$resolve: absent}\n---\nGo.\n";
    std::fs::write(dir.path().join("app.skill.md"), text).unwrap();
    let of = |strategy, name: &'static str| {
        let handlers: [(&str, Function); 2] = [("greet", gives_one), ("look", throws)];
        call(dir.path(), strategy, name, json!({}), &handlers).map_err(|throw| throw.message)
    };
    let without = Strategy { hooks: Hooks::Nothing, ..Strategy::default() };
    assert_eq!(of(Strategy::default(), "greet"), Err("seen".to_owned()));
    assert_eq!(of(without, "greet"), Ok(Some(json!(1))));
    assert!(of(without, "app").unwrap_err().contains("skill not found: `absent`"));
    let literal = Strategy { schema_resolution: SchemaResolution::Literal, ..without };
    // The schema is not resolved; the call fails only because the text has no model.
    assert!(of(literal, "app").unwrap_err().contains("this session does not support `agent` of the library"));
}

/// Dropping an invocation abandons its function: its chain ends, and nothing waits for it.
#[tokio::test]
async fn a_dropped_invocation_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let access =
        crate::MiddlewareSettings { scratch: dir.path().to_owned(), extra_env: Vec::new() }.access(Vec::new(), false);
    let session = Session::new(Project::bare(dir.path()), access, Box::new(Silent), false).unwrap();
    let begin = || {
        let tool = Arc::new(Tool::new("step", crate::chain::ToolHandler::Effect).with_chain(&["execute"]));
        let call = Arc::new(HostCall::new("p/step".to_owned(), crate::Checks::default()));
        session.open(tool, Arc::new(json!({})), call, CancellationToken::new())
    };
    let mut begun = begin();
    let Signal::Run(_) = begun.next().await else { panic!("its function is due") };
    drop(begun);
    // The function of this invocation is due and is never started.
    drop(begin());
    session.settle(std::future::pending()).await;
    let mut begun = begin();
    let Signal::Run(call) = begun.next().await else { panic!("its function is due") };
    begun.end(call, Ok(Some(json!(1))));
    let Signal::Finished(outcome, _) = begun.next().await else { panic!("it is over") };
    assert_eq!(outcome, Ok(Some(json!(1))));
}

/// D-7.3, D-13: middleware judges the arguments of a host call with all digits, as the tool gets them: a program on its
/// stdin, a request by path, and the question of a trust rule.
#[tokio::test]
async fn middleware_judges_all_digits() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    put("spy.skill.md", "---\nname: spy\ncommand: sh spy.sh\nmetadata: {role: middleware}\n---\n");
    put("spy.sh", "cat > seen.json\n");
    let setup = Setup { dir: Some(dir.path().to_owned()), entry: "spy".to_owned(), ..Setup::default() };
    let access =
        crate::MiddlewareSettings { scratch: dir.path().to_owned(), extra_env: Vec::new() }.access(Vec::new(), false);
    let session = Session::new(Project::open(setup).unwrap(), access, Box::new(Silent), false).unwrap();
    let text = r#"{"id":12345678901234567890123}"#;
    let args = Arc::new(etude_core::tool::shown_arguments(text));
    let open = |chain: &[&str]| {
        let mut tool = Tool::new("pay", crate::chain::ToolHandler::Effect).with_chain(chain);
        tool.metadata = Arc::new(json!({"trust": {"rules": "pay"}}));
        let digits = crate::Digits::parse(text, &args).map(Arc::new);
        let checks = crate::Checks { digits, asker: crate::Asker::Gate, ..crate::Checks::default() };
        let call = Arc::new(HostCall::new("p/pay".to_owned(), checks));
        session.open(Arc::new(tool), Arc::clone(&args), call, CancellationToken::new())
    };
    let mut begun = open(&["spy", "execute"]);
    let Signal::Run(call) = begun.next().await else { panic!("its function is due") };
    let seen = std::fs::read_to_string(dir.path().join("seen.json")).unwrap();
    assert!(seen.contains(r#""args":{"id":12345678901234567890123}"#) && !seen.contains("1.23"), "{seen}");
    let found = session.0.state.lock().unwrap().get(call, "args.id");
    assert_eq!(found, Ok(Some(json!("12345678901234567890123"))));
    let history = session.0.state.lock().unwrap().get(call, "locals.history").unwrap().unwrap();
    assert_eq!(history[0]["args"], json!({"id": "12345678901234567890123"}));
    begun.end(call, Ok(None));
    let Signal::Finished(Err(throw), _) = open(&["trust", "execute"]).next().await else { panic!("it is held") };
    assert!(throw.message.ends_with(r#"{"id":"12345678901234567890123"}?"#), "{}", throw.message);
}

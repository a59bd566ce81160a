use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;
use crate::chain::middleware::{Step, View};
use crate::chain::throw::ThrowKind;
use crate::chain::tool::ToolHandler;

type Log = Arc<Mutex<Vec<String>>>;

/// Behaviour of a stub.
#[derive(Clone)]
enum Does {
    /// Calls next, then gives nothing.
    Wraps,
    /// As `execute`: runs the target's function, keeps its result, and calls next.
    Executes,
    Gives(Value),
    GivesNothing,
    Throws(&'static str),
    /// Calls next; if that throws, gives this instead.
    Catches(Option<Value>),
    /// Invokes a tool and gives its result.
    Invokes(&'static str, Value, Options),
    Sees(fn(&mut View<'_>) -> Option<Value>),
    /// Records the phases that it observes as a hook.
    Looks,
    /// Records them, and throws `H` at the given phase.
    Objects(&'static str),
}

struct Stub(String, Does, Log);

impl Middleware for Stub {
    fn step(&self, view: &mut View<'_>, resume: Resume) -> Step {
        let note = |mark: &str| self.2.lock().unwrap().push(format!("{}{mark}", self.0));
        match (&self.1, resume) {
            (Does::Wraps | Does::Catches(_), Resume::Start) => {
                note(">");
                Step::Next
            }
            (Does::Wraps, Resume::Next(Ok(()))) | (Does::Catches(_), Resume::Next(Ok(()))) => {
                note("<");
                Step::Done(None)
            }
            (Does::Wraps, Resume::Next(Err(throw))) => {
                note("!");
                Step::Throw(throw)
            }
            (Does::Catches(value), Resume::Next(Err(_))) => Step::Done(value.clone()),
            (Does::Executes, Resume::Start) => Step::Execute,
            (Does::Executes, Resume::Executed(Err(throw)) | Resume::Next(Err(throw))) => Step::Throw(throw),
            (Does::Executes, Resume::Executed(Ok(value))) => {
                view.target_mut().result = value;
                Step::Next
            }
            (Does::Executes, _) => Step::Done(None),
            (Does::Gives(value), _) => {
                note("");
                Step::Done(Some(value.clone()))
            }
            (Does::GivesNothing, _) => {
                note("");
                Step::Done(None)
            }
            (Does::Throws(message), _) => Step::Throw(Throw::new(ThrowKind::Failed, &self.0, *message)),
            (Does::Invokes(name, args, options), Resume::Start) => {
                Step::Invoke { reference: (*name).to_owned(), args: args.clone(), options: options.clone() }
            }
            (_, Resume::Invoked(Ok(value))) => Step::Done(value),
            (_, Resume::Invoked(Err(throw))) => Step::Throw(throw),
            (Does::Looks | Does::Objects(_), _) => {
                let reported = |key: &str| view.own().args[key].as_str().unwrap_or_default().to_owned();
                note(&format!(" {} {}", reported("phase"), reported("entry")));
                match &self.1 {
                    Does::Objects(phase) if reported("phase") == *phase => {
                        Step::Throw(Throw::new(ThrowKind::Failed, &self.0, "H"))
                    }
                    _ => Step::Done(Some(json!("counts for nothing"))),
                }
            }
            (Does::Sees(look), _) => Step::Done(look(view)),
            (_, resume) => panic!("{resume:?}"),
        }
    }
}

#[derive(Default)]
struct Stubs {
    tools: BTreeMap<String, Arc<Tool>>,
    log: Log,
}

impl Tools for Stubs {
    fn find(&mut self, reference: &str, _: Option<&Context>) -> Result<Arc<Tool>, Throw> {
        let unknown = || Throw::new(ThrowKind::Unknown, reference, format!("skill not found: `{reference}`"));
        self.tools.get(reference).cloned().ok_or_else(unknown)
    }
}

impl Stubs {
    fn with(mut self, name: &str, does: Does, chain: &[&str]) -> Self {
        let middleware = Stub(name.to_owned(), does, Arc::clone(&self.log));
        let tool = Tool::new(name, ToolHandler::Middleware(Arc::new(middleware))).with_chain(chain);
        self.tools.insert(name.to_owned(), Arc::new(tool));
        self
    }

    fn effect(mut self, name: &str, chain: &[&str]) -> Self {
        self.tools.insert(name.to_owned(), Arc::new(Tool::new(name, ToolHandler::Effect).with_chain(chain)));
        self
    }

    fn run(&mut self, name: &str, args: Value) -> (Outcome, Context) {
        let mut machine = Machine::new(json!({}));
        let id = machine.invoke(self, name, args, Options::default());
        let outcome = match machine.poll(self) {
            Some(Command::Finished { context, outcome }) if context == id => outcome,
            other => panic!("{other:?}"),
        };
        assert!(machine.calls.is_empty() && machine.work.is_empty() && machine.contexts.len() == 1);
        (outcome, machine.take(id).unwrap())
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().join(" ")
    }
}

/// D-7.2, D-X01: entries form an onion around the function.
#[test]
fn entries_form_an_onion() {
    let mut stubs = Stubs::default()
        .with("m1", Does::Wraps, &[])
        .with("m2", Does::Wraps, &[])
        .with("execute", Does::Executes, &[])
        .with("tool", Does::Gives(json!(7)), &["m1", "m2", "execute"]);
    assert_eq!(stubs.run("tool", json!({})).0, Ok(Some(json!(7))));
    assert_eq!(stubs.log(), "m1> m2> tool m2< m1<");
}

/// D-7.2, D-7.4, D-X02: an entry without a result does not end the chain, and without `execute` the function still runs.
#[test]
fn entries_that_give_nothing_let_the_chain_go_on() {
    let mut stubs = Stubs::default().with("m1", Does::GivesNothing, &[]).with("m2", Does::GivesNothing, &[]).with(
        "tool",
        Does::Gives(json!(7)),
        &["m1", "m2"],
    );
    assert_eq!(stubs.run("tool", json!({})).0, Ok(Some(json!(7))));
    assert_eq!(stubs.log(), "m1 m2 tool");
}

/// D-2.1, D-7.2, D-X03, D-X04: a value ends the chain and is the result; `null` is a value.
#[test]
fn a_value_ends_the_chain() {
    for value in [json!("stop"), Value::Null] {
        let mut stubs = Stubs::default()
            .with("m0", Does::Wraps, &[])
            .with("m1", Does::Gives(value.clone()), &[])
            .with("m2", Does::Wraps, &[])
            .with("tool", Does::Gives(json!(7)), &["m0", "m1", "m2"]);
        assert_eq!(stubs.run("tool", json!({})).0, Ok(Some(value)));
        assert_eq!(stubs.log(), "m0> m1 m0<");
    }
}

/// D-7.5, D-X05: a throw travels outward through every entry and is `locals.error`.
#[test]
fn a_throw_travels_outward() {
    let mut stubs = Stubs::default().with("m1", Does::Wraps, &[]).with("execute", Does::Executes, &[]).with(
        "tool",
        Does::Throws("E"),
        &["m1", "execute"],
    );
    let (outcome, context) = stubs.run("tool", json!({}));
    assert_eq!(outcome.unwrap_err().message, "E");
    assert_eq!(context.error.unwrap().message, "E");
    assert_eq!(stubs.log(), "m1> m1!");
}

/// D-7.5, D-X06: an entry may replace a throw by a value.
#[test]
fn a_throw_may_be_replaced() {
    let mut stubs = Stubs::default()
        .with("m1", Does::Catches(Some(json!("fallback"))), &[])
        .with("execute", Does::Executes, &[])
        .with("tool", Does::Throws("E"), &["m1", "execute"]);
    assert_eq!(stubs.run("tool", json!({})).0, Ok(Some(json!("fallback"))));
}

/// D-0.1.2: an entry that swallows a refusal does not let the function run (`SwallowedThrow`).
#[test]
fn a_swallowed_refusal_never_runs_the_function() {
    let mut stubs = Stubs::default()
        .with("m1", Does::Catches(None), &[])
        .with("check", Does::Throws("refused"), &[])
        .with("later", Does::GivesNothing, &[])
        .with("tool", Does::Gives(json!(7)), &["m1", "check", "later"]);
    assert_eq!(stubs.run("tool", json!({})).0, Ok(None));
    assert_eq!(stubs.log(), "m1>");
    let mut machine = Machine::new(json!({}));
    machine.swallowed = Swallowed::GoesOn;
    machine.invoke(&mut stubs, "tool", json!({}), Options::default());
    assert!(matches!(machine.poll(&mut stubs), Some(Command::Finished { outcome: Ok(Some(_)), .. })));
    assert_eq!(stubs.log(), "m1> m1> later tool");
}

/// D-7.4, D-X12: a function without a result does not run a second time.
#[test]
fn a_function_that_gives_nothing_runs_once() {
    let mut stubs =
        Stubs::default().with("execute", Does::Executes, &[]).with("tool", Does::GivesNothing, &["execute"]);
    assert_eq!(stubs.run("tool", json!({})).0, Ok(None));
    assert_eq!(stubs.log(), "tool");
}

/// D-7.1, D-X17, D-X18: `$context` is an option, not an argument; an explicit option wins, field by field.
#[test]
fn options_are_taken_out_of_the_arguments() {
    let look = |view: &mut View<'_>| {
        let own = view.own();
        Some(json!({"args": *own.args, "u": own.nonlocals.get("u"), "v": own.locals.get("v")}))
    };
    let args = json!({"a": 1, "$context": {"nonlocals": {"u": 1}, "locals": {"v": 3}}});
    let explicit = Options { context: Some(json!({"nonlocals": {"u": 2}})), ..Options::default() };
    let mut stubs = Stubs::default()
        .with("sees", Does::Sees(look), &[])
        .with("plain", Does::Invokes("sees", args.clone(), Options::default()), &[])
        .with("explicit", Does::Invokes("sees", args, explicit), &[]);
    assert_eq!(stubs.run("plain", json!({})).0, Ok(Some(json!({"args": {"a": 1}, "u": 1, "v": 3}))));
    assert_eq!(stubs.run("explicit", json!({})).0, Ok(Some(json!({"args": {"a": 1}, "u": 2, "v": 3}))));
}

/// D-7.1: requests of others, perhaps of a model, contain arguments only, never options.
#[test]
fn arguments_of_tools_at_hand_hold_no_options() {
    let look = |view: &mut View<'_>| {
        let own = view.own();
        Some(json!({"args": *own.args, "u": own.nonlocals.get("u")}))
    };
    let args = json!({"$where": 1, "$context": {"nonlocals": {"u": 1}}});
    let mut stubs = Stubs::default().with("sees", Does::Sees(look), &[]);
    let tool = Arc::clone(&stubs.tools["sees"]);
    let mut machine = Machine::new(json!({}));
    machine.invoke_tool(tool, Arc::new(args.clone()), Options::default());
    let seen = loop {
        match machine.poll(&mut stubs) {
            Some(Command::Finished { outcome, .. }) => break outcome,
            Some(_) => {}
            None => panic!("it waits for nothing"),
        }
    };
    assert_eq!(seen, Ok(Some(json!({"args": args, "u": null}))));
}

/// D-8, D-X19: a callee sees the `nonlocals` of its caller, and its own changes stay with it.
#[test]
fn nonlocals_are_copied_downwards() {
    let set = |view: &mut View<'_>| {
        let seen = view.own().nonlocals.get("k").cloned();
        view.own_mut().take_over(&json!({"nonlocals": {"k": "child"}}));
        seen
    };
    let options = Options { context: None, ..Options::default() };
    let mut stubs = Stubs::default().with("child", Does::Sees(set), &[]).with(
        "parent",
        Does::Invokes("child", json!({"$context": {}}), options),
        &[],
    );
    let mut machine = Machine::new(json!({}));
    let given = Options { context: Some(json!({"nonlocals": {"k": "parent"}})), ..Options::default() };
    let id = machine.invoke(&mut stubs, "parent", json!({}), given);
    assert!(
        matches!(machine.poll(&mut stubs), Some(Command::Finished { outcome: Ok(Some(seen)), .. }) if seen == "parent")
    );
    assert_eq!(machine.take(id).unwrap().nonlocals.get("k"), Some(&json!("parent")));
}

/// D-8: everything below an invocation from outside has the id of that invocation's context.
#[test]
fn callees_know_the_context_of_the_first_invocation() {
    let set = |view: &mut View<'_>| view.own().nonlocals.get("rootContextId").cloned();
    let mut stubs = Stubs::default().with("child", Does::Sees(set), &[]).with(
        "parent",
        Does::Invokes("child", json!({}), Options::default()),
        &[],
    );
    let mut machine = Machine::new(json!({}));
    let id = machine.invoke(&mut stubs, "parent", json!({}), Options::default());
    let finished = machine.poll(&mut stubs);
    let Some(Command::Finished { outcome: Ok(Some(seen)), .. }) = finished else { panic!("{finished:?}") };
    let root = machine.take(id).expect("a context");
    assert_eq!((&seen, root.nonlocals.get("rootContextId")), (&json!(root.id.0), Some(&seen)));
}

/// D-7.1, D-X20: a missing skill is a throw at its caller.
#[test]
fn an_unknown_skill_is_a_throw() {
    let mut stubs = Stubs::default().with("tool", Does::Invokes("nope", json!({}), Options::default()), &[]);
    assert_eq!(stubs.run("tool", json!({})).0.unwrap_err().message, "skill not found: `nope`");
}

/// D-7.2, D-X24: an entry has a chain of its own, and its result is the target's.
#[test]
fn entries_have_chains_of_their_own() {
    let mut stubs = Stubs::default()
        .with("inner", Does::Gives(json!("by the inner one")), &[])
        .with("m1", Does::Throws("never"), &["inner"])
        .with("tool", Does::Throws("never"), &["m1"]);
    assert_eq!(stubs.run("tool", json!({})).0, Ok(Some(json!("by the inner one"))));
}

/// D-8, D-X25: history has a frame for every invocation on the way.
#[test]
fn history_ends_with_the_tool_itself() {
    let history = |view: &mut View<'_>| Some(Value::Array(view.own().history()));
    let mut stubs = Stubs::default().with("shell", Does::Sees(history), &[]).with(
        "greet",
        Does::Invokes("shell", json!({"cmd": "ls"}), Options::default()),
        &[],
    );
    let frames = stubs.run("greet", json!({"who": "Ann"})).0.unwrap().unwrap();
    assert_eq!(
        frames,
        json!([{"tool": "greet", "args": {"who": "Ann"}, "timestamp": 0}, {"tool": "shell", "args": {"cmd": "ls"}, "timestamp": 0}])
    );
}

/// D-0.1.11: the caller of a tool that an entry invokes is the tool that the entry serves; an exempt call has no caller.
#[test]
fn the_caller_is_the_tool_that_is_served() {
    let caller = |view: &mut View<'_>| Some(json!(view.caller().map(|caller| caller.tool.name.to_string())));
    let exempt = Options { is_exempt: true, ..Options::default() };
    let mut stubs = Stubs::default()
        .with("sees", Does::Sees(caller), &[])
        .with("entry", Does::Invokes("sees", json!({}), Options::default()), &[])
        .with("stage", Does::Invokes("sees", json!({}), exempt), &[])
        .with("tool", Does::GivesNothing, &["entry"])
        .with("other", Does::GivesNothing, &["stage"]);
    assert_eq!(stubs.run("tool", json!({})).0, Ok(Some(json!("tool"))));
    assert_eq!(stubs.run("other", json!({})).0, Ok(Some(Value::Null)));
}

/// D-7.2: an effect may request the rest of the chain and other tools while it runs.
#[test]
fn effects_ask_while_they_run() {
    let mut stubs = Stubs::default()
        .effect("limit", &[])
        .with("double", Does::Sees(|view| view.own().args["n"].as_i64().map(|n| json!(n * 2))), &[])
        .with("execute", Does::Executes, &[])
        .with("tool", Does::Gives(json!(7)), &["limit", "execute"]);
    let mut machine = Machine::new(json!({}));
    let id = machine.invoke(&mut stubs, "tool", json!({}), Options::default());
    let Some(Command::Run { call, context }) = machine.poll(&mut stubs) else { panic!("nothing to run") };
    assert_eq!(machine.context(context).unwrap().target, Some(id));
    assert!(machine.poll(&mut stubs).is_none());
    let mut ask = |machine: &mut Machine, request| {
        let asked = machine.request(call, request).unwrap();
        match machine.poll(&mut stubs) {
            Some(Command::Reply { token, outcome, .. }) if token == asked => outcome,
            other => panic!("{other:?}"),
        }
    };
    let double = Request::Invoke { reference: "double".into(), args: json!({"n": 4}), options: Box::default() };
    assert_eq!(ask(&mut machine, double), Ok(Some(json!(8))));
    assert_eq!(ask(&mut machine, Request::Next), Ok(Some(json!(7))));
    assert_eq!(ask(&mut machine, Request::Next), Ok(Some(json!(7))), "a chain that has run is not run again");
    machine.finish(call, Ok(Some(json!("redacted"))));
    assert!(
        matches!(machine.poll(&mut stubs), Some(Command::Finished { outcome: Ok(Some(value)), .. }) if value == "redacted")
    );
    assert!(machine.request(call, Request::Next).is_none());
}

/// D-7.5, D-8, D-X05: entries around a throw see it as `locals.error` of the target.
#[test]
fn a_throw_is_seen_by_the_entries_around_it() {
    let mut stubs = Stubs::default().effect("watch", &[]).with("execute", Does::Executes, &[]).with(
        "tool",
        Does::Throws("E"),
        &["watch", "execute"],
    );
    let mut machine = Machine::new(json!({}));
    machine.invoke(&mut stubs, "tool", json!({}), Options::default());
    let Some(Command::Run { call, .. }) = machine.poll(&mut stubs) else { panic!("nothing to run") };
    machine.request(call, Request::Next).unwrap();
    assert!(matches!(machine.poll(&mut stubs), Some(Command::Reply { outcome: Err(_), .. })));
    let (_, target) = machine.contexts_of(call).unwrap();
    assert_eq!(target.json(&Value::Null)["locals"]["error"]["message"], json!("E"));
    machine.finish(call, Ok(Some(json!("instead"))));
    assert!(matches!(machine.poll(&mut stubs), Some(Command::Finished { outcome: Ok(Some(_)), .. })));
}

/// D-7.1: a tool that invokes itself, in its function or as middleware, reaches an end, and the message shows the cycle.
#[test]
fn invocations_have_a_greatest_depth() {
    let invokes = |name| Does::Invokes(name, json!({}), Options::default());
    let mut stubs = Stubs::default().with("loop", invokes("loop"), &[]).with("layer", invokes("other"), &[]).with(
        "other",
        Does::GivesNothing,
        &["layer"],
    );
    for (name, way) in [("loop", "loop -> loop -> loop"), ("other", "other -> layer -> other")] {
        let throw = stubs.run(name, json!({})).0.unwrap_err();
        assert_eq!(throw.kind, ThrowKind::Definition, "{throw}");
        assert!(throw.message.contains("64") && throw.message.contains(way), "{throw}");
    }
}

/// D-7.2: an entry is called without arguments; with `EntryArguments::Value`, it gets the value of its key.
#[test]
fn entries_get_arguments_only_where_that_is_chosen() {
    let mut stubs = Stubs::default().with("limit", Does::Sees(|view| Some((*view.own().args).clone())), &[]);
    let mut tool = Tool::new("tool", ToolHandler::Nothing).with_chain(&["limit"]);
    tool.metadata = Arc::new(json!({"limit": {"rpm": 5}}));
    stubs.tools.insert("tool".to_owned(), Arc::new(tool));
    for (entries_get_values, seen) in [(false, json!({})), (true, json!({"rpm": 5}))] {
        let mut machine = Machine::new(json!({}));
        machine.entries_get_values = entries_get_values;
        machine.invoke(&mut stubs, "tool", json!({}), Options::default());
        assert!(
            matches!(machine.poll(&mut stubs), Some(Command::Finished { outcome: Ok(Some(value)), .. }) if value == seen)
        );
    }
}

/// D-15: every invocation is reported at its start and end, with the tool that it serves.
#[test]
fn invocations_are_reported() {
    let mut stubs = Stubs::default().with("m1", Does::GivesNothing, &[]).with("tool", Does::Throws("E"), &["m1"]);
    let mut machine = Machine::new(json!({}));
    machine.is_observed = true;
    machine.invoke(&mut stubs, "tool", json!({}), Options::default());
    let mut reported = Vec::new();
    while let Some(command) = machine.poll(&mut stubs) {
        if let Command::Event(event) = command {
            let kind = match event.kind {
                EventKind::Started => "started",
                EventKind::Ended => "ended",
                EventKind::Failed(_) => "failed",
            };
            reported.push(format!(
                "{} {kind}{}",
                event.tool,
                event.serves.map_or_else(String::new, |s| format!(" for {s}"))
            ));
        }
    }
    assert_eq!(reported, ["tool started", "m1 started for tool", "m1 ended for tool", "tool failed"]);
}

fn hooked(mut stubs: Stubs, name: &str, hooks: &[&str]) -> Stubs {
    let hooks = hooks.iter().map(|name| Arc::from(*name)).collect();
    let tool = Tool { hooks, ..Tool::clone(&stubs.tools[name]) };
    stubs.tools.insert(name.to_owned(), Arc::new(tool));
    stubs
}

/// D-4.7, D-15: hooks observe every entry, on the way in and out. Their results are ignored, and calls of a hook have no hooks.
#[test]
fn hooks_look_on_around_every_entry() {
    let stubs = Stubs::default()
        .with("a", Does::Wraps, &[])
        .with("b", Does::GivesNothing, &[])
        .with("inner", Does::GivesNothing, &[])
        .with("hook", Does::Looks, &["inner"])
        .with("second", Does::Throws("a hook of a hook is called"), &[])
        .with("tool", Does::Gives(json!(7)), &["a", "b"]);
    let mut stubs = hooked(hooked(stubs, "hook", &["second"]), "tool", &["hook"]);
    let (outcome, _) = stubs.run("tool", json!({}));
    assert_eq!(outcome, Ok(Some(json!(7))));
    let reported = "inner hook before a a> inner hook before b b inner hook after b a< inner hook after a tool";
    assert_eq!(stubs.log(), reported);
}

/// D-4.7: a hook observes a throw. Its own throw replaces the outcome of its entry but never hides another throw.
#[test]
fn hooks_are_notified_of_throws() {
    let with = |entry: Does, hook: Does| {
        let stubs = Stubs::default().with("a", entry, &[]).with("hook", hook, &[]);
        let mut stubs = hooked(stubs.with("tool", Does::Gives(json!(7)), &["a"]), "tool", &["hook"]);
        let (outcome, _) = stubs.run("tool", json!({}));
        (outcome.map_err(|throw| throw.message), stubs.log())
    };
    let (outcome, log) = with(Does::Throws("E"), Does::Looks);
    assert_eq!((outcome, log.as_str()), (Err("E".to_owned()), "hook before a hook error a"));
    let (outcome, log) = with(Does::GivesNothing, Does::Objects("before"));
    assert_eq!((outcome, log.as_str()), (Err("H".to_owned()), "hook before a"));
    let (outcome, log) = with(Does::GivesNothing, Does::Objects("after"));
    assert_eq!((outcome, log.as_str()), (Err("H".to_owned()), "hook before a a hook after a"));
    assert_eq!(with(Does::Throws("E"), Does::Objects("error")).0, Err("E".to_owned()));
}

//! `etude skill run`: calls a skill through its chain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use etude::invocation::agent::Agent;
use etude_core::model::Tier;
use etude_invoke::chain::{Throw, ThrowKind};
use etude_invoke::session::Gateway;
use etude_invoke::{Access, Bridge, BridgeSettings, BuiltinTool, Ended, SentVariable, Session};
use etude_models::Redactor;
use etude_process::StreamRedactor;
use etude_runtime::driver::Stop;
use etude_spec::cascade::arguments;
use etude_spec::skill::boolean_word;
use etude_tools::mcp::OnLog;
use serde_json::{Map, Value, json};

use super::followed::{Followed, finish_spans, redacted};
use super::project;
use super::watch::{self, Face};
use crate::args::SkillRun;
use crate::command::run::{pairs_of, read_input};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::text::{harmless, visible};
use crate::runtime::block_on;
use crate::telemetry::Telemetry;
use crate::typed::{Typed, typed};
use crate::{programs, settings, signals, stdout};

/// Gateway that asks the person at the terminal.
#[derive(Default)]
struct Terminal {
    /// True if Ctrl-C was pressed instead of an answer.
    is_stopped: AtomicBool,
}

impl Gateway for Terminal {
    fn ask(&self, question: &Value) -> Option<Value> {
        let text = question.get("question").and_then(Value::as_str).map_or_else(|| question.to_string(), str::to_owned);
        let options = question.get("options").and_then(Value::as_array);
        let options = options.map(|all| all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("/"));
        let options = options.map(|options| format!("[{options}] ")).unwrap_or_default();
        match typed(&format!("{} {}", visible(&text), visible(&options))).ok()? {
            Typed::Line(line) => Some(Value::from(line.trim())),
            Typed::End => None,
            Typed::Stopped(_) => {
                self.is_stopped.store(true, Ordering::Relaxed);
                None
            }
        }
    }
}

pub(crate) fn run(context: &Context, args: &SkillRun) -> Result<Exit, Refused> {
    if args.log.iter().any(String::is_empty) {
        match context.is_json() {
            true => stdout::json(&watch::listed()),
            false => stdout::text(&watch::listing()),
        }
        return Ok(Exit::Done);
    }
    let Some(name) = &args.name else {
        let problem = Problem::usage("name the skill to run");
        return Err(problem.hint("list the values of `--log`: etude skill run --log").into());
    };
    let asked = watch::Asked::parse(&args.log).map_err(Problem::usage)?;
    let project = project::open_for(context, &args.layers, name)?;
    let (mut params, mut log, mut servers) = (None, None, Value::Null);
    // A path may name a file outside of the search path; its faults are reported when it is called.
    if etude_spec::cascade::skill::is_bare_name(name) {
        let compiled = project::compile(&project, name)?;
        if is_for_agents_only(&compiled.skill.frontmatter()) {
            let why = format!("the skill `{name}` is background knowledge for agents and cannot be run by name");
            return Err(Problem::usage(why).hint(format!("read it: etude skill show {}", name)).into());
        }
        params = compiled.merged.get("params").cloned();
        log = compiled.merged.get("log").cloned();
        servers = compiled.merged.get("mcp").cloned().unwrap_or_default();
    }
    let json = args.arg_json.as_deref().map(given_json).transpose()?;
    let given = arguments::coerce(&pairs_of("--arg", &args.args)?, json, params.as_ref());
    let resolved = context.settings(&project.dir)?;
    let withheld_env = resolved.withheld_env.clone();
    let (dir, base_env, sent) = (project.dir.clone(), resolved.grants.server_env.clone(), sent(&resolved));
    settings::announce(&context.global, &resolved, &Tier::ALL);
    let redactor = Arc::new(Redactor::new(resolved.grants.secrets.iter()));
    let agent = agent(resolved, Arc::clone(&redactor));
    let terminal = Arc::new(Terminal::default());
    let mut access = Access {
        run_id: None,
        scratch: programs::middleware_settings().scratch,
        yolo: args.yolo,
        env: variables(&withheld_env),
        withheld_env,
        redactor: Some(Arc::clone(&redactor) as Arc<dyn StreamRedactor>),
        extra_env: programs::middleware_settings().extra_env,
        gateway: context.global.can_ask().then(|| Arc::clone(&terminal) as Arc<dyn Gateway>),
        handlers: BTreeMap::from([("agent".to_owned(), agent)]),
    };
    let face = Face::new(context.global.quiet, context.global.verbose, context.streams(), log.as_ref(), asked);
    let (followed, telemetry) = Followed::new(face, Telemetry::of_call(name), Arc::clone(&redactor));
    let mut ended = block_on(async {
        let mut stop = signals::listen()?;
        let (withheld, on_log) = (withheld(&access.withheld_env), Some(said(context, Arc::clone(&redactor))));
        let settings =
            BridgeSettings { base_env, dir: &dir, env: &access.env, withheld: &withheld, sent: &sent, on_log };
        let Some(bridge) = started(&servers, settings, &mut stop).await else { return Ok(never_begun(name)) };
        warn_of(&bridge, &redactor);
        if let Some(throw) = bridge.failure() {
            return Ok(redacted(&redactor, without(bridge, throw).await));
        }
        access.handlers.extend(bridge.handlers());
        let session =
            Session::new(project, access, Box::new(followed), true).map_err(|error| without_socket(&error))?;
        let ended = redacted(&redactor, session.invoke(name, given, stopped(&mut stop)).await);
        finish_spans(&telemetry, &ended).await;
        session.close();
        bridge.close().await;
        Ok::<_, Problem>(ended)
    })??;
    ended.is_cancelled |= terminal.is_stopped.load(Ordering::Relaxed);
    Ok(finish(context, &ended))
}

/// The tool `agent`, which sends no secret of the configuration to a model.
fn agent(resolved: settings::Resolved, redactor: Arc<Redactor>) -> BuiltinTool {
    let handler = Arc::new(Agent { models: settings::models(resolved), redactor });
    BuiltinTool { description: None, uri: None, metadata: Map::new(), handler }
}

fn without_socket(error: &std::io::Error) -> Problem {
    Problem::environment(format!("cannot create a socket for the programs of the skill: {error}"))
}

/// Completes when the user stops the call.
async fn stopped(stop: &mut tokio::sync::watch::Receiver<Stop>) {
    if stop.wait_for(|stop| *stop != Stop::No).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Starts the servers that a skill declares; `None` if the user stops the wait. A server may take a minute, or never start.
async fn started(
    servers: &Value,
    settings: BridgeSettings<'_>,
    stop: &mut tokio::sync::watch::Receiver<Stop>,
) -> Option<Bridge> {
    tokio::select! {
        bridge = Bridge::start(servers, settings) => Some(bridge),
        _ = stop.wait_for(|stop| *stop != Stop::No) => None,
    }
}

/// Variables, if set, that the user's configuration sends to hosts.
fn sent(resolved: &settings::Resolved) -> Vec<SentVariable> {
    let value = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let sent =
        |(name, to): &(String, _)| Some(SentVariable { name: name.clone(), to: Clone::clone(to), value: value(name)? });
    resolved.sent.iter().filter_map(sent).collect()
}

/// Variables that are set and withheld from all programs.
fn withheld(withheld_env: &[String]) -> Vec<String> {
    withheld_env.iter().filter(|name| std::env::var_os(name).is_some()).cloned().collect()
}

/// Reports the servers that did not start but that the skill does not need.
fn warn_of(bridge: &Bridge, redactor: &Redactor) {
    for problem in &bridge.problems {
        crate::render::say!("warning: {}", visible(&redactor.redact(problem)));
    }
}

/// Result of a call some of whose servers did not start; the others are closed.
async fn without(bridge: Bridge, throw: Throw) -> Ended {
    bridge.close().await;
    Ended { outcome: Err(throw), history: Vec::new(), is_cancelled: false }
}

/// Result of a call that was stopped before it began.
fn never_begun(name: &str) -> Ended {
    let outcome = Err(Throw::new(ThrowKind::Failed, name, "it was stopped"));
    Ended { outcome, history: Vec::new(), is_cancelled: true }
}

/// Variables that prompts and servers may name: all but the keys of model providers, which no child process receives either.
fn variables(redacted: &[String]) -> BTreeMap<String, String> {
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    all.filter(|(name, _)| !redacted.contains(name)).collect()
}

/// Prints the redacted stderr of servers, with `--verbose`.
fn said(context: &Context, redactor: Arc<Redactor>) -> OnLog {
    let is_verbose = context.global.is_verbose();
    Arc::new(move |server, line| {
        if is_verbose {
            crate::render::say!("    {} | {}", visible(server), visible(&redactor.redact(line)));
        }
    })
}

/// True if people may not call the skill by name (C-0.4, `user-invocable`).
fn is_for_agents_only(frontmatter: &Value) -> bool {
    let word = match frontmatter.get("user-invocable") {
        None => return false,
        // The key is there without a value.
        Some(Value::Null) => String::new(),
        Some(Value::String(word)) => word.clone(),
        Some(other) => other.to_string(),
    };
    boolean_word(&word) == Some(false)
}

fn given_json(given: &str) -> Result<Value, Problem> {
    let text = read_input(given)?;
    if let Some(problem) = Problem::of_rounded(&text) {
        return Err(problem);
    }
    serde_json::from_str(&text).map_err(|error| Problem::usage(format!("the arguments are not JSON: {error}")))
}

/// Prints the result, and returns its exit status.
fn finish(context: &Context, ended: &Ended) -> Exit {
    let (result, throw) = match &ended.outcome {
        Ok(result) => (result.as_ref(), None),
        Err(throw) => (None, Some(throw)),
    };
    if let Some(throw) = throw {
        crate::render::say!("error: {}", harmless(&throw.message));
    }
    let status = match (throw, ended.is_cancelled) {
        (None, _) => "succeeded",
        (Some(_), true) => "cancelled",
        (Some(_), false) => "failed",
    };
    if context.is_json() {
        let errors: Vec<Value> = throw.into_iter().map(Throw::json).collect();
        stdout::json(&json!({
            "status": status,
            "result": result,
            "undefined": throw.is_none() && result.is_none(),
            "errors": errors,
            "history": ended.history,
        }));
    } else if let (true, Some(Value::String(text))) = (context.is_raw, result) {
        stdout::line(text);
    } else if throw.is_none() {
        stdout::json(result.unwrap_or(&Value::Null));
    }
    match throw {
        None => Exit::Done,
        Some(_) if ended.is_cancelled => Exit::Interrupted,
        Some(throw) => exit(throw.kind),
    }
}

/// Exit status for an error of a call (D-0.1.12).
fn exit(kind: ThrowKind) -> Exit {
    match kind {
        ThrowKind::Arguments | ThrowKind::Unknown => Exit::Usage,
        ThrowKind::NotTrusted | ThrowKind::Environment => Exit::Environment,
        ThrowKind::Waiting => Exit::Waiting,
        ThrowKind::Definition => Exit::Definition,
        ThrowKind::Failed | ThrowKind::Returns | ThrowKind::NotAllowed => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-16: arguments are a tree. A number that it would round is refused, as it is for servers of tools.
    #[test]
    fn arguments_that_would_lose_digits_are_refused() {
        let problem = given_json(r#"{"id":[12345678901234567890123]}"#).expect_err("it would be another id");
        assert!(
            problem.failures[0].message.contains("the number 12345678901234567890123 would"),
            "{}",
            problem.failures[0].message
        );
        assert_eq!(
            given_json(r#"{"id":"12345678901234567890123","n":1.50}"#).map_err(|_| ()),
            Ok(json!({"id": "12345678901234567890123", "n": 1.5}))
        );
    }
}

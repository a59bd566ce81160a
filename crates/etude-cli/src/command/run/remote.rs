//! `etude run` and `etude machine run` on a server.

use etude_core::data::Json;
use etude_runs::target::Target;
use etude_spec::did_you_mean;
use etude_spec::input::InputDecl;
use serde_json::{Map, Value, json};

use super::{coerce, finished, input_text, pairs};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::remote::{Remote, Watching, percent, refuse_options};
use crate::render::summary::AfterDecision;
use crate::{signals, stdout};

/// Path that accepts runs.
pub(super) const RUNS: &str = "/v1/runs";

/// Hint for an option that a server does not accept.
const HERE: &str = "leave it out, or run without `--server` and `--web`";

pub(super) fn run(
    context: &Context,
    remote: &Remote,
    args: &args::Run,
    about: &mut Option<Target>,
) -> Result<Exit, Refused> {
    let terms = Terms::read(args)?;
    if let Some(earlier) = &args.again {
        return Ok(retry(context, remote, args, earlier, &terms, about)?);
    }
    let body = body(context, remote, args, &terms, about)?;
    if args.dry_run {
        let document = remote.post_for_text("/v1/runs?dry_run=true", &body)?;
        stdout::documents(|out| writeln!(out, "{document}"));
        return Ok(Exit::Done);
    }
    Ok(started(context, remote, RUNS, &body, &terms)?)
}

/// Options with which a run is submitted to the server.
#[derive(Debug, Default)]
pub(super) struct Terms {
    /// Members of the request.
    members: Map<String, Value>,
    key: Option<String>,
    /// True if the command does not wait for the run.
    is_detached: bool,
}

impl Terms {
    /// Reads the options of the command line. Options for the workers of a shared database are refused.
    #[cfg(feature = "postgres")]
    pub(super) fn read(args: &args::Run) -> Result<Self, Problem> {
        let given = &args.submission;
        refuse_options(&[
            (given.queue.is_some(), "--queue", "the server has one queue: leave the option out"),
            (given.bundle.is_some(), "--bundle", "the server runs its own apps: name one with `--app`"),
            (given.tenant.is_some(), "--tenant", "the run belongs to your token: leave the option out"),
        ])?;
        let is_key =
            |key: &String| (1..=255).contains(&key.len()) && key.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if given.key.as_ref().is_some_and(|key| !is_key(key)) {
            let problem = Problem::usage("`--key` of a run on a server has 1 to 255 printable ASCII characters");
            return Err(problem.hint("give another key"));
        }
        let mut members = Map::new();
        if let Some(priority) = given.priority {
            members.insert("priority".to_owned(), priority.into());
        }
        if !given.labels.is_empty() {
            let labels = given.labels.iter().map(|text| crate::command::label(text));
            let labels = labels.map(|pair| pair.map(|(name, value)| (name, Value::from(value))));
            members.insert("labels".to_owned(), Value::Object(labels.collect::<Result<_, _>>()?));
        }
        if let Some(at_ms) = given.not_before {
            members.insert("not_before".to_owned(), etude_runtime::clock::rfc3339(at_ms).into());
        }
        Ok(Self { members, key: given.key.clone(), is_detached: given.detach })
    }

    #[cfg(not(feature = "postgres"))]
    pub(super) fn read(_: &args::Run) -> Result<Self, Problem> {
        Ok(Self::default())
    }

    /// Refuses `--detach` where a run is shown in a browser.
    #[cfg(feature = "serve")]
    pub(super) fn refuse_detached(&self) -> Result<(), Problem> {
        if !self.is_detached {
            return Ok(());
        }
        let problem = Problem::usage(
            "`--web` and `--detach` exclude each other: `--web` follows the run, `--detach` does not wait",
        );
        Err(problem.hint("leave one of them out"))
    }

    /// Body of a request with these options and limits.
    fn in_body(&self, mut body: Value, limits: &args::Limits) -> Value {
        for (name, value) in &self.members {
            body[name] = value.clone();
        }
        let limits = limits_json(limits.max_cost, limits.max_tokens, limits.timeout);
        if !limits.is_null() {
            body["limits"] = limits;
        }
        body
    }

    /// Starts a run with these options. Returns its document, and whether it already existed under its key.
    pub(super) fn start(&self, remote: &Remote, path: &str, body: &str) -> Result<(Value, bool), Problem> {
        remote.start(path, body, self.key.as_deref())
    }
}

/// Body of the request for a run.
pub(super) fn body(
    context: &Context,
    remote: &Remote,
    args: &args::Run,
    terms: &Terms,
    about: &mut Option<Target>,
) -> Result<String, Problem> {
    let has_both = args.request.is_some() && args.pipeline.is_some();
    refuse_options(&[
        (has_both, "--pipeline with a request", "give the input with `-i KEY=VALUE`"),
        (args.dry_run && !context.is_json(), "--dry-run", "print its document with `--format json`"),
    ])?;
    only_here(args)?;
    match (&args.request, &args.pipeline) {
        (Some(request), _) => {
            let way = "name the pipeline: etude run --pipeline NAME -i KEY=VALUE";
            refuse_options(&[(!args.pairs.is_empty(), "-i with a request", way)])?;
            let input = args.input.as_deref().map(input_text).transpose()?;
            let head = head(&remote.app()?, ("request", request), &args.limits, terms);
            Ok(with_input(&head, input.as_deref()))
        }
        (None, Some(name)) => {
            *about = Some(Target::Pipeline(name.clone()));
            let (app, input) = input_of(remote, "pipelines", name, &args.pairs, args.input.as_deref())?;
            let head = head(&app, ("pipeline", name), &args.limits, terms);
            Ok(with_input(&head, Some(&input.text().unwrap_or_default())))
        }
        (None, None) => {
            let names = names(remote, &remote.app()?, "pipelines")?;
            let problem = Problem::usage("describe the task in words, or name a pipeline with `--pipeline NAME`");
            Err(problem.hint(of_app("pipelines", &names)))
        }
    }
}

pub(crate) fn run_machine(context: &Context, remote: &Remote, args: &args::MachineRun) -> Result<Exit, Refused> {
    of_this_machine(&args.granted, &args.limits)?;
    let (app, input) = input_of(remote, "machines", &args.name, &args.pairs, args.input.as_deref())?;
    let terms = Terms::default();
    let head = head(&app, ("machine", &args.name), &args.limits, &terms);
    let body = with_input(&head, Some(&input.text().unwrap_or_default()));
    Ok(started(context, remote, RUNS, &body, &terms)?)
}

/// Starts a run with the target and input of an earlier one on the server (A-5.6).
fn retry(
    context: &Context,
    remote: &Remote,
    args: &args::Run,
    earlier: &str,
    terms: &Terms,
    about: &mut Option<Target>,
) -> Result<Exit, Problem> {
    only_here(args)?;
    let run = remote.find(earlier)?;
    *about = run.target();
    let head = terms.in_body(json!({}), &args.limits);
    let is_same = args.pairs.is_empty() && args.input.is_none();
    let replaced = || -> Result<String, Problem> {
        let declared = match &*about {
            Some(Target::Pipeline(name)) => declared(remote, run.app(), "pipelines", name)?,
            Some(Target::Machine(name)) => declared(remote, run.app(), "machines", name)?,
            _ => InputDecl::default(),
        };
        let target = about.clone().unwrap_or(Target::Skill(String::new()));
        let input = super::again::replaced(run.input.get(), args, &target, &declared)?;
        Ok(input.text().map(|text| text.to_string()).unwrap_or_default())
    };
    let input = if is_same { None } else { Some(replaced()?) };
    started(context, remote, &format!("{RUNS}/{}/again", run.id), &with_input(&head, input.as_deref()), terms)
}

/// Refuses options of `etude run` that a server does not accept.
fn only_here(args: &args::Run) -> Result<(), Problem> {
    refuse_options(&[
        (args.skill, "--skill", "a server runs pipelines and machines: name one with `--pipeline NAME`"),
        (args.router.is_some(), "--router", "the server has its own router"),
        (args.refresh, "--refresh", HERE),
        (args.pull, "--pull", "download the model where the server is: etude model pull"),
    ])?;
    of_this_machine(&args.granted, &args.limits)
}

/// Refuses options that concern the machine on which the run executes.
fn of_this_machine(granted: &args::Granted, limits: &args::Limits) -> Result<(), Problem> {
    refuse_options(&[
        (!granted.read.is_empty(), "--read", HERE),
        (!granted.write.is_empty(), "--write", HERE),
        (granted.yolo, "--yolo", "the server's configuration decides: approvals: {mode: yolo} in etude.yaml"),
        (limits.strict, "--strict", HERE),
    ])
}

/// Request for a run of a target, without its input.
fn head(app: &str, (kind, name): (&str, &str), limits: &args::Limits, terms: &Terms) -> Value {
    terms.in_body(json!({"app": app, kind: name}), limits)
}

/// Body of a request for a run. The input is inserted byte for byte.
fn with_input(head: &Value, input: Option<&str>) -> String {
    let mut text = head.to_string();
    if let Some(input) = input {
        text.pop();
        let comma = if text == "{" { "" } else { "," };
        text.push_str(&format!(r#"{comma}"input":{input}}}"#));
    }
    text
}

/// The member `limits`; null without any limit.
pub(crate) fn limits_json(max_cost: Option<f64>, max_tokens: Option<u64>, timeout: Option<u64>) -> Value {
    let mut limits = Value::Null;
    if let Some(cost) = max_cost {
        limits["max_cost_usd"] = cost.into();
    }
    if let Some(tokens) = max_tokens {
        limits["max_tokens"] = tokens.into();
    }
    if let Some(timeout) = timeout {
        limits["timeout"] = format!("{timeout}ms").into();
    }
    limits
}

/// Name of the app, and the input coerced by its declaration there.
fn input_of(
    remote: &Remote,
    kind: &str,
    name: &str,
    typed: &[String],
    json: Option<&str>,
) -> Result<(String, Json), Problem> {
    let (typed, json) = (pairs(typed)?, json.map(input_text).transpose()?);
    let app = remote.app()?;
    let input = coerce(&declared(remote, &app, kind, name)?, &typed, json.as_deref())?;
    Ok((app, input))
}

/// The declared input of a pipeline or machine.
fn declared(remote: &Remote, app: &str, kind: &str, name: &str) -> Result<InputDecl, Problem> {
    let path = format!("/v1/apps/{}/{kind}/{}/schema", percent(app), percent(name));
    let schema = remote.get(&path, &[]).or_else(|problem| match problem.exit {
        Exit::Usage => Err(unknown(remote, app, kind, name)?),
        _ => Err(problem),
    })?;
    Ok(InputDecl::of_schema(&schema))
}

/// Problem for a name that the app does not have.
fn unknown(remote: &Remote, app: &str, kind: &str, name: &str) -> Result<Problem, Problem> {
    let known = names(remote, app, kind)?;
    let problem = Problem::usage(format!("there is no {} `{name}`", kind.trim_end_matches('s')));
    Ok(match did_you_mean(name, known.iter().map(String::as_str)) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem.hint(of_app(kind, &known)),
    })
}

/// Names of an app's definitions, for a hint.
fn of_app(kind: &str, names: &[String]) -> String {
    match (names, kind) {
        ([], "machines") => "this app has no machines; a machine is a file machines/NAME/machine.yaml".to_owned(),
        ([], _) => "this app has no pipelines; make one with `etude new NAME`".to_owned(),
        (names, kind) => format!("{kind} of this app: {}", names.join(", ")),
    }
}

/// Names of the app's pipelines or machines.
pub(crate) fn names(remote: &Remote, app: &str, kind: &str) -> Result<Vec<String>, Problem> {
    let document = remote.get(&format!("/v1/apps/{}", percent(app)), &[]).map_err(|problem| match problem.exit {
        Exit::Usage => Problem::usage(format!("{} has no app `{app}`", remote.described()))
            .hint("with `--server`, `--app` is one of the names that `etude serve` gives to its apps"),
        _ => problem,
    })?;
    let list = document[kind].as_array().cloned().unwrap_or_default();
    Ok(list.iter().filter_map(|entry| entry["name"].as_str()).map(str::to_owned).collect())
}

/// Starts a run and follows it to its end, unless it is detached.
fn started(context: &Context, remote: &Remote, path: &str, body: &str, terms: &Terms) -> Result<Exit, Problem> {
    // From now on, signals are for the run, even before its id is known.
    let stop = if terms.is_detached { None } else { Some(signals::listen()?) };
    let (run, is_replayed) = terms.start(remote, path, body)?;
    let id = run["run_id"].as_str().unwrap_or_default();
    if terms.is_detached {
        detached(context, id, is_replayed);
        return Ok(Exit::Done);
    }
    let ended = remote.follow(context, id, Watching { stop, ..Watching::default() })?.into_ended();
    Ok(finished(context, None, &ended, AfterDecision::Watch))
}

/// Prints the id of a detached run.
pub(super) fn detached(context: &Context, run_id: &str, is_replayed: bool) {
    if context.is_json() {
        stdout::json(&json!({"run_id": run_id, "status": "queued", "replayed": is_replayed}));
        return;
    }
    stdout::line(run_id);
    if !context.global.quiet {
        crate::render::say_hint!("follow it with: etude runs watch {run_id}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cli: the hint for an app without machines does not list any.
    #[test]
    fn an_app_without_any_says_so() {
        assert_eq!(of_app("machines", &["a".to_owned(), "b".to_owned()]), "machines of this app: a, b");
        assert!(of_app("machines", &[]).starts_with("this app has no machines"));
        assert!(of_app("pipelines", &[]).starts_with("this app has no pipelines"));
    }
}

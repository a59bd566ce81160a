//! `etude run`: runs a pipeline and prints its output.

mod again;
pub(crate) mod answer;
mod dry;
mod input;
pub(crate) mod remote;
#[cfg(feature = "postgres")]
pub(crate) mod submit;
#[cfg(feature = "serve")]
mod web;

use std::borrow::Cow;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use etude::Disk;
use etude::definition::{self, Configuration, Definition, LoadError};
use etude::runner::{Error, Request, RunResult, Runner, Watch};
use etude::skill_mode;
use etude_core::data::Json;
use etude_core::digest::Digest;
use etude_core::failure::{Failure, FailureKind};
use etude_core::machine::Limits;
use etude_core::model::{Tier, Usage};
use etude_core::shell;
use etude_runs::document::{Document, write_json};
use etude_runs::header::Granted;
use etude_runs::target::Target;
use etude_runtime::driver::Progress;
use etude_spec::did_you_mean;
use etude_spec::input::{InputDecl, InputProblem};
use etude_spec::lower::REQUEST;
use serde_json::Value;

pub(crate) use input::{input_text, pairs, pairs_of, read_input};

use super::by_path;
use super::route::{Finding, Found};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::summary::AfterDecision;
use crate::render::text::harmless;
use crate::render::{self, events};
use crate::runtime::block_on;
use crate::settings::Need;
use crate::telemetry::Telemetry;
use crate::{settings, signals, stdout};

pub(crate) fn run(context: &Context, args: &args::Run) -> Exit {
    // Target of the documents, if known.
    let mut about = match &args.pipeline {
        Some(name) => Some(Target::Pipeline(name.clone())),
        None => args.skill.then(|| Target::Skill(String::new())),
    };
    let done = prepared_and_run(context, args, &mut about);
    done.unwrap_or_else(|refused| context.refuse(about.as_ref(), &refused))
}

fn prepared_and_run(context: &Context, args: &args::Run, about: &mut Option<Target>) -> Result<Exit, Refused> {
    // Typing errors are reported before a model call costs anything.
    // On a fleet, folders are those of the workers.
    let granted = if context.is_shared() { Granted::default() } else { granted(&args.granted)? };
    #[cfg(feature = "serve")]
    if args.web {
        return web::run(context, args, about);
    }
    if let Some(remote) = context.server()? {
        return remote::run(context, &remote, args, about);
    }
    // The name of a bundle is looked up once: a push in between may give the name to another bundle.
    let (disk, bundle) = named_bundle(context, args)?.unzip();
    let prepared = match &args.again {
        Some(run) => again::prepare(context, args, (run.as_str(), disk), about)?,
        None => prepare(context, args, disk, about)?,
    };
    *about = Some(prepared.definition.target.clone());
    if args.dry_run {
        return Ok(dry::show(context, &prepared.definition, &prepared.input, &limits(&args.limits)));
    }
    #[cfg(feature = "postgres")]
    match context.is_shared() {
        true => return Ok(submitted(context, args, prepared, bundle)?),
        false => submit::refuse_without_database(&args.submission)?,
    }
    #[cfg(not(feature = "postgres"))]
    let _: Option<Digest> = bundle;
    let spent = prepared.spent;
    start(context, args, prepared, granted).map_err(|problem| problem.spent_before(spent).into())
}

/// A definition with its input, ready to run.
struct Prepared {
    disk: Disk,
    definition: Definition,
    input: Json,
    /// Usage of routing.
    spent: Usage,
    /// Record of the routing of a request.
    routing: Option<Value>,
    /// Id of the earlier run with the same target and input.
    again_of: Option<String>,
    /// The request as typed and the values given besides, if the input joins them.
    asked: Option<Value>,
}

/// Prepares a run of the app of a bundle, or of the app here.
fn prepare(
    context: &Context,
    args: &args::Run,
    bundled: Option<Disk>,
    about: &mut Option<Target>,
) -> Result<Prepared, Refused> {
    let disk = bundled.map_or_else(|| context.disk(), Ok)?;
    if args.request.as_deref().is_some_and(|request| request.trim().is_empty()) {
        return Err(Problem::usage("the request is empty").hint("describe the task in words").into());
    }
    let pipeline = args.pipeline.as_deref().map(|name| by_path::name(disk.root(), name)).transpose()?;
    if let Some(name) = &pipeline {
        super::learn::check_named(context, &disk, name)?;
    }
    let pairs = pairs(&args.pairs)?;
    let json = args.input.as_deref().map(input_text).transpose()?;
    if let (true, Some(request)) = (args.skill, &args.request) {
        return in_skill_mode(context, disk, request, &pairs, json.as_deref(), Before::default());
    }
    let Some(request) = &args.request else {
        let name = pipeline.as_deref().ok_or_else(|| nothing_to_run(&disk))?;
        let definition = load(context, &disk, name)?;
        let input = coerce(&definition.input, &pairs, json.as_deref())?;
        return Ok(Prepared {
            disk,
            definition,
            input,
            spent: Usage::default(),
            routing: None,
            again_of: None,
            asked: None,
        });
    };
    let given = super::route::Given { pairs: &pairs, json: json.as_deref() };
    let asked = super::route::Asked {
        request,
        pipeline: pipeline.as_deref(),
        mode: args.router,
        need: need(args),
        timeout_ms: args.limits.timeout,
    };
    let found = match super::route::find(context, &disk, &asked, &given)? {
        Finding::Pipeline(found) => found,
        Finding::Nothing { spent, trail } => {
            *about = Some(Target::Skill(String::new()));
            let before = Before { spent, routing: Some(trail.to_json()) };
            return in_skill_mode(context, disk, request, &pairs, json.as_deref(), before);
        }
    };
    match coerce(&found.definition.input, &found.pairs, Some(&found.json)) {
        Ok(input) => clear(context, disk, *found, input),
        // Only missing parameters fall back to SKILL.md; typing errors are reported.
        Err(problem)
            if args.pipeline.is_none() && found.pairs.is_empty() && json.is_none() && skill_mode::is_there(&disk) =>
        {
            if !can_follow(context, &disk)? {
                return Err(unfollowed(problem, &found.definition).spent(found.spent).into());
            }
            note_followed(context, &problem, &found.definition);
            *about = Some(Target::Skill(String::new()));
            let before = Before { spent: found.spent, routing: Some(found.trail.to_json()) };
            in_skill_mode(context, disk, request, &pairs, None, before)
        }
        Err(problem) => Err(problem.spent(found.spent).into()),
    }
}

/// The problem of a command without a request and without a pipeline.
fn nothing_to_run(disk: &Disk) -> Refused {
    let unlisted = definition::unlisted(disk);
    if !unlisted.is_empty() {
        return unlisted.into();
    }
    let known = etude_spec::App::new(disk).discovery().pipelines.join(", ");
    let problem = Problem::usage("describe the task in words, or name a pipeline with `--pipeline NAME`");
    match known.is_empty() {
        true => problem.hint("this app has no pipelines; make one with `etude new NAME`"),
        false => problem.hint(format!("pipelines of this app: {known}")),
    }
    .into()
}

/// Notes that SKILL.md is followed instead of a pipeline, and the parameters that the request lacks.
fn note_followed(context: &Context, problem: &Problem, definition: &Definition) {
    if context.global.quiet {
        return;
    }
    let name = definition.target.to_string();
    for failure in &problem.failures {
        crate::render::say!("note: {name}: {}", failure.message);
    }
    crate::render::say!("note: the request lacks required parameters of `{name}`; following SKILL.md");
    if context.is_shared() {
        crate::render::say!("hint: to run the pipeline instead, set the parameters: {}", by_name(definition));
    }
}

/// True unless SKILL.md cannot be followed for lack of a model. A withheld model counts as available, because it has a remedy
/// of its own. On a fleet, the agent and its model are those of a worker.
pub(super) fn can_follow(context: &Context, disk: &Disk) -> Result<bool, Refused> {
    if context.is_shared() {
        return Ok(true);
    }
    let tiers: Vec<Tier> = load_skill(context, disk, "")?.tiers().into_iter().collect();
    let resolved = settings::ready(&context.global, context.settings(disk.root())?, &tiers, Need::Look)?;
    Ok(tiers.iter().all(|tier| resolved.has_model(*tier) || resolved.withheld(*tier).is_some()))
}

/// Problem of missing parameters, where no model could follow SKILL.md instead. Its hint names all of them, in place of the first.
fn unfollowed(problem: Problem, definition: &Definition) -> Problem {
    Problem { hints: Vec::new(), ..problem }
        .hint(format!("set the parameters: {}", by_name(definition)))
        .hint(format!("or let a model extract them from the request: {}", settings::REMEDIES))
}

/// Command line that runs a pipeline or machine by its name, with its required parameters.
fn by_name(definition: &Definition) -> String {
    let input = &definition.input;
    let is_needed = |name: &&str| input.parameter(name).is_some_and(|known| known.required && known.default.is_none());
    let pairs: String = input.names().into_iter().filter(is_needed).map(|name| format!(" -i {name}=…")).collect();
    let (what, name) = match (definition.target.machine(), definition.target.pipeline()) {
        (Some(name), _) => ("machine run", name),
        (None, name) => ("run --pipeline", name.unwrap_or_default()),
    };
    format!("etude {what} {}{pairs}", shell::word(name))
}

/// Prepares a run from a request, if no value would be dropped for a default. Prints the source of each value.
fn clear(context: &Context, disk: Disk, mut found: Found, input: Json) -> Result<Prepared, Refused> {
    if let Some(problem) = super::route::unclear(&found.extracted.unclear) {
        return Err(problem.spent(found.spent).into());
    }
    found.trail.sources = found.sources_of(&input);
    if !context.global.quiet && !found.trail.sources.is_empty() {
        let shown: Vec<String> = found.trail.sources.iter().map(|source| harmless(&source.shown())).collect();
        crate::render::say!("input: {}", shown.join(", "));
    }
    let routing = Some(found.trail.to_json());
    Ok(Prepared { disk, definition: found.definition, input, spent: found.spent, routing, again_of: None, asked: None })
}

/// Usage and record of the routing before a run.
#[derive(Default)]
struct Before {
    spent: Usage,
    routing: Option<Value>,
}

/// Skill mode: the request and the values given besides are the input of an agent.
fn in_skill_mode(
    context: &Context,
    disk: Disk,
    request: &str,
    pairs: &[(String, String)],
    json: Option<&str>,
    before: Before,
) -> Result<Prepared, Refused> {
    let Before { spent, routing } = before;
    let definition = load_skill(context, &disk, "").map_err(|refused| refused.spent(spent))?;
    let mut text = request.to_owned();
    if let Some(json) = json {
        text.push_str(&format!("\n\nInput: {}", json.trim()));
    }
    for (name, value) in pairs {
        text.push_str(&format!("\n\n{name}: {value}"));
    }
    let input = Json::of(&serde_json::json!({ REQUEST: text }));
    let asked = Some(asked(request, pairs, json));
    Ok(Prepared { disk, definition, input, spent, routing, again_of: None, asked })
}

/// The request and the values given besides, as separate members (L-1).
fn asked(request: &str, pairs: &[(String, String)], json: Option<&str>) -> Value {
    let mut input = match json.map(serde_json::from_str) {
        Some(Ok(Value::Object(members))) => members,
        _ => serde_json::Map::new(),
    };
    input.extend(pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into())));
    serde_json::json!({"request": request, "input": input})
}

/// Loads the app's SKILL.md. `name` is the target's name in an earlier run.
fn load_skill(context: &Context, disk: &Disk, name: &str) -> Result<Definition, Refused> {
    let defaults = context.settings(disk.root())?.agent;
    skill_mode::load_as(disk, defaults, name).map_err(|error| match error {
        LoadError::Invalid(diagnostics) => diagnostics.into(),
        LoadError::Unknown { .. } => {
            let problem = Problem::usage("this app has no SKILL.md, so there is no skill mode");
            let known = etude_spec::App::new(disk).discovery().pipelines.join(", ");
            Refused::Problem(match known.is_empty() {
                true => problem,
                false => problem.hint(format!("pipelines of this app: {known}")),
            })
        }
    })
}

/// Loads the definition of a target of any kind.
pub(crate) fn load_target(context: &Context, disk: &Disk, target: &Target) -> Result<Definition, Refused> {
    match target {
        Target::Pipeline(name) => load(context, disk, name),
        Target::Skill(name) => load_skill(context, disk, name),
        Target::Machine(name) => super::machine::load(context, disk, name),
    }
}

/// Loads a pipeline. If there is none of that name, the error lists the existing ones.
pub(crate) fn load(context: &Context, disk: &Disk, name: &str) -> Result<Definition, Refused> {
    loaded(name, definition::load(disk, name, &configuration(context, disk)?))
}

/// Loads a candidate of `learned/`.
pub(crate) fn load_candidate(context: &Context, disk: &Disk, name: &str) -> Result<Definition, Refused> {
    loaded(name, definition::load_candidate(disk, name, &configuration(context, disk)?))
}

fn configuration(context: &Context, disk: &Disk) -> Result<Configuration, Problem> {
    let settings = context.settings(disk.root())?;
    Ok(Configuration { machines: settings.machines, agent: settings.agent })
}

fn loaded(name: &str, loaded: Result<Definition, LoadError>) -> Result<Definition, Refused> {
    loaded.map_err(|error| match error {
        LoadError::Invalid(diagnostics) => diagnostics.into(),
        LoadError::Unknown { known } => {
            let problem = Problem::usage(format!("there is no pipeline `{name}`"));
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            Refused::Problem(match did_you_mean(name, known.iter().copied()) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None if known.is_empty() => problem.hint("this app has no pipelines; make one with `etude new NAME`"),
                None => problem.hint(format!("pipelines of this app: {}", known.join(", "))),
            })
        }
    })
}

/// Input object, or all of its faults.
pub(crate) fn coerce(input: &InputDecl, pairs: &[(String, String)], json: Option<&str>) -> Result<Json, Problem> {
    input.coerce(pairs, json).map_err(unfit)
}

/// Problem of an invalid input.
pub(crate) fn unfit(problems: Vec<InputProblem>) -> Problem {
    let failure = |problem: &InputProblem| Failure::new(FailureKind::InputInvalid, problem.message.clone());
    let whole = Problem::of_failures(problems.iter().map(failure).collect());
    problems.into_iter().filter_map(|problem| problem.hint).fold(whole, Problem::hint)
}

/// Runs a definition without any display.
pub(crate) fn unwatched(
    runner: &Runner,
    of: (&Definition, &Disk),
    request: Request,
) -> Result<Result<RunResult, Error>, Problem> {
    observed(runner, of, request, &mut |_| {})
}

/// Runs a definition without any display, and passes its events to `emit`.
pub(crate) fn observed(
    runner: &Runner,
    (definition, disk): (&Definition, &Disk),
    request: Request,
    emit: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<Result<RunResult, Error>, Problem> {
    block_on(async {
        let stop = signals::listen()?;
        let watch = Watch { emit, stop, streams_completions: false, observes_invocations: false };
        Ok(runner.start(definition, disk, request, watch).await)
    })?
}

/// Submits the run to the workers of a fleet. It runs elsewhere, in the directory of its app.
#[cfg(feature = "postgres")]
fn submitted(context: &Context, args: &args::Run, prepared: Prepared, bundle: Option<Digest>) -> Result<Exit, Problem> {
    let Prepared { disk, definition, input, spent, routing, again_of, asked } = prepared;
    warn_of_unknown_prices(context, args, &definition)?;
    let request = Request {
        limits: limits(&args.limits),
        granted: submit::granted(&args.granted),
        spent,
        refresh: args.refresh,
        routing,
        again_of,
        asked,
        ..Request::new(input, String::new())
    };
    let submitted =
        submit::Submitted { disk: &disk, definition: &definition, bundle, request, terms: &args.submission };
    submit::submit(context, &*context.engine(args.limits.strict)?, submitted)
}

/// The bundle of `--bundle`, and its app.
fn named_bundle(context: &Context, args: &args::Run) -> Result<Option<(Disk, Digest)>, Problem> {
    #[cfg(feature = "postgres")]
    if let Some(named) = &args.submission.bundle {
        crate::command::engine::check_named(context)?;
        let engine = context.engine(false)?;
        let kept = crate::bundles::find(&*engine, named)?;
        let dir = crate::bundles::workspace::shared(&*engine, kept.digest)?;
        let disk =
            Disk::open(&dir).map_err(|e| Problem::environment(format!("`{}` cannot be opened: {e}", dir.display())))?;
        return Ok(Some((disk, kept.digest)));
    }
    let _ = (context, args);
    Ok(None)
}

fn start(context: &Context, args: &args::Run, prepared: Prepared, granted: Granted) -> Result<Exit, Problem> {
    let Prepared { disk, definition, input, spent, routing, again_of, asked } = prepared;
    context.show(&definition.warnings);
    let runner = context.runner(&disk, &definition, context.engine(args.limits.strict)?, need(args))?;
    let (limits, caller_dir) = (limits(&args.limits), context.caller_dir());
    let refresh = args.refresh;
    let request =
        Request { limits, spent, granted, refresh, routing, again_of, asked, ..Request::new(input, caller_dir) };
    run_to_end(context, &runner, &definition, &disk, request)
}

/// Starts a run, asks the questions that it waits for at the terminal, and prints its result.
pub(crate) fn run_to_end(
    context: &Context,
    runner: &Runner,
    definition: &Definition,
    disk: &Disk,
    request: Request,
) -> Result<Exit, Problem> {
    let started = async |watch: Watch<'_>| runner.start(definition, disk, request, watch).await;
    let ended = watched(context, &definition.target, started)?;
    let ended = answer::while_waiting(context, runner, definition, ended)?;
    conclude(context, definition, disk, ended)
}

/// Prints the result of a run, then does the follow-up work.
pub(crate) fn conclude(
    context: &Context,
    definition: &Definition,
    disk: &Disk,
    ended: Result<RunResult, Error>,
) -> Result<Exit, Problem> {
    let is_good = |ended: &&RunResult| ended.document.status() == "succeeded";
    let succeeded = ended.as_ref().ok().filter(is_good).map(|ended| ended.run_id.clone());
    let exit = finish(context, Some(disk), ended)?;
    after(context, definition, disk, succeeded.as_deref());
    Ok(exit)
}

/// Follow-up of a run: its pipeline may be demoted, candidates may shadow it. Neither changes the result of the run.
fn after(context: &Context, definition: &Definition, disk: &Disk, succeeded: Option<&str>) {
    let calls_pipelines = definition.plan.pipeline_tools().next().is_some();
    if calls_pipelines && let Err(problem) = super::learn::settle_after(context, disk) {
        say_first(context, &problem);
    }
    let done = match (&definition.target, succeeded) {
        (Target::Skill(_), Some(run)) => {
            super::learn::begin_shadow(context, disk, run).and_then(|_| super::learn::notice(context, disk, run))
        }
        (Target::Pipeline(_), _) if definition.learned.is_some() => super::learn::settle_after(context, disk),
        _ => Ok(()),
    };
    if let Err(problem) = done {
        say_first(context, &problem);
    }
}

fn say_first(context: &Context, problem: &Problem) {
    context.say_more(|| problem.failures.first().map(|failure| failure.message.clone()).unwrap_or_default());
}

/// Grants of the command line, with absolute folders, so that a resume from elsewhere finds them.
pub(crate) fn granted(args: &args::Granted) -> Result<Granted, Problem> {
    let whole = |dir: &PathBuf| {
        let shown = dir.display();
        dir.canonicalize().map_err(|e| Problem::usage(format!("cannot open the directory `{shown}`: {e}")))
    };
    Ok(Granted {
        read: args.read.iter().map(whole).collect::<Result<_, _>>()?,
        write: args.write.iter().map(whole).collect::<Result<_, _>>()?,
        yolo: args.yolo,
    })
}

/// Behaviour if weights are missing.
fn need(args: &args::Run) -> Need {
    if args.pull { Need::Pull } else { Need::Ask }
}

/// Warns about models of unknown price. A worker refuses a run with a cost limit if it does not know a price, but it may be
/// configured differently from this machine.
#[cfg(feature = "postgres")]
fn warn_of_unknown_prices(context: &Context, args: &args::Run, definition: &Definition) -> Result<(), Problem> {
    if args.limits.max_cost.is_none() || context.global.quiet {
        return Ok(());
    }
    for model in settings::unpriced(&context.settings(&definition.app)?, definition) {
        crate::render::say!("warning: --max-cost needs the price of `{model}`, which is not configured here");
        crate::render::say!("hint: set it under `prices` in the configuration of the workers, or use --max-tokens\n");
    }
    Ok(())
}

pub(crate) fn limits(args: &args::Limits) -> Limits {
    Limits { max_cost_usd: args.max_cost, max_tokens: args.max_tokens, timeout_ms: args.timeout }
}

/// Runs `work` with a display, and lets signals stop it.
pub(crate) fn watched(
    context: &Context,
    target: &Target,
    work: impl AsyncFnOnce(Watch<'_>) -> Result<RunResult, Error>,
) -> Result<Result<RunResult, Error>, Problem> {
    let mut face = context.face();
    let is_of_machine = target.machine().is_some();
    let mut lines = context.streams().then(|| events::Lines::new(is_of_machine));
    let mut telemetry = Telemetry::of_run(target);
    let result = block_on(async {
        let stop = signals::listen()?;
        let is_verbose = context.global.is_verbose();
        let (streams_completions, observes_invocations) =
            (context.streams_completions(), is_verbose || telemetry.is_on());
        let mut emit = |progress: Progress<'_>| {
            telemetry.observe(&progress);
            if let Progress::Stderr { effect, .. } = &progress {
                context.note_streamed(effect);
            }
            if !is_verbose && matches!(&progress, Progress::Middleware(reported) if reported.id != 0) {
                return;
            }
            face.show(&progress);
            if let Some(event) = lines.as_mut().and_then(|lines| lines.json(&progress)) {
                stdout::json(&event);
            }
        };
        let ended = work(Watch { emit: &mut emit, stop, streams_completions, observes_invocations }).await;
        telemetry.finish_run(&ended).await;
        Ok(ended)
    })?;
    face.close();
    result
}

/// Prints the result of a run, and returns its exit status.
fn finish(context: &Context, disk: Option<&Disk>, ended: Result<RunResult, Error>) -> Result<Exit, Problem> {
    let ended = ended.map_err(|error| render::stopped::problem(&error))?;
    Ok(finished(context, disk.map(Disk::root), &ended, AfterDecision::Resume))
}

/// Prints the result of a run, and returns its exit status. `app` is the directory of its app, if that is here.
pub(crate) fn finished(context: &Context, app: Option<&Path>, ended: &RunResult, after: AfterDecision) -> Exit {
    for (at, failure) in ended.errors.iter().enumerate() {
        crate::render::say!("");
        let has_streamed = failure.step.as_deref().is_some_and(|step| context.has_streamed(step));
        let failure = Cow::Borrowed(failure);
        let failure = if has_streamed { Cow::Owned(Failure { stderr: None, ..failure.into_owned() }) } else { failure };
        crate::render::say_part!("{}", render::failure::text(&failure, app, at > 0));
    }
    if !context.global.quiet {
        render::summary::show(ended, after);
    }
    print(context, &ended.document);
    if ended.document.status() == "waiting" {
        return Exit::Waiting;
    }
    Exit::of_failures(&ended.errors)
}

/// Prints the result document, or for people the output alone: a string as text on a terminal and with `--raw`, else as JSON.
pub(crate) fn print(context: &Context, document: &Document) {
    if context.is_json() {
        return stdout::document(document);
    }
    // A machine that did not succeed has no output; the result of its last finished stage does not count.
    if document.machine.is_some() && document.status() != "succeeded" {
        return;
    }
    let Some(output) = &document.output else { return };
    if (context.is_raw || std::io::stdout().is_terminal())
        && let Ok(text) = output.text()
        && let Ok(string) = serde_json::from_str::<String>(&text)
    {
        return stdout::line(&string);
    }
    stdout::documents(|out| {
        write_json(output, out)?;
        out.write_all(b"\n")
    });
}

//! `etude test`: the app's own tests, with recorded model answers.
//!
//! A test is a file `tests/NAME.yaml` of the app: which pipeline or machine is run with which input, where the recordings of
//! its model calls are, and what is expected. Nothing is asked of any model unless `--record` is given. Where the app has
//! packages, each test runs in a copy of it without their state.

mod case;
mod verdict;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use etude::Disk;
use etude::agent::Grants;
use etude::runner::{Request, Runner};
use etude_core::failure::FailureKind;
use etude_core::model::Tier;
use etude_core::report::duration;
use etude_evidence::rehearsal::Rehearsal;
use etude_models::{ModelId, ProviderKind, ProviderSettings};
use etude_packages::applications::copy_without_state;
use etude_process::blob::FileBlobs;
use etude_runs::target::Target;
use etude_runtime::driver::Stop;
use etude_runtime::memory::MemoryEngine;
use etude_spec::learned::Located;
use serde_json::{Value, json};

use super::run::{coerce, load_target, unwatched};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::text::harmless;
use crate::{programs, settings, signals, stdout};
use case::Case;

pub(crate) fn test(context: &Context, args: &args::Test) -> Exit {
    match run_all(context, args) {
        Ok(exit) => exit,
        Err(refused) => context.refuse(None, &refused),
    }
}

fn run_all(context: &Context, args: &args::Test) -> Result<Exit, Refused> {
    let disk = context.disk()?;
    if !context.global.quiet {
        case::misnamed(&disk).iter().for_each(settings::warn);
    }
    let mut cases = case::find(&disk)?;
    if let Some(name) = &args.name {
        cases.retain(|case| case.name.contains(name.as_str()));
    }
    if cases.is_empty() {
        return Err(none(args.name.as_deref()).into());
    }
    let results = run_cases(context, &disk, &cases, (args.record, false))?;
    Ok(conclude(context, &results))
}

/// What came of a case: everything that was not as expected, and how long it took.
pub(crate) struct Tested {
    /// The case.
    pub(crate) name: String,
    target: Target,
    /// What was not as expected.
    pub(crate) faults: Vec<String>,
    duration_ms: u64,
}

/// Runs the cases of learned pipelines: those of candidates in `learned/NAME/tests/`, those of others in `tests/`, or still beside the
/// pipeline if its promotion was interrupted.
pub(crate) fn of_learned(
    context: &Context,
    disk: &Disk,
    learned: &[Located],
    is_quiet: bool,
) -> Result<Vec<Tested>, Refused> {
    let mut cases = Vec::new();
    for one in learned {
        match one.is_candidate() {
            true => cases.extend(case::of_candidate(disk, &one.name)?),
            false => {
                cases.extend(case::find(disk)?.into_iter().filter(|case| case.is_of(&one.name)));
                cases.extend(case::beside(disk, &one.name)?);
            }
        }
    }
    run_cases(context, disk, &cases, (false, is_quiet))
}

/// Runs the cases of a candidate with these names, and says nothing about them.
pub(crate) fn some_of_candidate(
    context: &Context,
    disk: &Disk,
    name: &str,
    cases: &[String],
) -> Result<Vec<Tested>, Refused> {
    let cases = case::some_of_candidate(disk, name, cases.to_vec())?;
    run_cases(context, disk, &cases, (false, true))
}

/// `record` asks models for what is not recorded, `is_quiet` says nothing about each case.
fn run_cases(
    context: &Context,
    disk: &Disk,
    cases: &[Case],
    (record, is_quiet): (bool, bool),
) -> Result<Vec<Tested>, Refused> {
    // The app's own configuration is the one that is remembered: copies of the app have the same.
    let resolved = context.settings(disk.root())?;
    if record {
        settings::announce(&context.global, &resolved, &Tier::ALL);
    }
    let scratch = crate::paths::scratch("test").map_err(Problem::environment)?;
    let scratch = scratch.path();
    // Each case listens for signals itself; what comes ends all of them.
    let stop = signals::listen()?;
    let mut results = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let start = Instant::now();
        let own = fresh(disk, &scratch.join(format!("app-{number}")))?;
        let responses = recorded(context.settings(disk.root())?, disk, case, record)?;
        let faults = run_one(context, own.as_ref().unwrap_or(disk), case, scratch, responses)?;
        if let Stop::Cancel(why) | Stop::Kill(why) = &*stop.borrow() {
            let message = format!("the test `{}` was {why}; {number} of {} had been run", case.name, cases.len());
            return Err(Problem::new(Exit::Interrupted, FailureKind::Cancelled, message).into());
        }
        let duration_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        if !context.global.quiet && !is_quiet {
            let word = if faults.is_empty() { "ok" } else { "FAILED" };
            crate::render::say!("{word:<6} {}  {}", case.name, duration(duration_ms));
            for fault in &faults {
                crate::render::say!("       {}", harmless(fault));
            }
        }
        results.push(Tested { name: case.name.clone(), target: case.target.clone(), faults, duration_ms });
    }
    Ok(results)
}

/// Prints what came of the cases; one that failed is the exit status.
pub(crate) fn conclude(context: &Context, results: &[Tested]) -> Exit {
    let failed = results.iter().filter(|tested| !tested.faults.is_empty()).count();
    if context.is_json() {
        let row = |tested: &Tested| {
            let Tested { name, target, faults, duration_ms } = tested;
            json!({
                "name": name, "pipeline": target.pipeline(), "machine": target.machine(), "passed": faults.is_empty(),
                "faults": faults, "duration_ms": duration_ms,
            })
        };
        let tests: Vec<Value> = results.iter().map(row).collect();
        stdout::json(&json!({"tests": tests, "passed": results.len() - failed, "failed": failed}));
    } else if !context.global.quiet {
        crate::render::say!("{} passed, {failed} failed", results.len() - failed);
    }
    if failed == 0 { Exit::Done } else { Exit::Failed }
}

/// The app that a test runs in, if it is not the app itself: packages keep their state in it, and a test begins with none
/// and leaves the user's alone.
fn fresh(disk: &Disk, to: &Path) -> Result<Option<Disk>, Problem> {
    let broken = |why: std::io::Error| {
        Problem::environment(format!("the app cannot be copied for a test: {why}"))
            .hint("its packages keep state, which tests must not see; a test needs room for a copy of the app")
    };
    let copy = copy_without_state(disk.root(), to).map_err(broken)?;
    copy.map(|dir| Disk::open(&dir).map_err(broken)).transpose()
}

/// Runs the test `name` of an app; what was not as expected. With `completion`, every model prints that file, and what it
/// prints is recorded; else all responses are recordings.
pub(crate) fn faults_of(
    context: &Context,
    disk: &Disk,
    name: &str,
    scratch: &Path,
    completion: Option<&Path>,
) -> Result<Vec<String>, Refused> {
    let case = case::one(disk, name)?;
    let mut resolved = context.settings(disk.root())?;
    if let Some(path) = completion {
        let mut provider = ProviderSettings::new("case", ProviderKind::Command);
        provider.command = vec!["cat".to_owned(), path.display().to_string()];
        resolved.settings.providers.push(provider);
        let model = ModelId { provider: "case".to_owned(), model: "case".to_owned() };
        resolved.settings.mapping.extend(Tier::ALL.map(|tier| (tier, vec![model.clone()])));
    }
    let responses = recorded(resolved, disk, &case, completion.is_some())?;
    Ok(run_one(context, disk, &case, scratch, responses)?)
}

/// Runs one test in the app of `disk`; what was not as expected.
fn run_one(
    context: &Context,
    disk: &Disk,
    case: &Case,
    scratch: &Path,
    resolved: settings::Resolved,
) -> Result<Vec<String>, Problem> {
    let loaded = match &case.candidate {
        Some(name) => super::run::load_candidate(context, disk, name),
        None => load_target(context, disk, &case.target),
    };
    let definition = match loaded {
        Ok(definition) => definition,
        Err(Refused::Problem(problem)) => return Ok(problem.failures.iter().map(|f| f.message.clone()).collect()),
        Err(Refused::Invalid(diagnostics, _)) => return Ok(diagnostics.iter().map(|d| d.message.clone()).collect()),
    };
    let input = match coerce(&definition.input, &[], case.input.inline()) {
        Ok(input) => input,
        Err(problem) => return Ok(problem.failures.iter().map(|f| f.message.clone()).collect()),
    };
    let (withheld_env, python_worker) = (resolved.withheld_env.clone(), resolved.python_worker.clone());
    let rehearsal = case.recorded.as_ref().map(|recorded| {
        let (tools, _) = etude_spec::tool::load(disk);
        Arc::new(Rehearsal::of_case(recorded.calls.clone(), recorded.answers.clone(), tools))
    });
    let runner = Runner {
        engine: Arc::new(MemoryEngine::new(Arc::new(FileBlobs::new(scratch, false)))),
        models: settings::models(resolved),
        withheld_env,
        grants: Grants { rehearsal: rehearsal.clone(), ..Grants::default() },
        // What scripts keep for themselves does not get into the user's home.
        extra_env: vec![("XDG_STATE_HOME".to_owned(), scratch.join("state").into_os_string())],
        layers: programs::layer_settings(),
        python_worker,
        sandboxes: programs::sandboxes(&definition.sandboxed(false))?,
        is_exclusive: true,
    };
    // A test means the same wherever it is started from: relative paths in its input begin in the app.
    let caller_dir = disk.root().display().to_string();
    let request = Request {
        routing: case.request.as_ref().map(|request| json!({"request": request})),
        ..Request::new(input, caller_dir)
    };
    let ended = unwatched(&runner, (&definition, disk), request)?;
    Ok(match ended {
        Ok(ended) => verdict::faults(case, &ended, rehearsal.map(|rehearsal| rehearsal.made())),
        Err(error) => vec![error.to_string()],
    })
}

/// Every tier answers from the test's recordings; with `record` the configured model answers what is not there.
fn recorded(
    mut resolved: settings::Resolved,
    disk: &Disk,
    case: &Case,
    record: bool,
) -> Result<settings::Resolved, Problem> {
    for tier in Tier::ALL {
        let name = format!("recorded-{tier}");
        let mut provider = ProviderSettings::new(&name, ProviderKind::Recorded);
        provider.path = Some(disk.root().join(&case.recordings));
        if record {
            provider.record_from = resolved.settings.mapping.get(&tier).and_then(|models| models.first().cloned());
            if provider.record_from.is_none() {
                return Err(Problem::environment(format!(
                    "no model is configured for tier `{tier}`, so nothing can be recorded"
                )));
            }
        }
        resolved.settings.providers.push(provider);
        resolved.settings.mapping.insert(tier, vec![ModelId { provider: name, model: tier.word().to_owned() }]);
    }
    Ok(resolved)
}

fn none(name: Option<&str>) -> Problem {
    match name {
        Some(name) => Problem::usage(format!("no test has a name with `{name}` in it")),
        None => Problem::usage("the app has no tests").hint("a test is a file `tests/NAME.yaml` of the app"),
    }
}

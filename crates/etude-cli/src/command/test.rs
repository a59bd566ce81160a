//! `etude test`: runs the app's own tests, with recorded responses of models.
//!
//! A test is a file `tests/NAME.yaml` of the app. It states the pipeline or machine, the input, the recordings of its model
//! calls, and the expected result. No model is called unless `--record` is given. If the app has packages, each test runs in a
//! copy of it without their state.

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
use etude_core::report::{Event, duration};
use etude_evidence::rehearsal::Rehearsal;
use etude_models::{ModelId, ProviderKind, ProviderSettings};
use etude_packages::applications::copy_without_state;
use etude_process::blob::FileBlobs;
use etude_runs::target::Target;
use etude_runtime::driver::{Progress, Stop};
use etude_runtime::memory::MemoryEngine;
use etude_spec::did_you_mean;
use etude_spec::learned::Located;
use serde_json::{Value, json};

use super::run::{coerce, load_target, observed};
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
    if let Some(word) = args.name.as_deref().map(name_in) {
        let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
        cases.retain(|case| case.name.contains(word));
        if cases.is_empty() && !names.is_empty() {
            return Err(no_match(word, &names).into());
        }
    }
    if cases.is_empty() {
        let problem = Problem::usage("the app has no tests").hint("a test is a file `tests/NAME.yaml` of the app");
        return Err(problem.into());
    }
    let results = run_cases(context, &disk, &cases, (args.record, false))?;
    Ok(conclude(context, &results))
}

/// Result of a case: its faults and its duration.
pub(crate) struct Tested {
    /// Name of the case.
    pub(crate) name: String,
    target: Target,
    /// Deviations from the expected result.
    pub(crate) faults: Vec<String>,
    duration_ms: u64,
}

/// Runs the cases of learned pipelines. Those of candidates are in `learned/NAME/tests/`; others in `tests/`, or still beside
/// the pipeline if its promotion was interrupted.
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
                cases.extend(case::read_unmoved(disk, &one.name)?);
            }
        }
    }
    run_cases(context, disk, &cases, (false, is_quiet))
}

/// Runs the named cases of a candidate, and prints nothing about them.
pub(crate) fn some_of_candidate(
    context: &Context,
    disk: &Disk,
    name: &str,
    cases: &[String],
) -> Result<Vec<Tested>, Refused> {
    let cases = case::some_of_candidate(disk, name, cases.to_vec())?;
    run_cases(context, disk, &cases, (false, true))
}

/// Runs cases. `record` calls models for missing recordings; `is_quiet` prints nothing about each case.
fn run_cases(
    context: &Context,
    disk: &Disk,
    cases: &[Case],
    (record, is_quiet): (bool, bool),
) -> Result<Vec<Tested>, Refused> {
    // The app's own configuration is cached, since all copies of the app have the same.
    let resolved = context.settings(disk.root())?;
    if record {
        settings::announce(&context.global, &resolved, &Tier::ALL);
    }
    let scratch = crate::paths::scratch("test").map_err(Problem::environment)?;
    let scratch = scratch.path();
    // Each case listens for signals itself; this receiver ends all of them.
    let stop = signals::listen()?;
    let mut results = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let start = Instant::now();
        let own = fresh(disk, &scratch.join(format!("app-{number}")))?;
        let responses = recorded(context.settings(disk.root())?, disk, case, record)?;
        let faults = run_one(context, own.as_ref().unwrap_or(disk), case, scratch, responses)?;
        if let Stop::Cancel(why) | Stop::Kill(why) = &*stop.borrow() {
            let message = format!("the test `{}` was {why}; {number} of {} tests had run", case.name, cases.len());
            return Err(Problem::new(Exit::Interrupted, FailureKind::Cancelled, message).into());
        }
        let duration_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        if !context.global.quiet && !is_quiet {
            let word = if faults.is_empty() { "ok" } else { "FAILED" };
            crate::render::say!("{word:<6} {}  {}", case.name, duration(duration_ms));
            for fault in &faults {
                crate::render::say!("       {}", harmless(fault));
            }
            if record && !faults.is_empty() && disk.root().join(&case.recordings).is_dir() {
                crate::render::say!("hint: to record its responses again, first remove {}", case.recordings);
            }
        }
        results.push(Tested { name: case.name.clone(), target: case.target.clone(), faults, duration_ms });
    }
    Ok(results)
}

/// Prints the results of the cases. The exit status says if one failed.
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

/// Copy of the app for a test, if it needs one. Packages keep their state in the app; a test starts without state and must not
/// change the user's.
fn fresh(disk: &Disk, to: &Path) -> Result<Option<Disk>, Problem> {
    let broken = |why: std::io::Error| {
        Problem::environment(format!("the app cannot be copied for a test: {why}")).hint(
            "its packages keep state that tests must not change; each test needs disk space for a copy of the app",
        )
    };
    let copy = copy_without_state(disk.root(), to).map_err(broken)?;
    copy.map(|dir| Disk::open(&dir).map_err(broken)).transpose()
}

/// Runs the test `name` of an app, and returns its faults. With `completion`, each model returns the content of that file,
/// which is recorded; otherwise all responses are recordings.
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

/// Runs one test in the app of `disk`, and returns its faults.
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
        Err(Refused::Invalid(diagnostics, _)) => return Ok(diagnostics.iter().map(verdict::of_diagnostic).collect()),
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
        // State that scripts keep must not go to the user's home.
        extra_env: vec![("XDG_STATE_HOME".to_owned(), scratch.join("state").into_os_string())],
        middleware: programs::middleware_settings(),
        python_worker,
        sandboxes: programs::sandboxes(&definition.sandboxed(false))?,
        is_exclusive: true,
    };
    // A test is independent of the current directory: relative paths in its input start at the app.
    let caller_dir = disk.root().display().to_string();
    let request = Request {
        routing: case.request.as_ref().map(|request| json!({"request": request})),
        ..Request::new(input, caller_dir)
    };
    let mut deviation = None;
    let ended = observed(&runner, (&definition, disk), request, &mut |progress| {
        if let Progress::Machine { event: Event::FellBack { message, .. }, .. } = progress {
            deviation = Some(message.clone());
        }
    })?;
    Ok(match ended {
        Ok(ended) => verdict::faults(case, &ended, deviation, rehearsal.map(|rehearsal| rehearsal.calls_made())),
        Err(error) => vec![error.to_string()],
    })
}

/// Makes every tier respond from the test's recordings; with `record` the configured model supplies missing ones.
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
        provider.is_path_of_app = true;
        if record {
            provider.record_from = resolved.settings.mapping.get(&tier).and_then(|models| models.first().cloned());
            if provider.record_from.is_none() {
                let message = format!("no model is configured for tier `{tier}`, so nothing can be recorded");
                return Err(Problem::environment(message).hint(settings::REMEDIES));
            }
        }
        resolved.settings.providers.push(provider);
        resolved.settings.mapping.insert(tier, vec![ModelId { provider: name, model: tier.word().to_owned() }]);
    }
    Ok(resolved)
}

/// Maximum number of tests that a hint names.
const MAX_NAMED: usize = 10;

fn no_match(word: &str, names: &[String]) -> Problem {
    let more = if names.len() > MAX_NAMED { ", …" } else { "" };
    let hint = match did_you_mean(word, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("tests of this app: {}{more}", names[..names.len().min(MAX_NAMED)].join(", ")),
    };
    Problem::usage(format!("no test name contains `{word}`")).hint(hint)
}

/// The name in the path of a test's file, as shells complete it; any other word unchanged.
fn name_in(word: &str) -> &str {
    word.strip_suffix(".yaml").map_or(word, |path| path.rsplit(['/', std::path::MAIN_SEPARATOR]).next().unwrap_or(path))
}

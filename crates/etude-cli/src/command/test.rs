//! `etude test`: the app's own tests, with recorded model answers.
//!
//! A test is a file `tests/NAME.yaml` of the app: which pipeline or machine is run with which input, where the recordings of
//! its model calls are, and what is expected. Nothing is asked of any model unless `--record` is given. Where the app has
//! packages, each test runs in a copy of it without their state.

mod case;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use etude::agent::Grants;
use etude::disk::Disk;
use etude::header::Granted;
use etude::runner::{Ended, Request, Runner, Watch};
use etude_core::failure::Failure;
use etude_core::machine::Limits;
use etude_core::model::{Tier, Usage};
use etude_core::report::duration;
use etude_models::{ModelId, ProviderKind, ProviderSettings};
use etude_packages::applications::copy_without_state;
use etude_process::blob::FileBlobs;
use etude_runtime::memory::MemoryEngine;
use serde_json::{Value, json};

use super::run::{coerce, load_target};
use crate::args;
use crate::context::{Context, Problem, Refused, block_on};
use crate::exit::Exit;
use crate::render::text::harmless;
use crate::{settings, signals, stdout};
use case::Case;

pub(crate) fn test(context: &Context, args: &args::Test) -> Exit {
    match run_all(context, args) {
        Ok(exit) => exit,
        Err(refused) => context.refuse(None, &refused),
    }
}

fn run_all(context: &Context, args: &args::Test) -> Result<Exit, Refused> {
    let disk = context.disk()?;
    let mut cases = case::find(&disk)?;
    if let Some(name) = &args.name {
        cases.retain(|case| case.name.contains(name.as_str()));
    }
    if cases.is_empty() {
        return Err(none(args.name.as_deref()).into());
    }
    // The app's own configuration is the one that is remembered: copies of the app have the same.
    let resolved = context.settings(disk.root())?;
    if args.record {
        settings::announce(context, &resolved, &Tier::ALL);
    }
    let scratch = std::env::temp_dir().join(format!("etude-test-{}", std::process::id()));
    let mut results = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let start = Instant::now();
        let own = fresh(&disk, &scratch.join(format!("app-{number}")))?;
        let faults = run_one(context, (&disk, own.as_ref().unwrap_or(&disk)), case, &scratch, args.record)?;
        let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        if !context.global.quiet {
            let word = if faults.is_empty() { "ok" } else { "FAILED" };
            crate::render::say!("{word:<6} {}  {}", case.name, duration(ms));
            for fault in &faults {
                crate::render::say!("       {}", harmless(fault));
            }
        }
        results.push((case, faults, ms));
    }
    // What is left behind is a directory of temporary files.
    let _ = std::fs::remove_dir_all(&scratch);
    let failed = results.iter().filter(|(_, faults, _)| !faults.is_empty()).count();
    if context.is_json() {
        let tests: Vec<Value> = results
            .iter()
            .map(|(case, faults, ms)| json!({"name": case.name, "pipeline": case.target.pipeline(), "machine": case.target.machine(), "passed": faults.is_empty(), "faults": faults, "duration_ms": ms}))
            .collect();
        stdout::json(&json!({"tests": tests, "passed": results.len() - failed, "failed": failed}));
    } else if !context.global.quiet {
        crate::render::say!("{} passed, {failed} failed", results.len() - failed);
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::Failed })
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

/// Runs one test of the app of the first directory in the second; what was not as expected.
fn run_one(
    context: &Context,
    (app, disk): (&Disk, &Disk),
    case: &Case,
    scratch: &Path,
    record: bool,
) -> Result<Vec<String>, Problem> {
    let definition = match load_target(context, disk, &case.target) {
        Ok(definition) => definition,
        Err(Refused::Problem(problem)) => return Ok(problem.failures.iter().map(|f| f.message.clone()).collect()),
        Err(Refused::Invalid(diagnostics, _)) => return Ok(diagnostics.iter().map(|d| d.message.clone()).collect()),
    };
    let input = match coerce(&definition.input, &[], Some(&case.input.to_string())) {
        Ok(input) => input,
        Err(problem) => return Ok(problem.failures.iter().map(|f| f.message.clone()).collect()),
    };
    let resolved = context.settings(app.root())?;
    let (withheld_env, python_worker) = (resolved.withheld_env.clone(), resolved.python_worker.clone());
    let runner = Runner {
        engine: Arc::new(MemoryEngine::new(Arc::new(FileBlobs::new(scratch, false)))),
        models: settings::models(recorded(resolved, app, case, record)?),
        withheld_env,
        grants: Grants::default(),
        // What scripts keep for themselves does not get into the user's home.
        extra_env: vec![("XDG_STATE_HOME".to_owned(), scratch.join("state").into_os_string())],
        layers: crate::command::skill::layer_settings(),
        python_worker,
        sandboxes: crate::context::sandboxes(&definition.sandboxed(false))?,
        is_exclusive: true,
    };
    // A test means the same wherever it is started from: relative paths in its input begin in the app.
    let caller_dir = disk.root().display().to_string();
    let request = Request {
        input,
        limits: Limits::default(),
        caller_dir,
        spent: Usage::default(),
        granted: Granted::default(),
        refresh: false,
        routing: None,
        again_of: None,
        asked: None,
    };
    let ended = block_on(async {
        let stop = signals::listen().map_err(|e| Problem::environment(format!("signals cannot be caught: {e}")))?;
        let watch = Watch { emit: &mut |_| {}, stop, streams_completions: false, observes_invocations: false };
        Ok::<_, Problem>(runner.start(&definition, disk, request, watch).await)
    })??;
    Ok(match ended {
        Ok(ended) => judge(case, &ended),
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

fn judge(case: &Case, ended: &Ended) -> Vec<String> {
    let mut faults = Vec::new();
    let status = ended.document.status();
    if status != case.status {
        faults.push(format!("status is `{status}`, expected `{}`", case.status));
        faults.extend(ended.errors.iter().map(reason));
    }
    let output = ended.document.output.as_ref().and_then(|output| output.value().ok()).unwrap_or_default();
    for (pointer, wanted) in &case.output {
        let place = if pointer.is_empty() { "the output".to_owned() } else { format!("output {pointer}") };
        match output.pointer(pointer) {
            Some(found) if found == wanted => {}
            Some(found) => faults.push(format!("{place} is {}, expected {}", clipped(found), clipped(wanted))),
            None => faults.push(format!("output has nothing at {pointer}, expected {wanted}")),
        }
    }
    if let Some(kind) = &case.kind {
        let found: Vec<&str> = ended.errors.iter().map(|failure| failure.kind.word()).collect();
        if found.first() != Some(&kind.as_str()) {
            faults.push(format!("the run failed with {found:?}, expected `{kind}` first"));
        }
    }
    faults
}

/// Why a run failed, with what the step said last.
fn reason(failure: &Failure) -> String {
    let said = failure.stderr.as_ref().and_then(|stderr| stderr.tail.lines().rfind(|line| !line.trim().is_empty()));
    said.map_or_else(|| failure.message.clone(), |line| format!("{}: {}", failure.message, line.trim()))
}

fn none(name: Option<&str>) -> Problem {
    match name {
        Some(name) => Problem::usage(format!("no test has a name with `{name}` in it")),
        None => Problem::usage("the app has no tests").hint("a test is a file `tests/NAME.yaml` of the app"),
    }
}

/// A value as JSON, cut where it becomes too long to be read.
fn clipped(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

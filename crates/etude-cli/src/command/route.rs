//! `etude route`: chooses the pipeline for a request and explains the choice; also used by `etude run REQUEST`.

use std::time::{Duration, Instant};

use etude::Disk;
use etude::definition::{self, Definition};
use etude::skill_mode;
use etude_core::failure::{Failure, FailureKind, Phase};
use etude_core::model::{Tier, Usage};
use etude_request::{Labelled, Mode, Routed, Table, Trail};
use etude_runtime::driver::Stop;
use etude_spec::discover::PIPELINES;
use serde_json::{Value, json};

use super::run::{can_follow, load, load_candidate, unfit};
use crate::args::{self, Format, RouterMode};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::commands;
use crate::render::text::harmless;
use crate::runtime::block_on;
use crate::settings::{Need, Resolved};
use crate::{local, paths, settings, signals, stdout};
use parameters::Lite;

mod parameters;

pub(crate) use parameters::{Found, Given, unclear};

pub(crate) fn route(context: &Context, args: &args::Route) -> Exit {
    let result = match (&args.test, &args.request) {
        (Some(path), _) => measure(context, args.mode, path),
        (None, request) => decide(context, args.mode, request.as_deref().unwrap_or_default()),
    };
    result.unwrap_or_else(|refused| context.refuse(None, &refused))
}

/// Result of routing a request.
pub(crate) enum Finding {
    /// A pipeline with its input, ready to run.
    Pipeline(Box<Found>),
    /// No pipeline fits, and the app has a SKILL.md.
    Nothing {
        /// Usage of routing.
        spent: Usage,
        /// Record of the routing.
        trail: Box<Trail>,
    },
}

/// A request with the options of routing.
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a str,
    /// Name of the pipeline, if the user has chosen it.
    pub(crate) pipeline: Option<&'a str>,
    pub(crate) mode: Option<RouterMode>,
    /// Behaviour if weights are missing.
    pub(crate) need: Need,
    /// Time budget of the run in milliseconds; routing takes at most as long.
    pub(crate) timeout_ms: Option<u64>,
}

/// Finds the pipeline for the request, unless it is named, and its parameters.
pub(crate) fn find(context: &Context, disk: &Disk, asked: &Asked<'_>, given: &Given<'_>) -> Result<Finding, Refused> {
    let resolved = context.settings(disk.root())?;
    let mode = mode_of(asked.mode, &resolved);
    let mut lite = Lite::new(context, resolved, asked.need);
    lite.budget = asked.timeout_ms.map(Budget::of);
    let mut spent = Usage::default();
    let mut trail = Trail { request: asked.request.to_owned(), ..Trail::default() };
    let definition = match asked.pipeline {
        Some(name) => load_routed(context, disk, name)?,
        None => {
            let Chosen { table, routed, definition } = choose(context, disk, asked.request, mode, &mut lite)?;
            spent.add(&routed.usage);
            trail.decision = Some((routed.pipeline.clone(), routed.decided_by, routed.embedded.score));
            trail.calls.clone_from(&routed.calls);
            emit(context, &routed);
            match definition {
                Some(definition) => definition,
                //
                None if skill_mode::is_there(disk) => {
                    // An app with nothing but a SKILL.md needs no note about pipelines.
                    let is_expected = table.names().next().is_some() || !table.broken().is_empty();
                    if !context.global.quiet && is_expected {
                        crate::render::say!("note: no pipeline fits the request; following SKILL.md");
                        if let Some(hint) = not_considered(&table) {
                            crate::render::say_hint!("{hint}");
                        }
                    }
                    return Ok(Finding::Nothing { spent, trail: Box::new(trail) });
                }
                None => return Err(no_match(&table, &routed).into()),
            }
        }
    };
    let found = parameters::find(asked.request, definition, disk, given, &mut lite);
    let mut found = found.map_err(|refused| refused.spent(spent))?;
    trail.add(&found.extracted);
    found.spent.add(&spent);
    found.trail = trail;
    Ok(Finding::Pipeline(Box::new(found)))
}

/// Decision on a request, with the definition that it leads to.
struct Chosen {
    table: Table,
    routed: Routed,
    /// `None` if no pipeline fits.
    definition: Option<Definition>,
}

/// Routes a request and loads its pipeline. A learned pipeline with errors, such as a step whose tool was removed, is left out
/// if SKILL.md can be followed instead: learning never makes a request fail that skill mode could serve.
fn choose(context: &Context, disk: &Disk, request: &str, mode: Mode, lite: &mut Lite<'_>) -> Result<Chosen, Refused> {
    let mut left_out = super::learn::unrouted(context, disk)?;
    let mut before: Option<Routed> = None;
    loop {
        let table = table(disk, &lite.resolved, &left_out)?;
        let spent = before.as_ref().map_or_else(Usage::default, |before| before.usage);
        refuse_broken(context, disk, &table, request).map_err(|refused| refused.spent(spent))?;
        let mut routed = routed(&table, request, mode, lite).map_err(|refused| refused.spent(spent))?;
        if let Some(mut before) = before.take() {
            routed.usage.add(&before.usage);
            before.calls.append(&mut routed.calls);
            before.notes.append(&mut routed.notes);
            (routed.calls, routed.notes) = (before.calls, before.notes);
        }
        let Some(name) = routed.pipeline.clone() else { return Ok(Chosen { table, routed, definition: None }) };
        match load_routed(context, disk, &name) {
            Ok(definition) => return Ok(Chosen { table, routed, definition: Some(definition) }),
            Err(Refused::Invalid(faults, _)) if is_replaceable(context, disk, &name) => {
                let fault = faults.iter().find(|fault| fault.is_error()).map_or("", |fault| fault.message.as_str());
                routed.notes.push(commands::complete(&format!(
                    "learned pipeline `{name}` was not considered, because it has errors: {fault} (see `etude check`)"
                )));
                left_out.push(name);
                before = Some(routed);
            }
            Err(refused) => return Err(refused.spent(routed.usage)),
        }
    }
}

/// True if the pipeline `name` is learned, and an agent can follow SKILL.md in its place.
fn is_replaceable(context: &Context, disk: &Disk, name: &str) -> bool {
    etude_spec::learned::find(disk, PIPELINES, name).is_some()
        && skill_mode::is_there(disk)
        && can_follow(context, disk).unwrap_or(false)
}

/// Result of routing a request as if `candidates` of `learned/` were in the routing table; `None` if none of them fits (1.7).
pub(crate) fn find_candidate(
    context: &Context,
    disk: &Disk,
    request: &str,
    candidates: &[String],
    given: &Given<'_>,
) -> Result<(Option<Found>, Usage), Refused> {
    let resolved = context.settings(disk.root())?;
    let mode = mode_of(None, &resolved);
    let mut lite = Lite::new(context, resolved, Need::Look);
    let left_out = super::learn::unrouted(context, disk)?;
    let (summaries, _) = etude_spec::App::new(disk).summaries();
    let others = summaries.into_iter().filter(|own| !left_out.contains(&own.name) && !candidates.contains(&own.name));
    let own = candidates.iter().filter_map(|name| etude_spec::App::of_candidate(disk, name).summary_of(name));
    let table = Table::of_summaries(others.chain(own));
    let routed = routed(&table, request, mode, &mut lite)?;
    let Some(name) = routed.pipeline.filter(|name| candidates.contains(name)) else { return Ok((None, routed.usage)) };
    let definition = load_candidate(context, disk, &name)?;
    let mut found = parameters::find(request, definition, disk, given, &mut lite)?;
    found.spent.add(&routed.usage);
    let spent = found.spent;
    Ok((Some(found), spent))
}

/// Loads the pipeline or machine that a request was routed to.
fn load_routed(context: &Context, disk: &Disk, name: &str) -> Result<Definition, Refused> {
    match etude_spec::App::new(disk).discovery().contains(name) {
        true => load(context, disk, name),
        false => super::machine::load(context, disk, name),
    }
}

/// Routing table of the app without the pipelines in `left_out`. It uses embeddings if their model is on this machine.
fn table(disk: &Disk, resolved: &Resolved, left_out: &[String]) -> Result<Table, Refused> {
    let unlisted = definition::unlisted(disk);
    if !unlisted.is_empty() {
        return Err(unlisted.into());
    }
    let cache = paths::cache_dir().ok().map(|dir| dir.join("router"));
    let table = Table::of_app(disk, resolved.machines.clone(), cache.as_deref(), left_out);
    Ok(match local::sentences(&resolved.settings.providers) {
        Some(sentences) => table.with_meaning(sentences, cache.as_deref()),
        None => table,
    })
}

/// Routes a request. A model is loaded only if it must decide.
fn routed(table: &Table, request: &str, mode: Mode, lite: &mut Lite<'_>) -> Result<Routed, Refused> {
    let routed = table.decide(request);
    if !table.asks_model(&routed, mode) {
        return Ok(routed);
    }
    let models = lite.models(lite.need)?;
    if let (None, Mode::Llm, Some(problem)) = (&models, mode, lite.withheld()) {
        return Err(problem.into());
    }
    bounded(lite.budget, async {
        let mut routed = table.settle(request, routed, mode, models.as_ref()).await;
        if let (Ok(routed), None, Some(why)) = (&mut routed, &models, lite.resolved.withheld(Tier::Lite)) {
            routed.notes.push(why.to_owned());
        }
        Ok(routed.map_err(|e| failed(e, Usage::default()))?)
    })
}

fn mode_of(flag: Option<RouterMode>, resolved: &settings::Resolved) -> Mode {
    match flag {
        Some(RouterMode::Auto) => Mode::Auto,
        Some(RouterMode::Llm) => Mode::Llm,
        Some(RouterMode::Embedded) => Mode::Embedded,
        None => resolved.router_mode.unwrap_or_default(),
    }
}

/// Effective routing mode: in `auto`, a model decides only if one is available.
pub(crate) fn deciding(context: &Context, disk: &Disk) -> Result<Mode, Problem> {
    let resolved = context.settings(disk.root())?;
    let mode = mode_of(None, &resolved);
    let mut lite = Lite::new(context, resolved, Need::Look);
    Ok(match mode {
        // A model that is unavailable cannot decide.
        Mode::Auto if !matches!(lite.models(Need::Look), Ok(Some(_))) => Mode::Embedded,
        mode => mode,
    })
}

/// Time budget of a run while its request is routed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    end: Instant,
    ms: u64,
}

impl Budget {
    /// A budget that begins now.
    fn of(ms: u64) -> Self {
        let now = Instant::now();
        // A time beyond the clock's range is never reached.
        Self {
            end: now.checked_add(Duration::from_millis(ms)).unwrap_or(now + Duration::from_secs(u32::MAX.into())),
            ms,
        }
    }

    /// Waits for the end of the budget.
    async fn passed(self) -> Failure {
        tokio::time::sleep_until(self.end.into()).await;
        let budget = etude_core::report::duration(self.ms);
        Failure::new(
            FailureKind::BudgetExceeded,
            format!("routing was stopped after the run's time budget of {budget}"),
        )
    }
}

/// Runs `work` until it ends or a signal arrives.
pub(crate) fn interruptible<T>(work: impl Future<Output = Result<T, Refused>>) -> Result<T, Refused> {
    bounded(None, work)
}

/// Runs `work` until it ends, a signal arrives or the budget is used up.
fn bounded<T>(budget: Option<Budget>, work: impl Future<Output = Result<T, Refused>>) -> Result<T, Refused> {
    block_on(async {
        let mut stop = signals::listen()?;
        let passed = async {
            match budget {
                Some(budget) => budget.passed().await,
                None => std::future::pending().await,
            }
        };
        let mut failure = tokio::select! {
            result = work => return result,
            failure = passed => failure,
            _ = stop.changed() => {
                let reason = match &*stop.borrow() {
                    Stop::Cancel(reason) | Stop::Kill(reason) => reason.clone(),
                    Stop::No | Stop::Drain | Stop::Leave => String::new(),
                };
                Failure::new(FailureKind::Cancelled, reason)
            }
        };
        failure.phase = Some(Phase::Routing);
        Err(Problem::of(Exit::of_kinds(&[failure.kind]), failure).into())
    })?
}

fn failed(failure: Failure, spent: Usage) -> Problem {
    Problem::of(Exit::of_kinds(&[failure.kind]), failure).spent(spent)
}

/// Problem of a request that no pipeline fits.
fn no_match(table: &Table, routed: &Routed) -> Problem {
    let names: Vec<&str> = table.names().collect();
    let message = match names.is_empty() {
        true => "no pipeline fits the request: this app has no pipeline without errors".to_owned(),
        false => format!("no pipeline fits the request; pipelines of this app: {}", names.join(", ")),
    };
    let mut failure = Failure::new(FailureKind::NoPipelineMatched, message);
    failure.phase = Some(Phase::Routing);
    let problem = Problem::of(Exit::Failed, failure).spent(routed.usage);
    let problem = problem.hint("list the candidates: etude route REQUEST; run one by name: etude run --pipeline NAME");
    match not_considered(table) {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

/// Reports the errors of a pipeline or machine whose name is the whole request: another route would not be what was asked for.
fn refuse_broken(context: &Context, disk: &Disk, table: &Table, request: &str) -> Result<(), Refused> {
    match table.broken().iter().find(|name| name.as_str() == request.trim()) {
        Some(name) => load_routed(context, disk, name).map(drop),
        None => Ok(()),
    }
}

/// Note that pipelines with errors were not considered.
fn not_considered(table: &Table) -> Option<String> {
    match table.broken() {
        [] => None,
        [one] => Some(format!("`{one}` was not considered, because it has errors: etude check")),
        many => Some(format!("{} pipelines were not considered, because they have errors: etude check", many.len())),
    }
}

fn emit(context: &Context, routed: &Routed) {
    if context.global.quiet {
        return;
    }
    for note in &routed.notes {
        crate::render::say!("note: {}", harmless(note));
    }
    if let Some(name) = &routed.pipeline {
        crate::render::say!("{name}: routed by {} with score {:.2}", routed.decided_by.word(), routed.embedded.score);
    }
}

fn decide(context: &Context, mode: Option<RouterMode>, request: &str) -> Result<Exit, Refused> {
    let (routed, found) = look(context, mode, request)?;
    if context.is_json() {
        stdout::json(&whole(&routed, found.as_ref()));
    } else {
        stdout::text(&text(&routed, found.as_ref()));
    }
    Ok(Exit::Done)
}

/// Document of `etude route`, and the usage of its model calls.
#[cfg(feature = "serve")]
pub(crate) fn document_of(context: &Context, request: &str) -> Result<(Value, Usage), Refused> {
    let (routed, found) = look(context, None, request)?;
    let mut spent = routed.usage;
    found.iter().for_each(|found| spent.add(&found.spent));
    Ok((whole(&routed, found.as_ref()), spent))
}

/// Routes a request and reads its parameters. Nothing runs.
fn look(context: &Context, mode: Option<RouterMode>, request: &str) -> Result<(Routed, Option<Found>), Refused> {
    let disk = context.disk()?;
    let resolved = context.settings(disk.root())?;
    let mode = mode_of(mode, &resolved);
    let mut lite = Lite::new(context, resolved, Need::Look);
    let Chosen { table, mut routed, definition } = choose(context, &disk, request, mode, &mut lite)?;
    if routed.pipeline.is_none() {
        routed.notes.extend(not_considered(&table).map(|note| commands::complete(&note)));
    }
    let mut found = None;
    if let Some(definition) = definition {
        let given = Given { pairs: &[], json: None };
        let parameters = parameters::find(request, definition, &disk, &given, &mut lite);
        let parameters = parameters.map_err(|refused| refused.spent(routed.usage))?;
        let misfits = parameters.definition.input.misfits(&parameters.pairs);
        if !misfits.is_empty() {
            return Err(unfit(misfits).spent_before(routed.usage).spent_before(parameters.spent).into());
        }
        found = Some(parameters);
    }
    Ok((routed, found))
}

fn whole(routed: &Routed, found: Option<&Found>) -> Value {
    let mut document = document(routed);
    document["input"] = found.map_or_else(|| json!({}), Found::stated);
    document["sources"] = found.map_or_else(|| json!({}), |found| etude_request::sources_json(&found.sources()));
    document["unclear"] = found.iter().flat_map(|found| &found.extracted.unclear).map(unclear_json).collect();
    document
}

fn unclear_json(unclear: &etude_request::Unclear) -> Value {
    json!({"parameter": unclear.name, "texts": unclear.texts})
}

fn document(routed: &Routed) -> Value {
    let candidates = routed.embedded.candidates.iter();
    json!({
        "pipeline": routed.pipeline,
        "mode": routed.decided_by.word(),
        "score": rounded(routed.embedded.score),
        "margin": rounded(routed.embedded.margin),
        "candidates": candidates.map(|c| json!({"name": c.name, "score": rounded(c.score)})).collect::<Vec<_>>(),
        "why": routed.embedded.why.iter().map(|e| json!({"text": e.text, "weight": rounded(e.weight)})).collect::<Vec<_>>(),
        "notes": routed.notes,
    })
}

/// Rounds to four decimals, the precision of the scores.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

fn text(routed: &Routed, found: Option<&Found>) -> String {
    let mut text = match &routed.pipeline {
        Some(name) => format!("{name}\n"),
        None => "no pipeline fits\n".to_owned(),
    };
    let decision = &routed.embedded;
    text.push_str(&format!("decided by  {}\n", routed.decided_by.word()));
    text.push_str(&format!("score       {:.2}, {:.2} ahead of the next\n", decision.score, decision.margin));
    for candidate in &decision.candidates {
        text.push_str(&format!("            {:.2}  {}\n", candidate.score, candidate.name));
    }
    let why: Vec<String> = decision.why.iter().map(|evidence| harmless(&evidence.text)).collect();
    if !why.is_empty() {
        text.push_str(&format!("because of  {}\n", why.join(", ")));
    }
    for note in &routed.notes {
        text.push_str(&format!("note        {}\n", harmless(note)));
    }
    for source in found.iter().flat_map(|found| found.sources()) {
        text.push_str(&format!("input       {}\n", harmless(&source.shown())));
    }
    if let Some(problem) = found.and_then(|found| unclear(&found.extracted.unclear)) {
        for failure in &problem.failures {
            text.push_str(&format!("unclear     {}\n", harmless(&failure.message)));
        }
    }
    text
}

fn measure(context: &Context, mode: Option<RouterMode>, path: &std::path::Path) -> Result<Exit, Refused> {
    let disk = context.disk()?;
    let resolved = context.settings(disk.root())?;
    let mode = mode_of(mode, &resolved);
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| Problem::usage(format!("`{shown}` cannot be read: {e}")))?;
    let labelled: Vec<Labelled> =
        etude_request::parse_labelled(&text).map_err(|why| Problem::usage(format!("`{shown}`: {why}")))?;
    let table = table(&disk, &resolved, &super::learn::unrouted(context, &disk)?)?;
    let rules = resolved.machines.clone();
    let models = match mode {
        Mode::Embedded => None,
        Mode::Auto | Mode::Llm => {
            let mut lite = Lite::new(context, resolved, Need::Look);
            let models = lite.models(Need::Look)?;
            if let (None, Mode::Llm, Some(problem)) = (&models, mode, lite.withheld()) {
                return Err(problem.into());
            }
            models
        }
    };
    let measured = interruptible(async {
        let measured = etude_request::measure(&table, labelled, mode, models.as_ref()).await;
        Ok(measured.map_err(|e| failed(e, Usage::default()))?)
    })?;
    if context.global.format == Format::Jsonl {
        for (one, routed) in &measured.decisions {
            let mut line = whole(routed, stated(context, &disk, &one.request, routed, &rules).as_ref());
            line["request"] = one.request.clone().into();
            line["expected"] = one.expected.clone().into();
            stdout::json(&line);
        }
    }
    let summary = measured.summary();
    match context.is_json() {
        true => stdout::json(&summary),
        false => stdout::documents(|out| writeln!(out, "{summary:#}")),
    }
    Ok(Exit::Done)
}

/// Parameters in a request of a measurement, found by code without a model call. `None` without a pipeline, and if the request
/// does not fit its parameters.
fn stated(
    context: &Context,
    disk: &Disk,
    request: &str,
    routed: &Routed,
    rules: &etude_spec::stage_machine::Rules,
) -> Option<Found> {
    let definition = load_routed(context, disk, routed.pipeline.as_ref()?).ok()?;
    parameters::find_by_code(request, definition, disk, rules.clone()).ok()
}

//! `etude approve` and `etude deny`: decide the question that a run waits for.

mod server;

use etude_core::data::Json;
use etude_core::outcome::Decision;
use etude_core::shell;
use etude_packages::applications::{Answer, AnswerError, Confirmations};
use etude_runs::document::Document;
use etude_runs::inspect::open_gates;
use etude_runs::listing;
use etude_runs::target::Target;
use etude_runtime::engine::{Cause, Engine, RunState, RunView, Signal, Signalled};
use etude_runtime::record;
use serde_json::{Value, json};

use super::runs::find::find;
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::runs::waiting::{details, given, is_named};
use crate::render::stopped::of_engine;
use crate::render::text::{harmless, visible};
use crate::stdout;

/// A decision as typed on the command line.
struct Typed<'a> {
    id: &'a str,
    /// Id of the question that the user has seen.
    question: Option<&'a str>,
    approved: bool,
    answer: Option<&'a str>,
    reason: Option<&'a str>,
    by: Option<&'a str>,
    /// True if the run must resume after the decision.
    resume: bool,
}

impl<'a> Typed<'a> {
    /// Id of the run, and of the effect if one is named.
    fn place(&self) -> (&'a str, Option<&'a str>) {
        match self.id.split_once(':') {
            Some((run, effect)) => (run, Some(effect)),
            None => (self.id, None),
        }
    }
}

pub(crate) fn approve(context: &Context, args: &args::Approve) -> Exit {
    let typed = Typed {
        id: &args.id,
        question: args.question.as_deref(),
        approved: true,
        answer: args.answer.as_deref(),
        reason: None,
        by: args.by.as_deref(),
        resume: args.resume,
    };
    decided(context, &typed)
}

pub(crate) fn deny(context: &Context, args: &args::Deny) -> Exit {
    let typed = Typed {
        id: &args.id,
        question: args.question.as_deref(),
        approved: false,
        answer: None,
        reason: args.reason.as_deref(),
        by: args.by.as_deref(),
        resume: args.resume,
    };
    decided(context, &typed)
}

/// Decides, and with `--resume` resumes the run as `etude runs resume` does.
fn decided(context: &Context, typed: &Typed<'_>) -> Exit {
    if !Confirmations::is_id(typed.id) {
        match context.server() {
            Ok(None) => {}
            Ok(Some(remote)) => {
                return server::decide(context, &remote, typed)
                    .unwrap_or_else(|problem| context.report(None, &problem));
            }
            Err(problem) => return context.report(None, &problem),
        }
    }
    match decide(context, typed) {
        Err(problem) => context.report(None, &problem),
        // The process that executes the run reads the decision.
        Ok(Some(Decided { id, is_live: true })) if typed.resume => {
            super::runs::runs(context, &args::Runs::Watch(args::RunsId { id }))
        }
        Ok(Some(Decided { id, .. })) if typed.resume => {
            let resume = args::RunsResume { id, ..args::RunsResume::default() };
            super::runs::runs(context, &args::Runs::Resume(resume))
        }
        Ok(_) => Exit::Done,
    }
}

/// A run with a new decision.
struct Decided {
    id: String,
    /// True if a process executes the run.
    is_live: bool,
}

/// Stores the decision in the journal. Returns the run, if the decision is about one.
fn decide(context: &Context, typed: &Typed<'_>) -> Result<Option<Decided>, Problem> {
    if Confirmations::is_id(typed.id) {
        return answer(context, typed).map(|()| None);
    }
    let engine = context.engine(false)?;
    let (run, wanted) = typed.place();
    let view = find(context, &*engine, run)?;
    let waiting = waiting_of(context, &*engine, &view)?;
    let waiting = if wanted.or(typed.question).is_none() { undecided(waiting, &view.signals) } else { waiting };
    if waiting.is_empty()
        && let Some((effect, signal)) = decided_before(&view.signals, wanted)
    {
        return Err(already_decided(&view.row.id, &effect, &signal.body, &signal.key));
    }
    let gate = find_gate(&view.row.id, listing::status(&view.row), &waiting, wanted, typed.question)?;
    let by = typed.by.map_or_else(super::user_name, str::to_owned);
    check_approver(&gate, &by)?;
    if !seen(context, typed, &gate)? {
        return Ok(None);
    }
    let answer = check_answer(&gate, typed)?;
    let id = &view.row.id;
    let effect = gate["id"].as_str().and_then(|whole| whole.split_once(':')).map_or("", |(_, effect)| effect);
    let now_ms = etude_runtime::clock::now_ms();
    if let Some(ended_ms) = etude_runs::listing::deadline(&view, effect).filter(|ends_ms| *ends_ms < now_ms) {
        let ended = etude_runtime::clock::rfc3339(ended_ms);
        return Err(Problem::usage(format!(
            "the deadline of `{id}:{effect}` was {ended}; a later decision does not count"
        ))
        .hint(format!("continue the run without a decision: etude runs resume {id}")));
    }
    let (at, reason) = (etude_runtime::clock::rfc3339(now_ms), typed.reason.map(str::to_owned));
    let decision = Decision { approved: typed.approved, answer, by, at, reason };
    let signal = record::decision_signal(effect, gate["payload"]["question"].as_str().unwrap_or_default(), &decision);
    match engine.signal(id, &signal).map_err(|e| of_engine(&e))? {
        Signalled::Accepted => {}
        Signalled::TooLate(first) => return Err(already_decided(id, effect, &first, &signal.key)),
    }
    let has_workers = view.run.placement.bundle.is_some() && engine.is_shared();
    let is_live = engine.row(id).map_err(|e| of_engine(&e))?.is_live;
    say_decision(context, typed, id, &gate, &next_step(id, is_live, has_workers, view.run.placement.cause));
    Ok(Some(Decided { id: id.clone(), is_live }))
}

/// Questions that the run waits for: those of its result, or of its journal if it is at work or interrupted (ADR 0189).
fn waiting_of(context: &Context, engine: &dyn Engine, view: &RunView) -> Result<Vec<Value>, Problem> {
    match view.row.state {
        RunState::Waiting => Ok(super::runs::document_of(engine, view)?.waiting),
        RunState::Running => {
            // Without its definition, no question of the run is known.
            let Some(definition) = super::runs::definition_as_pinned(context, engine, view) else {
                return Ok(Vec::new());
            };
            let open = open_gates(view, &definition.plan, &definition.app, &engine.blobs());
            let (result, gates) = open.map_err(|why| {
                let problem =
                    Problem::environment(format!("the journal of run `{}` cannot be read: {why}", view.row.id));
                problem.hint(format!("export its records: etude runs export {}", view.row.id))
            })?;
            Ok(Document::of(&view.row.id, &Target::parse(&view.row.target), &result, &gates, 0).waiting)
        }
        _ => Ok(Vec::new()),
    }
}

/// Hint for the step after the decision: a worker, a server and `etude mcp` continue their own runs.
fn next_step(id: &str, is_live: bool, has_workers: bool, cause: Cause) -> String {
    match cause {
        _ if is_live => format!("the run reads the decision as it goes on: etude runs watch {id}"),
        _ if has_workers => format!("a worker continues the run: etude runs watch {id}"),
        Cause::Cli => format!("continue the run: etude runs resume {id}"),
        _ => format!("the run continues in its server or `etude mcp`; if that has ended: etude runs resume {id}"),
    }
}

/// Removes questions that have been decided since the run began to wait.
fn undecided(mut waiting: Vec<Value>, signals: &[Signal]) -> Vec<Value> {
    waiting.retain(|gate| listing::decision(signals, gate).is_none());
    waiting
}

/// The last decision about `wanted`, or of the run if none is named, with its effect.
fn decided_before<'s>(signals: &'s [Signal], wanted: Option<&str>) -> Option<(String, &'s Signal)> {
    let decided = signals.iter().rev().filter(|signal| record::to_decision(signal).is_some());
    let mut with_effect = decided.filter_map(|signal| Some((signal.key.split_once('@')?.0.to_owned(), signal)));
    with_effect.find(|(effect, _)| wanted.is_none_or(|wanted| wanted == effect))
}

/// Problem of a second decision. The first one counts and is part of the error (K-38).
fn already_decided(id: &str, effect: &str, first: &str, key: &str) -> Problem {
    let first = record::to_decision(&Signal { key: key.to_owned(), body: first.to_owned() });
    let mut problem = Problem::usage(format!("`{id}:{effect}` has already been answered"));
    if let (Some(first), Some(failure)) = (first, problem.failures.first_mut()) {
        let answer = first.answer.value().unwrap_or_default();
        let decision = json!({"approved": first.approved, "answer": answer, "by": first.by, "at": first.at});
        failure.details = Some(Json::of(&json!({ "decision": decision })));
        let word = if first.approved { "approved" } else { "denied" };
        problem = problem.hint(format!("{} {word} it at {}", first.by, first.at));
    }
    problem
}

/// Prints the decision as a document, unless `--resume` prints the end of the run later.
fn say_decision(context: &Context, typed: &Typed<'_>, run: &str, gate: &Value, hint: &str) {
    let word = if typed.approved { "approved" } else { "denied" };
    if context.is_json() && !typed.resume {
        stdout::json(&json!({"run_id": run, "id": gate["id"], "decision": word}));
    } else if !context.is_json() && !context.global.quiet {
        let message = gate["payload"]["message"].as_str().unwrap_or_default();
        let id = visible(gate["id"].as_str().unwrap_or_default());
        crate::render::say!("{word} {id}: {}", visible(message));
        if typed.question.is_none() {
            crate::render::say_part!("{}", details(given(&gate["payload"])));
        }
        if !typed.resume {
            crate::render::say_hint!("{hint}");
        }
    }
}

/// Confirms or denies a command of a package, outside of any run (C-1.14).
fn answer(context: &Context, typed: &Typed<'_>) -> Result<(), Problem> {
    if typed.resume {
        let problem =
            Problem::usage(format!("`{}` belongs to no run, so `--resume` has nothing to continue", typed.id));
        return Err(problem.hint("decide without `--resume`, then repeat the `etude apps run` command"));
    }
    if typed.answer.is_some() {
        return Err(Problem::usage("a confirmation takes no `--answer`: it is yes or no"));
    }
    if typed.question.is_some() {
        return Err(Problem::usage("a confirmation takes no `--question`: its id names one command line"));
    }
    let store = Confirmations::new(&crate::paths::state_dir().map_err(Problem::environment)?);
    if !seen_request(context, typed, &store)? {
        return Ok(());
    }
    let answer = Answer {
        approved: typed.approved,
        by: typed.by.map_or_else(super::user_name, str::to_owned),
        at: etude_runtime::clock::now_rfc3339(),
        reason: typed.reason.map(str::to_owned),
    };
    let request = store.answer(typed.id, answer).map_err(|error| match error {
        AnswerError::Ledger(_) => Problem::environment(error.to_string()),
        _ => Problem::usage(error.to_string()),
    })?;
    let word = if typed.approved { "approved" } else { "denied" };
    if context.is_json() {
        let names: Vec<&String> = request.env.keys().collect();
        stdout::json(
            &json!({"id": request.id, "slug": request.slug, "argv": request.argv, "env": names, "decision": word}),
        );
    } else if !context.global.quiet {
        crate::render::say!("{word} once: {}", visible(&shell::line(&request.argv)));
        crate::render::say_hint!("give the same command again: etude apps run {} …", harmless(&request.slug));
    }
    Ok(())
}

/// Shows the question at a terminal and asks whether it is the right one, unless the user has named it. Returns false if the
/// user says no.
fn seen(context: &Context, typed: &Typed<'_>, gate: &Value) -> Result<bool, Problem> {
    if typed.question.is_some() || !context.global.can_ask() {
        return Ok(true);
    }
    let message = gate["payload"]["message"].as_str().unwrap_or_default();
    crate::render::say!("? {}", visible(message));
    crate::render::say_part!("{}", details(given(&gate["payload"])));
    let verb = if typed.approved { "approve" } else { "deny" };
    let answer = crate::typed::typed(&format!("{verb} this? [y/N] "))?;
    Ok(matches!(&answer, crate::typed::Typed::Line(line) if crate::typed::Typed::is_yes(line)))
}

/// Shows the command of a confirmation at a terminal and asks whether it is the right one, since the id says nothing about it.
/// Returns false if the user says no.
fn seen_request(context: &Context, typed: &Typed<'_>, store: &Confirmations) -> Result<bool, Problem> {
    let found = store.find(typed.id).map_err(|error| Problem::environment(error.to_string()))?;
    let Some(request) = found.filter(|_| context.global.can_ask()) else { return Ok(true) };
    super::apps::show_request(&request);
    let verb = if typed.approved { "approve" } else { "deny" };
    let answer = crate::typed::typed(&format!("{verb} this? [y/N] "))?;
    Ok(matches!(&answer, crate::typed::Typed::Line(line) if crate::typed::Typed::is_yes(line)))
}

/// The question that run `id` has asked: the named one, or the only one. With `question`, only the one that the user has seen.
fn find_gate(
    id: &str,
    status: &str,
    waiting: &[Value],
    wanted: Option<&str>,
    question: Option<&str>,
) -> Result<Value, Problem> {
    if waiting.is_empty() && status != RunState::Waiting.word() {
        return Err(Problem::usage(format!("run `{id}` is not waiting for a decision: {status}"))
            .hint("list the waiting runs: etude runs list --status waiting"));
    }
    if !waiting.is_empty() && !waiting.iter().any(listing::is_question) {
        return Err(Problem::usage(format!("run `{id}` is suspended and is not waiting for an answer"))
            .hint(format!("continue it: etude runs resume {id}")));
    }
    let is_asked = |gate: &&Value| {
        if !listing::is_question(gate) {
            return false;
        }
        question.is_none_or(|named| is_named(gate["payload"]["question"].as_str().unwrap_or_default(), named))
    };
    let asked: Vec<&Value> = waiting.iter().filter(is_asked).collect();
    let ids = || waiting.iter().filter_map(|gate| gate["id"].as_str()).map(shell::word).collect::<Vec<_>>().join(", ");
    if let (Some(question), []) = (question, asked.as_slice()) {
        return Err(Problem::usage(format!(
            "run `{id}` does not wait for the answer to question `{}`",
            harmless(question)
        ))
        .hint(format!("see its current question: etude runs show {id}")));
    }
    match wanted {
        Some(effect) => {
            let whole = format!("{id}:{effect}");
            let found = asked.into_iter().find(|gate| gate["id"] == whole.as_str()).cloned();
            found.ok_or_else(|| {
                Problem::usage(format!("run `{id}` does not wait for `{effect}`"))
                    .hint(format!("it waits for: {}", ids()))
            })
        }
        None => match asked.as_slice() {
            [gate] => Ok((*gate).clone()),
            _ => Err(Problem::usage(format!("run `{id}` waits for several decisions"))
                .hint(format!("name one of them: {}", ids()))),
        },
    }
}

fn check_approver(gate: &Value, by: &str) -> Result<(), Problem> {
    let approvers: Vec<&str> =
        gate["payload"]["approvers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if approvers.is_empty() || approvers.contains(&by) {
        return Ok(());
    }
    Err(Problem::usage(format!(
        "`{by}` is not an approver of this question; its approvers are: {}",
        approvers.join(", ")
    ))
    .hint("name the approver with --by NAME"))
}

/// Parses and checks the answer; a denial needs none.
fn check_answer(gate: &Value, typed: &Typed<'_>) -> Result<Json, Problem> {
    let answer = match typed.answer {
        Some(text) => Json::parse(text).map_err(|e| Problem::usage(format!("`--answer` is not JSON: {e}")))?,
        None => Json::null(),
    };
    let value = answer.value().map_err(|e| Problem::usage(format!("`--answer` is not valid: {e}")))?;
    let schema = &gate["payload"]["schema"];
    if schema.is_null() || typed.answer.is_none() && !typed.approved {
        return Ok(answer);
    }
    let schema = etude_core::schema::Schema::lazy("answer", schema.clone(), std::collections::BTreeMap::new());
    let violations = schema.faults(&value);
    if violations.is_empty() {
        Ok(answer)
    } else {
        let what =
            if typed.answer.is_some() { "`--answer` does not fit" } else { "an answer is missing: give `--answer`" };
        Err(Problem::usage(format!("{what}: {}", violations.join("; ")))
            .hint(format!("an answer must satisfy {}", gate["payload"]["schema"])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of a server or of `etude mcp` continues without a command.
    #[test]
    fn the_next_step_is_that_of_who_drives_the_run() {
        let next_step = |is_live, has_workers, cause| next_step("r", is_live, has_workers, cause);
        assert_eq!(next_step(false, false, Cause::Cli), "continue the run: etude runs resume r");
        assert!(next_step(false, false, Cause::Mcp).starts_with("the run continues in its server or `etude mcp`"));
        assert!(next_step(false, true, Cause::Cli).starts_with("a worker continues the run"));
        assert!(next_step(true, false, Cause::Cli).starts_with("the run reads the decision as it goes on"));
    }
}

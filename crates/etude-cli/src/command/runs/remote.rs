//! `etude runs` on a server.

use std::collections::BTreeSet;

use etude_runs::target::Target;
use etude_runtime::clock;
use etude_runtime::engine::RunState;
use serde_json::{Value, json};

use super::cancel::{CANCELLED, cancelling, is_over};
use super::delete::{deleted, unfinished};
use super::show::output_excerpt;
use super::{list, succeeded, watch};
use crate::args;
use crate::command::run::{finished, remote::limits_json};
use crate::context::{About, Context};
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::remote::{Remote, RunDocument, Watching, listed, percent, refuse_options};
use crate::render::layout;
use crate::render::runs::{overview as render, short};
use crate::render::summary::AfterDecision;
use crate::{signals, stdout};

/// Number of runs in one page of a list.
const PAGE: u64 = 200;

/// Lists runs, and counts those that match.
pub(super) fn list(remote: &Remote, args: &args::RunsList) -> Result<list::Page, Problem> {
    let mut query = remote.of_app();
    query.extend(args.status.iter().map(|status| ("status", status.clone())));
    query.extend(args.since.map(|ago| ("since", clock::rfc3339(list::since_ms(ago)))));
    match args.pipeline.as_deref().map(Target::parse) {
        None => {}
        Some(Target::Pipeline(name)) => query.push(("pipeline", name)),
        Some(Target::Machine(name)) => query.push(("machine", name)),
        Some(Target::Skill(_)) => {
            return Err(Problem::usage("a server cannot filter runs of skill mode by name")
                .hint("list all runs: etude runs list"));
        }
    }
    let counts = remote.get("/v1/runs/counts", &query)?;
    let total = counts.as_object().into_iter().flat_map(|counts| counts.values()).filter_map(Value::as_u64).sum();
    let mut found = Vec::new();
    let mut cursor = args.after.clone();
    while found.len() < args.limit as usize {
        let left = u64::from(args.limit) - found.len() as u64;
        let mut query = query.clone();
        query.push(("limit", left.min(PAGE).to_string()));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page = remote.get("/v1/runs", &query)?;
        found.extend(page["runs"].as_array().into_iter().flatten().filter_map(listed));
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    Ok(list::Page { listed: found, next: cursor, total: Some(total) })
}

/// Prints a run of a server as `etude runs show` prints a local one.
pub(super) fn show(context: &Context, remote: &Remote, args: &args::RunsShow) -> Result<Exit, Problem> {
    let way = "print one stream of it: etude runs show RUN --stream EFFECT/stdout";
    refuse_options(&[(args.step.is_some(), "STEP", way)])?;
    let run = remote.find(&args.id)?;
    if let Some(name) = &args.stream {
        return stream(remote, &run, name);
    }
    let mut bytes = Vec::new();
    run.document.write(&mut bytes).map_err(|e| Problem::environment(e.to_string()))?;
    if context.is_json() {
        let document = String::from_utf8_lossy(&bytes);
        let open = document.trim_end().strip_suffix('}').unwrap_or_default();
        let extra = beside(remote, &run).to_string();
        let input = &run.input;
        stdout::documents(|out| writeln!(out, r#"{open},"input":{input},{}"#, &extra[1..]));
        return Ok(Exit::Done);
    }
    let mut facts: Value = serde_json::from_slice(&bytes).map_err(|e| Problem::environment(e.to_string()))?;
    if let (Value::Object(facts), Value::Object(more)) = (&mut facts, beside(remote, &run)) {
        facts.extend(more);
    }
    facts["input"] = serde_json::from_str(run.input.get()).unwrap_or_default();
    super::show::mark_begun(&mut facts);
    let width = layout::width();
    let created = run.members.get("created_at").and_then(Value::as_str).and_then(clock::from_rfc3339);
    let state = RunState::from_word(&run.status);
    let can_continue = matches!(state, Some(RunState::Failed | RunState::Cancelled));
    let has_output = matches!(state, Some(state) if state.is_final() || state == RunState::Waiting);
    let output = run.document.output.as_ref().filter(|_| has_output);
    let extra = render::Extra {
        is_remote: true,
        started: created.map(clock::local).unwrap_or_default(),
        output: output.map(|output| output_excerpt(output, width)).transpose()?,
        resume: can_continue.then(|| format!("etude runs resume {}", short(&run.id))),
        width,
    };
    stdout::styled(&render::text(&facts, &extra));
    Ok(Exit::Done)
}

/// Members that `runs show` adds to the result document.
fn beside(remote: &Remote, run: &RunDocument) -> Value {
    let member = |name: &str| run.members.get(name).cloned().unwrap_or_default();
    let target = run.target().unwrap_or(Target::Skill(String::new()));
    let mut beside = json!({
        "started_at": member("started_at"), "changed_at": member("changed_at"), "app": member("app"),
        "target": target.to_string(), "cause": member("cause"), "by": member("by"), "labels": member("labels"),
        "queue": member("queue"), "limits": member("limits"), "links": member("links"),
    });
    let actions = actions(remote, &run.id);
    if !actions.is_empty() {
        beside["actions"] = actions.into();
    }
    beside
}

/// Actions of tokens on a run, oldest first. Earlier servers do not list them.
fn actions(remote: &Remote, id: &str) -> Vec<Value> {
    let query = [("run", id.to_owned()), ("limit", PAGE.to_string())];
    let page = remote.get("/v1/actions", &query).unwrap_or_default();
    let brief = |action: &Value| json!({"at": action["at"], "by": action["by"], "action": action["action"]});
    page["actions"].as_array().into_iter().flatten().rev().map(brief).collect()
}

fn stream(remote: &Remote, run: &RunDocument, name: &str) -> Result<Exit, Problem> {
    let id = &run.id;
    let value = match name {
        "input" => Some(run.input.get().to_owned()),
        "output" => {
            let output = run.document.output.as_ref().and_then(|output| output.text().ok());
            let none = || {
                Problem::usage(format!("run `{id}` has no output"))
                    .hint(format!("see the failure: etude runs show {}", short(id)))
            };
            Some(output.ok_or_else(none)?.to_string())
        }
        _ => None,
    };
    if let Some(value) = value {
        let text = serde_json::from_str::<String>(&value).unwrap_or(value);
        stdout::text(&text);
        return Ok(Exit::Done);
    }
    let usage = || {
        Problem::usage(format!("`{name}` is not a stream of run `{id}`"))
            .hint("a stream is the id of an effect and `stdin`, `stdout`, `stderr`, `prompt`, `answer` or `result`")
    };
    let (effect, word) = name.rsplit_once('/').ok_or_else(usage)?;
    let path = format!("/v1/runs/{id}/effects/{}/{}", percent(effect), percent(word));
    let printed = remote.bytes(&path, |piece| stdout::with(|out| out.write_all(piece)));
    printed.map_err(|problem| if problem.exit == Exit::Usage { usage() } else { problem })?;
    Ok(Exit::Done)
}

/// Follows a run that was started elsewhere.
pub(super) fn watch(context: &Context, remote: &Remote, id: &str) -> Result<Exit, Problem> {
    let found = remote.find(id)?;
    let (id, target) = (&found.id, found.target());
    let stop = Some(signals::listen_to_follow()?);
    let run = match remote.follow(context, id, Watching { stop, is_observer: true, ..Watching::default() }) {
        Ok(run) => run,
        Err(problem) => return Ok(context.report(target.as_ref(), &problem)),
    };
    if run.status == super::INTERRUPTED {
        let problem = Problem::environment(format!("run `{id}` was interrupted: no process executes it"));
        return Err(problem.hint(format!("continue it: etude runs resume {id}")));
    }
    let target = target.map(|target| target.to_string());
    Ok(watch::over(context, &run.document, &target.unwrap_or_default()))
}

/// Cancels a run on the server.
pub(super) fn cancel(context: &Context, remote: &Remote, id: &str) -> Result<Exit, Problem> {
    let run = remote.find(id)?;
    if run.is_over() {
        return Err(is_over(&run.id, &run.status));
    }
    remote.cancel(&run.id, CANCELLED)?;
    Ok(cancelling(context, &run.id))
}

/// Deletes runs that have ended. All runs are checked before the first is removed.
pub(super) fn delete(context: &Context, remote: &Remote, ids: &[String]) -> Result<Exit, Problem> {
    let mut found = BTreeSet::new();
    for id in ids {
        let run = remote.find(id)?;
        if !run.is_over() {
            return Err(unfinished(&run.id, &run.status));
        }
        found.insert(run.id);
    }
    found.iter().try_for_each(|id| remote.delete(id))?;
    Ok(deleted(context, found.len()))
}

pub(super) fn resume(context: &Context, remote: &Remote, args: &args::RunsResume) -> Exit {
    let limits = &args.limits;
    let body = json!({
        "accept_changes": args.accept_changes,
        "limits": limits_json(limits.max_cost, limits.max_tokens, limits.timeout),
    });
    continued(context, remote, &args.id, limits.strict, None, body)
}

pub(super) fn retry(context: &Context, remote: &Remote, args: &args::RunsRetry) -> Exit {
    let limits = &args.limits;
    let has_limits = limits.max_cost.is_some() || limits.max_tokens.is_some() || limits.timeout.is_some();
    let way = "raise them with `etude runs resume`";
    if let Err(problem) = refuse_options(&[(has_limits, "--max-cost, --max-tokens or --timeout with retry", way)]) {
        return context.report(None, &problem);
    }
    let body = json!({"from": args.from, "accept_changes": args.accept_changes});
    continued(context, remote, &args.id, limits.strict, Some(&args.from), body)
}

/// Continues a run and follows it to its end.
fn continued(
    context: &Context,
    remote: &Remote,
    id: &str,
    is_strict: bool,
    from: Option<&str>,
    mut body: Value,
) -> Exit {
    if let Some(members) = body.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    let way = "leave it out, or run on this machine without `--server`";
    let run = refuse_options(&[(is_strict, "--strict", way)]).and_then(|()| remote.find(id));
    let run = match run {
        Ok(run) => run,
        Err(problem) => return context.report(None, &problem),
    };
    if from.is_none() && run.status == RunState::Succeeded.word() {
        return succeeded(context, &run.document);
    }
    let action = if from.is_some() { "retry" } else { "resume" };
    let done = proceed(context, remote, &run, |remote| {
        remote.post(&format!("/v1/runs/{}/{action}", run.id), &body.to_string()).map(drop)
    });
    done.unwrap_or_else(|problem| {
        let target = run.target();
        context.refuse(
            About { run_id: Some(&run.id), target: target.as_ref(), so_far: Some(&run.document) },
            &Refused::Problem(problem),
        )
    })
}

/// Sends a request that continues `run`, then follows it to its end.
pub(crate) fn proceed(
    context: &Context,
    remote: &Remote,
    run: &RunDocument,
    ask: impl FnOnce(&Remote) -> Result<(), Problem>,
) -> Result<Exit, Problem> {
    let after = remote.last_event(&run.id)?;
    let stop = Some(signals::listen()?);
    ask(remote)?;
    let watching = Watching { after, changed_at: Some(run.changed_at.clone()), stop, is_observer: false };
    let ended = remote.follow(context, &run.id, watching)?.into_ended();
    Ok(finished(context, None, &ended, AfterDecision::Watch))
}

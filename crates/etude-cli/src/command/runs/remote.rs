//! `etude runs` on a server.

use std::collections::BTreeSet;

use etude_core::exact::Exact;
use etude_runs::document::Document;
use etude_runs::inspect::{Groups, Inspected, Stream};
use etude_runs::listing::{Group, Side, Stats};
use etude_runs::target::Target;
use etude_runtime::clock;
use etude_runtime::engine::RunState;
use serde_json::{Value, json};

use super::cancel::{CANCELLED, cancelling, is_over};
use super::delete::{deleted, unfinished};
use super::show::{add_details, count_elements, mark_begun, output_excerpt};
use super::{diff, list, stats, step, succeeded, watch};
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
    query.extend(target_filter(args.pipeline.as_deref())?);
    let counts = remote.get("/v1/runs/counts", &query)?;
    let total = counts.as_object().into_iter().flat_map(|counts| counts.values()).filter_map(Value::as_u64).sum();
    let mut found = Vec::new();
    let mut cursor = args.after.clone();
    while found.len() < args.limit as usize {
        let left = u64::from(args.limit) - found.len() as u64;
        let mut query = query.clone();
        query.push(("limit", left.min(PAGE).to_string()));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let (rows, next) = remote.list("/v1/runs", &query, "runs")?;
        found.extend(rows.iter().filter_map(listed));
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(list::Page { listed: found, next: cursor, total: Some(total) })
}

/// Query filter for the runs of a pipeline or machine.
pub(super) fn target_filter(name: Option<&str>) -> Result<Option<(&'static str, String)>, Problem> {
    match name.map(Target::parse) {
        None => Ok(None),
        Some(Target::Pipeline(name)) => Ok(Some(("pipeline", name))),
        Some(Target::Machine(name)) => Ok(Some(("machine", name))),
        Some(Target::Skill(_)) => {
            Err(Problem::usage("a server cannot filter runs of skill mode by name")
                .hint("list all runs: etude runs list"))
        }
    }
}

/// Number of runs that the statistics of a server cover at most: the last ones.
const MAX_COUNTED: u64 = 1_000;

/// Statistics of the last runs on a server: of each group, and of all runs.
pub(super) fn stats(
    context: &Context,
    remote: &Remote,
    args: &args::RunsStats,
) -> Result<(Vec<Stats>, Stats), Problem> {
    let mut query = if args.all { Vec::new() } else { remote.of_app() };
    query.extend(target_filter(args.pipeline.as_deref())?);
    query.push(("since", clock::rfc3339(list::since_ms(args.since))));
    let by: Vec<&str> = stats::groups(args).into_iter().map(Group::word).collect();
    query.extend([("limit", MAX_COUNTED.to_string()), ("by", by.join(","))]);
    let found = remote.with_member("/v1/runs/stats", &query, "groups")?;
    let total = Stats::from_json(&found["stats"]);
    if total.runs == MAX_COUNTED && !context.global.quiet {
        crate::render::say!("note: a server counts the last {MAX_COUNTED} runs; a shorter time covers all: --since 1d");
    }
    Ok((found["groups"].as_array().into_iter().flatten().map(Stats::from_json).collect(), total))
}

/// Prints a run of a server as `etude runs show` prints a local one.
pub(super) fn show(context: &Context, remote: &Remote, args: &args::RunsShow) -> Result<Exit, Problem> {
    let run = remote.find(&args.id)?;
    if let Some(name) = &args.stream {
        return stream(remote, &run, name);
    }
    if let Some(name) = &args.step {
        return step(context, remote, &run, name, args);
    }
    if context.is_json() {
        let mut members = Value::Object(run.document.members.clone());
        mark_begun(&mut members);
        let members = members.as_object_mut().map(std::mem::take).unwrap_or_default();
        let mut bytes = Vec::new();
        let document = Document { members, ..run.document.clone() };
        document.write(&mut bytes).map_err(|e| Problem::environment(e.to_string()))?;
        let document = String::from_utf8_lossy(&bytes);
        let open = document.trim_end().strip_suffix('}').unwrap_or_default();
        let extra = extra_members(remote, &run)?.to_string();
        let input = &run.input;
        stdout::documents(|out| writeln!(out, r#"{open},"input":{input},{}"#, &extra[1..]));
        return Ok(Exit::Done);
    }
    let facts = facts(remote, &run)?;
    let width = layout::width();
    let created = run.members.get("created_at").and_then(Value::as_str).and_then(clock::from_rfc3339);
    let state = RunState::from_word(&run.status);
    let can_continue = matches!(state, Some(RunState::Failed | RunState::Cancelled));
    let has_output = matches!(state, Some(state) if state.is_final() || state == RunState::Waiting);
    let output = run.document.output.as_ref().filter(|_| has_output);
    let extra = render::Extra {
        groups: groups_of(remote, &run)?,
        started: created.map(clock::local).unwrap_or_default(),
        output: output.map(|output| output_excerpt(output, width)).transpose()?,
        resume: can_continue.then(|| format!("etude runs resume {}", short(&run.id))),
        width,
    };
    stdout::styled(&render::text(&facts, &extra));
    Ok(Exit::Done)
}

/// The groups around the steps of a run, from its tree.
fn groups_of(remote: &Remote, run: &RunDocument) -> Result<Groups, Problem> {
    let (mut groups, mut after) = (Groups::default(), None);
    let steps = run.document.members.get("steps").and_then(Value::as_array);
    if !steps.is_some_and(|steps| steps.iter().any(|step| step["type"] == "parallel")) {
        return Ok(groups);
    }
    let path = format!("/v1/runs/{}/tree", run.id);
    loop {
        let mut query = vec![("limit", PAGE.to_string())];
        query.extend(after.map(|after| ("after", after)));
        let (nodes, next) = remote.list(&path, &query, "nodes")?;
        for node in nodes.iter().filter(|node| node["kind"] == "step") {
            let (id, parent) = (node["id"].as_str().unwrap_or_default(), node["parent"].as_str().unwrap_or_default());
            if parent.contains('/') {
                groups.add(id, parent);
            }
        }
        after = next;
        if after.is_none() {
            return Ok(groups);
        }
    }
}

/// Document of `runs show` without the output, which may be large.
fn facts(remote: &Remote, run: &RunDocument) -> Result<Value, Problem> {
    let document = Document { output: None, ..run.document.clone() };
    let mut bytes = Vec::new();
    document.write(&mut bytes).map_err(|e| Problem::environment(e.to_string()))?;
    let mut facts: Value = serde_json::from_slice(&bytes).map_err(|e| Problem::environment(e.to_string()))?;
    if let (Value::Object(facts), Value::Object(more)) = (&mut facts, extra_members(remote, run)?) {
        facts.extend(more);
    }
    facts["input"] = serde_json::from_str(run.input.get()).unwrap_or_default();
    mark_begun(&mut facts);
    count_elements(&mut facts);
    Ok(facts)
}

fn step(
    context: &Context,
    remote: &Remote,
    run: &RunDocument,
    name: &str,
    args: &args::RunsShow,
) -> Result<Exit, Problem> {
    let facts = facts(remote, run)?;
    let run = step::Run {
        id: &run.id,
        steps: facts["steps"].as_array().cloned().unwrap_or_default(),
        effects: effects(&facts),
        rejected: serde_json::from_value(facts["rejected"].clone()).unwrap_or_default(),
        read: &|effect, stream| read(remote, &run.id, effect, stream),
    };
    step::show(context, &run, name, args)
}

/// The effects in a document of `runs show`.
fn effects(facts: &Value) -> Vec<Inspected> {
    facts["effects"].as_array().into_iter().flatten().filter_map(Inspected::from_json).collect()
}

/// Reads one stream of an effect; `None` if it has no such stream.
fn read(remote: &Remote, id: &str, effect: &str, stream: Stream) -> Result<Option<Vec<u8>>, Problem> {
    let mut bytes = Vec::new();
    match remote.bytes(&path_of(id, effect, stream.word()), |piece| bytes.extend_from_slice(piece)) {
        Ok(()) => Ok(Some(bytes)),
        Err(problem) if problem.exit == Exit::Usage => Ok(None),
        Err(problem) => Err(problem),
    }
}

fn path_of(id: &str, effect: &str, stream: &str) -> String {
    format!("/v1/runs/{id}/effects/{}/{}", percent(effect), percent(stream))
}

/// One of the runs that `runs diff` compares.
pub(super) fn side(remote: &Remote, id: &str) -> Result<Side, Problem> {
    let run = remote.find(id)?;
    let document = facts(remote, &run)?;
    let read = |effect: &str, stream| read(remote, &run.id, effect, stream);
    let outputs = diff::outputs(&effects(&document), read)?;
    let input = Exact::parse(run.input.get()).ok();
    Ok(Side { document, input, output: diff::comparable(run.document.output.as_ref()), outputs })
}

/// Members that `runs show` adds to the result document.
fn extra_members(remote: &Remote, run: &RunDocument) -> Result<Value, Problem> {
    let member = |name: &str| run.members.get(name).cloned().unwrap_or_default();
    let target = run.target().unwrap_or(Target::Skill(String::new()));
    let mut beside = json!({
        "started_at": member("started_at"), "changed_at": member("changed_at"), "app": member("app"),
        "target": target.to_string(), "cause": member("cause"), "by": member("by"), "labels": member("labels"),
        "queue": member("queue"), "limits": member("limits"), "links": member("links"),
    });
    let details = match remote.with_member(&format!("/v1/runs/{}/details", run.id), &[], "effects") {
        // An earlier server has no such route.
        Err(problem) if problem.exit == Exit::Usage => json!({"effects": []}),
        other => other?,
    };
    add_details(&mut beside, details);
    let actions = actions(remote, &run.id);
    if !actions.is_empty() {
        beside["actions"] = actions.into();
    }
    Ok(beside)
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
    let printed = remote.bytes(&path_of(id, effect, word), |piece| stdout::with(|out| out.write_all(piece)));
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
    let mut body = json!({"from": args.from, "accept_changes": args.accept_changes});
    let given = limits_json(limits.max_cost, limits.max_tokens, limits.timeout);
    if !given.is_null() {
        body["limits"] = given;
    }
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

//! Decisions about runs on a server.

use etude_core::failure::{Failure, FailureKind};
use etude_runs::listing;
use etude_runtime::engine::RunState;
use serde_json::{Value, json};

use super::{Typed, check_answer, find_gate, say_decision, seen};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::remote::{Remote, percent, refuse_options};

/// Decides about a run on a server, which then continues it.
pub(super) fn decide(context: &Context, remote: &Remote, typed: &Typed<'_>) -> Result<Exit, Problem> {
    refuse_options(&[(typed.by.is_some(), "--by", "the server records the name of the token")])?;
    let (run, wanted) = typed.place();
    let run = remote.find(run)?;
    let at_work = if is_at_work(&run.status) { open_of(remote, &run.id)? } else { Vec::new() };
    let waiting = if at_work.is_empty() { &run.document.waiting } else { &at_work };
    let gate = find_gate(&run.id, &run.status, waiting, wanted, typed.question)
        .map_err(|problem| wanted.and_then(|effect| decided_on_server(remote, &run.id, effect)).unwrap_or(problem))?;
    if !seen(context, typed, &gate)? {
        return Ok(Exit::Done);
    }
    let answer = check_answer(&gate, typed)?;
    let mut body = json!({"approved": typed.approved, "question": gate["payload"]["question"]});
    if let Some(reason) = typed.reason {
        body["reason"] = reason.into();
    }
    let mut body = body.to_string();
    if let (Some(_), Ok(answer)) = (typed.answer, answer.text()) {
        body.pop();
        body.push_str(&format!(r#","answer":{answer}}}"#));
    }
    let path = format!("/v1/decisions/{}", percent(gate["id"].as_str().unwrap_or_default()));
    let decide = |remote: &Remote| {
        remote.post(&path, &body).map_err(|problem| answered(problem, gate["id"].as_str().unwrap_or_default()))?;
        say_decision(context, typed, &run.id, &gate, &format!("the server continues it: etude runs watch {}", run.id));
        Ok(())
    };
    if typed.resume {
        return crate::command::runs::remote::proceed(context, remote, &run, decide);
    }
    decide(remote).map(|()| Exit::Done)
}

fn is_at_work(status: &str) -> bool {
    status == RunState::Running.word() || status == listing::INTERRUPTED
}

/// The open questions of a run that is at work, as entries of `waiting`; its document has none of them (ADR 0189).
fn open_of(remote: &Remote, run: &str) -> Result<Vec<Value>, Problem> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let mut query = vec![("run", run.to_owned()), ("limit", "200".to_owned())];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let (decisions, next) = remote.list("/v1/decisions", &query, "decisions")?;
        let entry = |one: &Value| json!({"id": one["id"], "kind": one["kind"], "payload": one["payload"]});
        found.extend(decisions.iter().map(entry));
        cursor = next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

/// Problem of a question that is already answered. It comes from the server's response to a decision about a question that no
/// run has, which changes nothing. A server has no other route to the decision.
fn decided_on_server(remote: &Remote, run: &str, effect: &str) -> Option<Problem> {
    let path = format!("/v1/decisions/{}", percent(&format!("{run}:{effect}")));
    let problem = remote.post(&path, r#"{"approved":false,"question":""}"#).err()?;
    is_decided(problem.failures.first()?).then(|| answered(problem, &format!("{run}:{effect}")))
}

/// Problem of a second decision, in the wording of this program.
fn answered(mut problem: Problem, id: &str) -> Problem {
    if let Some(failure) = problem.failures.first_mut().filter(|failure| is_decided(failure)) {
        failure.message = format!("`{id}` has already been answered");
    }
    problem
}

fn is_decided(failure: &Failure) -> bool {
    failure.kind == FailureKind::InputInvalid && failure.details.is_some()
}

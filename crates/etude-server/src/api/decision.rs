//! Open questions of runs, and the decisions about them.

use std::sync::Arc;

use etude_core::data::Json;
use etude_core::digest::hex;
use etude_core::outcome::Decision;
use etude_core::schema::{Schema, Violation};
use etude_runs::listing;
use etude_runtime::engine::{Cursor, Query, RunRow, RunState, RunView, Signalled, name_of};
use etude_runtime::record;
use http::StatusCode;
use serde_json::{Value, json};

use crate::blocking::blocking;
use crate::problem::{Code, Problem, engine_failed};
use crate::query::{from_hex, invalid};
use crate::request::{Call, Respond};
use crate::response::{json_response, spliced, tagged, text_response};
use crate::result::{result_in_list, waiting_of};
use crate::server::Server;
use crate::token::Caller;
use crate::work;

/// Rows per read.
const PAGE: u32 = 1_000;

fn no_decision() -> Problem {
    Problem::not_found("there is no such open question")
}

/// `GET /v1/decisions`.
pub(crate) async fn list(call: Call) -> Respond {
    let limit = usize::try_from(call.query.number("limit", 1, 200, 50)?).unwrap_or(50);
    let after = call.query.get("cursor").map(Place::from_cursor).transpose()?;
    let run = call.query.get("run").map(str::to_owned);
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let page = blocking(move || {
        let apps = server.context().dirs();
        if apps.is_empty() {
            return Ok((Vec::new(), None));
        }
        let rows = match run {
            Some(run) => vec![server.context().visible(&caller, &run)?],
            None => {
                let mut rows = waiting(&server, apps)?;
                rows.retain(|row| caller.covers(name_of(&row.target)));
                rows.sort_by_key(|row| (row.changed_at_ms, row.number));
                rows
            }
        };
        open_after(&server, &rows, after.as_ref(), limit)
    });
    let (decisions, next) = page.await?;
    Ok(json_response(StatusCode::OK, &json!({"decisions": decisions, "next": next})))
}

/// At most `limit` open questions of these runs, and the cursor of the next page if there are more.
fn open_after(
    server: &Server,
    rows: &[RunRow],
    after: Option<&Place>,
    limit: usize,
) -> Result<(Vec<Value>, Option<String>), Problem> {
    let mut found: Vec<(Place, Value)> = Vec::new();
    for row in rows.iter().skip_while(|row| after.is_some_and(|after| after.is_past(row))) {
        let open = open_of(server, row)?.into_iter().map(|decision| (Place::of(row, &decision), decision));
        let mut open: Vec<(Place, Value)> = open.filter(|(place, _)| after.is_none_or(|after| place > after)).collect();
        open.sort_by(|(one, _), (other, _)| one.cmp(other));
        found.extend(open);
        if found.len() > limit {
            found.truncate(limit);
            let next = found.last().map(|(place, _)| place.to_cursor());
            return Ok((found.into_iter().map(|(_, decision)| decision).collect(), next));
        }
    }
    Ok((found.into_iter().map(|(_, decision)| decision).collect(), None))
}

/// Position of a question in the list: the start of its run's wait, the run, and the effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    since_ms: i64,
    number: i64,
    effect: String,
}

impl Place {
    fn of(row: &RunRow, decision: &Value) -> Self {
        Self { since_ms: row.changed_at_ms, number: row.number, effect: listing::effect_of(decision).to_owned() }
    }

    /// True if all questions of the run come before this position.
    fn is_past(&self, row: &RunRow) -> bool {
        (row.changed_at_ms, row.number) < (self.since_ms, self.number)
    }

    /// The cursor of the next page. The effect is in hexadecimal digits, which need no escape in a query.
    fn to_cursor(&self) -> String {
        let effect = hex(self.effect.as_bytes());
        format!("{}.{}.{effect}.{}", self.since_ms, self.number, self.check())
    }

    fn from_cursor(text: &str) -> Result<Self, Problem> {
        let read = || {
            let parts: Vec<&str> = text.split('.').collect();
            let [since_ms, number, effect, check] = parts[..] else { return None };
            let effect = String::from_utf8(from_hex(effect)?).ok()?;
            let place = Self { since_ms: since_ms.parse().ok()?, number: number.parse().ok()?, effect };
            (place.check() == check).then_some(place)
        };
        read().ok_or_else(|| invalid("cursor", "`cursor` must be the `next` of the previous page"))
    }

    fn check(&self) -> String {
        let text = format!("{} {} {}", self.since_ms, self.number, self.effect);
        hex(&blake3::derive_key("etude decisions cursor 1", text.as_bytes())[..6])
    }
}

/// All waiting runs of `apps`, page by page.
fn waiting(server: &Server, apps: Vec<String>) -> Result<Vec<RunRow>, Problem> {
    let mut query = Query { apps, states: vec![RunState::Waiting], limit: Some(PAGE), ..Query::default() };
    let mut rows: Vec<RunRow> = Vec::new();
    loop {
        let page = server.engine().list(&query).map_err(|e| engine_failed(&e))?;
        let is_last = page.len() < PAGE as usize;
        rows.extend(page);
        query.after = rows.last().map(|row| Cursor { created_at_ms: row.created_at_ms, number: row.number });
        if is_last {
            return Ok(rows);
        }
    }
}

/// `GET /v1/decisions/{id}`.
pub(crate) async fn show(call: Call) -> Respond {
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let document = blocking(move || {
        let Asked { view, gate } = Asked::read(&server, &caller, &id)?;
        let open = gate.filter(|gate| listing::decision(&view.signals, gate).is_none());
        open.map(|gate| decision_json(&view.row, &view, &gate)).ok_or_else(|| closed(&view, &id))
    });
    Ok(tagged(&call.headers, document.await?.to_string()))
}

/// The problem of a question that is not open, with its run and the decision about it.
fn closed(view: &RunView, id: &str) -> Problem {
    let effect = id.split_once(':').map_or("", |(_, effect)| effect);
    let problem = no_decision().with("run_id", view.row.id.as_str());
    match decided_before(view, effect) {
        Some(earlier) => of_decision(problem, &earlier),
        None => problem,
    }
}

/// A run, and its question with a certain id.
struct Asked {
    view: RunView,
    /// The entry of the question among those that the run waits for.
    gate: Option<Value>,
}

impl Asked {
    /// Reads the question with this id. The questions of a run that is at work are open, too: who answers all questions of a run
    /// one after the other does not miss any. Blocks.
    fn read(server: &Server, caller: &Caller, id: &str) -> Result<Self, Problem> {
        let (run, _) = id.split_once(':').ok_or_else(no_decision)?;
        let row = server.context().visible(caller, run).map_err(|_| no_decision())?;
        let view = server.engine().view(&row.id).map_err(|e| engine_failed(&e))?;
        let mut waiting = waiting_of(server.context(), &view).into_iter();
        let gate = waiting.find(|waiting| waiting["id"] == *id && listing::is_question(waiting));
        Ok(Self { view, gate })
    }
}

/// The open questions of a run, also of one that is at work (ADR 0189).
fn open_of(server: &Server, row: &RunRow) -> Result<Vec<Value>, Problem> {
    let (view, waiting) = match row.state {
        RunState::Waiting => {
            // A run whose result is lost keeps no other question out of the list.
            let (Some(document), _) = result_in_list(&**server.engine(), row)? else { return Ok(Vec::new()) };
            (server.engine().view(&row.id).map_err(|e| engine_failed(&e))?, document.waiting)
        }
        RunState::Running => {
            let view = server.engine().view(&row.id).map_err(|e| engine_failed(&e))?;
            let waiting = waiting_of(server.context(), &view);
            (view, waiting)
        }
        _ => return Ok(Vec::new()),
    };
    let questions = waiting.iter().filter(|waiting| listing::is_question(waiting));
    let open = questions.filter(|waiting| listing::decision(&view.signals, waiting).is_none());
    Ok(open.map(|waiting| decision_json(row, &view, waiting)).collect())
}

fn decision_json(row: &RunRow, view: &RunView, waiting: &Value) -> Value {
    let payload = &waiting["payload"];
    let effect = listing::effect_of(waiting);
    json!({
        "id": waiting["id"], "run_id": row.id, "kind": waiting["kind"], "message": payload["message"],
        "schema": payload["schema"], "approvers": payload["approvers"], "payload": payload,
        "question": payload["question"], "since": etude_runtime::clock::rfc3339(row.changed_at_ms), "deadline_at": listing::deadline(view, effect).map(etude_runtime::clock::rfc3339),
    })
}

/// A decision of a caller.
struct Given {
    question: String,
    decision: Decision,
    /// True if an earlier request had the same idempotency key.
    is_repeated: bool,
}

impl Given {
    /// The response if `earlier` came first. The caller's own earlier decision, whose response was lost, is not a conflict.
    fn after(&self, id: &str, earlier: &Decision) -> Result<String, Problem> {
        let own = Decision { at: earlier.at.clone(), ..self.decision.clone() };
        if self.is_repeated && own == *earlier { document_of(id, earlier) } else { Err(already(earlier)) }
    }
}

/// `POST /v1/decisions/{id}`.
pub(crate) async fn decide(call: Call) -> Respond {
    let members = call.json(&["approved", "question", "answer", "reason"]).await?;
    let caller = call.caller()?.clone();
    let approved = members.flag("approved")?;
    let approved = approved.ok_or_else(|| members.invalid("approved", "`approved` must be `true` or `false`"))?;
    let question = members.text("question")?;
    let question = question
        .ok_or_else(|| members.invalid("question", "`question` must be the `question` of the decision document"))?;
    let answer = match members.raw("answer") {
        Some(text) => Json::parse(text).map_err(|_| members.invalid("answer", "the answer cannot be read"))?,
        None => Json::null(),
    };
    let reason = members.text("reason")?;
    let decision =
        Decision { approved, answer, by: caller.name.clone(), at: etude_runtime::clock::now_rfc3339(), reason };
    let (server, id) = (Arc::clone(&call.server), call.param("id").to_owned());
    let given = Given { question, decision, is_repeated: call.is_repeated };
    let document = blocking(move || decided(&server, &caller, &id, given));
    Ok(text_response(StatusCode::OK, document.await?))
}

fn decided(server: &Arc<Server>, caller: &Caller, id: &str, given: Given) -> Result<String, Problem> {
    let (run, effect) = id.split_once(':').ok_or_else(no_decision)?;
    let Asked { view, gate } = Asked::read(server, caller, id)?;
    let engine = server.engine();
    let key = record::decision_key(effect, &given.question);
    if let Some(earlier) = view.signals.iter().find(|signal| signal.key == key).and_then(record::to_decision) {
        return given.after(id, &earlier);
    }
    let gate =
        gate.ok_or_else(|| decided_before(&view, effect).map_or_else(no_decision, |earlier| already(&earlier)))?;
    let payload = &gate["payload"];
    if payload["question"] != *given.question {
        let problem = Problem::new(Code::OtherQuestion, "the run now asks another question");
        return Err(problem.with("by", Value::Null).with("decided_at", Value::Null).with("approved", Value::Null));
    }
    let approvers: Vec<&str> =
        payload["approvers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !approvers.is_empty() && !approvers.contains(&caller.name.as_str()) {
        let detail = format!("`{}` is not an approver; the approvers are: {}", caller.name, approvers.join(", "));
        return Err(Problem::new(Code::NotAnApprover, detail));
    }
    check_answer(&payload["schema"], &given.decision)?;
    // The deadline is a timer of the run: it follows the clock of the machine.
    let now_ms = etude_runtime::clock::now_ms();
    if let Some(ended_ms) = listing::deadline(&view, effect).filter(|ends_ms| *ends_ms < now_ms) {
        let ended = etude_runtime::clock::rfc3339(ended_ms);
        return Err(Problem::not_found(format!("the deadline was {ended}; a later decision does not count")));
    }
    let signal = record::decision_signal(effect, &given.question, &given.decision);
    if let Signalled::TooLate(body) = engine.signal(run, &signal).map_err(|e| engine_failed(&e))? {
        let earlier = record::to_decision(&etude_runtime::engine::Signal { key, body });
        return earlier.map_or_else(|| Err(no_decision()), |earlier| given.after(id, &earlier));
    }
    work::continue_run(server.works(), run)?;
    document_of(id, &given.decision)
}

/// The document of a decision, with the answer as it was written.
fn document_of(id: &str, decision: &Decision) -> Result<String, Problem> {
    let Decision { approved, answer, by, at, reason } = decision;
    let run = id.split_once(':').map(|(run, _)| run);
    let document = json!({"id": id, "run_id": run, "approved": approved, "by": by, "at": at, "reason": reason});
    let answer = answer.text().map_err(|error| Problem::new(Code::JournalUnavailable, error.to_string()))?;
    Ok(spliced(&document, "answer", &answer))
}

/// The last decision about any question of an effect.
fn decided_before(view: &RunView, effect: &str) -> Option<Decision> {
    let is_of = |key: &str| key.strip_prefix(effect).is_some_and(|rest| rest.starts_with('@'));
    view.signals.iter().rev().filter(|signal| is_of(&signal.key)).find_map(record::to_decision)
}

fn already(earlier: &Decision) -> Problem {
    let problem = Problem::new(Code::AlreadyDecided, format!("`{}` has decided at {}", earlier.by, earlier.at));
    of_decision(problem, earlier)
}

/// Adds decider, time and verdict of the earlier decision.
fn of_decision(problem: Problem, earlier: &Decision) -> Problem {
    problem.with("by", earlier.by.as_str()).with("decided_at", earlier.at.as_str()).with("approved", earlier.approved)
}

/// Checks an answer against its schema (S-87). A denial needs no answer.
fn check_answer(schema: &Value, decision: &Decision) -> Result<(), Problem> {
    let value = decision.answer.value().map_err(|e| Problem::invalid("/answer", e.to_string()))?;
    if schema.is_null() || value.is_null() && !decision.approved {
        return Ok(());
    }
    let schema = Schema::lazy("answer", schema.clone(), Default::default());
    let faults = schema.violations(&value);
    if faults.is_empty() {
        return Ok(());
    }
    let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let problem = Problem::new(Code::InputInvalid, format!("the answer does not match the schema: {}", all.join("; ")));
    let entry = |fault: &Violation| json!({"pointer": format!("/answer{}", fault.pointer), "detail": fault.message});
    Err(faults.iter().fold(problem, |problem, fault| problem.error(entry(fault))))
}

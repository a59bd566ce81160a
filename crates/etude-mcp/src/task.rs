//! Tasks: runs in the form of the extension `io.modelcontextprotocol/tasks`. They are read from the journal, so every server
//! knows them.

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::api::Request;
use crate::ask;
use crate::call::{escaped, read};
use crate::result::{Run, ToolResult, sentence};
use crate::service::{Context, Service};
use crate::wire::{Outcome, Params, RpcError, raw};

/// Polling intervals of clients in milliseconds: at first, after a minute, and while a person is asked.
const POLL_MS: [u64; 3] = [1_000, 5_000, 30_000];

/// Age from which on a task is polled less often.
const YOUNG: Duration = Duration::from_secs(60);

/// The response to a call that became a task.
pub(crate) fn created(service: &Service, context: &Context, run: &Run) -> Outcome {
    let mut task = document(service, context, run)?;
    task.insert("resultType".to_owned(), "task".into());
    task.retain(|name, _| !matches!(name.as_str(), "result" | "error" | "inputRequests"));
    raw(&task)
}

/// `tasks/get`.
pub(crate) async fn get(service: &Service, context: &Context, params: &Params) -> Outcome {
    let run = own(service, params).await?;
    let task = document(service, context, &run)?;
    if task["status"] != "completed" {
        return raw(&task);
    }
    let result = ToolResult::of_run(&*service.api, &run, "", Vec::new()).map_err(RpcError::internal)?.to_raw()?;
    // The result keeps its digits.
    let mut members: Map<String, Value> = task;
    members.remove("result");
    let text = Value::from(members).to_string();
    let text = format!("{},\"result\":{}}}", &text[..text.len() - 1], result.get());
    RawValue::from_string(text).map_err(|e| RpcError::internal(e.to_string()))
}

/// `tasks/update`: answers to questions.
pub(crate) async fn update(service: &Service, context: &Context, params: &Params) -> Outcome {
    let run = own(service, params).await?;
    if let Some(refused) = ask::answered(service, context, &run, params).await.values().next() {
        return Err(RpcError::params(sentence(refused)));
    }
    raw(&json!({}))
}

/// `tasks/cancel`.
pub(crate) async fn cancel(service: &Service, params: &Params) -> Outcome {
    let run = own(service, params).await?;
    let reply = service.api.send(Request::post(format!("/v1/runs/{}/cancel", run.run_id), "{}")).await;
    match reply.status {
        // A run that has ended meanwhile is not cancelled; the next `tasks/get` shows its end.
        200..300 | 409 => raw(&json!({})),
        _ => Err(RpcError::internal(sentence(&reply))),
    }
}

/// The run of a task, if this caller's calls created it.
async fn own(service: &Service, params: &Params) -> Result<Run, RpcError> {
    let id = params.text("taskId")?;
    let unknown = || RpcError::params("there is no such task");
    if escaped(id) != id {
        return Err(unknown());
    }
    let run = read(&*service.api, id).await.map_err(|_| unknown())?;
    // The prefix of an id is not the id.
    let is_own = run.run_id == id && run.cause == "mcp" && run.by.as_deref() == Some(service.api.caller());
    if is_own { Ok(run) } else { Err(unknown()) }
}

/// A run as the document of a task.
fn document(service: &Service, context: &Context, run: &Run) -> Result<Map<String, Value>, RpcError> {
    let never_ran = run.status == "failed" && run.started_at.is_none();
    let status = match run.status.as_str() {
        "failed" if never_ran => "failed",
        "succeeded" | "failed" => "completed",
        "cancelled" => "cancelled",
        "waiting" => "input_required",
        _ => "working",
    };
    let age = Duration::from_millis(run.duration_ms.unwrap_or(0));
    let poll = match status {
        "input_required" => POLL_MS[2],
        _ if age < YOUNG => POLL_MS[0],
        _ => POLL_MS[1],
    };
    let mut task = json!({
        "taskId": run.run_id, "status": status, "createdAt": run.created_at, "lastUpdatedAt": run.changed_at,
        "ttlMs": null, "pollIntervalMs": poll,
    });
    if status == "input_required" {
        let (requests, message) = ask::requests(service, context, run, &ask::Faults::new());
        task["inputRequests"] = requests.into();
        task["statusMessage"] = message.into();
    }
    if never_ran {
        let message = run.errors.first().and_then(|error| error["message"].as_str()).unwrap_or("the run did not start");
        task["error"] = json!({"code": RpcError::INTERNAL, "message": message});
        task["statusMessage"] = message.into();
    }
    match task {
        Value::Object(members) => Ok(members),
        _ => Err(RpcError::internal("internal error: the task is not an object")),
    }
}

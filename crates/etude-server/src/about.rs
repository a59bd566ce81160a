//! Documents about the server itself: health, identity, description.

use std::sync::Arc;

use etude_runtime::engine::Query;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::OPENAPI;
use crate::door::tokens_failed;
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond, json_response, tagged};
use crate::token::{Caller, Scope};

/// `GET /healthz`: the process responds.
pub(crate) async fn health(_: Call) -> Respond {
    Ok(json_response(StatusCode::OK, &json!({"status": "ok"})))
}

/// `GET /readyz`: the journal is usable and the server accepts runs.
pub(crate) async fn readiness(call: Call) -> Respond {
    if call.server.is_draining() {
        return Err(Problem::new(Code::Draining, "the server is about to stop"));
    }
    let engine = Arc::clone(call.server.engine());
    let query = Query { limit: Some(1), ..Query::default() };
    let listed = tokio::task::spawn_blocking(move || engine.list(&query)).await;
    match listed {
        Ok(Ok(_)) => Ok(json_response(StatusCode::OK, &json!({"status": "ok"}))),
        Ok(Err(error)) => Err(Problem::new(Code::JournalUnavailable, error.to_string())),
        Err(_) => Err(Problem::new(Code::Bug, "the check of the journal panicked")),
    }
}

/// `GET /v1/openapi.json`.
pub(crate) async fn openapi(call: Call) -> Respond {
    let mut response = tagged(&call.headers, OPENAPI.to_owned());
    // Not the type of documents about runs: it describes them.
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/openapi+json"));
    Ok(response)
}

/// `GET /v1/me`.
pub(crate) async fn me(call: Call) -> Respond {
    Ok(json_response(StatusCode::OK, &caller_json(call.caller()?)))
}

fn caller_json(caller: &Caller) -> Value {
    let scopes: Vec<&str> = caller.scopes.iter().map(|scope| scope.word()).collect();
    json!({
        "name": caller.name, "scopes": scopes, "only": caller.only,
        "expires_at": caller.expires_at_ms.map(etude::clock::rfc3339),
    })
}

/// `GET /v1/server`.
pub(crate) async fn server(call: Call) -> Respond {
    let settings = call.server.settings();
    let apps: Vec<&str> = settings.apps.iter().map(|app| app.slug.as_str()).collect();
    let mut document = json!({
        "version": settings.version, "pid": std::process::id(), "apps": apps,
        "limits": {"max_runs": settings.max_runs, "max_queued": settings.max_queued},
        "draining": call.server.is_draining(), "addresses": call.server.addresses().urls(),
        "base_path": settings.base_path,
    });
    if call.caller()?.may(Scope::Admin) {
        document["tokens"] = call.server.tokens().list().map_err(|e| tokens_failed(&e))?.into();
    }
    Ok(json_response(StatusCode::OK, &document))
}

/// `POST /v1/server/drain`: ends the process like `SIGTERM`.
pub(crate) async fn drain(call: Call) -> Respond {
    call.json(&[]).await?;
    call.server.drain();
    Ok(json_response(StatusCode::ACCEPTED, &json!({"draining": true})))
}

//! Documents about the server itself: health, identity, description.

use std::sync::Arc;
use std::time::Duration;

use etude_runtime::engine::Query;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::OPENAPI;
use crate::blocking::blocking;
use crate::door::tokens_failed;
use crate::problem::{Code, Problem, engine_failed};
use crate::request::{Call, Respond};
use crate::response::{json_response, tagged};
use crate::token::{Caller, Scope};

/// `GET /healthz`: the process responds.
pub(crate) async fn health(_: Call) -> Respond {
    Ok(json_response(StatusCode::OK, &json!({"status": "ok"})))
}

/// Size of the file that proves free space on the disk, in bytes.
const PROBE: usize = 4 * 1024;

/// Maximum time between two turns of a healthy clock loop.
const MAX_TURN: Duration = Duration::from_secs(60);

/// `GET /readyz`: ready if the journal is in its place and takes writes, its disk has room, the clock loop turns, and the server
/// is not about to stop.
pub(crate) async fn readiness(call: Call) -> Respond {
    let server = Arc::clone(&call.server);
    if server.context().is_draining() {
        return Err(Problem::new(Code::Draining, "the server is stopping"));
    }
    let unavailable = |why: String| Problem::new(Code::JournalUnavailable, why);
    if let Some(since) = server.schedules().since_turn().filter(|since| *since > MAX_TURN) {
        return Err(unavailable(format!("the scheduler has not run for {} s", since.as_secs())));
    }
    let checked = blocking(move || {
        server.engine().check_writes().map_err(|e| engine_failed(&e))?;
        server.engine().list(&Query { limit: Some(1), ..Query::default() }).map_err(|e| engine_failed(&e))?;
        // A read changes no row of the journal, so a file beside it proves that there is room.
        let dir = server.settings().state_dir.join("serve");
        let probe = dir.join(format!("{}.ready", etude_runtime::run_id::new()));
        let written = std::fs::write(&probe, [0; PROBE]);
        let removed = std::fs::remove_file(&probe);
        written.and(removed).map_err(|e| unavailable(format!("`{}` cannot be written: {e}", dir.display())))
    });
    checked.await?;
    Ok(json_response(StatusCode::OK, &json!({"status": "ok"})))
}

/// `GET /v1/openapi.json`.
pub(crate) async fn openapi(call: Call) -> Respond {
    let mut response = tagged(&call.headers, OPENAPI.to_owned());
    // The type of documents about runs does not apply: this document describes them.
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
        "expires_at": caller.expires_at_ms.map(etude_runtime::clock::rfc3339),
    })
}

/// `GET /v1/server`.
pub(crate) async fn server(call: Call) -> Respond {
    let settings = call.server.settings();
    let apps: Vec<&str> = settings.apps.iter().map(|app| app.slug.as_str()).collect();
    let mut document = json!({
        "version": settings.version, "pid": std::process::id(), "apps": apps,
        "limits": {"max_runs": settings.max_runs, "max_queued": settings.max_queued},
        "draining": call.server.context().is_draining(), "addresses": call.server.addresses().urls(),
        "base_path": settings.base_path,
        "url": call.server.context().origin().map(|origin| format!("{origin}{}", settings.base_path)),
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

//! Learned pipelines of the served apps: their state, and their promotion by a person.

use std::sync::Arc;

use etude_spec::learned::LearnedState;
use http::StatusCode;
use serde_json::Value;

use crate::api::app::app;
use crate::app::Move;
use crate::blocking::blocking;
use crate::problem::Problem;
use crate::request::{Call, Respond};
use crate::response::json_response;
use crate::server::Server;
use crate::settings::ServedApp;

fn none() -> Problem {
    Problem::not_found("there is no such learned pipeline")
}

/// The learned pipeline that the path names, if the caller may see it (S-16).
fn find(call: &Call) -> Result<(Arc<Server>, ServedApp, String), Problem> {
    let (app, name) = (app(call)?, call.param("pipeline").to_owned());
    if !call.caller()?.covers(&name) {
        return Err(none());
    }
    Ok((Arc::clone(&call.server), app, name))
}

/// `GET /v1/apps/{app}/learned`.
pub(crate) async fn list(call: Call) -> Respond {
    let (server, caller, app) = (Arc::clone(&call.server), call.caller()?.clone(), app(&call)?);
    let document = blocking(move || {
        let mut document = server.apps().learned(&app.dir)?;
        if let Some(rows) = document["pipelines"].as_array_mut() {
            rows.retain(|row| row["name"].as_str().is_some_and(|name| caller.covers(name)));
        }
        Ok(document)
    });
    Ok(json_response(StatusCode::OK, &document.await?))
}

/// `GET /v1/apps/{app}/learned/{pipeline}`.
pub(crate) async fn show(call: Call) -> Respond {
    let (server, app, name) = find(&call)?;
    let document = blocking(move || server.apps().learned_pipeline(&app.dir, &name)?.ok_or_else(none));
    Ok(json_response(StatusCode::OK, &document.await?))
}

/// `POST /v1/apps/{app}/learned/{pipeline}/promote`.
pub(crate) async fn promote(call: Call) -> Respond {
    let members = call.json(&["to", "accept_risk"]).await?;
    let wrong = || members.invalid("to", "`to` must be `proposed`, `shadow`, `assisted` or `active`");
    let state =
        |word: String| LearnedState::from_word(&word).filter(|state| *state != LearnedState::Demoted).ok_or_else(wrong);
    let to = members.text("to")?.map(state).transpose()?;
    let accepts_risk = members.flag("accept_risk")?.unwrap_or(false);
    let by = call.caller()?.name.clone();
    moved(&call, Move::Promote { to, accepts_risk, by }).await
}

/// `POST /v1/apps/{app}/learned/{pipeline}/demote`.
pub(crate) async fn demote(call: Call) -> Respond {
    let reason = call.json(&["reason"]).await?.text("reason")?;
    moved(&call, Move::Demote { reason }).await
}

async fn moved(call: &Call, change: Move) -> Respond {
    let (server, app, name) = find(call)?;
    let document: Value =
        blocking(move || server.apps().move_learned(&app.dir, &name, change)?.ok_or_else(none)).await?;
    Ok(json_response(StatusCode::OK, &document))
}

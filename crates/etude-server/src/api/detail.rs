//! Details of a run that its document lacks, and the user's verdict on it.

use std::sync::Arc;

use etude_evidence::details;
use etude_runs::inspect;
use http::StatusCode;
use serde_json::json;

use crate::blocking::blocking;
use crate::problem::engine_failed;
use crate::request::{Call, Respond};
use crate::response::{json_response, tagged};

/// The verdicts of users.
const VERDICTS: [&str; 2] = ["good", "bad"];

/// `GET /v1/runs/{id}/details`: the members of `etude runs show` that a run's document lacks, and why attempts were rejected.
pub(crate) async fn show(call: Call) -> Respond {
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let readings = call.readings.clone();
    let document = blocking(move || {
        let context = server.context();
        context.visible(&caller, &id)?;
        let reading = readings.of(context, &id)?;
        let waiting = reading.result(context).map(|result| result.waiting.clone()).unwrap_or_default();
        let mut document = details::of(&**server.engine(), &reading.view, &waiting);
        let replayed = reading.definition(context).and_then(|definition| {
            let blobs = server.engine().blobs();
            inspect::replay(&reading.view, &definition.plan, &definition.app, &blobs).ok().flatten()
        });
        document["rejected"] = json!(replayed.map(|replayed| replayed.rejected).unwrap_or_default());
        Ok(document)
    });
    Ok(tagged(&call.headers, document.await?.to_string()))
}

/// `POST /v1/runs/{id}/judge`.
pub(crate) async fn judge(call: Call) -> Respond {
    let members = call.json(&["verdict"]).await?;
    let verdict = members.text("verdict")?.filter(|verdict| VERDICTS.contains(&verdict.as_str()));
    let verdict = verdict.ok_or_else(|| members.invalid("verdict", "`verdict` must be `good` or `bad`"))?;
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let row = blocking(move || server.context().visible(&caller, &id)).await?;
    let engine = call.server.engine();
    engine.write(&details::judgement(&row.id, &verdict)).await.map_err(|error| engine_failed(&error))?;
    if let Some(app) = call.server.context().app_of(&row).cloned() {
        let server = Arc::clone(&call.server);
        // The status of learned pipelines takes the verdict into account. An app without learning has no status.
        let settled = blocking(move || Ok(server.apps().learned(&app.dir).is_ok()));
        settled.await?;
    }
    Ok(json_response(StatusCode::OK, &json!({"run_id": row.id, "judged": verdict})))
}

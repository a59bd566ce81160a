//! Statistics of the last runs of a selection.

use std::sync::Arc;

use etude_runs::listing::{self, Group};
use http::StatusCode;
use serde_json::{Value, json};

use super::run::filter;
use crate::blocking::blocking;
use crate::problem::engine_failed;
use crate::request::{Call, Respond};
use crate::response::json_response;

/// `GET /v1/runs/stats`: success, durations, cost and failures of the last runs, and the figures of each model.
pub(crate) async fn stats(call: Call) -> Respond {
    let caller = call.caller()?.clone();
    let query = filter(&call)?;
    let limit = usize::try_from(call.query.number("limit", 1, 1_000, 100)?).unwrap_or(100);
    let server = Arc::clone(&call.server);
    let document = blocking(move || {
        let rows = match query {
            Some(query) => server.runs().page(&caller, query, None, limit)?.0,
            None => Vec::new(),
        };
        let now_ms = etude_runtime::clock::now_ms();
        let listed =
            rows.into_iter().map(|row| listing::listed(&**server.engine(), row, now_ms).map_err(|e| engine_failed(&e)));
        let listed = listed.collect::<Result<Vec<_>, _>>()?;
        let all = listing::stats(&listed, &[]).into_iter().next().unwrap_or_default().to_json();
        let models: Vec<Value> = listing::stats(&listed, &[Group::Model]).iter().map(listing::Stats::to_json).collect();
        Ok(json!({"stats": all, "models": models}))
    });
    Ok(json_response(StatusCode::OK, &document.await?))
}

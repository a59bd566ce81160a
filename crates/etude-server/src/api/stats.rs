//! Statistics of the last runs of a selection.

use std::sync::Arc;

use etude_runs::listing::{self, Group};
use http::StatusCode;
use serde_json::{Value, json};

use super::run::filter;
use crate::blocking::blocking;
use crate::problem::{Problem, engine_failed};
use crate::query::invalid;
use crate::request::{Call, Respond};
use crate::response::json_response;

/// `GET /v1/runs/stats`: success, durations, cost and failures of the last runs, of each model, and of each group of `by`.
pub(crate) async fn stats(call: Call) -> Respond {
    let caller = call.caller()?.clone();
    let query = filter(&call)?;
    let limit = usize::try_from(call.query.number("limit", 1, 1_000, 100)?).unwrap_or(100);
    let by = call.query.get("by").map(groups).transpose()?;
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
        let mut document = json!({"stats": all, "models": models});
        if let Some(by) = by {
            document["groups"] = listing::stats(&listed, &by).iter().map(listing::Stats::to_json).collect();
        }
        Ok(document)
    });
    Ok(json_response(StatusCode::OK, &document.await?))
}

/// The criteria in `by`, separated by commas.
fn groups(text: &str) -> Result<Vec<Group>, Problem> {
    let group = |word: &str| Group::from_word(word).ok_or_else(|| invalid("by", "`by` lists `pipeline` and `model`"));
    text.split(',').map(group).collect()
}

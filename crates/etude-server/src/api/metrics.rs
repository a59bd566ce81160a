//! `/metrics`: the figures of the process and of its runs.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use etude_runtime::engine::{Counts, Query};
use http::HeaderValue;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::blocking::blocking;
use crate::metrics::text::Text;
use crate::request::{Call, Respond};
use crate::{fleet, schedule};

/// `GET /metrics`.
pub(crate) async fn show(call: Call) -> Respond {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let counts = blocking(move || {
        let query = Query { apps: server.context().dirs(), ..Query::default() };
        if query.apps.is_empty() {
            return Ok(Counts::default());
        }
        server.metrics().advance(server.context())?;
        server.runs().counted(&caller, query)
    });
    let counts = counts.await?;
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let schedules = blocking(move || schedule::states(server.schedules(), &caller)).await?;
    let accepts = call.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_open = accepts.to_ascii_lowercase().contains("application/openmetrics-text");
    let mut text = Text::new(is_open);
    // Writing to a string cannot fail.
    let _ = call.server.metrics().write(
        &mut text,
        call.caller()?,
        &counts,
        call.server.stories().open_streams(),
        &schedules,
    );
    let _ = fleet::metrics(&mut text, call.server.context(), call.server.works().count()).await;
    let mut response = Response::new(Body::from(text.finish()));
    let kind = match is_open {
        true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        false => "text/plain; version=0.0.4; charset=utf-8",
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

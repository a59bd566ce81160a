//! `/metrics` in the text format of Prometheus and in OpenMetrics.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::response::Response;
use etude_runtime::engine::{Counts, Query};
use http::HeaderValue;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::request::{Call, Respond};
use crate::run::{blocking, engine_failed};
use crate::server::LogLine;

/// The numbers that only this process has.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, u16), Requests>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Requests {
    count: u64,
    ms: u64,
}

impl Metrics {
    /// Counts a request. Its path is its pattern: no label has the id of a run.
    pub(crate) fn count(&self, line: &LogLine) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = requests.entry((line.route.unwrap_or("none"), line.status)).or_default();
        entry.count += 1;
        entry.ms += line.duration_ms;
    }
}

/// `GET /metrics`.
pub(crate) async fn metrics(call: Call) -> Respond {
    let server = Arc::clone(&call.server);
    let counts = blocking(move || {
        let query = Query { apps: server.dirs(), ..Query::default() };
        if query.apps.is_empty() {
            return Ok(Counts::default());
        }
        server.engine().counts(&query).map_err(|e| engine_failed(&e))
    });
    let counts = counts.await?;
    let schedules = crate::schedule::states(&call).await?;
    let accepts = call.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_open = accepts.contains("application/openmetrics-text");
    let text = text(&call, &counts, &schedules, is_open).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    let kind = match is_open {
        true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        false => "text/plain; version=0.0.4; charset=utf-8",
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

fn text(
    call: &Call,
    counts: &Counts,
    schedules: &[(String, String, &'static str)],
    is_open: bool,
) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "# HELP etude_runs Runs by status.\n# TYPE etude_runs gauge")?;
    for (status, count) in [
        ("queued", counts.queued),
        ("running", counts.running),
        ("waiting", counts.waiting),
        ("interrupted", counts.interrupted),
        ("succeeded", counts.succeeded),
        ("failed", counts.failed),
        ("cancelled", counts.cancelled),
    ] {
        writeln!(out, "etude_runs{{status=\"{status}\"}} {count}")?;
    }
    writeln!(out, "# HELP etude_streams Open event streams.\n# TYPE etude_streams gauge")?;
    writeln!(out, "etude_streams {}", call.server.open_streams())?;
    if !schedules.is_empty() {
        writeln!(out, "# HELP etude_schedules Schedules by state.\n# TYPE etude_schedules gauge")?;
    }
    for (app, name, state) in schedules {
        let name = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        writeln!(out, "etude_schedules{{app=\"{app}\",schedule=\"{name}\",state=\"{state}\"}} 1")?;
    }
    // The family of a counter has no suffix in OpenMetrics.
    let family = if is_open { "etude_http_requests" } else { "etude_http_requests_total" };
    writeln!(out, "# HELP {family} Requests by route and status.\n# TYPE {family} counter")?;
    let requests = call.server.metrics().requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for ((route, status), requests) in &requests {
        writeln!(out, "etude_http_requests_total{{route=\"{route}\",status=\"{status}\"}} {}", requests.count)?;
    }
    writeln!(out, "# HELP etude_http_seconds Time to the responses.\n# TYPE etude_http_seconds summary")?;
    for ((route, status), requests) in &requests {
        let labels = format!("{{route=\"{route}\",status=\"{status}\"}}");
        writeln!(out, "etude_http_seconds_sum{labels} {}", requests.ms as f64 / 1_000.0)?;
        writeln!(out, "etude_http_seconds_count{labels} {}", requests.count)?;
    }
    if is_open {
        writeln!(out, "# EOF")?;
    }
    Ok(out)
}

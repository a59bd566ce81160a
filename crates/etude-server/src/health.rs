//! The health of a worker over HTTP: `/healthz`, `/readyz`, `/metrics` (K-22, K-60), without a token.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use etude_runtime::engine::Health;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::fleet;
use crate::metrics::text::Text;
use crate::server::Server;

/// The time in which the headers of a request must arrive.
const HEADERS: Duration = Duration::from_secs(10);

/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// The worker whose health is asked for. Until it has reached its database and the place of large values, it is not ready.
#[derive(Debug, Default)]
pub struct Subject {
    server: OnceLock<Arc<Server>>,
    waits_for_values: AtomicBool,
}

impl Subject {
    /// The worker has joined its fleet.
    pub fn set(&self, server: &Arc<Server>) {
        // A worker joins once.
        let _ = self.server.set(Arc::clone(server));
    }

    /// What the worker waits for before it joins: the place of large values, or else the database.
    pub fn wait_for_values(&self, is_waiting: bool) {
        self.waits_for_values.store(is_waiting, Ordering::Relaxed);
    }

    /// Why the worker is not ready; `None`: it is.
    fn reason(&self) -> Option<&'static str> {
        match self.server.get() {
            Some(server) => reason(&server.engine().health(), server.context().is_draining()),
            None if self.waits_for_values.load(Ordering::Relaxed) => Some("blobs"),
            None => Some("disconnected"),
        }
    }
}

/// Answers on `listener` for as long as the process lives.
pub async fn attend(subject: Arc<Subject>, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let subject = Arc::clone(&subject);
        tokio::spawn(async move {
            let respond = service_fn(move |request| respond(Arc::clone(&subject), request));
            let mut connection = http1::Builder::new();
            connection.timer(TokioTimer::new()).header_read_timeout(HEADERS);
            // A client that breaks its connection off needs no response.
            let _ = connection.serve_connection(TokioIo::new(stream), respond).await;
        });
    }
}

async fn respond(subject: Arc<Subject>, request: Request<Incoming>) -> Result<Response, Infallible> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return Ok(document(StatusCode::METHOD_NOT_ALLOWED, &json!({"error": "only GET is allowed"})));
    }
    Ok(match request.uri().path() {
        "/healthz" => document(StatusCode::OK, &json!({"ok": true})),
        "/readyz" => {
            let reason = subject.reason();
            let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            document(status, &json!({"ready": reason.is_none(), "reason": reason}))
        }
        "/metrics" => {
            let mut out = Text::new(false);
            if let Some(server) = subject.server.get() {
                // Writing to a string does not fail.
                let _ = fleet::metrics(&mut out, server.context(), server.works().count()).await;
            }
            text(out.finish())
        }
        _ => document(StatusCode::NOT_FOUND, &json!({"error": "there are /healthz, /readyz and /metrics"})),
    })
}

/// Why a worker that has joined is not ready; `None`: it is.
fn reason(health: &Health, is_draining: bool) -> Option<&'static str> {
    let is_fresh = health.claimed_before_ms.is_some_and(|ms| ms <= health.stale_after_ms);
    match (is_draining, health.is_disconnected, is_fresh) {
        (true, _, _) => Some("draining"),
        (false, true, _) => Some("disconnected"),
        (false, false, false) => Some("stale"),
        (false, false, true) => None,
    }
}

fn document(status: StatusCode, document: &Value) -> Response {
    let mut response = Response::new(Body::from(format!("{document}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn text(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K-22: a worker is ready only if a claim was answered within the last three beats.
    #[test]
    fn a_worker_is_ready_while_its_claims_are_answered() {
        let health = |is_disconnected, claimed_before_ms| Health {
            is_disconnected,
            claimed_before_ms,
            stale_after_ms: 9_000,
            ..Health::default()
        };
        assert_eq!(reason(&health(false, Some(9_000)), false), None);
        assert_eq!(reason(&health(false, Some(9_001)), false), Some("stale"));
        assert_eq!(reason(&health(false, None), false), Some("stale"));
        assert_eq!(reason(&health(true, Some(0)), false), Some("disconnected"));
        assert_eq!(reason(&health(true, None), true), Some("draining"));
    }

    /// K-22: before it has joined, a worker says what it waits for.
    #[test]
    fn a_worker_says_what_it_waits_for() {
        let subject = Subject::default();
        assert_eq!(subject.reason(), Some("disconnected"));
        subject.wait_for_values(true);
        assert_eq!(subject.reason(), Some("blobs"));
        subject.wait_for_values(false);
        assert_eq!(subject.reason(), Some("disconnected"));
    }
}

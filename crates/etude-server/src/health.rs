//! The health of a worker over HTTP: `/healthz`, `/readyz`, `/metrics` (K-22, K-60), without a token.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use etude_runtime::engine::{Error, Health, with_patience};
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

/// Time in which the headers of a request must arrive.
const HEADERS: Duration = Duration::from_secs(10);

/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// Minimum time between two checks of the storage of large values.
const LOOK: Duration = Duration::from_millis(500);

/// The worker whose health is reported. While it does not reach its database or the storage of large values, it is not ready.
#[derive(Debug, Default)]
pub struct Subject {
    server: OnceLock<Arc<Server>>,
    waits_for_values: AtomicBool,
}

impl Subject {
    /// Sets the worker once it has joined its fleet and reaches the storage of large values.
    pub fn set(&self, server: &Arc<Server>) {
        self.wait_for_values(false);
        // A worker joins only once.
        let _ = self.server.set(Arc::clone(server));
    }

    /// Sets if the storage of large values does not answer. If the worker has not joined and this is false, it waits for the
    /// database.
    pub fn wait_for_values(&self, is_waiting: bool) {
        self.waits_for_values.store(is_waiting, Ordering::Relaxed);
    }

    /// The reason why the worker is not ready; `None` if it is ready.
    fn reason(&self) -> Option<&'static str> {
        match self.server.get() {
            Some(server) => {
                let waits_for_values = self.waits_for_values.load(Ordering::Relaxed);
                reason(&server.engine().health(), server.context().is_draining(), waits_for_values)
            }
            None if self.waits_for_values.load(Ordering::Relaxed) => Some("blobs"),
            None => Some("disconnected"),
        }
    }

    /// Notes the result of a check of the large values. An unreachable database says nothing about them.
    fn note_values(&self, found: &Result<(), Error>) {
        match found {
            Ok(()) => self.wait_for_values(false),
            Err(Error::ValuesAway(_) | Error::Refused { .. }) => self.wait_for_values(true),
            Err(_) => {}
        }
    }
}

/// Checks once per beat that the joined worker reaches the storage of large values, for as long as the process lives.
pub async fn attend_values(subject: Arc<Subject>) {
    let Some(server) = subject.server.get().cloned() else { return };
    loop {
        let stale = Duration::from_millis(server.engine().health().stale_after_ms).max(LOOK * 3);
        let (beat, engine) = (stale / 3, Arc::clone(server.engine()));
        let mut look = tokio::task::spawn_blocking(move || with_patience(beat, || engine.check_values()));
        let found = match tokio::time::timeout(stale, &mut look).await {
            Ok(found) => found,
            Err(_) => {
                // The storage does not answer at all.
                subject.wait_for_values(true);
                look.await
            }
        };
        if let Ok(found) = found {
            subject.note_values(&found);
        }
        tokio::time::sleep(beat).await;
    }
}

/// Responds on `listener` for as long as the process lives.
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
            // A client that closes its connection needs no response.
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
                // Writing to a string cannot fail.
                let _ = fleet::metrics(&mut out, server.context(), server.works().count()).await;
            }
            text(out.finish())
        }
        _ => document(StatusCode::NOT_FOUND, &json!({"error": "the paths are /healthz, /readyz and /metrics"})),
    })
}

/// The reason why a worker that has joined is not ready; `None` if it is ready.
fn reason(health: &Health, is_draining: bool, waits_for_values: bool) -> Option<&'static str> {
    let is_fresh = health.claimed_before_ms.is_some_and(|ms| ms <= health.stale_after_ms);
    match () {
        () if is_draining => Some("draining"),
        () if health.is_disconnected => Some("disconnected"),
        () if waits_for_values => Some("blobs"),
        () if !is_fresh => Some("stale"),
        () => None,
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
        assert_eq!(reason(&health(false, Some(9_000)), false, false), None);
        assert_eq!(reason(&health(false, Some(9_001)), false, false), Some("stale"));
        assert_eq!(reason(&health(false, None), false, false), Some("stale"));
        assert_eq!(reason(&health(true, Some(0)), false, false), Some("disconnected"));
        assert_eq!(reason(&health(true, None), true, false), Some("draining"));
        assert_eq!(reason(&health(false, Some(0)), false, true), Some("blobs"));
        assert_eq!(reason(&health(true, Some(0)), false, true), Some("disconnected"));
        assert_eq!(reason(&health(false, None), true, true), Some("draining"));
    }

    /// K-22: unreachable large values are a reason until they can be reached again; an unreachable database says nothing about
    /// them.
    #[test]
    fn a_worker_says_whether_it_reaches_large_values() {
        let subject = Subject::default();
        let away = || Error::ValuesAway("`/store`: it is not there".to_owned());
        let refused = || Error::Refused { why: "no keys".to_owned(), hint: String::new() };
        let gone = || Error::Store { path: "db".to_owned(), why: "the database does not answer".to_owned() };
        for (found, waits) in
            [(Err(away()), true), (Err(gone()), true), (Ok(()), false), (Err(gone()), false), (Err(refused()), true)]
        {
            subject.note_values(&found);
            assert_eq!(subject.waits_for_values.load(Ordering::Relaxed), waits, "{found:?}");
        }
    }

    /// K-22: before it has joined, a worker reports what it waits for.
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

//! Idempotency of requests that make no run: the ledger keeps the response to the first request with a key.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::Response;
use etude_core::digest::Digest;
use etude_runtime::engine::{Entry, EntryQuery, Expected, Write, Written};
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::blocking::blocking;
use crate::ledger::book::{self, BEGUN, DONE, FREE};
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond, Responding};
use crate::response::text_response;
use crate::server::Server;

/// Policy for a repeated request while the response to the first one is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeated {
    /// The request is handled again, because repetition has no further effect.
    Done,
    /// The request is refused, because it is unknown if the first one was done.
    Refused,
    /// The route handles its keys itself, or has no use for them.
    OfRoute,
}

fn repeated(path: &str) -> Repeated {
    match path {
        "/v1/runs" | "/v1/runs/{id}/again" => Repeated::OfRoute,
        // The response of the first is a secret, and the second ends the server.
        "/v1/server/links" | "/v1/server/drain" => Repeated::OfRoute,
        "/v1/apps/{app}/commands/{slug}" | "/v1/runs/{id}/resume" | "/v1/runs/{id}/retry" => Repeated::Refused,
        path if path.ends_with("/deliveries/{delivery}/again") => Repeated::Refused,
        _ => Repeated::Done,
    }
}

/// A request with its idempotency key.
struct Keyed {
    entry: Entry,
    /// The digest of the body.
    digest: String,
    repeated: Repeated,
}

/// The state of a key when its request arrives.
enum Found {
    /// The key is new.
    Nothing,
    /// The same request came before, and its response is unknown.
    Begun,
    /// The response to the same earlier request.
    Response(Response),
}

/// Handles a request of the route `path`, and each request only once per key of its token.
pub(crate) async fn once(path: &'static str, handler: fn(Call) -> Responding, call: Call) -> Respond {
    let repeated = repeated(path);
    let Some(key) = crate::key::parse(&call.headers)?.filter(|_| repeated != Repeated::OfRoute) else {
        return handler(call).await;
    };
    let bytes = call.bytes().await?;
    let keyed = Keyed::new(path, &key, &call, &bytes, repeated)?;
    let call = Call { body: Mutex::new(Some(Body::from(bytes))), ..call };
    // A client that disconnects, and comes again with its key, finds the response.
    let handled = tokio::spawn(async move { keyed.handle(handler, call).await });
    handled.await.unwrap_or_else(|_| Err(Problem::new(Code::Bug, "internal error: a handler panicked")))
}

impl Keyed {
    fn new(path: &str, key: &str, call: &Call, bytes: &[u8], repeated: Repeated) -> Result<Self, Problem> {
        let caller = call.caller()?;
        let of = json!([path, call.params, caller.name, caller.only, key]).to_string();
        // The id of a decision consists of the ids of its run and its effect.
        let run_id = path.starts_with("/v1/runs/").then(|| call.param("id")).or_else(|| {
            path.starts_with("/v1/decisions/").then(|| call.param("id").split(':').next().unwrap_or_default())
        });
        let [of_run, other] = book::responses();
        let entry = Entry {
            book: if run_id.is_some() { of_run } else { other },
            key: Digest::of(of.as_bytes()).to_string(),
            at_ms: call.server.clock().now_ms(),
            run_id: run_id.map(str::to_owned),
            ..Entry::default()
        };
        Ok(Self { entry, digest: Digest::of(bytes).to_string(), repeated })
    }

    async fn handle(self, handler: fn(Call) -> Responding, call: Call) -> Respond {
        let (server, keyed) = (Arc::clone(&call.server), Arc::new(self));
        let held = Arc::clone(&server);
        let _alone = match keyed.repeated {
            Repeated::Done => Some(held.in_progress().alone(format!("{} {}", keyed.entry.key, keyed.digest)).await),
            Repeated::Refused | Repeated::OfRoute => None,
        };
        let (of, begun) = (Arc::clone(&server), Arc::clone(&keyed));
        let is_repeated = match blocking(move || begun.begin(&of)).await? {
            Found::Response(response) => return Ok(replayed(response)),
            Found::Begun => true,
            Found::Nothing => false,
        };
        match handler(Call { is_repeated, ..call }).await {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                let bytes = body.collect().await.map_err(|_| Problem::new(Code::Bug, "a document ended early"))?;
                let (bytes, status) = (bytes.to_bytes(), parts.status);
                let document = bytes.clone();
                // The request has been done: without its entry, only a repetition does not find it.
                let _ = blocking(move || keyed.keep(&server, status, &document)).await;
                let response = Response::from_parts(parts, Body::from(bytes));
                Ok(if is_repeated { replayed(response) } else { response })
            }
            Err(problem) => {
                // After an error of the server, it is unknown what was done.
                if problem.code().status() < 500 {
                    let _ = blocking(move || keyed.free(&server)).await;
                }
                Err(problem)
            }
        }
    }

    fn written(&self, state: &str, rest: Value) -> Entry {
        let mut body = json!({"digest": self.digest});
        body["response"] = rest;
        Entry { state: state.to_owned(), body: body.to_string(), ..self.entry.clone() }
    }

    fn write(&self, server: &Server, state: &str, rest: Value, expected: Expected) -> Result<Written, Problem> {
        let entry = self.written(state, rest);
        server.ledger().write(&Write { entry, expected, submission: None, is_alone: false })
    }

    /// Notes that the request is in progress, unless its key is known.
    fn begin(&self, server: &Server) -> Result<Found, Problem> {
        let Entry { book, key, .. } = &self.entry;
        let query = EntryQuery { book: book.clone(), key: Some(key.clone()), ..EntryQuery::default() };
        let mut found = server.ledger().entries(&query)?.pop().map(Box::new);
        loop {
            let expected = match found {
                Some(entry) if entry.state != FREE => return self.lookup(&entry),
                Some(entry) => Expected::Exactly(entry),
                None => Expected::Nothing,
            };
            match self.write(server, BEGUN, Value::Null, expected)? {
                Written::Other(other) => found = other,
                _ => return Ok(Found::Nothing),
            }
        }
    }

    fn lookup(&self, entry: &Entry) -> Result<Found, Problem> {
        let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
        if body["digest"] != *self.digest {
            return Err(crate::key::reused());
        }
        if entry.state == DONE {
            let response = &body["response"];
            let status = response["status"].as_u64().and_then(|status| u16::try_from(status).ok());
            let status = status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK);
            let text = response["document"].as_str().unwrap_or_default().to_owned();
            return Ok(Found::Response(text_response(status, text)));
        }
        match self.repeated {
            Repeated::Done | Repeated::OfRoute => Ok(Found::Begun),
            Repeated::Refused => {
                let detail =
                    "a request with this idempotency key is in progress, or its server ended before it had a response";
                let hint = "send the request again to get its response; check its effect before you use another key";
                Err(Problem::new(Code::KeyInUse, detail).hint(hint))
            }
        }
    }

    fn keep(&self, server: &Server, status: StatusCode, document: &Bytes) -> Result<Written, Problem> {
        let response = json!({"status": status.as_u16(), "document": String::from_utf8_lossy(document)});
        self.write(server, DONE, response, Expected::Anything)
    }

    /// Frees the key of a refused request, unless another request with the key was accepted meanwhile.
    fn free(&self, server: &Server) -> Result<Written, Problem> {
        let begun = Expected::Entry { state: BEGUN.to_owned(), due_ms: None };
        self.write(server, FREE, Value::Null, begun)
    }
}

fn replayed(mut response: Response) -> Response {
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    response
}

//! `POST /mcp`: streamable HTTP without sessions. A request has one response, as JSON or at the end of a stream of events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::Response;
use etude_mcp::{Headers, Incoming, Peer, Service, Transport, parse};
use futures_util::stream;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::api::stream::{COMMENT, Permit, permit};
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};

/// The method with which a client subscribes to changes.
const LISTEN: &str = "subscriptions/listen";

/// `POST /mcp`.
pub(crate) async fn post(call: Call) -> Respond {
    let accept = call.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*").to_ascii_lowercase();
    let accepts = |kind: &str| accept.contains(kind) || accept.contains("*/*");
    if !accepts("application/json") && !accepts("text/event-stream") {
        let detail = "the route responds with `application/json` or `text/event-stream`";
        return Err(Problem::new(Code::NotAcceptable, detail));
    }
    let bytes = call.bytes().await?;
    let text = String::from_utf8(bytes).map_err(|_| Problem::new(Code::Malformed, "the body is not UTF-8"))?;
    let header = |name: &str| call.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let headers =
        Headers { revision: header("mcp-protocol-version"), method: header("mcp-method"), name: header("mcp-name") };
    let service = super::protocol(&call.server, call.router.clone(), call.caller()?.clone(), Transport::Http);
    let service = service.map_err(|why| Problem::new(Code::JournalUnavailable, why))?;
    let (id, method, params) = match parse(&text) {
        Ok(Incoming::Request { id, method, params }) => (id, method, params),
        // Responses and notifications belong to sessions, which this route does not have.
        Ok(_) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::ACCEPTED;
            return Ok(response);
        }
        Err((id, error)) => return Ok(json(Service::refuse(id.as_deref(), error))),
    };
    // A subscription is open until the client closes it, and counts as one of the streams of its token.
    let permit = match method == LISTEN {
        true if !accepts("text/event-stream") => {
            return Err(Problem::new(Code::NotAcceptable, "`subscriptions/listen` responds with `text/event-stream`"));
        }
        true => Some(permit(&call.server, call.caller()?)?),
        false => None,
    };
    let (out, mut notices) = mpsc::unbounded_channel();
    let peer = Arc::new(Peer::new(out));
    let mut task = Task(tokio::spawn(async move {
        let response = service.respond(&peer, Some(&headers), &id, &method, &params).await;
        drop(peer);
        response
    }));
    let panicked = || Problem::new(Code::Bug, "a request of the protocol panicked");
    // The first message decides: a response alone is JSON, and any message before it makes a stream.
    let first = tokio::select! {
        biased;
        response = &mut task.0 => return Ok(json(response.map_err(|_| panicked())?)),
        Some(notice) = notices.recv() => notice,
    };
    if !accepts("text/event-stream") {
        return Ok(json((&mut task.0).await.map_err(|_| panicked())?));
    }
    let open = Open { first: Some(first), notices, task: Some(task), permit };
    let events = stream::unfold(open, |mut open| async move {
        let event = open.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(event))), open))
    });
    let mut response = Response::new(Body::new(StreamBody::new(events)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// The task of a request; it is aborted with its connection.
struct Task(JoinHandle<etude_mcp::Response>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A stream of events that ends with the response.
struct Open {
    first: Option<String>,
    notices: mpsc::UnboundedReceiver<String>,
    task: Option<Task>,
    /// The permit of a subscription, which has no end of its own.
    permit: Option<Permit>,
}

impl Open {
    /// The next event. A silent stream of a subscription has comments between its events, and ends with its token.
    async fn next(&mut self) -> Option<String> {
        let event = |text: String| format!("event: message\ndata: {text}\n\n");
        if let Some(first) = self.first.take() {
            return Some(event(first));
        }
        // The sender is dropped with the request, after which only the response is left.
        let notice = match &self.permit {
            None => self.notices.recv().await,
            Some(permit) => tokio::select! {
                notice = self.notices.recv() => notice,
                () = tokio::time::sleep(COMMENT) => return permit.is_valid().then(|| ":\n\n".to_owned()),
            },
        };
        if let Some(notice) = notice {
            return self.permit.as_ref().is_none_or(Permit::is_valid).then(|| event(notice));
        }
        let mut task = self.task.take()?;
        (&mut task.0).await.ok().map(|response| event(response.text))
    }
}

fn json(response: etude_mcp::Response) -> Response {
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::OK);
    let mut out = Response::new(Body::from(response.text));
    *out.status_mut() = status;
    out.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    out
}

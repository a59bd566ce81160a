//! Requests over HTTP/1.1.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, ORIGIN};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::worker::{Event, Failure, Job, Work};
use crate::api::{self, EmbeddingRequest, Envelope};
use crate::catalog::EMBEDDING_MODEL;

/// Maximum size of a request body, in bytes.
const MAX_BODY_BYTES: usize = 64 << 20;
/// Time limit until a request's body has arrived.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// State that all connections share.
pub(super) struct Server {
    model: String,
    has_embedding: bool,
    jobs: Sender<Job>,
    pub(super) is_loaded: Arc<AtomicBool>,
}

impl Server {
    pub(super) fn new(model: String, has_embedding: bool, jobs: Sender<Job>) -> Self {
        Self { model, has_embedding, jobs, is_loaded: Arc::default() }
    }

    /// Queues `work`. Returns the worker's events; dropping the second value cancels the request.
    fn queue(&self, work: Work) -> Option<(UnboundedReceiver<Event>, CancelOnDrop)> {
        let (sender, events) = mpsc::unbounded_channel();
        let cancel = CancelOnDrop(Arc::default());
        let job = Job { work, events: sender, is_cancelled: Arc::clone(&cancel.0) };
        self.jobs.send(job).ok().map(|()| (events, cancel))
    }
}

/// The condition under which a listener accepts requests.
pub(super) struct Guard {
    is_tcp: bool,
    token: Option<[u8; 32]>,
}

impl Guard {
    /// Accepts all requests: the permissions of the socket protect it.
    pub(super) const fn none() -> Self {
        Self { is_tcp: false, token: None }
    }

    /// Accepts requests with `token`; without one, those for a loopback host. Requests from web pages are refused.
    pub(super) fn tcp(token: Option<&str>) -> Self {
        Self { is_tcp: true, token: token.map(digest) }
    }

    fn refusal(&self, headers: &HeaderMap) -> Option<Failure> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if self.is_tcp && headers.contains_key(ORIGIN) {
            let message = "requests of web pages are refused".to_owned();
            return Some(Failure { status: 403, code: "origin_refused", message });
        }
        match self.token {
            // Digests differ early for any wrong token, so the time reveals nothing about the right one.
            Some(token) => {
                let given = text(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
                let message = "the bearer token is missing or wrong".to_owned();
                (given.map(digest) != Some(token)).then_some(Failure { status: 401, code: "invalid_api_key", message })
            }
            None if self.is_tcp && !text(HOST).is_some_and(is_loopback) => {
                let message = "the `Host` header must name a loopback address".to_owned();
                Some(Failure { status: 403, code: "host_refused", message })
            }
            None => None,
        }
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Serves a connection in the background. When the client disconnects, its request is cancelled.
pub(super) fn attend<S>(stream: S, server: &Arc<Server>, guard: &Arc<Guard>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (server, guard) = (Arc::clone(server), Arc::clone(guard));
    tokio::spawn(async move {
        let service = service_fn(move |request| {
            let (server, guard) = (Arc::clone(&server), Arc::clone(&guard));
            async move { Ok::<_, Infallible>(respond(request, &server, &guard).await) }
        });
        // The timer ends connections whose head does not arrive.
        let mut http = hyper::server::conn::http1::Builder::new();
        let connection = http.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
        // An error is a client that disconnected or does not speak HTTP.
        drop(connection.await);
    });
}

async fn respond(request: Request<Incoming>, server: &Server, guard: &Guard) -> Response<Content> {
    if let Some(refusal) = guard.refusal(request.headers()) {
        return failed(&refusal);
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/health") => {
            let is_loaded = server.is_loaded.load(Ordering::Relaxed);
            json_response(200, &json!({"status": "ok", "model": server.model, "loaded": is_loaded}))
        }
        (&Method::GET, "/v1/models") => {
            let names = [Some(server.model.as_str()), server.has_embedding.then_some(EMBEDDING_MODEL)];
            let model = |id| json!({"id": id, "object": "model", "created": 0, "owned_by": "local"});
            let models: Vec<Value> = names.into_iter().flatten().map(model).collect();
            json_response(200, &json!({"object": "list", "data": models}))
        }
        (&Method::POST, "/v1/chat/completions") => complete(request, server).await.unwrap_or_else(|f| failed(&f)),
        (&Method::POST, "/v1/embeddings") => embed(request, server).await.unwrap_or_else(|f| failed(&f)),
        (_, path) => {
            failed(&Failure { status: 404, code: "not_found", message: format!("there is no route `{path}`") })
        }
    }
}

/// The complete body of a request.
async fn read(request: Request<Incoming>) -> Result<Bytes, Failure> {
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect();
    match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body has more than {MAX_BODY_BYTES} bytes");
            Err(Failure { status: 413, code: "request_too_large", message })
        }
        Ok(Err(error)) => Err(invalid(format!("the body cannot be read: {error}"))),
        Err(_) => {
            let message = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
            Err(Failure { status: 408, code: "request_timeout", message })
        }
    }
}

async fn complete(request: Request<Incoming>, server: &Server) -> Result<Response<Content>, Failure> {
    let chat = api::decode(&read(request).await?).map_err(invalid)?;
    let (is_stream, include_usage) = (chat.is_stream, chat.include_usage);
    let (mut events, cancel) = server.queue(Work::Chat(chat)).ok_or_else(ending)?;
    let envelope = Envelope::new(&server.model);
    if is_stream {
        // The head waits for the first event, so that an earlier failure has its own status.
        let first = match events.recv().await.ok_or_else(ending)? {
            Event::Failed(failure) => return Err(failure),
            first => first,
        };
        let mut deltas = Deltas { first: None, sent: 0, events, envelope, include_usage, _cancel: cancel };
        let begin = deltas.envelope.begin();
        deltas.first = Some(format!("{begin}{}", deltas.event(first)).into());
        return Ok(with_type(200, "text/event-stream", Content::Stream(deltas)));
    }
    loop {
        match events.recv().await.ok_or_else(ending)? {
            Event::Response(response) => return Ok(json_response(200, &envelope.completion(&response))),
            Event::Failed(failure) => return Err(failure),
            Event::Delta(_) | Event::Vectors(_) => {}
        }
    }
}

async fn embed(request: Request<Incoming>, server: &Server) -> Result<Response<Content>, Failure> {
    let EmbeddingRequest { texts, is_base64 } = api::decode_embedding(&read(request).await?).map_err(invalid)?;
    let (mut events, _cancel) = server.queue(Work::Embed(texts)).ok_or_else(ending)?;
    match events.recv().await {
        Some(Event::Vectors(vectors)) => Ok(json_response(200, &api::embeddings(EMBEDDING_MODEL, &vectors, is_base64))),
        Some(Event::Failed(failure)) => Err(failure),
        _ => Err(ending()),
    }
}

fn invalid(message: String) -> Failure {
    Failure { status: 400, code: "invalid_request", message }
}

/// The failure of a request whose worker is gone.
fn ending() -> Failure {
    let message = "the model process is stopping; send the request again".to_owned();
    Failure { status: 503, code: "ending", message }
}

/// Cancels the request of a disconnected client on drop.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The body of a response.
enum Content {
    Whole(Option<Bytes>),
    Stream(Deltas),
}

/// A body of server-sent events.
struct Deltas {
    first: Option<Bytes>,
    /// Number of bytes of the text in the events so far.
    sent: usize,
    events: UnboundedReceiver<Event>,
    envelope: Envelope,
    include_usage: bool,
    _cancel: CancelOnDrop,
}

impl Deltas {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        self.events.poll_recv(cx).map(|event| Some(self.event(event?).into()))
    }

    fn event(&mut self, event: Event) -> String {
        match event {
            Event::Delta(text) => {
                self.sent += text.len();
                self.envelope.delta(&text)
            }
            Event::Response(response) => {
                let rest = response.text.get(self.sent..).filter(|rest| !rest.is_empty());
                let rest = rest.map(|rest| self.envelope.delta(rest)).unwrap_or_default();
                rest + &self.envelope.end(&response, self.include_usage)
            }
            Event::Vectors(_) => String::new(),
            Event::Failed(failure) => {
                format!("data: {}\n\n", api::error(failure.status, failure.code, &failure.message))
            }
        }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take()),
            Self::Stream(deltas) => deltas.poll(cx),
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

fn failed(failure: &Failure) -> Response<Content> {
    let body = api::error(failure.status, failure.code, &failure.message);
    let mut response = json_response(failure.status, &body);
    if failure.code == "engine_failed" {
        response.headers_mut().insert("x-should-retry", hyper::header::HeaderValue::from_static("false"));
    }
    response
}

fn json_response(status: u16, body: &Value) -> Response<Content> {
    let content = Content::Whole(Some(body.to_string().into()));
    with_type(status, "application/json", content)
}

fn with_type(status: u16, content_type: &'static str, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response
}

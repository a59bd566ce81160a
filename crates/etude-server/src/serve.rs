//! The accept loop, and the way of a request through the checks to a response.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use etude_runtime::engine::Cause;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt as _};
use http::header::{
    ACCEPT, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, ORIGIN, REFERER, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tower_service::Service;

use crate::api::login::is_below;
use crate::client;
use crate::door;
use crate::forwarded;
use crate::listen::{Listening, Peer, Renewal};
use crate::local::{Entered, Failed, failed};
use crate::log::LogLine;
use crate::mcp;
use crate::notice;
use crate::oauth::resource;
use crate::page;
use crate::patient::Patient;
use crate::problem::{Code, Problem};
use crate::reading::Readings;
use crate::route::{self, Matched};
use crate::schedule;
use crate::server::Server;
use crate::token::Caller;
use crate::unread::Unread;
use crate::unsent::Unsent;
use crate::work;
use crate::work::event::Event;

/// Maximum number of connections over the socket. They are the owner's, and clients on the network cannot take their places.
const MAX_OWN: usize = 256;

/// Time in which the headers of a request must arrive.
const HEADERS: Duration = Duration::from_secs(10);

/// Time that open connections have at the end.
const LAST_RESPONSES: Duration = Duration::from_secs(1);

/// Minimum age of a socket that is taken for one of a killed server.
const ABANDONED: Duration = Duration::from_secs(60);

/// Pause after a failed accept, for example for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until [`Server::drain`] is called, then lets runs and responses in progress end.
pub async fn serve(server: Arc<Server>, listening: Listening) {
    // Without a journal, counting has no start; requests report the failure.
    if let Ok(change) = server.engine().last_change() {
        server.metrics().begin_at(change);
    }
    client::remove_abandoned(&server.settings().state_dir.join("serve"), ABANDONED).await;
    let worker = tokio::spawn(work::work(Arc::clone(server.works())));
    let turns = tokio::spawn(schedule::turns(Arc::clone(server.schedules())));
    let notices = tokio::spawn(notice::work(Arc::clone(server.notices()), server.stories().news_of_journal()));
    let news = tokio::spawn(server.look_for_news());
    let changes = tokio::spawn(mcp::changes::look(Arc::clone(&server)));
    let (mut loops, mut connections) = accept(&server, listening);
    let mut open = JoinSet::new();
    let drained = async {
        let mut stopping = server.context().stopping();
        // The sender belongs to the server.
        let _ = stopping.wait_for(|stop| *stop).await.map(drop);
        let (begun, patience) = (Instant::now(), server.settings().drain_timeout);
        // A look that has begun may take one more run, which is then drained too. A database that does not answer delays no end.
        let looks = async { drop((worker.await, turns.await, notices.await)) };
        let _ = tokio::time::timeout(patience, looks).await;
        work::drain(server.works(), patience.saturating_sub(begun.elapsed())).await;
    };
    let mut drained = pin!(drained);
    loop {
        tokio::select! {
            () = drained.as_mut() => break,
            Some(connection) = connections.recv() => { open.spawn(connection); }
            Some(_) = open.join_next() => {}
        }
    }
    news.abort();
    changes.abort();
    server.close();
    loops.shutdown().await;
    while let Ok(connection) = connections.try_recv() {
        open.spawn(connection);
    }
    let ended = async { while open.join_next().await.is_some() {} };
    // A client that reads nothing does not delay the end of the server.
    let _ = tokio::time::timeout(LAST_RESPONSES, ended).await;
}

type Connections = mpsc::UnboundedReceiver<JoinHandle<()>>;

/// Accepts on all addresses and on the socket, each in a separate task.
fn accept(server: &Arc<Server>, listening: Listening) -> (JoinSet<()>, Connections) {
    let Listening { tcp, socket, tls, .. } = listening;
    let permits = Arc::new(Semaphore::new(server.settings().max_connections));
    let mut loops = JoinSet::new();
    let (connected, connections) = mpsc::unbounded_channel();
    for listener in tcp {
        let (server, permits, connected) = (Arc::clone(server), Arc::clone(&permits), connected.clone());
        let tls = tls.clone();
        loops.spawn(async move {
            while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
                let Ok((stream, address)) = listener.accept().await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                // Small documents must not wait for more data.
                let _ = stream.set_nodelay(true);
                let (server, peer) = (Arc::clone(&server), Peer::Tcp(address));
                let handle = match tls.clone() {
                    None => tokio::spawn(connection(server, stream, peer, permit)),
                    Some(tls) => tokio::spawn(async move {
                        if let Some(renewal) = tls.renew().await {
                            server.works().observer.say(&event_of(renewal));
                        }
                        // A client without TLS is dropped.
                        if let Ok(stream) = tls.accept(stream).await {
                            connection(server, stream, peer, permit).await;
                        }
                    }),
                };
                let _ = connected.send(handle);
            }
        });
    }
    let (server, permits) = (Arc::clone(server), Arc::new(Semaphore::new(MAX_OWN)));
    loops.spawn(async move {
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            match socket.accept().await {
                Ok(stream) => {
                    let connection = connection(Arc::clone(&server), stream, Peer::Socket, permit);
                    let _ = connected.send(tokio::spawn(connection));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    });
    (loops, connections)
}

/// The event for a renewed certificate, or for one that cannot be used.
fn event_of(renewal: Renewal) -> Event {
    match renewal {
        Renewal::Done { file } => Event::CertificateRenewed { file },
        Renewal::Failed { file, why } => Event::CertificateUnusable { file, message: why },
    }
}

/// Serves one connection.
async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    server: Arc<Server>,
    stream: S,
    peer: Peer,
    _permit: OwnedSemaphorePermit,
) {
    let mut closing = server.closing();
    // In a separate set, the future is polled only when it wakes, not with each piece that the connection sends.
    let mut closed: FuturesUnordered<_> =
        [async move { closing.wait_for(|close| *close).await.is_ok() }].into_iter().collect();
    let unread = Unread::default();
    let stream = Patient::new(stream, unread.clone());
    let respond = service_fn(move |request: Request<Incoming>| {
        let (server, unread) = (Arc::clone(&server), unread.clone());
        let request = request.map(|body| Body::new(unread.watch(body)));
        async move {
            let mut response = respond(server, peer, request).await;
            // The next bytes on the connection belong to the refused body.
            if unread.is_there() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), respond);
    let mut connection = pin!(connection);
    // The error of a connection concerns only its client.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        _ = closed.next() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// The response to a request; also logs it.
pub(crate) async fn respond(server: Arc<Server>, peer: Peer, request: Request<Body>) -> Response {
    let headers = request.headers();
    let is_html = is_page(request.uri().path()) && accepts_html(headers);
    let peer = match forwarded::client(server.settings(), headers) {
        Some(address) if peer != Peer::Socket => Peer::Forwarded(address),
        _ => peer,
    };
    let mut logged = Logged::new(&server, &peer, &request);
    let allowed_origin = allowed_origin(&server, headers).cloned();
    let came_from = is_html.then(|| Destination::new(&server, &peer, &request));
    let checked = AssertUnwindSafe(checked(&server, peer, request, &mut logged.reader)).catch_unwind().await;
    let mut response =
        checked.unwrap_or_else(|_| failed(Problem::new(Code::Bug, "the server has panicked; see its messages")));
    logged.route = response.extensions_mut().remove::<Matched>().map(|Matched(path)| path);
    let unsent = response.extensions_mut().remove::<Unsent>();
    if let Some(Failed(problem)) = response.extensions_mut().remove::<Failed>() {
        logged.code = Some(problem.code().word());
        let request_id = &logged.request_id;
        response = match came_from {
            Some(way) => way.failed(&server, logged.reader.clone(), &problem, (request_id, unsent.as_ref())),
            None => problem.to_response(&server.settings().base_path, request_id),
        };
        if problem.code() == Code::Unauthenticated {
            response.headers_mut().insert(http::header::WWW_AUTHENTICATE, problem.bearer());
        }
    }
    finish(allowed_origin, &mut response, &logged.request_id);
    logged.status = response.status().as_u16();
    response
}

/// The logged status if the client disconnected before the response.
const CLIENT_LEFT: u16 = 499;

/// The log line of a request. It is written on drop: with the response, or when the request of a disconnected client is dropped.
struct Logged {
    server: Arc<Server>,
    since: Instant,
    at_ms: i64,
    request_id: String,
    method: Method,
    /// The path below the base path.
    path: Option<String>,
    route: Option<&'static str>,
    status: u16,
    code: Option<&'static str>,
    reader: Option<Caller>,
}

impl Logged {
    fn new(server: &Arc<Server>, peer: &Peer, request: &Request<Body>) -> Self {
        Self {
            server: Arc::clone(server),
            since: Instant::now(),
            at_ms: server.clock().now_ms(),
            request_id: etude_runtime::run_id::new(),
            method: request.method().clone(),
            path: below_base(server, peer, request.uri().path()).map(str::to_owned),
            route: None,
            status: CLIENT_LEFT,
            code: None,
            reader: None,
        }
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        if self.status == CLIENT_LEFT {
            self.route = self.path.as_deref().and_then(route::pattern);
        }
        self.server.log(&LogLine {
            at_ms: self.at_ms,
            request_id: std::mem::take(&mut self.request_id),
            method: self.method.as_str().to_owned(),
            route: self.route,
            status: self.status,
            code: self.code,
            token: self.reader.take().map(|reader| reader.name),
            took: self.since.elapsed(),
        });
    }
}

/// The destination of a reader whose page failed.
struct Destination {
    is_login: bool,
    /// True if the request is a form of the page `next`.
    is_form: bool,
    /// The page after a login: the requested one, or the page with the submitted form.
    next: Option<String>,
}

impl Destination {
    fn new(server: &Server, peer: &Peer, request: &Request<Body>) -> Self {
        let is_login = below_base(server, peer, request.uri().path()) == Some("/login");
        let is_form = !is_login && !matches!(*request.method(), Method::GET | Method::HEAD);
        let form = || request.headers().get(REFERER)?.to_str().ok()?.parse::<Uri>().ok();
        let page = match *request.method() {
            _ if is_login => None,
            Method::GET | Method::HEAD => Some(request.uri().clone()),
            _ => form(),
        };
        let next = page.and_then(|page| Some(page.path_and_query()?.as_str().to_owned()));
        Self { is_login, is_form, next: next.filter(|next| is_below(next, &server.settings().base_path)) }
    }

    /// The page of a problem.
    fn failed(
        &self,
        server: &Server,
        reader: Option<Caller>,
        problem: &Problem,
        (request_id, unsent): (&str, Option<&Unsent>),
    ) -> Response {
        let is_refused = self.is_login && problem.code() == Code::TooManyRequests;
        if problem.code() != Code::Unauthenticated && !is_refused {
            let back = self.next.as_deref().filter(|_| self.is_form);
            return page::failed(server, reader, problem, (request_id, back));
        }
        let document = problem.to_json("", request_id);
        let status = if is_refused { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::UNAUTHORIZED };
        let refused = document["detail"].as_str().filter(|_| self.is_login);
        let next = document["next"].as_str().or(self.next.as_deref());
        page::login_form(server, &page::Wanted { status, refused, next, unsent })
    }
}

/// Runs the checks before routing in order, then the route.
async fn checked(
    server: &Arc<Server>,
    peer: Peer,
    mut request: Request<Body>,
    reader: &mut Option<Caller>,
) -> Response {
    let is_page = is_page(below_base(server, &peer, request.uri().path()).unwrap_or_default());
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let found = async {
        door::check_host(server, &peer, uri, headers)?;
        let path = below_base(server, &peer, uri.path());
        // Without a session, a logout has no effect: it carries no token, whatever page it comes from.
        let is_logout = path == Some("/logout") && door::has_cookie_only(server, headers);
        let is_login = *method == Method::POST && (path == Some("/login") || is_logout);
        door::check_origin(server, method, headers, is_page, is_login)?;
        if *method == Method::OPTIONS && allowed_origin(server, headers).is_some() {
            return Ok(None);
        }
        // A form of a page starts runs just as a route does; a login starts nothing. MCP calls are refused one by one.
        let starts = path.is_some_and(|path| !["/login", "/logout", "/mcp"].contains(&path));
        if *method == Method::POST && starts && server.context().is_draining() {
            return Err(Problem::new(Code::Draining, "the server is stopping and starts no new runs"));
        }
        let has_issuer = server.issuer().is_some();
        let is_public = |path: &str| route::is_public(method, path) && (has_issuer || !resource::is_metadata(path));
        let caller = match path.is_some_and(is_public) {
            true => None,
            false => {
                let found = door::caller(server, &peer, headers).await;
                Some(found.map_err(|problem| resource::challenged(problem, server, &peer, headers, path))?)
            }
        };
        let path = path.ok_or_else(|| outside(&server.settings().base_path))?;
        // Without a base path, the requested path is the route.
        let is_whole = path == uri.path() && uri.authority().is_none();
        let target = (!is_whole).then(|| {
            let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
            format!("{path}{query}").parse::<Uri>()
        });
        let target = target.transpose().map_err(|_| Problem::new(Code::Malformed, "the path is not valid"))?;
        Ok(Some((caller, target)))
    }
    .await;
    match found {
        Err(problem) => refused(server, &peer, request, problem).await,
        Ok(None) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Ok(Some((caller, target))) => {
            reader.clone_from(&caller);
            if let Some(target) = target {
                *request.uri_mut() = target;
            }
            let (server, readings, mut router) = (Arc::clone(server), Readings::default(), route::router());
            request.extensions_mut().insert(Entered {
                server,
                router: router.clone(),
                caller,
                peer,
                cause: Cause::Api,
                readings,
            });
            // The router is always ready, and its errors are responses.
            router.call(request).await.unwrap_or_else(|never: Infallible| match never {})
        }
    }
}

/// The response to a request that a check has refused. Without a session, a form of a page goes back to its sender.
async fn refused(server: &Server, peer: &Peer, request: Request<Body>, problem: Problem) -> Response {
    let is_page = is_page(below_base(server, peer, request.uri().path()).unwrap_or_default());
    let is_without_session = is_page && problem.code() == Code::Unauthenticated;
    let mut response = failed(problem);
    // The log and the metrics show the route of refused requests, too.
    if let Some(pattern) = below_base(server, peer, request.uri().path()).and_then(route::pattern) {
        response.extensions_mut().insert(Matched(pattern));
    }
    if is_without_session
        && accepts_html(request.headers())
        && let Some(unsent) = Unsent::read(server, peer, request).await
    {
        response.extensions_mut().insert(unsent);
    }
    response
}

/// The path below the base path; `None` if it is outside of it.
fn below_base<'p>(server: &Server, peer: &Peer, path: &'p str) -> Option<&'p str> {
    // The socket has no proxy in front of it.
    let base = if *peer == Peer::Socket { "" } else { server.settings().base_path.as_str() };
    let rest = path.strip_prefix(base)?;
    match rest {
        "" => Some("/"),
        rest => rest.starts_with('/').then_some(rest),
    }
}

/// The problem of a path outside of the base path.
fn outside(base: &str) -> Problem {
    // Without a base path, only `OPTIONS *` is outside.
    if base.is_empty() {
        return Problem::not_found("there is no such route");
    }
    let problem = Problem::not_found("there is no such route below the base path");
    problem.hint(format!("the paths of this server begin with `{base}`"))
}

/// True for the paths of pages.
fn is_page(path: &str) -> bool {
    !["/v1", "/metrics", "/mcp", "/in/", "/assets/", "/healthz", "/readyz", "/.well-known/"]
        .iter()
        .any(|start| path.starts_with(start))
}

fn accepts_html(headers: &http::HeaderMap) -> bool {
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accepts.is_some_and(|kinds| kinds.to_ascii_lowercase().contains("text/html"))
}

/// The origin of a request, if pages of that origin may read responses.
fn allowed_origin<'h>(server: &Server, headers: &'h http::HeaderMap) -> Option<&'h HeaderValue> {
    let given = headers.get(ORIGIN)?;
    let origin = given.to_str().ok()?;
    server.settings().allowed_origins.iter().any(|allowed| allowed == origin).then_some(given)
}

/// Sets the headers that every response has.
fn finish(allowed_origin: Option<HeaderValue>, response: &mut Response, request_id: &str) {
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert("x-request-id", id);
    }
    if let Some(origin) = allowed_origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(VARY, HeaderValue::from_static("Origin"));
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST, DELETE"));
        // With those of MCP over HTTP, which its clients send with every request.
        let allowed = "Authorization, Content-Type, Idempotency-Key, If-None-Match, If-Range, Last-Event-ID, \
             MCP-Protocol-Version, Mcp-Method, Mcp-Name, Prefer, Range, Traceparent";
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allowed));
        let exposed =
            "Content-Range, ETag, Idempotency-Replayed, Location, Preference-Applied, Retry-After, WWW-Authenticate";
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(exposed));
    }
    debug_assert!(response.status() != StatusCode::OK || response.headers().contains_key(CONTENT_TYPE));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::{logging, server};

    /// S-34: a handler that panics is 500 `bug`, and the server continues.
    #[tokio::test]
    async fn a_panic_is_an_internal_error_and_the_server_continues() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = server(dir.path());
        let owner = server.tokens().owner().expect("a token");
        let status = async |path: &str| {
            let request = Request::get(path).header("authorization", format!("Bearer {owner}"));
            let response = respond(Arc::clone(&server), Peer::Socket, request.body(Body::empty()).expect("a request"));
            response.await.status()
        };
        assert_eq!(status("/panic").await, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(status("/v1/me").await, StatusCode::OK);
    }

    /// Section 10: a request whose client disconnects has its line, with its route and the name of its token.
    #[tokio::test]
    async fn a_request_whose_client_leaves_is_logged() {
        let dir = tempfile::tempdir().expect("a directory");
        let (lines, seen) = std::sync::mpsc::channel();
        let server = logging(dir.path(), Box::new(move |line| drop(lines.send(line.to_json()))));
        let owner = server.tokens().owner().expect("a token");
        // A body that never arrives.
        let body = Body::new(http_body_util::StreamBody::new(futures_util::stream::pending::<
            Result<hyper::body::Frame<axum::body::Bytes>, Infallible>,
        >()));
        let request = Request::post("/v1/runs/r-1/cancel").header("authorization", format!("Bearer {owner}"));
        let request = request.header(CONTENT_TYPE, "application/json").body(body).expect("a request");
        let mut responding = Box::pin(respond(Arc::clone(&server), Peer::Socket, request));
        assert!((&mut responding).now_or_never().is_none());
        drop(responding);
        let line = seen.try_recv().expect("a line");
        assert_eq!(
            (&line["status"], &line["route"], &line["token"]),
            (&499.into(), &"/v1/runs/{id}/cancel".into(), &"owner".into())
        );
        assert!(seen.try_recv().is_err());
    }
}

//! The events of a run, as a page or as a stream; the feed of all runs.

mod feed;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::response::Response;
use blake3::Hash;
use etude_runs::story::{self, EventId};
use futures_util::StreamExt as _;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::{broadcast, watch};
use tokio::time::Interval;

use crate::oauth::until_ms;
use crate::problem::{Code, Problem};
use crate::query::invalid;
use crate::request::{Call, Respond};
use crate::response::tagged;
use crate::server::Server;
use crate::story::{Followed, Handle, aside_text};
use crate::token::Caller;

pub(crate) use feed::{feed, live};

/// Interval of comments, which keep proxies from closing the connection.
pub(crate) const COMMENT: Duration = Duration::from_secs(15);

/// Minimum time between two checks of a token while its stream has something to send.
const RECHECK: Duration = Duration::from_secs(1);

/// Permission for one stream of a token.
pub(crate) struct Permit {
    server: Arc<Server>,
    name: String,
    token: Option<Hash>,
    session: Option<Hash>,
    /// Expiry of an issuer's token, which is in no file, in milliseconds since 1970.
    until_ms: Option<i64>,
    /// Time of the last successful check of the token.
    checked: Instant,
}

impl Permit {
    /// The same, checked at most once a second: a stream with a backlog asks before each piece.
    fn is_still_valid(&mut self) -> bool {
        if self.checked.elapsed() < RECHECK {
            return true;
        }
        self.checked = Instant::now();
        self.is_valid()
    }

    /// True if the token is neither revoked nor expired, and its session is open.
    pub(crate) fn is_valid(&self) -> bool {
        let now_ms = self.server.clock().now_ms();
        self.server.tokens().is_valid(self.token, now_ms)
            && self.until_ms.is_none_or(|until_ms| now_ms < until_ms)
            && self.session.is_none_or(|session| self.server.sessions().is_open(session, now_ms))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.server.stories().end_stream(&self.name);
    }
}

/// A permit for one more stream of the caller, within the limit of its token.
pub(crate) fn permit(server: &Arc<Server>, caller: &Caller) -> Result<Permit, Problem> {
    server.stories().begin_stream(&caller.name)?;
    let (name, token, session, until_ms) = (caller.name.clone(), caller.token, caller.session, until_ms(caller));
    Ok(Permit { server: Arc::clone(server), name, token, session, until_ms, checked: Instant::now() })
}

/// The form that the client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Stream,
    Page,
}

fn form(headers: &HeaderMap, has_page: bool) -> Result<Form, Problem> {
    let accepts = headers.get(ACCEPT).map_or("*/*", |value| value.to_str().unwrap_or_default()).to_ascii_lowercase();
    let kinds: Vec<&str> = accepts.split(',').filter_map(|kind| kind.split(';').next()).map(str::trim).collect();
    if kinds.contains(&"text/event-stream") || !has_page && kinds.contains(&"*/*") {
        return Ok(Form::Stream);
    }
    match has_page && kinds.iter().any(|kind| ["application/json", "application/*", "*/*"].contains(kind)) {
        true => Ok(Form::Page),
        false => Err(Problem::new(Code::NotAcceptable, "the route returns `text/event-stream` or `application/json`")),
    }
}

/// `GET /v1/runs/{id}/events`.
pub(crate) async fn events(call: Call) -> Respond {
    let form = form(&call.headers, true)?;
    let limit = usize::try_from(call.query.number("limit", 1, 1_000, 200)?).unwrap_or(200);
    let header = call.headers.get("last-event-id").map(|value| value.to_str().unwrap_or_default());
    let (name, after) = match header.filter(|_| form == Form::Stream) {
        Some(id) => ("Last-Event-ID", Some(id)),
        None => ("after", call.query.get("after")),
    };
    let unknown = move || invalid(name, format!("`{name}` must be the id of an event of this run"));
    let after = after.map(|text| EventId::parse(text).ok_or_else(unknown)).transpose()?;
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let wanted = if form == Form::Page { limit + 1 } else { 1 };
    let opened = {
        let (of, caller, id) = (Arc::clone(&server), caller.clone(), id.clone());
        let read = move || {
            of.context().visible(&caller, &id)?;
            of.stories().story(of.context(), &id, after, wanted, |followed, from| match form {
                Form::Page => Opened::Page(story::page(followed.events_from(from), limit)),
                Form::Stream if followed.is_over() && from == followed.length() => Opened::End,
                Form::Stream => Opened::Stream(from),
            })
        };
        server.stories().read(read).await?
    };
    let (story, opened) = opened.ok_or_else(unknown)?;
    match opened {
        Opened::Page(page) => Ok(tagged(&call.headers, page.to_string())),
        Opened::End => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
        Opened::Stream(next) => {
            let waiting = Waiting::of_run(&server, &id, &story);
            Ok(stream(Following { permit: permit(&server, &caller)?, id, story, next, waiting }))
        }
    }
}

/// The response to a request for the events of a run.
enum Opened {
    Page(Value),
    /// The client has received all events.
    End,
    /// The index of the first event to send.
    Stream(usize),
}

/// A stream of the events of a run.
struct Following {
    permit: Permit,
    id: String,
    story: Handle,
    /// The index of the next event to send.
    next: usize,
    waiting: Waiting,
}

impl Following {
    /// Reads on in a separate story. Once that has caught up, it is shared.
    async fn read(&mut self) -> Result<(), Problem> {
        let of = Arc::clone(&self.permit.server);
        let (server, id, next) = (Arc::clone(&of), self.id.clone(), self.next);
        let story = Arc::clone(&self.story);
        let read = move || server.stories().read_on(server.context(), &id, story, next);
        self.story = of.stories().read(read).await?;
        self.waiting.news = self.story.lock().unwrap_or_else(PoisonError::into_inner).news();
        Ok(())
    }
}

impl Pieces for Following {
    fn permit(&mut self) -> &mut Permit {
        &mut self.permit
    }

    /// The next events, or another piece. `None` when the run, the server or the token has ended.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let waits = {
                let mut followed = self.story.lock().unwrap_or_else(PoisonError::into_inner);
                match followed.piece(self.next) {
                    Some(piece) if !piece.text.is_empty() => {
                        self.next = piece.to;
                        return Some(piece.text);
                    }
                    Some(_) if followed.is_over() || followed.is_gone => return None,
                    Some(_) => followed.is_shared,
                    None => false,
                }
            };
            if !waits {
                self.read().await.ok()?;
            } else if let Wake::Send(text) = self.waiting.next(&self.permit).await? {
                return Some(text);
            }
        }
    }
}

/// The signals that a stream waits for after it has sent everything.
struct Waiting {
    /// Changes with news, and when the server begins to stop.
    news: watch::Receiver<u64>,
    /// Changes with the tokens.
    tokens: watch::Receiver<u64>,
    comments: Interval,
    /// The run's asides, if the stream is that of one run.
    asides: Option<broadcast::Receiver<Bytes>>,
    /// True once the stream has announced that the server stops.
    is_ending: bool,
}

/// The reason why a stream wakes up.
enum Wake {
    News,
    Send(Bytes),
}

impl Waiting {
    /// Waits for all changes of the journal.
    fn of_journal(server: &Server) -> Self {
        Self::new(server, server.stories().news_of_journal(), None)
    }

    /// Waits for the events and asides of one run.
    fn of_run(server: &Server, id: &str, story: &Mutex<Followed>) -> Self {
        let length = story.lock().unwrap_or_else(PoisonError::into_inner).news();
        Self::new(server, length, Some(server.stories().asides.subscribe(id)))
    }

    fn new(server: &Server, news: watch::Receiver<u64>, asides: Option<broadcast::Receiver<Bytes>>) -> Self {
        let mut comments = tokio::time::interval(COMMENT);
        comments.reset();
        Self { news, tokens: server.tokens().changes(), comments, asides, is_ending: false }
    }

    /// Waits for news, or for another piece to send. `None` if the stream ends, as it does with its token.
    async fn next(&mut self, permit: &Permit) -> Option<Wake> {
        loop {
            if self.is_ending {
                return None;
            }
            // `Stories::wake` wakes streams that already wait at that moment.
            if permit.server.context().is_draining() {
                self.is_ending = true;
                return Some(Wake::Send(Bytes::from_static(b"event: restart\ndata: {}\n\n")));
            }
            tokio::select! {
                biased;
                tokens = self.tokens.changed() => {
                    if tokens.is_err() || !permit.is_valid() {
                        return None;
                    }
                }
                news = self.news.changed() => return news.ok().map(|()| Wake::News),
                _ = self.comments.tick() => {
                    return permit.is_valid().then_some(Wake::Send(Bytes::from_static(b":\n\n")));
                }
                Some(said) = said(&mut self.asides) => match aside_text(said) {
                    Some(text) => return Some(Wake::Send(text)),
                    None => self.asides = None,
                },
            }
        }
    }
}

/// The next aside of a run.
async fn said(asides: &mut Option<broadcast::Receiver<Bytes>>) -> Option<Result<Bytes, broadcast::error::RecvError>> {
    match asides {
        Some(receiver) => Some(receiver.recv().await),
        None => None,
    }
}

/// The source of a stream's pieces.
trait Pieces: Send + 'static {
    fn permit(&mut self) -> &mut Permit;

    /// The next piece, called once the client is ready for it; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// A response that sends these pieces.
fn stream(pieces: impl Pieces) -> Response {
    // Clients wait one second before they reconnect.
    let retry = futures_util::stream::iter([Bytes::from_static(b"retry: 1000\n\n")]);
    let rest = futures_util::stream::unfold(pieces, |mut pieces| async {
        if !pieces.permit().is_still_valid() {
            return None;
        }
        let piece = pieces.next().await?;
        Some((piece, pieces))
    });
    let frames = retry.chain(rest).map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use http_body_util::BodyExt as _;

    use super::*;
    use crate::server::tests::server;
    use crate::token::{NewToken, Scope};

    /// RFC 9110, section 8.3.1: the names of media types are case-insensitive.
    #[test]
    fn media_types_are_compared_without_case() {
        let form = |accept: &'static str, has_page| {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            form(&headers, has_page).ok()
        };
        assert_eq!(form("TEXT/Event-Stream", false), Some(Form::Stream));
        assert_eq!(form("Application/JSON;q=0.5, text/html", true), Some(Form::Page));
        assert_eq!(form("text/html", true), None);
    }

    /// A stream that always has something to send.
    struct Backlog(Permit);

    impl Pieces for Backlog {
        fn permit(&mut self) -> &mut Permit {
            &mut self.0
        }

        async fn next(&mut self) -> Option<Bytes> {
            tokio::task::yield_now().await;
            Some(Bytes::from_static(b"x"))
        }
    }

    /// S-17: the stream of a revoked token ends, even while there is a backlog.
    #[tokio::test]
    async fn a_backlog_ends_with_its_token() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = server(dir.path());
        let new = NewToken { name: "a".to_owned(), scopes: vec![Scope::Read], only: Vec::new(), expires_at_ms: None };
        let (tokens, now_ms) = (server.tokens(), server.clock().now_ms());
        let text = tokens.create(&new, now_ms).expect("a token");
        let caller = tokens.find(&text, now_ms).expect("tokens").expect("a caller");
        let mut body = stream(Backlog(permit(&server, &caller).expect("a permit"))).into_body();
        for _ in 0..3 {
            body.frame().await.expect("a piece").expect("no error");
        }
        tokens.revoke("a").expect("revoked");
        let since = Instant::now();
        while body.frame().await.is_some() {
            assert!(since.elapsed() < 20 * RECHECK, "the stream goes on");
        }
    }
}

//! The events of a run, as a page or as a stream; the feed of all runs.

mod aside;
mod feed;
mod news;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use blake3::Hash;
use etude_runs::pins::Pins;
use etude_runs::story::{self, EventId, Story, StoryEvent};
use etude_runtime::engine::{Engine, Error};
use futures_util::StreamExt as _;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, broadcast, watch};
use tokio::time::Interval;

use self::aside::Asides;
use self::news::Awaited;
use crate::blocking::blocking;
use crate::problem::{Code, Problem, engine_failed};
use crate::query::invalid;
use crate::request::{Call, Respond, tagged};
use crate::server::Server;
use crate::token::Caller;

pub(crate) use feed::{feed, live};
pub(crate) use news::look_for_news;

/// The interval of comments, which keep proxies from closing the connection.
const COMMENT: Duration = Duration::from_secs(15);

/// Streams of one token at once.
const MAX_STREAMS: usize = 100;

/// Bytes after which a piece ends.
const PIECE: usize = 64 * 1024;

/// Streams that read the journal at once. Each takes a thread meanwhile, whose memory stays: a hundred that began together took 7 MiB.
const MAX_READERS: usize = 8;

/// Stories of runs that are read up to the present.
#[derive(Debug, Default)]
pub(crate) struct Stories {
    open: Mutex<BTreeMap<String, Weak<Mutex<Followed>>>>,
    streams: Mutex<BTreeMap<String, usize>>,
    /// What runs of this server say on their way.
    pub(crate) asides: Asides,
    /// [`Engine::version`] as it was asked last.
    news: watch::Sender<u64>,
    /// The same of the last look, which may have been a short one.
    looked: AtomicU64,
    awaited: Mutex<BTreeMap<String, Awaited>>,
    /// A request has begun to wait for a run.
    is_awaited: Notify,
    readers: Readers,
}

/// The places for streams that read.
#[derive(Debug)]
struct Readers(Semaphore);

impl Default for Readers {
    fn default() -> Self {
        Self(Semaphore::new(MAX_READERS))
    }
}

/// The last events of a run, and what reads more of them.
#[derive(Debug)]
struct Followed {
    story: Story,
    /// The version of the journal up to which it goes.
    version: u64,
    /// The events that are kept.
    events: VecDeque<StoryEvent>,
    /// How many came before them.
    dropped: usize,
    /// Bytes of the kept ones, and how many they may be.
    size: usize,
    kept: usize,
    /// The number of all events.
    length: watch::Sender<u64>,
    /// Its last events as they are sent. All streams that have sent the others share them.
    last: Piece,
    /// It has come to the present, is advanced with the journal, and more than one stream may read it.
    is_shared: bool,
    /// The run was deleted, or the journal is gone.
    is_gone: bool,
}

/// The events of a run, for the streams that read them.
type Handle = Arc<Mutex<Followed>>;

/// Events in the form of `text/event-stream`: those from the one at `from` on, before the one at `to`.
#[derive(Debug, Clone, Default)]
struct Piece {
    from: usize,
    to: usize,
    text: Bytes,
}

impl Stories {
    /// Reads the journal for a stream, once there is a place.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        // The places are never closed.
        let _place = self.readers.0.acquire().await;
        blocking(read).await
    }

    /// Wakes all streams, which then see that the server stops.
    pub(crate) fn wake(&self) {
        self.news.send_modify(|_| ());
        for story in self.open_stories() {
            story.lock().unwrap_or_else(PoisonError::into_inner).length.send_modify(|_| ());
        }
    }

    /// The story that the streams of a run share, if there is one.
    fn shared(&self, id: &str) -> Option<Handle> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, story| story.strong_count() > 0);
        open.get(id).and_then(Weak::upgrade)
    }

    /// Shares a story that has come to the present. If there is a shared one, that is it: only one goes on.
    fn share(&self, id: &str, story: Handle) -> Handle {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = open.get(id).and_then(Weak::upgrade) {
            return other;
        }
        story.lock().unwrap_or_else(PoisonError::into_inner).is_shared = true;
        open.insert(id.to_owned(), Arc::downgrade(&story));
        story
    }

    /// The stories that are shared now. One that advances is waited for without the lock of all.
    fn open_stories(&self) -> Vec<Handle> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.values().filter_map(Weak::upgrade).collect()
    }
}

impl Followed {
    fn new(story: Story, kept: usize) -> Self {
        Self {
            story,
            version: 0,
            events: VecDeque::new(),
            dropped: 0,
            size: 0,
            kept,
            length: watch::Sender::new(0),
            last: Piece::default(),
            is_shared: false,
            is_gone: false,
        }
    }

    /// The number of its events.
    fn length(&self) -> usize {
        self.dropped + self.events.len()
    }

    /// Takes the next records, and wakes the streams if there is more. Of the events before the one at `needed`, only the last are
    /// kept.
    fn read(&mut self, engine: &dyn Engine, needed: usize) -> Result<(), Error> {
        while self.size > self.kept && self.dropped < needed {
            let Some(event) = self.events.pop_front() else { break };
            self.size -= size(&event);
            self.dropped += 1;
        }
        let was_over = self.story.is_over();
        let read = self.story.read(engine);
        self.is_gone = read.is_err();
        let has_changed = self.is_gone || self.story.is_over() != was_over;
        let read = read.map(|new| {
            self.size += new.iter().map(size).sum::<usize>();
            self.events.extend(new);
        });
        let length = self.length() as u64;
        self.length.send_if_modified(|last| std::mem::replace(last, length) != length || has_changed);
        read
    }

    /// Takes what the journal has.
    fn advance(&mut self, engine: &dyn Engine) -> Result<(), Error> {
        loop {
            self.read(engine, usize::MAX)?;
            if self.story.is_at_end() {
                return Ok(());
            }
        }
    }

    /// The place of the first event after the one with that id, if this is kept.
    fn place_after(&self, id: EventId) -> Option<usize> {
        let found = self.events.binary_search_by(|event| event.id.cmp(&id));
        found.ok().map(|at| self.dropped + at + 1)
    }

    /// The events from the one at `from` on, which are kept.
    fn events_from(&self, from: usize) -> impl Iterator<Item = &StoryEvent> {
        self.events.range(from.saturating_sub(self.dropped).min(self.events.len())..)
    }

    /// The events from the one at `from` on, at most about [`PIECE`] bytes of them. `None` if they are not kept any more.
    fn piece(&mut self, from: usize) -> Option<Piece> {
        if from < self.dropped {
            return None;
        }
        if self.last.from == from && self.last.to == self.length() {
            return Some(self.last.clone());
        }
        let (mut text, mut to) = (String::new(), from);
        for event in self.events_from(from) {
            if text.len() >= PIECE {
                break;
            }
            push_event(&mut text, event);
            to += 1;
        }
        let piece = Piece { from, to, text: text.into() };
        if to == self.length() {
            self.last = piece.clone();
        }
        Some(piece)
    }
}

/// The bytes that an event takes in memory.
fn size(event: &StoryEvent) -> usize {
    size_of::<StoryEvent>() + event.body.len()
}

/// One of the streams of a token.
struct Permit {
    server: Arc<Server>,
    name: String,
    token: Option<Hash>,
    session: Option<Hash>,
}

impl Permit {
    /// True if the token is neither revoked nor expired, nor its session over.
    fn is_valid(&self) -> bool {
        let now_ms = self.server.clock().now_ms();
        self.server.tokens().is_valid(self.token, now_ms)
            && self.session.is_none_or(|session| self.server.sessions().is_open(session, now_ms))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut streams = self.server.stories().streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = streams.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                streams.remove(&self.name);
            }
        }
    }
}

impl Server {
    fn stream_permit(self: &Arc<Self>, caller: &Caller) -> Result<Permit, Problem> {
        let mut streams = self.stories().streams.lock().unwrap_or_else(PoisonError::into_inner);
        let count = streams.entry(caller.name.clone()).or_default();
        if *count >= MAX_STREAMS {
            return Err(Problem::new(Code::TooManyRequests, "the token has 100 open streams"));
        }
        *count += 1;
        let (name, token, session) = (caller.name.clone(), caller.token, caller.session);
        Ok(Permit { server: Arc::clone(self), name, token, session })
    }

    /// The number of open streams.
    pub(crate) fn open_streams(&self) -> usize {
        self.stories().streams.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// The events of a run that have one of these names.
    pub(crate) fn events_named(&self, id: &str, names: &[&str]) -> Result<Vec<Value>, Problem> {
        let mut found = Vec::new();
        let mut take = |followed: &Followed, from: usize| {
            let named = followed.events_from(from).filter(|event| names.contains(&&*event.name));
            found.extend(named.filter_map(|event| serde_json::from_str(&event.body).ok()));
            followed.length()
        };
        let Some((story, mut next)) = self.story(id, None, 0, &mut take)? else { return Ok(found) };
        let mut followed = story.lock().unwrap_or_else(PoisonError::into_inner);
        while !followed.story.is_at_end() {
            followed.read(&**self.engine(), next).map_err(|e| engine_failed(&e))?;
            next = take(&followed, next);
        }
        drop(followed);
        Ok(found)
    }

    /// The story of a run with what `look` sees in it: at least `wanted` events from the one after `after` on, unless the journal has
    /// no more, and the place of the first of them. `None` if no event has the id `after`.
    fn story<T>(
        &self,
        id: &str,
        after: Option<EventId>,
        wanted: usize,
        look: impl FnOnce(&Followed, usize) -> T,
    ) -> Result<Option<(Handle, T)>, Problem> {
        let engine = &**self.engine();
        if let Some(story) = self.stories().shared(id) {
            let mut followed = story.lock().unwrap_or_else(PoisonError::into_inner);
            followed.advance(engine).map_err(|e| engine_failed(&e))?;
            let from = after.map_or((followed.dropped == 0).then_some(0), |after| followed.place_after(after));
            if let Some(from) = from {
                let seen = look(&followed, from);
                drop(followed);
                return Ok(Some((story, seen)));
            }
        }
        let mut followed = self.unread(id)?;
        let mut from = after.is_none().then_some(0);
        while from.is_none_or(|from| followed.length() < from + wanted) && !followed.story.is_at_end() {
            followed.version = *self.stories().news.borrow();
            followed.read(engine, from.unwrap_or(usize::MAX)).map_err(|e| engine_failed(&e))?;
            from = from.or_else(|| followed.place_after(after?));
            if from.is_none() && followed.events.back().map(|last| last.id) > after {
                break;
            }
        }
        let Some(from) = from else { return Ok(None) };
        let seen = look(&followed, from);
        let is_at_end = followed.story.is_at_end();
        let story = Arc::new(Mutex::new(followed));
        Ok(Some((if is_at_end { self.stories().share(id, story) } else { story }, seen)))
    }

    /// The story of a run, of which nothing has been read.
    fn unread(&self, id: &str) -> Result<Followed, Problem> {
        let engine = &**self.engine();
        let mut outline = engine.outline(id).map_err(|e| engine_failed(&e))?;
        outline.records = Pins::records(engine, id).map_err(|e| engine_failed(&e))?;
        let definition = self.context().definition_of(&outline).ok_or_else(|| {
            Problem::new(Code::DefinitionInvalid, "the run's definition is not kept, and the present one has errors")
        })?;
        let story = Story::new(engine, outline, definition.plan.clone(), definition.app.clone());
        Ok(Followed::new(story, self.settings().kept_events))
    }
}

/// What the client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Stream,
    Page,
}

fn form(headers: &HeaderMap, has_page: bool) -> Result<Form, Problem> {
    let accepts = headers.get(ACCEPT).map_or("*/*", |value| value.to_str().unwrap_or_default());
    let kinds: Vec<&str> = accepts.split(',').filter_map(|kind| kind.split(';').next()).map(str::trim).collect();
    if kinds.contains(&"text/event-stream") || !has_page && kinds.contains(&"*/*") {
        return Ok(Form::Stream);
    }
    match has_page && kinds.iter().any(|kind| ["application/json", "application/*", "*/*"].contains(kind)) {
        true => Ok(Form::Page),
        false => Err(Problem::new(Code::NotAcceptable, "the events are `text/event-stream` or `application/json`")),
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
    let unknown = move || invalid(name, format!("`{name}` is the id of an event of this run"));
    let after = after.map(|text| EventId::parse(text).ok_or_else(unknown)).transpose()?;
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let wanted = if form == Form::Page { limit + 1 } else { 1 };
    let opened = {
        let (of, caller, id) = (Arc::clone(&server), caller.clone(), id.clone());
        let read = move || {
            of.context().visible(&caller, &id)?;
            of.story(&id, after, wanted, |followed, from| match form {
                Form::Page => Opened::Page(story::page(followed.events_from(from), limit)),
                Form::Stream if followed.story.is_over() && from == followed.length() => Opened::End,
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
            Ok(stream(Following { permit: server.stream_permit(&caller)?, id, story, next, waiting }))
        }
    }
}

/// What a request for the events of a run gets.
enum Opened {
    Page(Value),
    /// All of them were sent before.
    End,
    /// The place of the first event that is sent.
    Stream(usize),
}

/// A stream of the events of a run.
struct Following {
    permit: Permit,
    id: String,
    story: Handle,
    /// The place of the first event that was not sent.
    next: usize,
    waiting: Waiting,
}

impl Following {
    /// Reads on in a story of its own. One that has come to the present is shared.
    async fn read(&mut self) -> Result<(), Problem> {
        let of = Arc::clone(&self.permit.server);
        let (server, id, next) = (Arc::clone(&of), self.id.clone(), self.next);
        let story = Arc::clone(&self.story);
        let read = move || {
            let is_dropped = next < story.lock().unwrap_or_else(PoisonError::into_inner).dropped;
            let story = if is_dropped { Arc::new(Mutex::new(server.unread(&id)?)) } else { story };
            let mut followed = story.lock().unwrap_or_else(PoisonError::into_inner);
            while followed.length() <= next && !followed.story.is_at_end() {
                followed.version = *server.stories().news.borrow();
                followed.read(&**server.engine(), next).map_err(|e| engine_failed(&e))?;
            }
            let is_at_end = followed.story.is_at_end();
            drop(followed);
            Ok(if is_at_end { server.stories().share(&id, story) } else { story })
        };
        self.story = of.stories().read(read).await?;
        self.waiting.news = self.story.lock().unwrap_or_else(PoisonError::into_inner).length.subscribe();
        Ok(())
    }
}

impl Pieces for Following {
    /// The next events, or what else is sent. `None` when the run, the server or the token has ended.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let waits = {
                let mut followed = self.story.lock().unwrap_or_else(PoisonError::into_inner);
                match followed.piece(self.next) {
                    Some(piece) if !piece.text.is_empty() => {
                        self.next = piece.to;
                        return Some(piece.text);
                    }
                    Some(_) if followed.story.is_over() || followed.is_gone => return None,
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

/// What a stream waits for when it has sent everything.
struct Waiting {
    /// Changes with news, and when the server begins to stop.
    news: watch::Receiver<u64>,
    comments: Interval,
    /// What the run says, if it is the stream of one.
    asides: Option<broadcast::Receiver<Bytes>>,
    /// The stream has said that the server ends.
    is_ending: bool,
}

/// Why a stream wakes up.
enum Wake {
    News,
    Send(Bytes),
}

impl Waiting {
    /// For all changes of the journal.
    fn of_journal(server: &Server) -> Self {
        Self::new(server.stories().news.subscribe(), None)
    }

    /// For the events of one run, and for what it says.
    fn of_run(server: &Server, id: &str, story: &Mutex<Followed>) -> Self {
        let length = story.lock().unwrap_or_else(PoisonError::into_inner).length.subscribe();
        Self::new(length, Some(server.stories().asides.subscribe(id)))
    }

    fn new(news: watch::Receiver<u64>, asides: Option<broadcast::Receiver<Bytes>>) -> Self {
        let mut comments = tokio::time::interval(COMMENT);
        comments.reset();
        Self { news, comments, asides, is_ending: false }
    }

    /// Waits for news, or for something else to send. `None` if the stream ends, as it does soon after its token.
    async fn next(&mut self, permit: &Permit) -> Option<Wake> {
        loop {
            if self.is_ending {
                return None;
            }
            // Streams that wait at that moment are woken by `Stories::wake`.
            if permit.server.context().is_draining() {
                self.is_ending = true;
                return Some(Wake::Send(Bytes::from_static(b"event: restart\ndata: {}\n\n")));
            }
            tokio::select! {
                biased;
                news = self.news.changed() => return news.ok().map(|()| Wake::News),
                _ = self.comments.tick() => {
                    return permit.is_valid().then_some(Wake::Send(Bytes::from_static(b":\n\n")));
                }
                Some(said) = said(&mut self.asides) => match aside::text(said) {
                    Some(text) => return Some(Wake::Send(text)),
                    None => self.asides = None,
                },
            }
        }
    }
}

/// The next piece of what a run says.
async fn said(asides: &mut Option<broadcast::Receiver<Bytes>>) -> Option<Result<Bytes, broadcast::error::RecvError>> {
    match asides {
        Some(receiver) => Some(receiver.recv().await),
        None => None,
    }
}

/// Appends an event in the form of `text/event-stream`.
fn push_event(text: &mut String, event: &StoryEvent) {
    let StoryEvent { id, name, body } = event;
    // Writing to a string does not fail.
    let _ = write!(text, "id: {id}\nevent: {}\ndata: {body}\n\n", name.replace(['\n', '\r'], " "));
}

/// What a stream sends.
trait Pieces: Send + 'static {
    /// The next piece, which the client is ready for; `None` if there is none.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// A response that sends these pieces.
fn stream(pieces: impl Pieces) -> Response {
    // Clients wait a second before they reconnect.
    let retry = futures_util::stream::iter([Bytes::from_static(b"retry: 1000\n\n")]);
    let rest = futures_util::stream::unfold(pieces, |mut pieces| async {
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

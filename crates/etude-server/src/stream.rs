//! The events of a run, as a page or as a stream; the feed of all runs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use etude::story::{self, EventId, Story};
use etude_runtime::engine::{Engine, Error};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Interval;

use crate::problem::{Code, Problem};
use crate::query::invalid;
use crate::request::{Call, Respond, json_response};
use crate::run::{blocking, engine_failed, row_json, visible};
use crate::server::Server;
use crate::token::Caller;

/// How often the journal is asked for news, with one question for all runs.
const PAUSE: Duration = Duration::from_millis(100);

/// The interval of comments, which keep proxies from closing the connection.
const COMMENT: Duration = Duration::from_secs(15);

/// Streams of one token at once.
const MAX_STREAMS: usize = 100;

/// Bytes that wait for a client.
const PIECE: usize = 64 * 1024;

/// Stories of runs that somebody reads.
#[derive(Debug, Default)]
pub(crate) struct Stories {
    open: Mutex<BTreeMap<String, Weak<Mutex<Followed>>>>,
    streams: Mutex<BTreeMap<String, usize>>,
    /// [`Engine::version`] as it was asked last.
    news: watch::Sender<u64>,
}

/// A story, and the version of the journal up to which it goes.
#[derive(Debug)]
struct Followed {
    story: Story,
    version: u64,
}

impl Followed {
    fn advance(&mut self, engine: &dyn Engine, version: u64) -> Result<(), Error> {
        if self.version != version {
            self.story.advance(engine)?;
            self.version = version;
        }
        Ok(())
    }
}

/// Asks the journal for news, for all streams, until the server stops.
pub(crate) async fn look_for_news(server: Arc<Server>) {
    let mut stopping = server.stopping();
    loop {
        let engine = Arc::clone(server.engine());
        // A journal that fails has no news; requests report it.
        if let Ok(Ok(version)) = tokio::task::spawn_blocking(move || engine.version()).await {
            server.stories().news.send_if_modified(|last| std::mem::replace(last, version) != version);
        }
        let stop = tokio::time::timeout(PAUSE, stopping.wait_for(|stop| *stop)).await.is_ok();
        if stop {
            return;
        }
    }
}

/// One of the streams of a token.
struct Permit {
    server: Arc<Server>,
    name: String,
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
    fn stream_permit(self: &Arc<Self>, name: &str) -> Result<Permit, Problem> {
        let mut streams = self.stories().streams.lock().unwrap_or_else(PoisonError::into_inner);
        let count = streams.entry(name.to_owned()).or_default();
        if *count >= MAX_STREAMS {
            return Err(Problem::new(Code::TooManyRequests, "the token has 100 open streams"));
        }
        *count += 1;
        Ok(Permit { server: Arc::clone(self), name: name.to_owned() })
    }

    /// The number of open streams.
    pub(crate) fn open_streams(&self) -> usize {
        self.stories().streams.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// Changes with each write to the journal, a moment later.
    pub(crate) fn news_of_journal(&self) -> watch::Receiver<u64> {
        self.stories().news.subscribe()
    }

    /// The version of the journal as it was asked last.
    fn news(&self) -> u64 {
        *self.stories().news.borrow()
    }

    /// The events of a run that have one of these names.
    pub(crate) fn events_named(&self, id: &str, names: &[&str]) -> Result<Vec<Value>, Problem> {
        let story = self.story(id)?;
        let followed = story.lock().unwrap_or_else(PoisonError::into_inner);
        let bodies = followed.story.events().iter().map(|event| &event.body);
        // Most bodies are not parsed: the name is in the text.
        let wanted = bodies.filter(|body| names.iter().any(|name| body.contains(name)));
        let parsed = wanted.filter_map(|body| serde_json::from_str::<Value>(body).ok());
        Ok(parsed.filter(|event| names.iter().any(|name| event["event"] == **name)).collect())
    }

    /// The story of a run, shared by all that read it, up to the present.
    fn story(&self, id: &str) -> Result<Arc<Mutex<Followed>>, Problem> {
        let known = {
            let mut open = self.stories().open.lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|_, story| story.strong_count() > 0);
            open.get(id).and_then(Weak::upgrade)
        };
        if let Some(followed) = known {
            let advanced = followed.lock().unwrap_or_else(PoisonError::into_inner).story.advance(&**self.engine());
            advanced.map_err(|e| engine_failed(&e))?;
            return Ok(followed);
        }
        let view = self.engine().view(id).map_err(|e| engine_failed(&e))?;
        let definition = self.definition_of(&view).ok_or_else(|| {
            Problem::new(Code::DefinitionInvalid, "the run's definition is not kept, and the present one has errors")
        })?;
        let version = self.news();
        let story = Story::read(&**self.engine(), id, definition).map_err(|e| engine_failed(&e))?;
        let followed = Arc::new(Mutex::new(Followed { story, version }));
        let mut open = self.stories().open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(id.to_owned(), Arc::downgrade(&followed));
        Ok(followed)
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
    let story = {
        let (server, caller, id) = (Arc::clone(&server), caller.clone(), id.clone());
        blocking(move || {
            visible(&server, &caller, &id)?;
            server.story(&id)
        })
        .await?
    };
    let from = {
        let followed = story.lock().unwrap_or_else(PoisonError::into_inner);
        let story = &followed.story;
        let from = story::start(story, after).ok_or_else(unknown)?;
        if form == Form::Page {
            return Ok(json_response(StatusCode::OK, &story::page(story, after, limit).ok_or_else(unknown)?));
        }
        if story.is_over() && from == story.events().len() {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        from
    };
    let permit = server.stream_permit(&caller.name)?;
    let (sender, body) = stream();
    tokio::spawn(follow(permit, story, from, sender));
    Ok(body)
}

/// Sends the events of a run, from the one at `next` on, until the run or the server ends or the client goes.
async fn follow(permit: Permit, story: Arc<Mutex<Followed>>, mut next: usize, sender: Sender) {
    let server = Arc::clone(&permit.server);
    let mut waiting = Waiting::new(&server);
    loop {
        loop {
            let (text, is_over) = {
                let followed = story.lock().unwrap_or_else(PoisonError::into_inner);
                let story = &followed.story;
                let mut text = String::new();
                while let Some(event) = story.events().get(next).filter(|_| text.len() < PIECE) {
                    push_event(&mut text, Some(&event.id.to_string()), &event.body);
                    next += 1;
                }
                (text, story.is_over() && next >= story.events().len())
            };
            let is_empty = text.is_empty();
            if !is_empty && sender.send(text).await.is_err() || is_over {
                return;
            }
            if is_empty {
                break;
            }
        }
        if !waiting.next(&sender).await {
            return;
        }
        let (engine, story, now) = (Arc::clone(server.engine()), Arc::clone(&story), server.news());
        let advanced = blocking(move || {
            let mut followed = story.lock().unwrap_or_else(PoisonError::into_inner);
            followed.advance(&*engine, now).map_err(|e| engine_failed(&e))
        });
        // The run was deleted, or the journal is gone.
        if advanced.await.is_err() {
            return;
        }
    }
}

/// What a stream waits for when it has sent everything.
struct Waiting {
    news: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    comments: Interval,
}

/// Why a stream wakes up.
enum Wake {
    News,
    Comment,
    Stop,
    Gone,
}

impl Waiting {
    fn new(server: &Server) -> Self {
        let mut comments = tokio::time::interval(COMMENT);
        comments.reset();
        Self { news: server.stories().news.subscribe(), stopping: server.stopping(), comments }
    }

    /// Waits for news of the journal. False if the stream ends.
    async fn next(&mut self, sender: &Sender) -> bool {
        loop {
            let wake = tokio::select! {
                news = self.news.changed() => if news.is_ok() { Wake::News } else { Wake::Gone },
                _ = self.comments.tick() => Wake::Comment,
                stopping = self.stopping.wait_for(|stop| *stop) => {
                    drop(stopping);
                    Wake::Stop
                }
                () = sender.closed() => Wake::Gone,
            };
            match wake {
                Wake::News => return true,
                Wake::Gone => return false,
                Wake::Comment if sender.send(":\n\n".to_owned()).await.is_err() => return false,
                Wake::Comment => {}
                Wake::Stop => {
                    // The client may be gone as well.
                    let _ = sender.send("event: restart\ndata: {}\n\n".to_owned()).await;
                    return false;
                }
            }
        }
    }
}

/// Appends an event in the form of `text/event-stream`.
fn push_event(text: &mut String, id: Option<&str>, body: &str) {
    if let Some(id) = id {
        text.push_str(&format!("id: {id}\n"));
    }
    let name = serde_json::from_str::<Value>(body).ok();
    let name = name.as_ref().and_then(|body| body["event"].as_str()).unwrap_or("message");
    text.push_str(&format!("event: {}\ndata: {body}\n\n", name.replace(['\n', '\r'], " ")));
}

type Sender = mpsc::Sender<String>;

/// The body of a stream. It holds two pieces: a slow client reads the journal later instead.
fn stream() -> (Sender, Response) {
    let (sender, mut pieces) = mpsc::channel::<String>(2);
    let frames = futures_util::stream::poll_fn(move |cx| {
        pieces.poll_recv(cx).map(|piece| piece.map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text)))))
    });
    // Clients wait a second before they reconnect.
    let _ = sender.try_send("retry: 1000\n\n".to_owned());
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    (sender, response)
}

/// `GET /live`: says that the journal has changed. Pages then read their own routes again, so it carries no content.
pub(crate) async fn live(call: Call) -> Respond {
    form(&call.headers, false)?;
    let permit = call.server.stream_permit(&call.caller()?.name)?;
    let (sender, body) = stream();
    tokio::spawn(async move {
        let mut waiting = Waiting::new(&permit.server);
        while sender.send("event: news\ndata: {}\n\n".to_owned()).await.is_ok() && waiting.next(&sender).await {}
    });
    Ok(body)
}

/// `GET /v1/events`: the runs whose state changes.
pub(crate) async fn feed(call: Call) -> Respond {
    form(&call.headers, false)?;
    let unknown = || invalid("Last-Event-ID", "`Last-Event-ID` is the id of an event of this feed");
    let header = call.headers.get("last-event-id").map(|value| value.to_str().unwrap_or_default());
    let after = header.map(|text| text.parse::<u64>().map_err(|_| unknown())).transpose()?;
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let engine = Arc::clone(server.engine());
    let last = blocking(move || engine.last_change().map_err(|e| engine_failed(&e))).await?;
    if after.is_some_and(|after| after > last) {
        return Err(unknown());
    }
    let permit = server.stream_permit(&caller.name)?;
    let (sender, body) = stream();
    tokio::spawn(follow_all(permit, caller, after.unwrap_or(last), sender));
    Ok(body)
}

async fn follow_all(permit: Permit, caller: Caller, mut after: u64, sender: Sender) {
    const PAGE: u32 = 100;
    let server = Arc::clone(&permit.server);
    let mut waiting = Waiting::new(&server);
    loop {
        let (of, to) = (Arc::clone(&server), caller.clone());
        let changed = blocking(move || {
            let rows = of.engine().changes(after, PAGE).map_err(|e| engine_failed(&e))?;
            let last = rows.last().map_or(after, |row| row.change);
            let mut text = String::new();
            for row in rows.iter().filter(|row| of.shows(&to, row)) {
                // It may be deleted by now.
                let Ok(document) = row_json(&of, row) else { continue };
                text.push_str(&format!("id: {}\nevent: run\ndata: {document}\n\n", row.change));
            }
            Ok((text, last, rows.len() == PAGE as usize))
        });
        let Ok((text, last, has_more)) = changed.await else { return };
        after = last;
        if !text.is_empty() && sender.send(text).await.is_err() {
            return;
        }
        if has_more {
            continue;
        }
        if !waiting.next(&sender).await {
            return;
        }
    }
}

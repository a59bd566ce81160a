//! Stories: the events of runs, read from the journal as it grows, and shared by the streams that send them.

mod aside;
mod news;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::body::Bytes;
use etude_runs::pins::Pins;
use etude_runs::story::{EventId, Story, StoryEvent};
use etude_runtime::engine::{Engine, Error};
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, watch};

use self::aside::Asides;
pub(crate) use self::aside::text as aside_text;
use self::news::Awaited;
pub(crate) use self::news::look_for_news;
use crate::blocking::blocking;
use crate::context::Context;
use crate::problem::{Code, Problem, engine_failed};

/// Size at which a piece ends, in bytes.
const PIECE: usize = 64 * 1024;

/// Maximum number of streams that read the journal at once. Each takes a thread, whose memory stays: a hundred that began
/// together took 7 MiB.
const MAX_READERS: usize = 8;

/// Maximum size of sent events in a story that only one stream reads, in bytes. A short run is still complete when it is shared.
const KEPT_BY_ONE: usize = 256 * 1024;

/// Maximum number of streams of one token.
const MAX_STREAMS: usize = 100;

/// The stories of runs that have reached the present, and the waiting requests.
#[derive(Debug, Default)]
pub(crate) struct Stories {
    open: Mutex<BTreeMap<String, Weak<Mutex<Followed>>>>,
    streams: Mutex<BTreeMap<String, usize>>,
    /// The stderr output of runs of this server.
    pub(crate) asides: Asides,
    /// The last seen [`Engine::version`].
    news: watch::Sender<u64>,
    /// The same for the last look, which may have been a short one.
    looked: AtomicU64,
    awaited: Mutex<BTreeMap<String, Awaited>>,
    /// Notified when a request begins to wait for a run.
    is_awaited: Notify,
    readers: Readers,
}

/// The permits of streams that read.
#[derive(Debug)]
struct Readers(Semaphore);

impl Default for Readers {
    fn default() -> Self {
        Self(Semaphore::new(MAX_READERS))
    }
}

/// The last events of a run, and the reader of more of them.
#[derive(Debug)]
pub(crate) struct Followed {
    story: Story,
    /// The version of the journal up to which the story goes.
    version: u64,
    /// The kept events.
    events: VecDeque<StoryEvent>,
    /// The number of dropped events before the kept ones.
    dropped: usize,
    /// The size of the kept events in bytes, and its maximum.
    size: usize,
    kept: usize,
    /// The number of all events.
    length: watch::Sender<u64>,
    /// The last events in serialized form. All streams that have sent the others share it.
    last: Piece,
    /// True once the story has reached the present: it advances with the journal, and several streams may read it.
    pub(crate) is_shared: bool,
    /// True if the run was deleted, or the journal is gone.
    pub(crate) is_gone: bool,
}

/// The shared events of a run, for its streams.
pub(crate) type Handle = Arc<Mutex<Followed>>;

/// Events in the form of `text/event-stream`: from the index `from` on, before the index `to`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Piece {
    from: usize,
    pub(crate) to: usize,
    pub(crate) text: Bytes,
}

impl Stories {
    /// Reads the journal for a stream, once there is a permit.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        // The semaphore is never closed.
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

    /// Counts a stream of the token `name`.
    pub(crate) fn begin_stream(&self, name: &str) -> Result<(), Problem> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let count = streams.entry(name.to_owned()).or_default();
        if *count >= MAX_STREAMS {
            return Err(Problem::new(Code::TooManyRequests, "the token has 100 open streams"));
        }
        *count += 1;
        Ok(())
    }

    /// Ends the count of a stream of the token `name`.
    pub(crate) fn end_stream(&self, name: &str) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = streams.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                streams.remove(name);
            }
        }
    }

    /// The number of open streams.
    pub(crate) fn open_streams(&self) -> usize {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// A receiver that changes shortly after each write to the journal.
    pub(crate) fn news_of_journal(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// The events of a run that have one of these names.
    pub(crate) fn events_named(&self, context: &Context, id: &str, names: &[&str]) -> Result<Vec<Value>, Problem> {
        let mut found = Vec::new();
        let mut take = |followed: &Followed, from: usize| {
            let named = followed.events_from(from).filter(|event| names.contains(&event.name));
            found.extend(named.filter_map(|event| serde_json::from_str(&event.body).ok()));
            followed.length()
        };
        let Some((story, mut next)) = self.story(context, id, None, 0, &mut take)? else { return Ok(found) };
        let mut followed = story.lock().unwrap_or_else(PoisonError::into_inner);
        while !followed.story.is_at_end() {
            followed.read(&**context.engine(), next).map_err(|e| engine_failed(&e))?;
            next = take(&followed, next);
        }
        drop(followed);
        Ok(found)
    }

    /// The story of a run, with the result of `look` on it. It has at least `wanted` events after `after`, unless the journal has
    /// fewer; `look` receives the index of the first of them. `None` if no event has the id `after`.
    pub(crate) fn story<T>(
        &self,
        context: &Context,
        id: &str,
        after: Option<EventId>,
        wanted: usize,
        look: impl FnOnce(&Followed, usize) -> T,
    ) -> Result<Option<(Handle, T)>, Problem> {
        let engine = &**context.engine();
        if let Some(story) = self.shared(id) {
            let mut followed = story.lock().unwrap_or_else(PoisonError::into_inner);
            followed.advance(engine).map_err(|e| engine_failed(&e))?;
            let from = after.map_or((followed.dropped == 0).then_some(0), |after| followed.place_after(after));
            if let Some(from) = from {
                let seen = look(&followed, from);
                drop(followed);
                return Ok(Some((story, seen)));
            }
        }
        let mut followed = self.unread(context, id)?;
        let mut from = after.is_none().then_some(0);
        while from.is_none_or(|from| followed.length() < from + wanted) && !followed.story.is_at_end() {
            followed.version = *self.news.borrow();
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
        Ok(Some((if is_at_end { self.share(id, story, from) } else { story }, seen)))
    }

    /// The story, read on from `next` for a stream that has sent all earlier events. A story that has reached the present is
    /// shared.
    pub(crate) fn read_on(&self, context: &Context, id: &str, story: Handle, next: usize) -> Result<Handle, Problem> {
        let is_dropped = next < story.lock().unwrap_or_else(PoisonError::into_inner).dropped;
        let story = if is_dropped { Arc::new(Mutex::new(self.unread(context, id)?)) } else { story };
        let mut followed = story.lock().unwrap_or_else(PoisonError::into_inner);
        // A story that had reached the present without being shared may have more events now.
        let mut is_behind = true;
        while followed.length() <= next && is_behind {
            followed.version = *self.news.borrow();
            followed.read(&**context.engine(), next).map_err(|e| engine_failed(&e))?;
            is_behind = !followed.story.is_at_end();
        }
        let is_at_end = followed.story.is_at_end();
        drop(followed);
        Ok(if is_at_end { self.share(id, story, next) } else { story })
    }

    /// The story of a run before its first read.
    fn unread(&self, context: &Context, id: &str) -> Result<Followed, Problem> {
        let engine = &**context.engine();
        let mut outline = engine.outline(id).map_err(|e| engine_failed(&e))?;
        outline.records = Pins::records(engine, id).map_err(|e| engine_failed(&e))?;
        let definition = context.definition_of(&outline).ok_or_else(|| {
            Problem::new(
                Code::DefinitionInvalid,
                "the definition of the run was not stored, and the current one has errors",
            )
        })?;
        let story = Story::new(engine, outline, definition.plan.clone(), definition.app.clone());
        Ok(Followed::new(story, context.settings().kept_events))
    }

    /// The story that the streams of a run share, if there is one.
    fn shared(&self, id: &str) -> Option<Handle> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, story| story.strong_count() > 0);
        open.get(id).and_then(Weak::upgrade)
    }

    /// Shares a story that has reached the present. If another one is shared already and has the event at `next`, returns that
    /// one, so that only one advances. If that has dropped the event, the story stays the reader's own until all of it was sent.
    fn share(&self, id: &str, story: Handle, next: usize) -> Handle {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = open.get(id).and_then(Weak::upgrade) {
            drop(open);
            // The other story may be advancing; this waits for it without the lock of all.
            let has_dropped = next < other.lock().unwrap_or_else(PoisonError::into_inner).dropped;
            return if has_dropped { story } else { other };
        }
        story.lock().unwrap_or_else(PoisonError::into_inner).is_shared = true;
        open.insert(id.to_owned(), Arc::downgrade(&story));
        story
    }

    /// The stories that are shared now. This does not wait for one that advances with the lock of all held.
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

    /// The number of all events, dropped ones included.
    pub(crate) fn length(&self) -> usize {
        self.dropped + self.events.len()
    }

    /// True if the run has ended, and all its events are known.
    pub(crate) fn is_over(&self) -> bool {
        self.story.is_over()
    }

    /// A receiver that changes when there are more events, and when the run is over or deleted.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.length.subscribe()
    }

    /// Reads the next records, and wakes the streams if there are more. Of the events before the index `needed`, only the last
    /// are kept.
    fn read(&mut self, engine: &dyn Engine, needed: usize) -> Result<(), Error> {
        let kept = if self.is_shared { self.kept } else { self.kept.min(KEPT_BY_ONE) };
        while self.size > kept && self.dropped < needed {
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

    /// Reads everything that the journal has.
    fn advance(&mut self, engine: &dyn Engine) -> Result<(), Error> {
        loop {
            self.read(engine, usize::MAX)?;
            if self.story.is_at_end() {
                return Ok(());
            }
        }
    }

    /// The index of the first event after the one with that id, if the latter is kept.
    fn place_after(&self, id: EventId) -> Option<usize> {
        let found = self.events.binary_search_by(|event| event.id.cmp(&id));
        found.ok().map(|at| self.dropped + at + 1)
    }

    /// The kept events from the index `from` on.
    pub(crate) fn events_from(&self, from: usize) -> impl Iterator<Item = &StoryEvent> {
        self.events.range(from.saturating_sub(self.dropped).min(self.events.len())..)
    }

    /// The events from the index `from` on, at most about [`PIECE`] bytes of them. `None` if they have been dropped.
    pub(crate) fn piece(&mut self, from: usize) -> Option<Piece> {
        if from < self.dropped {
            return None;
        }
        if self.last.from == from && self.last.to == self.length() {
            return Some(self.last.clone());
        }
        let mut length = 0;
        let fits = |event: &&StoryEvent| {
            let has_room = length < PIECE;
            length += length_of(event);
            has_room
        };
        let to = from + self.events_from(from).take_while(fits).count();
        let mut text = String::with_capacity(length);
        self.events_from(from).take(to - from).for_each(|event| push_event(&mut text, event));
        let piece = Piece { from, to, text: text.into() };
        if to == self.length() {
            self.last = piece.clone();
        }
        Some(piece)
    }
}

/// Size of an event in memory, in bytes.
fn size(event: &StoryEvent) -> usize {
    size_of::<StoryEvent>() + event.body.len()
}

/// Maximum length of an event in the form of `text/event-stream`, in bytes.
fn length_of(event: &StoryEvent) -> usize {
    /// The names of the fields, their line breaks, and the longest id.
    const FIELDS: usize = 64;
    FIELDS + event.name.len() + event.body.len()
}

/// Appends an event in the form of `text/event-stream`.
fn push_event(text: &mut String, event: &StoryEvent) {
    let StoryEvent { id, name, body } = event;
    // Writing to a string cannot fail. No name has a line break: the names are constants.
    let _ = write!(text, "id: {id}\nevent: {name}\ndata: ");
    text.push_str(body);
    text.push_str("\n\n");
}

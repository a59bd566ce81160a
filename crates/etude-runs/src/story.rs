//! The events of a run, derived from its journal: the same events with the same ids on every read.
//!
//! An id is `RECORD.N`: the position of the record that caused the event, and its number among the events of that record. Events
//! before the first outcome of an attempt belong to the record with which the attempt begins, those of the first attempt to 0.

mod event;
mod pinned;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use etude_core::machine::Command;
use etude_core::plan::Plan;
use etude_core::report::Event;
use etude_process::blob::BlobStore;
use etude_runtime::clock::rfc3339;
use etude_runtime::engine::{Engine, Error, Positioned, Record, RunView};
use etude_runtime::record;
use serde_json::{Value, json};

use crate::inspect::Replay;
use crate::target::Target;

pub use event::event_json;
pub use pinned::Pinned;

/// The id of an event. Later events have larger ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    /// The position of the record that caused it.
    pub record: u64,
    /// Its number among the events of that record, from 1.
    pub number: u32,
}

impl EventId {
    /// An id from its text.
    pub fn parse(text: &str) -> Option<Self> {
        let (record, number) = text.split_once('.')?;
        let is_plain = |part: &str| part == "0" || !part.starts_with(['0', '+']);
        let id = Self { record: record.parse().ok()?, number: number.parse().ok()? };
        (is_plain(record) && is_plain(number) && id.number > 0).then_some(id)
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.record, self.number)
    }
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct StoryEvent {
    /// Its id.
    pub id: EventId,
    /// The member `event` of its document.
    pub name: Arc<str>,
    /// Its document, without the id.
    pub body: Arc<str>,
}

/// Events in their order, and their names, each once.
#[derive(Debug, Default)]
struct Events {
    all: Vec<StoryEvent>,
    names: BTreeSet<Arc<str>>,
}

impl Events {
    fn push(&mut self, id: EventId, body: &Value) {
        let name = body["event"].as_str().unwrap_or("message");
        let name = self.names.get(name).cloned().unwrap_or_else(|| Arc::from(name));
        self.names.insert(Arc::clone(&name));
        self.all.push(StoryEvent { id, name, body: body.to_string().into() });
    }
}

/// The events of one run so far. It grows with the journal.
#[derive(Debug)]
pub struct Story {
    plan: Plan,
    app: PathBuf,
    blobs: Arc<dyn BlobStore>,
    view: RunView,
    positions: Vec<u64>,
    replay: Option<Replay>,
    events: Events,
    /// When the run began, in milliseconds since 1970.
    began_at_ms: i64,
    /// Events of stages so far, which are numbered.
    stages: u64,
    /// The run has ended, and its last event is there.
    is_over: bool,
    is_faithful: bool,
}

impl Story {
    /// The story of a run up to the end of its journal. `plan` is what the run was made with, `app` the directory of its app.
    ///
    /// # Errors
    /// The journal fails or is damaged.
    pub fn read(engine: &dyn Engine, run_id: &str, plan: Plan, app: PathBuf) -> Result<Self, Error> {
        let mut view = engine.view(run_id)?;
        view.records.clear();
        let mut story = Self {
            plan,
            app,
            blobs: engine.blobs(),
            view,
            positions: Vec::new(),
            replay: None,
            events: Events::default(),
            began_at_ms: 0,
            stages: 0,
            is_over: false,
            is_faithful: true,
        };
        story.advance(engine)?;
        Ok(story)
    }

    /// The events so far, oldest first.
    pub fn events(&self) -> &[StoryEvent] {
        &self.events.all
    }

    /// True if no further event will come, unless somebody continues the run.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// True if every record fitted the definition.
    pub const fn is_faithful(&self) -> bool {
        self.is_faithful
    }

    /// Adds the events of records that were written meanwhile. True if there are any.
    ///
    /// # Errors
    /// The journal fails or is damaged.
    pub fn advance(&mut self, engine: &dyn Engine) -> Result<bool, Error> {
        const PAGE: u32 = 1_000;
        let id = self.view.row.id.clone();
        // The row first: records that are there when the run is over are all there are.
        let row = engine.row(&id)?;
        let before = self.events.all.len();
        let mut new: Vec<Positioned> = Vec::new();
        loop {
            let after = new.last().map_or(self.positions.last().copied().unwrap_or(0), |last| last.position);
            let page = engine.tail(&id, after, PAGE)?;
            let is_last = page.len() < PAGE as usize;
            new.extend(page);
            if is_last {
                break;
            }
        }
        self.began_at_ms = row.started_at_ms.unwrap_or(row.created_at_ms);
        let is_reopened = self.is_over && !row.state.is_final();
        self.view.row = row;
        let damaged = |why| Error::Damaged { path: "journal".to_owned(), why };
        let continues = new.iter().any(|new| is_continuation(&new.record));
        let is_first = self.positions.is_empty();
        if (is_first && !new.is_empty()) || (!is_first && (continues || is_reopened)) {
            self.take(new);
            self.rebuild().map_err(damaged)?;
        } else {
            for new in &new {
                self.replay.iter_mut().for_each(|replay| replay.push(new.record.clone()));
            }
            let from = self.positions.len();
            self.take(new);
            self.feed(from).map_err(damaged)?;
        }
        if self.view.row.state.is_final() && !self.is_over {
            self.end(self.positions.len());
            self.is_over = true;
        }
        Ok(self.events.all.len() > before)
    }

    fn take(&mut self, new: Vec<Positioned>) {
        for Positioned { position, record } in new {
            self.positions.push(position);
            self.view.records.push(record);
        }
    }

    /// Replays each attempt as it was when the next one began.
    fn rebuild(&mut self) -> Result<(), String> {
        self.events.all.clear();
        (self.is_over, self.is_faithful, self.stages) = (false, true, 0);
        let whole = std::mem::take(&mut self.view.records);
        let mut begins: Vec<usize> =
            whole.iter().enumerate().filter(|(_, record)| is_continuation(record)).map(|(at, _)| at).collect();
        begins.insert(0, 0);
        for (nth, begin) in begins.iter().enumerate() {
            let end = begins.get(nth + 1).copied().unwrap_or(whole.len());
            self.view.records = whole[..end].to_vec();
            let (replay, commands) = Replay::new(&self.view, &self.plan, &self.app, Arc::clone(&self.blobs))?;
            self.replay = Some(replay);
            let record = if *begin == 0 { 0 } else { self.positions[*begin] };
            self.emit(record, *begin, commands);
            self.feed(*begin)?;
            if end < whole.len() {
                self.end(end);
            }
        }
        self.view.records = whole;
        Ok(())
    }

    /// Feeds what the replay has not taken. Events of records before `from` were emitted by an earlier attempt.
    fn feed(&mut self, from: usize) -> Result<(), String> {
        let Some(mut replay) = self.replay.take() else { return Ok(()) };
        // The places of the records that are left, in the order in which each part has them.
        let counting: Vec<usize> = record::counting(&self.view.records).map(|(at, _)| at).collect();
        loop {
            let (earlier, current) = replay.left();
            let Some((_, commands)) = replay.advance()? else { break };
            let is_earlier = replay.left().0 < earlier;
            let at = match is_earlier {
                true => 0,
                false => counting[counting.len() - current],
            };
            if !is_earlier && at >= from {
                self.replay = Some(replay);
                self.emit(self.positions[at], at, commands);
                replay = self.replay.take().ok_or("the replay is gone")?;
            }
        }
        self.is_faithful &= replay.is_faithful();
        self.replay = Some(replay);
        Ok(())
    }

    /// Adds the events among `commands`, which follow from the record at `position`.
    fn emit(&mut self, position: u64, at: usize, commands: Vec<Command>) {
        let Some(replay) = &self.replay else { return };
        let time = self.time(at);
        let is_of_machine = Target::parse(&self.view.row.target).machine().is_some();
        let last = self.events.all.last().filter(|last| last.id.record == position).map_or(0, |last| last.id.number);
        let mut number = last;
        for command in commands {
            let Command::Emit(event) = command else { continue };
            let mut body = match (&event, is_of_machine) {
                (Event::Stage { name, payload }, true) => {
                    self.stages += 1;
                    json!({"event": name, "seq": self.stages, "payload": payload.value().unwrap_or_default()})
                }
                (_, true) => continue,
                (event, false) => event_json(event, replay.machine().rows()),
            };
            body["at"] = time.as_str().into();
            number += 1;
            self.events.push(EventId { record: position, number }, &body);
        }
    }

    /// Adds the last event of an attempt, whose records end before `end`.
    fn end(&mut self, end: usize) {
        let is_last = end == self.positions.len();
        let result = self.replay.as_ref().and_then(|replay| replay.machine().result());
        let status = match (is_last, result) {
            (true, _) => self.view.row.state.word(),
            (false, Some(result)) => result.status.word(),
            (false, None) => "cancelled",
        };
        let position = end.checked_sub(1).map_or(0, |last| self.positions[last]);
        let number = self.events.all.iter().rev().take_while(|event| event.id.record == position).count();
        let number = u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1);
        let body = json!({
            "event": "ended", "run_id": self.view.row.id, "status": status, "at": self.time(end.saturating_sub(1)),
        });
        self.events.push(EventId { record: position, number }, &body);
    }

    /// When the record at `at` was written, or the one before it that says so.
    fn time(&self, at: usize) -> String {
        let records = self.view.records.get(..=at).unwrap_or(&self.view.records);
        let after = records.iter().rev().find_map(record::at_ms).unwrap_or(0);
        rfc3339(self.began_at_ms.saturating_add_unsigned(after))
    }
}

/// True for a record with which another attempt begins.
fn is_continuation(record: &Record) -> bool {
    [record::ATTEMPT, record::REOPENED].contains(&record.key.as_str())
}

/// A page of a story as a document: at most `limit` events after `after`. `None` if no event has the id `after`.
pub fn page(story: &Story, after: Option<EventId>, limit: usize) -> Option<Value> {
    let from = start(story, after)?;
    let events = &story.events()[from..];
    let shown: Vec<Value> = events
        .iter()
        .take(limit)
        .map(|event| {
            let mut body: Value = serde_json::from_str(&event.body).unwrap_or_default();
            body["id"] = event.id.to_string().into();
            body
        })
        .collect();
    let next = (events.len() > limit).then(|| events[limit - 1].id.to_string());
    Some(json!({"events": shown, "next": next}))
}

/// The place of the first event after `after`; `None` if no event has that id.
pub fn start(story: &Story, after: Option<EventId>) -> Option<usize> {
    let Some(after) = after else { return Some(0) };
    story.events().binary_search_by(|event| event.id.cmp(&after)).ok().map(|at| at + 1)
}

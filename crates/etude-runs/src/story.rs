//! The events of a run, derived from its journal: the same events with the same ids on every read.
//!
//! An id is `RECORD.N`: the position of the record that caused the event, and its number among the events of that
//! record. Events before the first outcome of an attempt belong to the record that begins the attempt; in the first
//! attempt they belong to 0.

mod pinned;
mod wire;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use etude_core::machine::Command;
use etude_core::plan::Plan;
use etude_core::report::{Event, StepRow};
use etude_process::blob::BlobStore;
use etude_runtime::clock::rfc3339;
use etude_runtime::engine::{Engine, Error, NewRun, Positioned, Record, RunRow, RunView};
use etude_runtime::record;
use serde_json::{Value, json};

use self::wire::{Published, name_of};
use crate::inspect::Replay;
use crate::target::Target;

pub use pinned::Pinned;
pub use wire::event_json;

/// Maximum number of records in memory at once.
const PAGE: u32 = 250;

/// Size of records in bytes after which a page ends. Their events are kept until they are sent.
const PAGE_BYTES: usize = 256 * 1024;

/// The id of an event. Later events have larger ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    /// The position of the record that caused the event.
    pub record: u64,
    /// Number of the event among the events of that record, from 1.
    pub number: u32,
}

impl EventId {
    /// Parses an id.
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
    /// Id of the event: the position of its record, and its number there.
    pub id: EventId,
    /// The member `event` of the document.
    pub name: &'static str,
    /// The document, without the id.
    pub body: Arc<str>,
}

/// Collects events in their order.
#[derive(Debug, Default)]
struct Scribe {
    /// Events that were not handed over yet.
    new: Vec<StoryEvent>,
    /// Id of the last event, even if it was handed over already.
    last: Option<EventId>,
    /// True if the last event is the end of an attempt.
    has_end: bool,
    /// Number of stage events so far; `None` for a run without a machine.
    stages: Option<u64>,
    times: Times,
    /// Space for the text of one event.
    text: Vec<u8>,
}

impl Scribe {
    /// Adds an event that follows from the record at `position`.
    fn push(&mut self, position: u64, name: &'static str, write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>) {
        let number = self.last.filter(|last| last.record == position).map_or(0, |last| last.number);
        let id = EventId { record: position, number: number.saturating_add(1) };
        self.text.clear();
        // Events have string keys, and nothing in them fails to be serialized.
        let written = write(&mut self.text).is_ok();
        let body = std::str::from_utf8(&self.text).ok().filter(|_| written).unwrap_or_default();
        self.new.push(StoryEvent { id, name, body: body.into() });
        (self.last, self.has_end) = (Some(id), false);
    }

    /// Adds the events among `commands`, which follow from the record at `position`. `at_ms` is its time in milliseconds
    /// since 1970.
    fn emit(&mut self, position: u64, at_ms: i64, commands: Vec<Command>, rows: &[StepRow]) {
        let mut times = std::mem::take(&mut self.times);
        for command in commands {
            let Command::Emit(event) = command else { continue };
            let seq = match (&event, &mut self.stages) {
                (Event::Stage { .. }, Some(stages)) => {
                    *stages += 1;
                    Some(*stages)
                }
                (_, Some(_)) => continue,
                (_, None) => None,
            };
            let at = Some(times.text(at_ms));
            let published = Published { event: &event, rows, seq, at };
            self.push(position, name_of(&event), |text| published.write(text));
        }
        self.times = times;
    }
}

/// The time of the last event as text: those of the same second are formatted once.
#[derive(Debug, Default)]
struct Times {
    ms: i64,
    text: String,
}

impl Times {
    /// A time in milliseconds since 1970, as RFC 3339.
    fn text(&mut self, ms: i64) -> &str {
        // The end of the text: the milliseconds and `Z`.
        const END: usize = 4;
        let second = |ms: i64| ms.div_euclid(1_000);
        let is_near = second(ms) == second(self.ms);
        match self.text.len().checked_sub(END) {
            Some(_) if ms == self.ms => {}
            Some(end) if is_near => {
                self.text.truncate(end);
                // Writing to a string cannot fail.
                let _ = write!(self.text, "{:03}Z", ms.rem_euclid(1_000));
            }
            _ => self.text = rfc3339(ms),
        }
        self.ms = ms;
        &self.text
    }
}

/// The events of one run, read page by page. It keeps the state of the run, and neither records nor events.
#[derive(Debug)]
pub struct Story {
    plan: Plan,
    app: PathBuf,
    blobs: Arc<dyn BlobStore>,
    run: NewRun,
    row: RunRow,
    replay: Option<Replay>,
    scribe: Scribe,
    /// The position of the last read record; 0 before the first.
    position: u64,
    /// Time of that record, or of the last one before it that has a time, in milliseconds since the run began.
    after_ms: u64,
    is_at_end: bool,
    /// Number of records to read next: fewer if the last ones were large.
    page: u32,
}

impl Story {
    /// The story of a run before its first record. `plan` is the run's own definition, `app` the directory of its app.
    pub fn new(engine: &dyn Engine, outline: RunView, plan: Plan, app: PathBuf) -> Self {
        let stages = Target::parse(&outline.row.target).machine().map(|_| 0);
        Self {
            plan,
            app,
            blobs: engine.blobs(),
            run: outline.run,
            row: outline.row,
            replay: None,
            scribe: Scribe { stages, ..Scribe::default() },
            position: 0,
            after_ms: 0,
            is_at_end: false,
            page: PAGE,
        }
    }

    /// True if no further event will come, unless the run is continued.
    pub const fn is_over(&self) -> bool {
        self.scribe.has_end && self.row.state.is_final()
    }

    /// True if the last read reached the end of the journal.
    pub const fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// The events of the next records, oldest first. The list may be empty although the journal has more.
    ///
    /// # Errors
    /// The journal fails or is damaged.
    pub fn read(&mut self, engine: &dyn Engine) -> Result<Vec<StoryEvent>, Error> {
        // The row is read first: once the run is over, the records that are there are complete.
        self.row = engine.row(&self.run.id)?;
        let mut new = engine.tail(&self.run.id, self.position, self.page)?;
        let count = fitting(&new);
        self.is_at_end = new.len() < self.page as usize && count == new.len();
        self.page = if count < new.len() { count as u32 } else { self.page.saturating_mul(2).min(PAGE) };
        new.truncate(count);
        while !new.is_empty() {
            let of_attempt = new.iter().skip(1).take_while(|new| !is_continuation(&new.record)).count();
            let rest = new.split_off(1 + of_attempt);
            self.take(engine, std::mem::replace(&mut new, rest))?;
        }
        if self.is_at_end && self.row.state.is_final() && !self.scribe.has_end {
            self.end(self.row.state.word());
        }
        Ok(std::mem::take(&mut self.scribe.new))
    }

    /// Takes records of the current attempt, or the first ones of another.
    fn take(&mut self, engine: &dyn Engine, new: Vec<Positioned>) -> Result<(), Error> {
        let damaged = |why| Error::Damaged { path: "journal".to_owned(), why };
        let is_first = self.replay.is_none();
        let is_further = new.first().is_some_and(|first| is_continuation(&first.record));
        let mut records = if is_further { self.further(engine)? } else { Vec::new() };
        let mut written = Vec::with_capacity(new.len());
        for Positioned { position, record } in new {
            self.position = position;
            self.after_ms = record::at_ms(&record).unwrap_or(self.after_ms);
            written.push((position, self.after_ms));
            records.push(record);
        }
        match &mut self.replay {
            Some(replay) if !is_further => records.into_iter().for_each(|record| replay.push(record)),
            replay => {
                let (began, commands) =
                    Replay::for_events(&self.run, records, &self.plan, &self.app, Arc::clone(&self.blobs))
                        .map_err(damaged)?;
                let began = replay.insert(began);
                let (position, after_ms) = written.first().copied().unwrap_or_default();
                let position = if is_first { 0 } else { position };
                self.scribe.emit(position, time(&self.row, after_ms), commands, began.machine().rows());
            }
        }
        self.feed(&written).map_err(damaged)
    }

    /// Ends the current attempt, which another one follows. Returns its records so far.
    fn further(&mut self, engine: &dyn Engine) -> Result<Vec<Record>, Error> {
        if !self.scribe.has_end {
            let result = self.replay.as_ref().and_then(|replay| replay.machine().result());
            self.end(result.map_or("cancelled", |result| result.status.word()));
        }
        self.scribe.has_end = false;
        let (mut records, mut after) = (Vec::new(), 0);
        while after < self.position {
            let page = engine.tail(&self.run.id, after, PAGE)?;
            let Some(last) = page.last() else { break };
            after = last.position;
            records.extend(page.into_iter().filter(|it| it.position <= self.position).map(|it| it.record));
        }
        Ok(records)
    }

    /// Feeds the remaining records of the replay. Its last records are `written`: positions and times. Events of the
    /// records before them were emitted by an earlier attempt.
    fn feed(&mut self, written: &[(u64, u64)]) -> Result<(), String> {
        let Some(replay) = &mut self.replay else { return Ok(()) };
        loop {
            let (earlier, current) = replay.left();
            let Some((_, commands)) = replay.advance()? else { return Ok(()) };
            let is_earlier = replay.left().0 < earlier;
            if let Some(at) = written.len().checked_sub(current).filter(|_| !is_earlier) {
                let (position, after_ms) = written[at];
                self.scribe.emit(position, time(&self.row, after_ms), commands, replay.machine().rows());
            }
        }
    }

    /// Adds the last event of an attempt.
    fn end(&mut self, status: &str) {
        let at = rfc3339(time(&self.row, self.after_ms));
        let body = json!({"event": "ended", "run_id": self.row.id, "status": status, "at": at});
        self.scribe.push(self.position, "ended", |text| serde_json::to_writer(text, &body));
        self.scribe.has_end = true;
    }
}

/// Number of these records that make a page: at least one, and none after [`PAGE_BYTES`].
fn fitting(records: &[Positioned]) -> usize {
    let mut size = 0;
    let fits = |it: &&Positioned| {
        let has_room = size < PAGE_BYTES;
        size += it.record.body.len();
        has_room
    };
    records.iter().take_while(fits).count()
}

/// The time of a record that was written `after_ms` milliseconds after the run began, in milliseconds since 1970.
fn time(row: &RunRow, after_ms: u64) -> i64 {
    row.started_at_ms.unwrap_or(row.created_at_ms).saturating_add_unsigned(after_ms)
}

/// True for a record that begins another attempt.
fn is_continuation(record: &Record) -> bool {
    [record::ATTEMPT, record::REOPENED].contains(&record.key.as_str())
}

/// A page of a story as a document: at most `limit` of these events.
pub fn page<'e>(mut events: impl Iterator<Item = &'e StoryEvent>, limit: usize) -> Value {
    let mut last = None;
    let mut shown = Vec::new();
    for event in events.by_ref().take(limit) {
        let mut body: Value = serde_json::from_str(&event.body).unwrap_or_default();
        body["id"] = event.id.to_string().into();
        shown.push(body);
        last = Some(event.id);
    }
    let next = last.filter(|_| events.next().is_some()).map(|last| last.to_string());
    json!({"events": shown, "next": next})
}

#[cfg(test)]
mod tests {
    use etude_core::digest::Digest;

    use super::*;

    /// Times that follow each other have the text of any time.
    #[test]
    fn times_of_one_second_are_like_all_others() {
        let mut times = Times::default();
        let around = [0, 1, -1, -1_000, -999, 999, 1_000, 1_000, i64::MAX, 5, 6, 1_700_000_000_123, 1_700_000_000_007];
        for ms in around {
            assert_eq!(times.text(ms), rfc3339(ms), "{ms}");
        }
    }

    /// S-73: a page has few large records, so that a stalled reader keeps few events.
    #[test]
    fn a_page_ends_after_some_bytes() {
        let of = |sizes: &[usize]| {
            let record = |(at, size): (usize, &usize)| {
                let (key, request) = ("p/s".to_owned(), Digest::of(b""));
                let record = Record { key, request, body: "x".repeat(*size), blobs: Vec::new() };
                Positioned { position: at as u64 + 1, record }
            };
            fitting(&sizes.iter().enumerate().map(record).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[10; 250]), 250);
        assert_eq!(of(&[4 * PAGE_BYTES, 1]), 1);
        assert_eq!(of(&[PAGE_BYTES / 4; 250]), 4);
    }
}

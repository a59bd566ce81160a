//! Notices: signed messages to other programs about runs and schedules.

mod collect;
mod deliver;
mod reach;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etude_runtime::engine::{Entry, EntryQuery, Expected, Write};
use etude_spec::automation::{Automation, Notice};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::blocking::blocking;
use crate::context::Context;
use crate::ledger::{Ledger, book};
use crate::metrics::Metrics;
use crate::problem::{Problem, engine_failed};
use crate::settings::ServedApp;

pub(crate) use collect::{Skipped, report_before, skipped};

/// Maximum time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// The notices of the served apps.
pub(crate) struct Notices {
    context: Arc<Context>,
    ledger: Arc<Ledger>,
    metrics: Arc<Metrics>,
    /// The cached place of each notice, by app directory and name.
    places: Mutex<BTreeMap<(PathBuf, String), Place>>,
}

impl Notices {
    /// The notices of the apps of `context`.
    pub(crate) fn new(context: &Arc<Context>, ledger: &Arc<Ledger>, metrics: &Arc<Metrics>) -> Self {
        let (context, ledger, metrics) = (Arc::clone(context), Arc::clone(ledger), Arc::clone(metrics));
        Self { context, ledger, metrics, places: Mutex::default() }
    }
}

/// The position of a notice in the changes of runs.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The number of the last processed change.
    change: u64,
    /// The number that the journal has stored.
    kept: u64,
    /// The time at which the notice was first seen, in milliseconds since 1970.
    since_ms: i64,
}

/// A notice of a served app.
#[derive(Debug, Clone)]
struct Found {
    app: ServedApp,
    automation: Arc<Automation>,
    index: usize,
}

impl Found {
    fn notice(&self) -> &Notice {
        &self.automation.notices[self.index]
    }

    /// The book of the notice's deliveries.
    fn book(&self) -> String {
        book::notice(&self.app, &self.notice().name)
    }
}

/// Reports changes and sends notices until the server stops. `news` changes with the journal.
pub(crate) async fn work(notices: Arc<Notices>, mut news: watch::Receiver<u64>) {
    let mut stopping = notices.context.stopping();
    while !notices.context.is_draining() {
        let of = Arc::clone(&notices);
        // Requests report a failing journal, and the next look may reach it again.
        let _ = blocking(move || {
            look(&of);
            Ok(())
        })
        .await;
        tokio::select! {
            _ = news.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

/// Looks at all notices once. A fault of one does not stop the others.
fn look(notices: &Arc<Notices>) {
    for (app, automation) in notices.context.automations() {
        for index in 0..automation.notices.len() {
            let found = Found { app: app.clone(), automation: Arc::clone(&automation), index };
            if found.notice().broken.is_empty() {
                // After a fault, the next look begins with the contents of the journal.
                let _ = collect::collect(notices, &found).and_then(|()| deliver::deliver(notices, &found));
            }
        }
    }
}

/// The place of a notice. A notice that is seen for the first time reports only changes from now on.
fn place(notices: &Notices, found: &Found) -> Result<Place, Problem> {
    if let Some(place) = known_place(notices, found)? {
        return Ok(place);
    }
    let change = notices.context.engine().last_change().map_err(|e| engine_failed(&e))?;
    let place = Place { change, kept: change, since_ms: notices.context.clock().now_ms() };
    write_place(notices, found, place)?;
    remember(notices, found, place);
    Ok(place)
}

/// The same; `None` for a notice that no server has seen yet.
fn known_place(notices: &Notices, found: &Found) -> Result<Option<Place>, Problem> {
    let memory = (found.app.dir.clone(), found.notice().name.clone());
    let remembered = notices.places.lock().unwrap_or_else(PoisonError::into_inner).get(&memory).copied();
    if remembered.is_some() {
        return Ok(remembered);
    }
    let key = Some(found.notice().name.clone());
    let query = EntryQuery { book: book::notices(&found.app), key, ..EntryQuery::default() };
    let Some(entry) = notices.ledger.entries(&query)?.pop() else { return Ok(None) };
    let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
    let change = body["change"].as_u64().unwrap_or_default();
    let place = Place { change, kept: change, since_ms: entry.at_ms };
    remember(notices, found, place);
    Ok(Some(place))
}

fn remember(notices: &Notices, found: &Found, place: Place) {
    let memory = (found.app.dir.clone(), found.notice().name.clone());
    notices.places.lock().unwrap_or_else(PoisonError::into_inner).insert(memory, place);
}

fn write_place(notices: &Notices, found: &Found, place: Place) -> Result<(), Problem> {
    let entry = Entry {
        book: book::notices(&found.app),
        key: found.notice().name.clone(),
        at_ms: place.since_ms,
        state: "active".to_owned(),
        body: json!({"change": place.kept}).to_string(),
        ..Entry::default()
    };
    let write = Write { entry, expected: Expected::Anything, submission: None, is_alone: false };
    notices.ledger.write(&write).map(drop)
}

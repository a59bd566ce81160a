//! Notices: signed messages to other programs about runs and schedules.

mod collect;
mod deliver;
mod reach;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etude::clock::rfc3339;
use etude_runtime::engine::{Entry, EntryQuery, Expected, Write};
use etude_spec::automation::{Automation, Notice};
use http::StatusCode;
use serde_json::{Value, json};

use crate::automation::broken;
use crate::blocking::blocking;
use crate::ledger::{Page, book};
use crate::problem::{Problem, engine_failed};
use crate::request::{Call, Respond};
use crate::response::json_response;
use crate::server::Server;
use crate::settings::ServedApp;

pub(crate) use collect::{Skipped, report_before, skipped};

/// The longest time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// What the server remembers of notices between two looks.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    places: Mutex<BTreeMap<(PathBuf, String), Place>>,
}

/// How far the changes of runs have been reported.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The number of the last change that was seen.
    change: u64,
    /// The number that the journal has.
    kept: u64,
    /// When the notice was first seen, in milliseconds since 1970.
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

    /// The book of what it sends.
    fn book(&self) -> String {
        book::notice(&self.app, &self.notice().name)
    }
}

/// Reports changes and sends notices until the server stops.
pub(crate) async fn work(server: Arc<Server>) {
    let mut stopping = server.context().stopping();
    let mut news = server.stories().news_of_journal();
    while !server.context().is_draining() {
        let of = Arc::clone(&server);
        // A journal that fails is reported by requests, and the next look may find it again.
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

/// One look at all notices. A fault of one does not stop the others.
fn look(server: &Arc<Server>) {
    for app in &server.settings().apps {
        let Ok(automation) = server.context().automation(app) else { continue };
        for index in 0..automation.notices.len() {
            let found = Found { app: app.clone(), automation: Arc::clone(&automation), index };
            if found.notice().broken.is_empty() {
                // The next look begins with what is in the journal.
                let _ = collect::collect(server, &found).and_then(|()| deliver::deliver(server, &found));
            }
        }
    }
}

/// Where the reports of a notice stand. One that is seen for the first time reports what comes from now on.
fn place(server: &Server, found: &Found) -> Result<Place, Problem> {
    if let Some(place) = known_place(server, found)? {
        return Ok(place);
    }
    let change = server.engine().last_change().map_err(|e| engine_failed(&e))?;
    let place = Place { change, kept: change, since_ms: server.clock().now_ms() };
    write_place(server, found, place)?;
    remember(server, found, place);
    Ok(place)
}

/// The same; `None` of a notice that no server has seen yet.
fn known_place(server: &Server, found: &Found) -> Result<Option<Place>, Problem> {
    let memory = (found.app.dir.clone(), found.notice().name.clone());
    let remembered = server.notices().places.lock().unwrap_or_else(PoisonError::into_inner).get(&memory).copied();
    if remembered.is_some() {
        return Ok(remembered);
    }
    let key = Some(found.notice().name.clone());
    let query = EntryQuery { book: book::notices(&found.app), key, ..EntryQuery::default() };
    let Some(entry) = server.ledger().entries(&query)?.pop() else { return Ok(None) };
    let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
    let change = body["change"].as_u64().unwrap_or_default();
    let place = Place { change, kept: change, since_ms: entry.at_ms };
    remember(server, found, place);
    Ok(Some(place))
}

fn remember(server: &Server, found: &Found, place: Place) {
    let memory = (found.app.dir.clone(), found.notice().name.clone());
    server.notices().places.lock().unwrap_or_else(PoisonError::into_inner).insert(memory, place);
}

fn write_place(server: &Server, found: &Found, place: Place) -> Result<(), Problem> {
    let entry = Entry {
        book: book::notices(&found.app),
        key: found.notice().name.clone(),
        at_ms: place.since_ms,
        state: "active".to_owned(),
        body: json!({"change": place.kept}).to_string(),
        ..Entry::default()
    };
    let write = Write { entry, expected: Expected::Anything, submission: None, is_alone: false };
    server.ledger().write(&write).map(drop)
}

/// `GET /v1/notices`.
pub(crate) async fn list(call: Call) -> Respond {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let documents = blocking(move || {
        let mut documents = Vec::new();
        // A notice reports targets that a token with `--only` may not see.
        for app in server.settings().apps.iter().filter(|_| caller.only.is_empty()) {
            documents.extend(server.context().automation(app)?.notices.iter().map(|notice| document(app, notice)));
        }
        Ok(documents)
    });
    Ok(json_response(StatusCode::OK, &json!({"notices": documents.await?})))
}

fn document(app: &ServedApp, notice: &Notice) -> Value {
    // The path of a receiver may be a secret.
    let receiver = match url::Url::parse(&notice.url) {
        Ok(url) if url.has_host() => url.origin().ascii_serialization(),
        _ => notice.url.clone(),
    };
    json!({
        "app": app.slug, "name": notice.name, "receiver": receiver, "on": notice.on, "pipelines": notice.pipelines,
        "allow_private": notice.allows_private, "broken": broken(&notice.broken),
    })
}

/// `GET /v1/notices/{app}/{name}/deliveries`.
pub(crate) async fn deliveries(call: Call) -> Respond {
    let (server, caller, page) = (Arc::clone(&call.server), call.caller()?.clone(), Page::of(&call.query)?);
    let (slug, name) = (call.param("app").to_owned(), call.param("name").to_owned());
    let document = blocking(move || {
        let unknown = || Problem::not_found("there is no such notice");
        let app = server.context().app(&slug).cloned().ok_or_else(unknown)?;
        let automation = server.context().automation(&app)?;
        // A notice reports targets that a token with `--only` may not see.
        if !automation.notices.iter().any(|notice| notice.name == name) || !caller.only.is_empty() {
            return Err(unknown());
        }
        let (entries, next) = page.read(server.ledger(), book::notice(&app, &name))?;
        let documents: Vec<Value> = entries.iter().map(delivery).collect();
        Ok(json!({"deliveries": documents, "next": next}))
    });
    Ok(json_response(StatusCode::OK, &document.await?))
}

fn delivery(entry: &Entry) -> Value {
    let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
    json!({
        "delivery_id": entry.key, "at": rfc3339(entry.at_ms), "type": body["payload"]["type"],
        "run_id": entry.run_id, "state": entry.state, "attempts": body["attempts"],
    })
}

/// `POST /v1/notices/{app}/{name}/deliveries/{delivery}/again`: makes a notice that was set aside due at once.
pub(crate) async fn again(call: Call) -> Respond {
    call.json(&[]).await?;
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let (slug, name, delivery_id) =
        (call.param("app").to_owned(), call.param("name").to_owned(), call.param("delivery").to_owned());
    let document = blocking(move || {
        let unknown = || Problem::not_found("there is no such notice that was set aside");
        let app = server.context().app(&slug).filter(|_| caller.only.is_empty()).ok_or_else(unknown)?;
        let (book, key) = (book::notice(app, &name), Some(delivery_id));
        let query = EntryQuery { book, key, state: Some("failed".to_owned()), ..EntryQuery::default() };
        let failed = server.ledger().entries(&query)?.pop().ok_or_else(unknown)?;
        let expected = Expected::Entry { state: failed.state.clone(), due_ms: failed.due_ms };
        let entry = Entry { state: "pending".to_owned(), due_ms: Some(server.clock().now_ms()), ..failed };
        let document = delivery(&entry);
        server.ledger().write(&Write { entry, expected, submission: None, is_alone: false })?;
        Ok(document)
    });
    Ok(json_response(StatusCode::ACCEPTED, &document.await?))
}

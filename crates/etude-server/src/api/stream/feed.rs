//! Streams of all runs: the feed of their changes, and the news for pages.

use std::sync::Arc;

use axum::body::Bytes;

use super::{Permit, Pieces, Waiting, Wake, form, permit, stream};
use crate::blocking::blocking;
use crate::problem::{Problem, engine_failed};
use crate::query::invalid;
use crate::request::{Call, Respond};
use crate::token::Caller;

/// `GET /live`: reports that the journal has changed. It carries no content, because pages then read their own routes again.
pub(crate) async fn live(call: Call) -> Respond {
    form(&call.headers, false)?;
    let permit = permit(&call.server, call.caller()?)?;
    let waiting = Waiting::of_journal(&call.server);
    Ok(stream(Live { permit, waiting, is_new: true }))
}

struct Live {
    permit: Permit,
    waiting: Waiting,
    /// True before the first piece.
    is_new: bool,
}

impl Pieces for Live {
    fn permit(&mut self) -> &mut Permit {
        &mut self.permit
    }

    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::take(&mut self.is_new)
            && let Wake::Send(text) = self.waiting.next(&self.permit).await?
        {
            return Some(text);
        }
        Some(Bytes::from_static(b"event: news\ndata: {}\n\n"))
    }
}

/// `GET /v1/events`: the runs whose state changes.
pub(crate) async fn feed(call: Call) -> Respond {
    form(&call.headers, false)?;
    let unknown = || invalid("Last-Event-ID", "`Last-Event-ID` must be the id of an event of this feed");
    let header = call.headers.get("last-event-id").map(|value| value.to_str().unwrap_or_default());
    let after = header.map(|text| text.parse::<u64>().map_err(|_| unknown())).transpose()?;
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let engine = Arc::clone(server.engine());
    let begin = blocking(move || {
        let begin = match after {
            None => engine.last_change().map(Some),
            // The run of this id may be deleted by now.
            Some(after) => engine.may_be_past(after).map(|is_past| is_past.then_some(after)),
        };
        begin.map_err(|e| engine_failed(&e))
    });
    let after = begin.await?.ok_or_else(unknown)?;
    let permit = permit(&server, &caller)?;
    let waiting = Waiting::of_journal(&server);
    Ok(stream(Feed { permit, caller, after, has_more: true, waiting }))
}

struct Feed {
    permit: Permit,
    caller: Caller,
    /// The last change that was sent.
    after: u64,
    /// The journal may have changes after it.
    has_more: bool,
    waiting: Waiting,
}

impl Feed {
    /// The next page of changes as text, empty if the caller may see none of them.
    async fn page(&mut self) -> Result<String, Problem> {
        const PAGE: u32 = 100;
        let (server, caller, after) = (Arc::clone(&self.permit.server), self.caller.clone(), self.after);
        let page = blocking(move || {
            let rows = server.engine().changes(after, PAGE).map_err(|e| engine_failed(&e))?;
            let last = rows.last().map_or(after, |row| row.change);
            let mut text = String::new();
            for row in rows.iter().filter(|row| server.context().shows(&caller, row)) {
                // The run may be deleted by now.
                let Ok(document) = server.runs().row_text(row) else { continue };
                text.push_str(&format!("id: {}\nevent: run\ndata: {document}\n\n", row.change));
            }
            Ok((text, last, rows.len() == PAGE as usize))
        });
        let text;
        (text, self.after, self.has_more) = page.await?;
        Ok(text)
    }
}

impl Pieces for Feed {
    fn permit(&mut self) -> &mut Permit {
        &mut self.permit
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.has_more {
                let text = self.page().await.ok()?;
                if !text.is_empty() {
                    return Some(text.into());
                }
            } else if let Wake::Send(text) = self.waiting.next(&self.permit).await? {
                return Some(text);
            } else {
                self.has_more = true;
            }
        }
    }
}

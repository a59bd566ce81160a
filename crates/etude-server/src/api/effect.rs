//! The bytes of effects: inputs and outputs of processes, models and tools.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use etude_core::tree;
use etude_runs::inspect::{self, Bytes, Stream};
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::{Value, json};

use crate::blocking::blocking;
use crate::problem::{Code, Problem};
use crate::query::invalid;
use crate::request::{Call, Respond};
use crate::response::{not_modified, tag_of, tagged, text_response};
use crate::tree::Described;

/// Bytes of a stream in memory at once.
const PIECE: u64 = 256 * 1024;

fn no_stream() -> Problem {
    Problem::not_found("the run has no such effect, or the effect has no such stream")
}

/// The result of `choose` on the effects of a run that the caller may see. They are in the order in which they ended.
async fn documents<T: Send + 'static>(
    call: &Call,
    choose: impl FnOnce(Vec<Described<'_>>) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let readings = call.readings.clone();
    let chosen = blocking(move || {
        server.context().visible(&caller, &id)?;
        let reading = readings.of(server.context(), &id)?;
        choose(reading.tree(server.context(), server.stories()).effects())
    });
    chosen.await
}

fn document_of(effect: &Described<'_>) -> Value {
    let Described { effect, node, place } = effect;
    let streams: Vec<&str> = effect.streams.iter().map(|stream| stream.word()).collect();
    json!({
        "id": effect.id, "node": node, "place": place, "summary": effect.summary, "failed": effect.is_failed,
        "stopped": effect.is_stopped, "done_again": effect.is_done_again, "streams": streams,
    })
}

/// `GET /v1/runs/{id}/effects`: all effects, or those of a node of the tree.
pub(crate) async fn list(call: Call) -> Respond {
    let limit = usize::try_from(call.query.number("limit", 1, 200, 100)?).unwrap_or(100);
    let (node, after) = (call.query.get("node").map(str::to_owned), call.query.get("after").map(str::to_owned));
    let chosen = documents(&call, move |mut effects| {
        if let Some(node) = &node {
            let is_below = |id: &str| {
                id.strip_prefix(node.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[', '#']))
            };
            effects.retain(|effect| effect.node.as_deref().is_some_and(is_below));
        }
        let from = match after {
            None => 0,
            Some(after) => {
                let found = position(&effects, &after);
                found.ok_or_else(|| invalid("after", "`after` must be the `next` of a page"))? + 1
            }
        };
        let shown: Vec<Value> = effects.iter().skip(from).take(limit).map(document_of).collect();
        let has_more = effects.len() > from + limit;
        let next = has_more.then(|| cursor(&effects, from + limit - 1));
        Ok(json!({"effects": shown, "next": next}))
    });
    Ok(tagged(&call.headers, chosen.await?.to_string()))
}

/// The cursor of the effect at `at`: its id. An effect that was done again has several entries; the number of earlier ones
/// stands before the id.
fn cursor(effects: &[Described<'_>], at: usize) -> String {
    let id = &effects[at].effect.id;
    match effects[..at].iter().filter(|effect| effect.effect.id == *id).count() {
        0 => id.clone(),
        earlier => format!("{earlier}:{id}"),
    }
}

/// The place of the effect that a [`cursor`] names.
fn position(effects: &[Described<'_>], cursor: &str) -> Option<usize> {
    let counted = cursor.split_once(':').and_then(|(earlier, id)| Some((earlier.parse().ok()?, id)));
    let (earlier, id) = counted.unwrap_or((0, cursor));
    let mut same = (0..effects.len()).filter(|at| effects[*at].effect.id == id);
    same.nth(earlier)
}

/// `GET /v1/runs/{id}/effects/{effect}`.
pub(crate) async fn show(call: Call) -> Respond {
    let wanted = call.param("effect").to_owned();
    let chosen = documents(&call, move |effects| {
        let found = effects.iter().rev().find(|effect| effect.effect.id == wanted);
        found.map(document_of).ok_or_else(|| Problem::not_found("the run has no such effect"))
    });
    Ok(tagged(&call.headers, chosen.await?.to_string()))
}

/// `GET /v1/runs/{id}/effects/{effect}/{stream}`.
pub(crate) async fn stream(call: Call) -> Respond {
    let tail = call.query.get("tail").map(|_| call.query.number("tail", 1, u64::MAX, 0)).transpose()?;
    let (server, caller, headers) = (Arc::clone(&call.server), call.caller()?.clone(), call.headers.clone());
    let (id, effect) = (call.param("id").to_owned(), call.param("effect").to_owned());
    let (word, readings) = (call.param("stream").to_owned(), call.readings.clone());
    let response = blocking(move || {
        server.context().visible(&caller, &id)?;
        let (engine, damaged) = (server.engine(), |why| Problem::new(Code::JournalUnavailable, why));
        let reading = readings.of(server.context(), &id)?;
        let view = &reading.view;
        let read = |stream| inspect::bytes(view, &effect, stream, &*engine.blobs()).map_err(damaged);
        let stdin = || {
            let definition = reading.definition(server.context()).ok_or_else(no_stream)?;
            let stdin =
                inspect::stdin(view, &definition.plan, &definition.app, &effect, &engine.blobs()).map_err(damaged)?;
            Ok(stdin.map(Bytes::from))
        };
        let found = match word.as_str() {
            "input" => match stdin()? {
                None => read(Stream::Prompt)?,
                found => found,
            },
            "output" => {
                let streams = [Stream::Stdout, Stream::Result, Stream::ModelResponse];
                streams.into_iter().find_map(|stream| read(stream).transpose()).transpose()?
            }
            word => match Stream::from_word(word).ok_or_else(no_stream)? {
                Stream::Stdin => stdin()?,
                stream => read(stream)?,
            },
        };
        let bytes = found.ok_or_else(no_stream)?;
        let tag = tag_of(bytes.digest());
        if let Some(response) = not_modified(&headers, &tag) {
            return Ok(response);
        }
        if ["input", "output"].contains(&word.as_str()) {
            if bytes.len() > MAX_DOCUMENT {
                let detail = format!("`{word}` has {} bytes; a document has at most {MAX_DOCUMENT}", bytes.len());
                let hint = "read `stdin`, `stdout`, `answer` or `result` with `Range`";
                return Err(Problem::new(Code::TooLarge, detail).hint(hint));
            }
            let mut response = document(&bytes).map_err(damaged)?;
            response.headers_mut().insert(ETAG, tag);
            return Ok(response);
        }
        Wanted { tail, ..Wanted::of(&headers, &tag) }.respond(bytes, tag)
    });
    response.await
}

/// Maximum size of an input or output that is sent as a document, in bytes. Longer ones are read as streams, by ranges.
const MAX_DOCUMENT: u64 = 16 * 1024 * 1024;

/// Bytes as a JSON document. Other text becomes a JSON string.
fn document(bytes: &Bytes) -> Result<Response, String> {
    let bytes = bytes.read(0, bytes.len())?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let document = if tree::is_json(&text) { text } else { Value::from(text).to_string() };
    Ok(text_response(StatusCode::OK, document))
}

/// The requested part of a stream.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    range: Option<(Option<u64>, Option<u64>)>,
    tail: Option<u64>,
}

impl Wanted {
    /// The part in the header `Range`. If `If-Range` has another tag than `tag`, all bytes are sent.
    pub(crate) fn of(headers: &HeaderMap, tag: &HeaderValue) -> Self {
        let is_of_these = headers.get(IF_RANGE).is_none_or(|given| given == tag);
        let range = headers.get(RANGE).filter(|_| is_of_these);
        Self { range: range.and_then(|value| parse_range(value.to_str().ok()?)), tail: None }
    }

    /// The byte range within `total` bytes: the first byte, and the one after the last.
    fn span(self, total: u64) -> Result<(u64, u64), Problem> {
        match (self.tail, self.range) {
            (Some(tail), _) => Ok((total.saturating_sub(tail), total)),
            (None, Some(range)) => resolve(range, total).ok_or_else(|| Problem::outside_of(total)),
            (None, None) => Ok((0, total)),
        }
    }

    /// The response with the requested part of `bytes`, which have this `ETag`.
    pub(crate) fn respond(self, bytes: Bytes, tag: HeaderValue) -> Respond {
        let total = bytes.len();
        let (from, to) = self.span(total)?;
        let mut response = Response::new(body(bytes, from, to));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(ETAG, tag);
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(CONTENT_LENGTH, (to - from).into());
        if self.range.is_some() && self.tail.is_none() {
            let text = format!("bytes {from}-{}/{total}", to.saturating_sub(1));
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(CONTENT_RANGE, value);
            }
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        Ok(response)
    }
}

/// The bytes in pieces; each is read when the previous one is on its way. A read error ends the connection.
fn body(bytes: Bytes, from: u64, to: u64) -> Body {
    let pieces = futures_util::stream::try_unfold((bytes, from), move |(bytes, at)| async move {
        if at >= to {
            return Ok(None);
        }
        let next = at.saturating_add(PIECE).min(to);
        let read = move || (bytes.read(at, next), bytes);
        let (piece, bytes) = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?;
        let piece = piece.map_err(io::Error::other)?;
        Ok::<_, io::Error>(Some((Frame::data(piece.into()), (bytes, next))))
    });
    Body::new(StreamBody::new(pieces))
}

/// The first and last byte of a range; a suffix has no first one. `None` for anything else, which is ignored.
fn parse_range(text: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, range) = text.split_once('=')?;
    let (first, last) = range.split_once('-').filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        text if !text.bytes().all(|byte| byte.is_ascii_digit()) => None,
        // A number that does not fit is beyond the last byte.
        text => Some(Some(text.parse::<u64>().unwrap_or(u64::MAX))),
    };
    let range = (number(first)?, number(last)?);
    let is_range = match range {
        (None, None) => false,
        (Some(first), Some(last)) => first <= last,
        _ => true,
    };
    is_range.then_some(range)
}

fn resolve((first, last): (Option<u64>, Option<u64>), total: u64) -> Option<(u64, u64)> {
    let (from, to) = match (first, last) {
        (Some(first), last) => (first, last.map_or(total, |last| last.saturating_add(1).min(total))),
        (None, suffix) => (total.saturating_sub(suffix?), total),
    };
    (from < to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-59: ranges are those of RFC 9110; anything but a single range is ignored.
    #[test]
    fn ranges_are_first_last_and_suffix() {
        let part = |text: &str| parse_range(text).and_then(|range| resolve(range, 10));
        assert_eq!(part("bytes=0-3"), Some((0, 4)));
        assert_eq!(part("bytes=4-"), Some((4, 10)));
        assert_eq!(part("bytes=8-99"), Some((8, 10)));
        assert_eq!(part("bytes=-3"), Some((7, 10)));
        assert_eq!(part("bytes=-99"), Some((0, 10)));
        assert_eq!(part("Bytes=8-99999999999999999999"), Some((8, 10)));
        assert_eq!(part("bytes=-99999999999999999999"), Some((0, 10)));
        for refused in ["bytes=10-", "bytes=-0"] {
            assert_eq!(part(refused), None, "{refused}");
            assert!(parse_range(refused).is_some(), "{refused}");
        }
        for ignored in ["bytes=3-1", "bytes=a-b", "lines=0-1", "bytes=0-1,3-4", "bytes=-", "bytes=+1-3"] {
            assert_eq!(parse_range(ignored), None, "{ignored}");
        }
    }
}

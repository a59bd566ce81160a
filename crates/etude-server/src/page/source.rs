//! Access of pages to the API: requests to the server's own routes, with the rights of the reader.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use etude_core::digest::Digest;
use http::Request;
use http::header::{CONTENT_TYPE, RANGE};
use http_body_util::BodyExt;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::local::{Entered, local};
use crate::problem::{Code, Problem};
use crate::reading::Readings;
use crate::request::Call;
use crate::token::{encoded, random};

fn bug(detail: &'static str) -> Problem {
    Problem::new(Code::Bug, detail)
}

/// Sends a request to a route as the reader of the page. `readings` has the run that was read for this page.
async fn send(
    call: &Call,
    request: http::request::Builder,
    body: Body,
    readings: Readings,
) -> Result<Response, Problem> {
    let request = request.body(body).map_err(|_| bug("internal error: a page requests an invalid path"))?;
    let (server, router, caller) = (Arc::clone(&call.server), call.router.clone(), call.caller.clone());
    local(Entered { server, router, caller, peer: call.peer, cause: call.cause, readings }, request).await
}

async fn bytes(response: Response) -> Result<Vec<u8>, Problem> {
    let bytes = response.into_body().collect().await.map_err(|_| bug("a document ended early"))?;
    Ok(bytes.to_bytes().to_vec())
}

/// The text of the document at `path`.
pub(super) async fn text(call: &Call, path: &str) -> Result<String, Problem> {
    let response = send(call, Request::get(path), Body::empty(), call.readings.clone()).await?;
    String::from_utf8(bytes(response).await?).map_err(|_| bug("a document is not UTF-8"))
}

/// The document at `path`.
pub(super) async fn get(call: &Call, path: &str) -> Result<Value, Problem> {
    serde_json::from_str(&text(call, path).await?).map_err(|_| bug("a document is not JSON"))
}

/// The open questions, those that wait longest first. A page shows at most 1,000.
pub(super) async fn decisions(call: &Call) -> Result<Vec<Value>, Problem> {
    const MAX_SHOWN: usize = 1_000;
    let (mut open, mut path) = (Vec::new(), "/v1/decisions?limit=200".to_owned());
    loop {
        let mut page = get(call, &path).await?;
        open.append(page["decisions"].as_array_mut().ok_or_else(|| bug("internal error: a document has no list"))?);
        match page["next"].as_str() {
            Some(next) if open.len() < MAX_SHOWN => path = format!("/v1/decisions?limit=200&cursor={next}"),
            _ => return Ok(open),
        }
    }
}

/// The last actions of tokens that match a query, newest first.
pub(super) async fn actions(call: &Call, query: &str) -> Result<Vec<Value>, Problem> {
    let mut page = get(call, &format!("/v1/actions?{query}&limit=5")).await?;
    Ok(page["actions"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// The bytes from `from` to before `to`, at most, and the total number of bytes.
pub(super) async fn range(call: &Call, path: &str, from: u64, to: u64) -> Result<(Vec<u8>, u64), Problem> {
    let range = format!("bytes={from}-{}", to.saturating_sub(1).max(from));
    let response = match send(call, Request::get(path).header(RANGE, range), Body::empty(), call.readings.clone()).await
    {
        // The content ends before `from`.
        Err(problem) if problem.code() == Code::RangeNotSatisfiable => {
            let total = if from == 0 { 0 } else { Box::pin(self::range(call, path, 0, 1)).await?.1 };
            return Ok((Vec::new(), total));
        }
        response => response?,
    };
    let total =
        response.headers().get("content-range").and_then(|value| value.to_str().ok()?.rsplit_once('/')?.1.parse().ok());
    let bytes = bytes(response).await?;
    let total = total.unwrap_or(bytes.len() as u64);
    Ok((bytes, total))
}

/// The hidden field with which a second click repeats the same request.
pub(super) fn once() -> Markup {
    html! { input type="hidden" name=(ONCE) value=(encoded(&random())); }
}

/// The name of the hidden field of [`once`].
pub(super) const ONCE: &str = "key";

/// The idempotency key of a form: a changed form is another request.
fn key(form: &[(String, String)], path: &str, body: &str) -> Option<String> {
    let (_, once) = form.iter().find(|(name, value)| name == ONCE && !value.is_empty())?;
    Some(format!("page {}", Digest::of(json!([once, path, body]).to_string().as_bytes())))
}

/// Sends the request of a form, and returns the document of the response.
pub(super) async fn post(call: &Call, form: &[(String, String)], path: &str, body: &Value) -> Result<Value, Problem> {
    act(call, form, path, body.to_string()).await
}

/// The same with a body that is serialized already.
pub(super) async fn act(call: &Call, form: &[(String, String)], path: &str, body: String) -> Result<Value, Problem> {
    let request = Request::post(path).header(CONTENT_TYPE, "application/json");
    let request = match key(form, path, &body) {
        Some(key) => request.header("idempotency-key", key),
        None => request,
    };
    let response = send(call, request, Body::from(body), Readings::default()).await?;
    Ok(serde_json::from_slice(&bytes(response).await?).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same form has the same key; a changed form has another one.
    #[test]
    fn a_form_has_one_key() {
        let text = once().into_string();
        assert_ne!(text, once().into_string());
        let form = |once: &str| [("from".to_owned(), "x".to_owned()), (ONCE.to_owned(), once.to_owned())];
        let of = |once: &str, body: &str| key(&form(once), "/v1/runs", body);
        assert_eq!(of("a", "{}"), of("a", "{}"));
        assert_ne!(of("a", "{}"), of("a", "{\"x\":1}"));
        assert_ne!(of("a", "{}"), of("b", "{}"));
        assert_eq!((of("", "{}"), key(&[], "/v1/runs", "{}")), (None, None));
    }
}

//! Responses with documents.

use axum::body::{Body, Bytes};
use axum::response::Response;
use etude_core::digest::Digest;
use http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

pub(crate) fn json_response(status: StatusCode, document: &Value) -> Response {
    text_response(status, document.to_string())
}

/// A response with a serialized JSON document.
pub(crate) fn text_response(status: StatusCode, document: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(document.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The text of the object `document` with one more member, whose text is `value`: it keeps all its digits (S-33).
pub(crate) fn spliced(document: &Value, name: &str, value: &str) -> String {
    let mut text = document.to_string();
    text.pop();
    let comma = if text.len() > 1 { "," } else { "" };
    text.push_str(&format!("{comma}{}:{value}}}", Value::from(name)));
    text
}

/// The `ETag` of a document with this digest.
pub(crate) fn tag_of(document: Digest) -> HeaderValue {
    // Hexadecimal digits and quotes are valid in a header.
    let tag = HeaderValue::from_str(&format!("\"{}\"", &document.to_string()[..32]));
    tag.unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// The response 304 if the client has the document with this `ETag` (S-31); otherwise `None`.
pub(crate) fn not_modified(headers: &HeaderMap, tag: &HeaderValue) -> Option<Response> {
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known.flat_map(|value| value.split(',')).any(|given| {
        let given = given.trim();
        given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag
    });
    is_known.then(|| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response.headers_mut().insert(ETAG, tag.clone());
        response
    })
}

/// The text of a JSON document, with its `ETag`.
#[derive(Debug)]
pub(crate) struct Tagged {
    text: Bytes,
    tag: HeaderValue,
}

impl Tagged {
    pub(crate) fn new(document: String) -> Self {
        let tag = tag_of(Digest::of(document.as_bytes()));
        Self { text: document.into(), tag }
    }

    pub(crate) fn text(&self) -> &Bytes {
        &self.text
    }

    /// The response; 304 if the client has the document (S-31).
    pub(crate) fn response(&self, headers: &HeaderMap) -> Response {
        not_modified(headers, &self.tag).unwrap_or_else(|| {
            let mut response = text_response(StatusCode::OK, self.text.clone());
            response.headers_mut().insert(ETAG, self.tag.clone());
            response
        })
    }
}

/// The response with a document and its `ETag`; 304 if the client has it (S-31).
pub(crate) fn tagged(headers: &HeaderMap, document: String) -> Response {
    Tagged::new(document).response(headers)
}

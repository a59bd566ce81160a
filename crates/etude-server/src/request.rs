//! A request on its way to a handler: path, query, body and caller.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use etude_core::pointer::escaped;
use etude_runtime::engine::Cause;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use url::form_urlencoded;

use crate::body::{self, Part};
use crate::listen::Peer;
use crate::problem::{Code, Problem, malformed};
use crate::query::{Query, hinted};
use crate::reading::Readings;
use crate::server::Server;
use crate::token::Caller;

mod wire;

/// Maximum size of a form without a token, in bytes.
pub(crate) const FORM: usize = 16 * 1024;

/// The number below which an `f64` can represent every whole number: 2^53.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Result of a handler: the response, or the problem to send.
pub(crate) type Respond = Result<Response, Problem>;

/// The future that a handler returns.
pub(crate) type Responding = Pin<Box<dyn Future<Output = Respond> + Send>>;

/// A request that has passed all checks before its body.
pub(crate) struct Call {
    pub(crate) server: Arc<Server>,
    /// All routes, for requests that the handler makes itself.
    pub(crate) router: Router,
    pub(crate) caller: Option<Caller>,
    pub(crate) peer: Peer,
    /// The cause of a run that the request starts.
    pub(crate) cause: Cause,
    pub(crate) params: Vec<(String, String)>,
    /// The run that was read for the request.
    pub(crate) readings: Readings,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    /// Maximum size of the body, in bytes.
    pub(crate) limit: usize,
    pub(crate) body: Mutex<Option<Body>>,
    /// The room that the body takes until the call is over.
    pub(crate) taken: Mutex<Option<Part>>,
    /// True if an earlier request had the same idempotency key, and its response is unknown.
    pub(crate) is_repeated: bool,
}

impl Call {
    /// The value of a path parameter; empty if the route has none.
    pub(crate) fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The caller of a route that needs a token.
    pub(crate) fn caller(&self) -> Result<&Caller, Problem> {
        self.caller.as_ref().ok_or_else(|| Problem::new(Code::Unauthenticated, "the request has no token"))
    }

    /// The bytes of the body, at most as many as the route allows (S-26).
    pub(crate) async fn bytes(&self) -> Result<Vec<u8>, Problem> {
        let Some(body) = self.body.lock().await.take() else { return Ok(Vec::new()) };
        // Forms, such as a login, are small: the limit of connections bounds them.
        if self.caller.is_some() || self.limit <= FORM {
            return body::read(body, self.limit, None).await;
        }
        let address = self.peer.own_address(self.server.settings().is_behind_proxy);
        let mut part = self.server.room().part(address);
        let bytes = body::read(body, self.limit, Some(&mut part)).await?;
        *self.taken.lock().await = Some(part);
        Ok(bytes)
    }

    /// The members of a JSON body; all must be `known`. An empty body is `{}`.
    pub(crate) async fn json(&self, known: &[&str]) -> Result<Members, Problem> {
        Members::parse(self.bytes().await?, known)
    }

    /// The fields of a form, of any names.
    pub(crate) async fn fields(&self) -> Result<Vec<(String, String)>, Problem> {
        let bytes = self.bytes().await?;
        let fields = form_urlencoded::parse(&bytes).map(|(name, value)| (name.into_owned(), value.into_owned()));
        Ok(fields.collect())
    }

    /// The fields of a form; all names must be `known`.
    pub(crate) async fn form(&self, known: &[&str]) -> Result<Vec<(String, String)>, Problem> {
        let fields = self.fields().await?;
        match fields.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(unknown_member("", name, known)),
            None => Ok(fields),
        }
    }
}

/// Refuses a body before it is read if its declared length exceeds the limit.
pub(crate) fn check_length(headers: &HeaderMap, limit: usize) -> Result<(), Problem> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limit as u64) { Err(body::too_large(limit)) } else { Ok(()) }
}

/// Refuses a body of another media type or with a content coding (S-25).
pub(crate) fn check_media_type(headers: &HeaderMap, wanted: &'static str) -> Result<(), Problem> {
    let has_body = headers.contains_key(http::header::TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    let refused = || Problem::new(Code::UnsupportedMediaType, format!("the route accepts `{wanted}`"));
    if headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Problem::new(Code::UnsupportedMediaType, "the route accepts no `Content-Encoding`"));
    }
    match headers.get(CONTENT_TYPE) {
        None if !has_body => Ok(()),
        None => Err(refused()),
        Some(given) => {
            let given = given.to_str().map_err(|_| refused())?;
            let essence = given.split(';').next().unwrap_or_default().trim();
            if essence.eq_ignore_ascii_case(wanted) { Ok(()) } else { Err(refused()) }
        }
    }
}

/// The members of a JSON object, in their original text.
#[derive(Debug)]

pub(crate) struct Members {
    members: Vec<(String, Box<RawValue>)>,
    /// The JSON pointer of the object.
    pointer: String,
}

impl Members {
    pub(crate) fn parse(mut bytes: Vec<u8>, known: &[&str]) -> Result<Self, Problem> {
        if bytes.is_empty() {
            bytes = b"{}".to_vec();
        }
        wire::check(&bytes).map_err(|error| malformed(&error, &bytes))?;
        Self::parse_members(
            std::str::from_utf8(&bytes).map_err(|_| Problem::new(Code::Malformed, "the body is not UTF-8"))?,
            "",
            known,
        )
    }

    /// The members of the object `text`, which is JSON without duplicate keys.
    fn parse_members(text: &str, pointer: &str, known: &[&str]) -> Result<Self, Problem> {
        let members = wire::members(text).map_err(|_| Problem::invalid(pointer, "it must be a JSON object"))?;
        if let Some((name, _)) = members.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            return Err(unknown_member(pointer, name, known));
        }
        Ok(Self { members, pointer: pointer.to_owned() })
    }

    /// The text of a member that is not null.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        let value = self.members.iter().find(|(key, _)| key == name).map(|(_, value)| value.get());
        value.filter(|text| *text != "null")
    }

    fn pointer(&self, name: &str) -> String {
        format!("{}/{}", self.pointer, escaped(name))
    }

    /// The problem of one invalid member.
    pub(crate) fn invalid(&self, name: &str, detail: impl Into<String>) -> Problem {
        Problem::invalid(&self.pointer(name), detail)
    }

    fn typed<T: DeserializeOwned>(&self, name: &str, what: &str) -> Result<Option<T>, Problem> {
        let Some(text) = self.raw(name) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|_| self.invalid(name, format!("`{name}` must be {what}")))
    }

    /// The member `name` as a string; `None` if it is absent.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Problem> {
        self.typed(name, "a string")
    }

    /// The member `name` as a truth value; `None` if it is absent.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Problem> {
        self.typed(name, "`true` or `false`")
    }

    /// The member `name` as JSON Schema's `integer`: a whole number, which may be written as `2.0`.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, Problem> {
        let is_whole = |number: &f64| number.fract() == 0.0 && number.abs() < MAX_EXACT;
        match self.raw(name).and_then(|text| serde_json::from_str::<f64>(text).ok()).filter(is_whole) {
            Some(number) => Ok(Some(number as i64)),
            None => self.typed(name, "an integer"),
        }
    }

    /// The member `name` as an array of strings; `None` if it is absent.
    pub(crate) fn texts(&self, name: &str) -> Result<Option<Vec<String>>, Problem> {
        self.typed(name, "an array of strings")
    }

    /// The member `name` as a number; `None` if it is absent.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>, Problem> {
        self.typed(name, "a number")
    }

    /// The member `name` as an object whose members are all `known`.
    pub(crate) fn object(&self, name: &str, known: &[&str]) -> Result<Option<Self>, Problem> {
        self.raw(name).map(|text| Self::parse_members(text, &self.pointer(name), known)).transpose()
    }

    /// The member `name` as an object with any members.
    pub(crate) fn map(&self, name: &str) -> Result<Option<Map<String, Value>>, Problem> {
        self.typed(name, "an object")
    }
}

/// The problem of an unknown member (S-28).
fn unknown_member(pointer: &str, name: &str, known: &[&str]) -> Problem {
    let detail = format!("the request has no member `{name}`");
    let at = format!("{pointer}/{}", escaped(name));
    let problem = Problem::new(Code::UnknownMember, detail.clone()).error(json!({"pointer": at, "detail": detail}));
    if known.is_empty() { problem.hint("it has no members") } else { hinted(problem, name, known) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Members, Problem> {
        Members::parse(text.as_bytes().to_vec(), &["pipeline", "input", "limits"])
    }

    /// S-27: malformed JSON has line and column, and duplicate keys are malformed at any depth.
    #[test]
    fn malformed_json_is_located() {
        for (text, line, column) in [
            ("{\n  \"input\": x}", 2, 12),
            ("{\"input\": {\"a\": 1,\n\"a\": 2}}", 2, 3),
            ("[1", 1, 2),
            ("{\"input\": \"äö\" x}", 1, 16),
        ] {
            let problem = parse(text).expect_err(text);
            let document = problem.to_json("", "r");
            assert_eq!(document["code"], "malformed", "{text}");
            assert_eq!((&document["line"], &document["column"]), (&json!(line), &json!(column)), "{text}");
        }
        assert_eq!(parse("\u{feff}").expect_err("a mark").code(), Code::Malformed);
    }

    /// S-28: an unknown member has its pointer and a near name.
    #[test]
    fn an_unknown_member_has_its_pointer_and_a_near_name() {
        let document = parse(r#"{"pipelin": "x"}"#).expect_err("unknown").to_json("", "r");
        assert_eq!(document["code"], "unknown_member");
        assert_eq!(document["errors"][0]["pointer"], "/pipelin");
        assert_eq!(document["hint"], "did you mean `pipeline`?");
        let limits = parse(r#"{"limits": {"max_cost": 1}}"#).expect("known").object("limits", &["max_cost_usd"]);
        assert_eq!(limits.expect_err("unknown").to_json("", "r")["errors"][0]["pointer"], "/limits/max_cost");
    }

    /// In openapi.json, `integer` is any whole number, however it is written.
    #[test]
    fn whole_numbers_are_integers() {
        let integer = |text: &str| {
            let members = parse(&format!("{{\"input\": {text}}}")).expect("JSON");
            members.integer("input").ok().flatten()
        };
        for (text, wanted) in [("2", 2), ("2.0", 2), ("-2e0", -2), ("20e-1", 2), ("9223372036854775807", i64::MAX)] {
            assert_eq!(integer(text), Some(wanted), "{text}");
        }
        for text in ["2.5", "1e300", "\"2\"", "true", "9223372036854775808"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    /// S-33: a number beyond 2^53 keeps its digits.
    #[test]
    fn large_numbers_keep_their_digits() {
        let members = parse(r#"{"input": {"n": 123456789012345678901234567890}}"#).expect("JSON");
        assert_eq!(members.raw("input"), Some(r#"{"n": 123456789012345678901234567890}"#));
    }
}

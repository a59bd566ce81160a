//! Errors as RFC 9457 problem documents.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::Response;
use etude_runtime::engine::Error;
use http::header::{ALLOW, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

/// The media type of problem documents.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:literal, $title:literal;)*) => {
        /// The code of a problem, with its HTTP status.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code, in the order of their statuses.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word in the member `code`.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// The text of the member `title`.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    /// The body or the path does not follow its syntax, or the body did not arrive whole.
    Malformed = "malformed", 400, "the request cannot be parsed";
    /// No valid token or session.
    Unauthenticated = "unauthenticated", 401, "the request has no valid token";
    /// The token is valid, and has neither the scope of the route nor `admin`.
    ForbiddenScope = "forbidden_scope", 403, "the token lacks the scope of this route";
    /// Another site made the request.
    ForbiddenOrigin = "forbidden_origin", 403, "the request comes from another origin";
    /// The server does not have this name.
    ForbiddenHost = "forbidden_host", 403, "the `Host` header does not name this server";
    /// The question is for other people.
    NotAnApprover = "not_an_approver", 403, "the question names other approvers";
    /// The user has not approved the package whose command was requested.
    NotTrusted = "not_trusted", 403, "the package is not trusted";
    /// The resource does not exist, or this token may not see it.
    NotFound = "not_found", 404, "there is no such resource";
    /// The path exists only for other methods.
    MethodNotAllowed = "method_not_allowed", 405, "the route has no such method";
    /// The response does not exist in an accepted form.
    NotAcceptable = "not_acceptable", 406, "the response is not available in this media type";
    /// The request needs a run that has not ended.
    RunIsOver = "run_is_over", 409, "the run has ended";
    /// Another process holds the run, or it has not ended.
    RunIsBusy = "run_is_busy", 409, "the run is in progress";
    /// Pinned files differ from those at the start of the run; `accept_changes` resumes it anyway.
    DefinitionChanged = "definition_changed", 409, "the definition has changed since the run began";
    /// Another decision was first.
    AlreadyDecided = "already_decided", 409, "the question is already decided";
    /// The run asks another question now.
    OtherQuestion = "other_question", 409, "the run asks another question";
    /// The same request with this idempotency key is in progress.
    KeyInUse = "key_in_use", 409, "a request with this idempotency key is in progress";
    /// The learned pipeline does not meet the conditions of the requested state; the members list the missing ones.
    NotPromoted = "not_promoted", 409, "a condition of the promotion is not met";
    /// A person must confirm the command of the application; the server cannot ask.
    ConfirmationRequired = "confirmation_required", 409, "the command needs a confirmation";
    /// The body exceeds its limit.
    TooLarge = "too_large", 413, "the request is too large";
    /// The body has another media type.
    UnsupportedMediaType = "unsupported_media_type", 415, "the media type of the request is not supported";
    /// `Range` begins after the last byte; `Content-Range` has the length.
    RangeNotSatisfiable = "range_not_satisfiable", 416, "the range is outside the content";
    /// A member, parameter or header has an invalid value; `errors` names each.
    InputInvalid = "input_invalid", 422, "the request has an invalid value";
    /// No pipeline fits the request in words.
    NoPipelineMatched = "no_pipeline_matched", 422, "no pipeline matches the request";
    /// The app, or the requested definition, cannot be loaded.
    DefinitionInvalid = "definition_invalid", 422, "the definition has errors";
    /// The idempotency key belongs to another body.
    KeyReused = "key_reused", 422, "the idempotency key belongs to another request";
    /// A member or parameter that does not exist.
    UnknownMember = "unknown_member", 422, "the request has an unknown member";
    /// The queue has its maximum number of runs, from `serve.max_queued` or the queue.
    QueueFull = "queue_full", 429, "the queue is full";
    /// Too many requests, streams or wrong tokens.
    TooManyRequests = "too_many_requests", 429, "too many requests";
    /// `serve.per_day` or a quota of the tenant is used up; `Retry-After` says until when.
    BudgetSpent = "budget_spent", 429, "the daily budget is spent";
    /// A fault of the server itself, such as a panic in a handler.
    Bug = "bug", 500, "internal error";
    /// The server is about to stop.
    Draining = "draining", 503, "the server is draining";
    /// The journal cannot be used.
    JournalUnavailable = "journal_unavailable", 503, "the journal is unavailable";
}

/// An error as the client receives it.
#[derive(Debug, Clone)]
pub struct Problem {
    code: Code,
    detail: Cow<'static, str>,
    hint: Option<String>,
    errors: Vec<Value>,
    members: Map<String, Value>,
    retry_after_s: Option<u64>,
    header: Option<(HeaderName, String)>,
}

impl Problem {
    /// A problem with its detail, which is a sentence.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let members = Map::new();
        let retry_after_s = matches!(code.status(), 429 | 503).then_some(5);
        Self { code, detail: detail.into(), hint: None, errors: Vec::new(), members, retry_after_s, header: None }
    }

    /// The problem that a resource does not exist, or that this token may not see it.
    pub(crate) fn not_found(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::NotFound, what)
    }

    /// The problem of one invalid value of the body.
    pub(crate) fn invalid(pointer: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::new(Code::InputInvalid, detail.clone()).error(json!({"pointer": pointer, "detail": detail}))
    }

    /// The problem of one invalid query parameter.
    pub(crate) fn parameter(code: Code, name: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::new(code, detail.clone()).error(json!({"parameter": name, "detail": detail}))
    }

    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds an entry of `errors`.
    pub(crate) fn error(mut self, entry: Value) -> Self {
        self.errors.push(entry);
        self
    }

    /// Adds a member.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the header `Retry-After`.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// Sets the header `Allow`.
    pub(crate) fn allow(mut self, methods: String) -> Self {
        self.header = Some((ALLOW, methods));
        self
    }

    /// Sets the header `WWW-Authenticate`; the default is `Bearer`.
    pub(crate) fn challenge(mut self, challenge: String) -> Self {
        self.header = Some((WWW_AUTHENTICATE, challenge));
        self
    }

    /// The header `WWW-Authenticate` of a request without a valid token.
    pub(crate) fn bearer(&self) -> HeaderValue {
        let own = self.header.as_ref().filter(|(name, _)| *name == WWW_AUTHENTICATE);
        let own = own.and_then(|(_, value)| HeaderValue::from_str(value).ok());
        own.unwrap_or(HeaderValue::from_static("Bearer"))
    }

    /// The problem of a range outside of `total` bytes: the header `Content-Range` has the total.
    pub(crate) fn outside_of(total: u64) -> Self {
        let problem = Self::new(Code::RangeNotSatisfiable, format!("the stream has {total} bytes"));
        Self { header: Some((CONTENT_RANGE, format!("bytes */{total}"))), ..problem }
    }

    /// The code, which decides title and status.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The sentence of the member `detail`.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The body of `application/problem+json`, with the members that were added.
    pub fn to_json(&self, base_path: &str, request_id: &str) -> Value {
        let mut out = json!({
            "type": format!("{base_path}/problems/{}", self.code.word()),
            "title": self.code.title(),
            "status": self.code.status(),
            "detail": self.detail,
            "code": self.code.word(),
        });
        if let Some(hint) = &self.hint {
            out["hint"] = hint.as_str().into();
        }
        if !self.errors.is_empty() {
            out["errors"] = self.errors.clone().into();
        }
        for (name, value) in &self.members {
            out[name] = value.clone();
        }
        out["request_id"] = request_id.into();
        out
    }

    /// The response `application/problem+json` with the status of the code and the extra header.
    pub(crate) fn to_response(&self, base_path: &str, request_id: &str) -> Response {
        let mut response = Response::new(Body::from(self.to_json(base_path, request_id).to_string()));
        *response.status_mut() = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if self.code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, self.bearer());
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some((name, value)) = &self.header
            && let Ok(value) = HeaderValue::from_str(value)
        {
            headers.insert(name, value);
        }
        response
    }
}

/// The problem of a failed access to the journal.
pub(crate) fn engine_failed(error: &Error) -> Problem {
    match error {
        Error::Unknown(_) | Error::Ambiguous { .. } => no_run(),
        Error::Moved(run) => Problem::new(Code::RunIsBusy, error.to_string()).with("run_id", run.as_str()),
        Error::Busy { run, holder } => {
            let pid = holder.as_ref().and_then(|holder| holder.pid);
            let problem = Problem::new(Code::RunIsBusy, error.to_string()).with("run_id", run.as_str());
            pid.into_iter().fold(problem, |problem, pid| problem.with("pid", pid))
        }
        _ => Problem::new(Code::JournalUnavailable, error.to_string()),
    }
}

/// The problem of a run that does not exist, or that the token may not see (S-16).
pub(crate) fn no_run() -> Problem {
    Problem::not_found("there is no such run")
}

/// The problem of a body that is not JSON, with the position of the fault (S-27).
pub(crate) fn malformed(error: &serde_json::Error, body: &[u8]) -> Problem {
    let line = error.line().max(1);
    // The parser counts bytes, and people count characters.
    let of_line = body.split(|byte| *byte == b'\n').nth(line - 1).unwrap_or_default();
    let before = &of_line[..error.column().min(of_line.len())];
    let beyond = error.column().saturating_sub(of_line.len());
    let column = (String::from_utf8_lossy(before).chars().count() + beyond).max(1);
    let text = error.to_string();
    let why = text.split(" at line ").next().unwrap_or(&text).to_owned();
    Problem::new(Code::Malformed, format!("the body is not JSON: {why}")).with("line", line).with("column", column)
}

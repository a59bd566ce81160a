//! One call over HTTP: attempts, waits, and their outcome.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use etude_core::model::TransportWait;
use etude_core::service_url::ServiceUrl;
use etude_core::tree::{self, TreeError};
use jiff::Timestamp;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Response, StatusCode, Url};
use serde_json::Value;

use super::charset::Charset;
use super::client::{client_at, client_for};
use super::follow::StreamSink;
use super::policy::TransportPolicy;
use super::refusal::Refusal;
use super::shown;
use super::{backoff, policy::DEFAULT_TIMEOUT_MS};
use crate::cause::{SILENT, STATUS, UNREACHABLE, UNREADABLE};
use crate::delta_sink::DeltaSink;
use crate::local::LocalServer;
use crate::redact::Redactor;
use crate::wire::stream::Body;
use crate::wire::{DecodeError, MAX_BODY_BYTES};

/// Maximum length of a provider's message in a quote, in characters.
const QUOTED_CHARS: usize = 500;

/// The cause of a connection that a proxy denies, as the HTTP client words it.
const PROXY_DENIES: &str = "proxy authorization required";

/// The encoding of plain bodies.
const IDENTITY: &str = "identity";

/// A request in the form in which it is sent.
#[derive(Clone)]
pub(crate) struct WireRequest {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// The server behind `url` and its model, if it listens at a Unix socket.
    pub(crate) local: Option<(Arc<dyn LocalServer>, String)>,
}

/// Connection settings of one provider. Its calls share a pause: a wait that the provider asks of one call applies to all.
pub(crate) struct Line {
    pub(crate) policy: TransportPolicy,
    pub(crate) timeout: Duration,
    pub(crate) redactor: Redactor,
    resume_at: Mutex<Option<Instant>>,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) kind: FailedAs,
    /// A sentence about the last attempt.
    pub(crate) message: String,
    /// A sentence about each attempt before it.
    pub(crate) earlier: Vec<String>,
}

/// Outcome of the last attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailedAs {
    /// The provider refused the key.
    Unauthorized,
    /// A content filter of the provider withheld the response, as the message says.
    Filtered,
    /// The provider refused the request with this status.
    Rejected(u16),
    /// The provider cannot be reached.
    Unreachable,
    /// All attempts failed for temporary reasons.
    Exhausted,
}

/// One failed attempt.
pub(super) struct TransportAttempt {
    kind: FailedAs,
    message: String,
    status: Option<u16>,
    again: bool,
    asked: Option<Duration>,
    /// The provider asked all clients to slow down.
    busy: bool,
}

impl Line {
    pub(crate) fn new(policy: TransportPolicy, timeout_ms: Option<u64>, redactor: Redactor) -> Self {
        let timeout = Duration::from_millis(timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS).max(1));
        Self { policy, timeout, redactor, resume_at: Mutex::new(None) }
    }

    /// Sends `request` until `decode` has read a response, and returns it with a sentence for each failed attempt. With
    /// `streaming` the request must be one for a stream. `delta_sink` receives each wait.
    pub(crate) async fn call<T>(
        &self,
        request: &WireRequest,
        decode: impl Fn(&Value) -> Result<T, DecodeError>,
        delta_sink: Option<&DeltaSink<'_>>,
        streaming: Option<&StreamSink<'_>>,
    ) -> Result<(T, Vec<String>), Failed> {
        let tries = self.policy.tries();
        let mut earlier = Vec::new();
        let mut number = 1;
        loop {
            self.pause().await;
            let failed = match self.once(request, &decode, streaming).await {
                Ok(response) => return Ok((response, earlier)),
                Err(failed) => failed,
            };
            if failed.busy
                && let Some(asked) = failed.asked
            {
                self.pause_until(Instant::now() + asked);
            }
            if !failed.again || number == tries {
                let tail = if number > 1 { format!(" (attempt {number} of {tries})") } else { String::new() };
                let message = format!("{}{tail}", failed.message);
                return Err(Failed { kind: failed.kind, message, earlier });
            }
            let asked = failed.asked.map(|asked| format!("; asked to wait {}", shown(asked)));
            earlier.push(format!("attempt {number} of {tries}: {}{}", failed.message, asked.unwrap_or_default()));
            let wait = backoff::next(&self.policy, number, failed.busy, failed.asked);
            number += 1;
            if let Some(delta_sink) = delta_sink {
                delta_sink.waiting(&TransportWait {
                    status: failed.status,
                    reason: self.redactor.redact(&failed.message),
                    wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                    attempt: number,
                    max_attempts: tries,
                });
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn pause(&self) {
        let until = *self.resume_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(until) = until {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    fn pause_until(&self, until: Instant) {
        let mut resume_at = self.resume_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *resume_at = Some(resume_at.map_or(until, |before| before.max(until)));
    }

    async fn once<T>(
        &self,
        request: &WireRequest,
        decode: impl Fn(&Value) -> Result<T, DecodeError>,
        streaming: Option<&StreamSink<'_>>,
    ) -> Result<T, TransportAttempt> {
        streaming.inspect(|streaming| streaming.delta_sink.begin());
        let place = match &request.local {
            None => place(&request.url),
            Some(_) => "the local model's process".to_owned(),
        };
        let unreachable = |message| TransportAttempt::last(FailedAs::Unreachable, message);
        let client = match &request.local {
            None => client_for(&request.url).cloned(),
            Some((server, model)) => client_at(&server.start(model).await.map_err(unreachable)?),
        };
        let client = client.map_err(unreachable)?;
        let sending = client
            .post(request.url.clone())
            .header(ACCEPT_ENCODING, IDENTITY)
            .headers(request.headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(request.body.clone());
        let sent = match streaming {
            None => sending.timeout(self.timeout).send().await,
            // A stream may take any time, as long as it is not silent.
            Some(_) => self.unless_silent(sending.send(), &place).await?,
        };
        let response = sent.map_err(|error| self.lost(error, &place))?;
        let status = response.status();
        let headers = response.headers().clone();
        let encoding = encoding(&headers);
        if !status.is_success() {
            // The status is enough, even if its body was cut off or cannot be read.
            let body = match encoding {
                Some(encoding) => Ok(Ok(format!("its text is compressed (`{encoding}`)").into_bytes())),
                None => tokio::time::timeout(self.timeout, read(response)).await,
            };
            return Err(self.refused(status, &headers, &body.unwrap_or(Ok(Vec::new())).unwrap_or_default(), &place));
        }
        if let Some(encoding) = encoding {
            let message = format!(
                "the response from {place} is compressed (`{encoding}`), although etude asked for plain text; turn \
                 compression off in the server, or in the proxy before it"
            );
            return Err(TransportAttempt::last(FailedAs::Exhausted, self.redactor.quote(&message, QUOTED_CHARS)));
        }
        let body = match streaming {
            None => read(response).await.map_err(|error| self.unread(error, &place))?,
            Some(streaming) => match self.follow(response, &place, streaming).await? {
                Body::Whole(body) => body,
                Body::Assembled(body) => {
                    return decode(&body).map_err(|error| self.undecoded(error, &headers, body.to_string().as_bytes()));
                }
            },
        };
        if let Some(charset) = Charset::foreign(&headers).filter(|charset| charset.clone().encodes(&body)) {
            return Err(charset.refusal(&place, &self.redactor));
        }
        read_body(&body).and_then(|body| decode(&body)).map_err(|error| self.undecoded(error, &headers, &body))
    }

    pub(super) fn unread(&self, error: ReadError, place: &str) -> TransportAttempt {
        match error {
            ReadError::Lost(error) => self.lost(error, place),
            ReadError::TooLarge => TransportAttempt::last(
                FailedAs::Exhausted,
                format!("the response has more than {MAX_BODY_BYTES} bytes"),
            ),
        }
    }

    fn refused(&self, status: StatusCode, headers: &HeaderMap, body: &[u8], place: &str) -> TransportAttempt {
        let refusal = Refusal::read(body);
        let quoted = self.redactor.quote(&refusal.message, QUOTED_CHARS);
        let colon = if quoted.is_empty() { "" } else { ": " };
        let way = etude_http::environment::way_back(place);
        let message = format!("{STATUS}{}{way}{colon}{quoted}", status.as_u16());
        if status.is_redirection() {
            let target = redirected(headers, place).map(|to| format!(" to {}", self.redactor.quote(&to, QUOTED_CHARS)));
            let message = format!(
                "status {} from {place}{}: redirects are not followed; set `base_url` to the final address",
                status.as_u16(),
                target.unwrap_or_default()
            );
            return TransportAttempt::last(FailedAs::Rejected(status.as_u16()), message);
        }
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            return unreachable(place, PROXY_DENIES);
        }
        self.by_status(status.as_u16(), headers, &refusal, message)
    }

    fn by_status(&self, status: u16, headers: &HeaderMap, refusal: &Refusal, message: String) -> TransportAttempt {
        let longest = Duration::from_millis(self.policy.max_wait_ms);
        match status {
            401 => TransportAttempt::last(FailedAs::Unauthorized, message),
            400 if refusal.is_of_key() => TransportAttempt::last(FailedAs::Unauthorized, message),
            400 if refusal.is_filtered() => TransportAttempt::last(FailedAs::Filtered, message),
            408 | 409 | 429 | 500..=599 => TransportAttempt {
                kind: FailedAs::Exhausted,
                message,
                status: Some(status),
                again: !backoff::forbids(headers) && !refusal.is_spent(),
                asked: backoff::asked(headers, &self.policy, Timestamp::now())
                    .or_else(|| refusal.asked.map(|asked| asked.min(longest))),
                busy: matches!(status, 429 | 503 | 529),
            },
            _ => TransportAttempt::last(FailedAs::Rejected(status), message),
        }
    }

    pub(super) fn undecoded(&self, error: DecodeError, headers: &HeaderMap, body: &[u8]) -> TransportAttempt {
        match error {
            DecodeError::Failed { status, message } => {
                let message = format!("failure {status}: {}", self.redactor.quote(&message, QUOTED_CHARS));
                self.by_status(status, headers, &Refusal::default(), message)
            }
            DecodeError::TooMuch(why) => {
                TransportAttempt::last(FailedAs::Exhausted, format!("the response is too large: {why}"))
            }
            DecodeError::Unreadable(why) => {
                let start = self.redactor.quote(&String::from_utf8_lossy(body), 100);
                let starts = if start.is_empty() { String::new() } else { format!("; it starts with `{start}`") };
                TransportAttempt::retryable(FailedAs::Exhausted, format!("{UNREADABLE}: {why}{starts}"))
            }
        }
    }

    /// An attempt that exceeded its time limit in silence.
    pub(super) fn silent(&self, place: &str) -> TransportAttempt {
        let message = format!("{SILENT}{place} within {}", shown(self.timeout));
        TransportAttempt::retryable(FailedAs::Exhausted, message)
    }

    /// An attempt that ended before the complete response.
    pub(super) fn lost(&self, error: reqwest::Error, place: &str) -> TransportAttempt {
        if error.is_timeout() && !error.is_connect() {
            return self.silent(place);
        }
        let connecting = error.is_connect();
        // The error's own text has the URL with its secrets.
        let error = error.without_url();
        let cause = self.redactor.quote(&etude_http::root_cause(&error), QUOTED_CHARS);
        if connecting {
            return unreachable(place, &cause);
        }
        let message = format!("the connection to {place} was lost: {cause}");
        match cause.starts_with(etude_http::LARGE_HEAD) {
            true => TransportAttempt::last(FailedAs::Exhausted, message),
            false => TransportAttempt::retryable(FailedAs::Exhausted, message),
        }
    }
}

/// A connection that failed. A permanent cause is not retried.
fn unreachable(place: &str, cause: &str) -> TransportAttempt {
    let kind = FailedAs::Unreachable;
    let way = etude_http::environment::way_to(place);
    let through = if way.is_empty() { " through the proxy" } else { way.as_str() };
    // The scheme of `place` is http or https, so another one belongs to a proxy.
    if cause.contains("unsupported scheme") {
        let message = format!(
            "{place}{UNREACHABLE}{through}: {cause}; set `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` to the URL of an \
             HTTP proxy"
        );
        return TransportAttempt::last(kind, message);
    }
    if cause.contains(PROXY_DENIES) {
        let message = format!(
            "{place}{UNREACHABLE}{through}: {cause}; set the variable of the proxy to a URL with user and password, \
             such as `http://USER:PASSWORD@HOST:PORT`"
        );
        return TransportAttempt::last(kind, message);
    }
    let message = format!("{place}{UNREACHABLE}{way}: {cause}");
    if cause.contains("CaUsedAsEndEntity") {
        let message = format!(
            "{message}; its certificate is one of an issuer: create one for the server, with `basicConstraints=CA:FALSE`"
        );
        return TransportAttempt::last(kind, message);
    }
    if cause.contains("UnknownIssuer") {
        let message = format!(
            "{message}; no issuer of its certificate is trusted: set `SSL_CERT_FILE` to a file with all trusted issuers"
        );
        return TransportAttempt::last(kind, message);
    }
    if cause.contains("corrupt message") {
        let message = format!("{message}; the server does not use TLS there: write `base_url` with `http://`");
        return TransportAttempt::last(kind, message);
    }
    match cause.contains("invalid peer certificate") {
        true => TransportAttempt::last(kind, message),
        false => TransportAttempt::retryable(kind, message),
    }
}

impl TransportAttempt {
    pub(super) fn last(kind: FailedAs, message: String) -> Self {
        Self { kind, message, status: None, again: false, asked: None, busy: false }
    }

    pub(super) fn retryable(kind: FailedAs, message: String) -> Self {
        Self { kind, message, status: None, again: true, asked: None, busy: false }
    }
}

pub(crate) enum ReadError {
    Lost(reqwest::Error),
    TooLarge,
}

/// The encoding of a body that is not plain.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let encoding = headers.get(CONTENT_ENCODING)?;
    let name = String::from_utf8_lossy(encoding.as_bytes()).trim().to_owned();
    (!name.is_empty() && !name.eq_ignore_ascii_case(IDENTITY)).then_some(name)
}

/// Parses the body of a response. Some servers write a byte order mark before it.
fn read_body(body: &[u8]) -> Result<Value, DecodeError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if body.is_empty() {
        return Err(DecodeError::Unreadable("it is empty".to_owned()));
    }
    tree::parse_response(body).map_err(|error| match error {
        TreeError::Json(error) => DecodeError::Unreadable(format!("not JSON: {error}")),
        error @ TreeError::TooMany(_) => DecodeError::TooMuch(error.to_string()),
    })
}

/// All bytes of a body, up to the limit.
pub(crate) async fn read(mut response: Response) -> Result<Vec<u8>, ReadError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(ReadError::Lost)? {
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(ReadError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The target of a redirect from `from`, without the parts that may be secret.
fn redirected(headers: &HeaderMap, from: &str) -> Option<String> {
    let location = headers.get(LOCATION)?.to_str().ok()?;
    Some(place(&Url::parse(from).ok()?.join(location).ok()?))
}

/// The URL without the parts that may be secret.
fn place(url: &Url) -> String {
    ServiceUrl::new(url.as_str()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cli: the cause of a failed connection is named with its remedy, and not retried if it is permanent.
    #[test]
    fn certificates_and_proxies_that_do_not_fit_are_not_tried_again() {
        for (cause, is_again, way_out) in [
            ("Connection refused (os error 111)", true, ""),
            ("invalid peer certificate: UnknownIssuer", false, "`SSL_CERT_FILE`"),
            ("invalid peer certificate: Expired", false, ""),
            ("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", false, "`basicConstraints=CA:FALSE`"),
            ("tunnel error: proxy authorization required", false, "`http://USER:PASSWORD@HOST:PORT`"),
            ("unsupported scheme socks5", false, "`HTTPS_PROXY`"),
            ("received corrupt message of type InvalidContentType", false, "`http://`"),
        ] {
            let attempt = unreachable("https://far.example/v1", cause);
            assert_eq!((attempt.again, attempt.kind), (is_again, FailedAs::Unreachable), "{cause}");
            assert!(attempt.message.contains(cause) && attempt.message.contains(way_out), "{}", attempt.message);
        }
    }

    /// cli: if a proxy cannot be reached, the error names it and not only the provider.
    #[test]
    fn a_proxy_that_cannot_be_reached_is_named() {
        etude_http::environment::keep(|name| {
            (name == "HTTPS_PROXY").then(|| "http://me:secret@proxy.example:3128".into())
        });
        let message = |place: &str| unreachable(place, "Connection refused (os error 111)").message;
        assert_eq!(
            message("https://far.example/v1"),
            "https://far.example/v1 cannot be reached through the proxy `http://proxy.example:3128` of `HTTPS_PROXY`: Connection \
             refused (os error 111)"
        );
        for place in ["http://far.example/v1", "https://localhost:8443/v1", "the local model's process"] {
            assert_eq!(message(place), format!("{place} cannot be reached: Connection refused (os error 111)"));
        }
    }
}

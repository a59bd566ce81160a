//! Incoming webhooks: a signed request of another program starts a run.

mod verify;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use etude::runner::Request;
use etude_core::data::Json;
use etude_core::digest::Digest;
use etude_core::exact::Comparand;
use etude_runs::target::Target as RunTarget;
use etude_runtime::engine::{Cause, Entry, EntryQuery, Expected, Placement, UniqueKey, Write, Written};
use etude_spec::automation::{Automation, Target, Verify, Webhook, template};
use http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::admission::{self, Admission, Admissions, Candidate, Full};
use crate::app::not_loaded;
use crate::context::Context;
use crate::ledger::{Ledger, book};
use crate::problem::{Code, Problem, malformed};
use crate::settings::ServedApp;

/// Maximum length of a stored header value, in bytes.
const MAX_HEADER: usize = 256;

/// Maximum number of stored refusals per webhook and kind; later ones replace earlier ones.
const MAX_REFUSED: u64 = 100;

/// Maximum number of refused deliveries that are noted in one second.
const MAX_NOTED: u64 = 10;

/// Counters of refused deliveries.
#[derive(Debug, Default)]
struct Refused {
    /// The number of the next noted refusal.
    next: AtomicU64,
    /// The second of the last refusal, and the number of refusals in it.
    second: AtomicI64,
    count: AtomicU64,
}

impl Refused {
    /// The number of a new refusal; `None` if it must not be noted.
    fn number(&self, now_ms: i64) -> Option<u64> {
        let second = now_ms.div_euclid(1_000);
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.count.store(0, Ordering::Relaxed);
        }
        let is_noted = self.count.fetch_add(1, Ordering::Relaxed) < MAX_NOTED;
        is_noted.then(|| self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// The webhooks of the served apps.
pub(crate) struct Webhooks {
    context: Arc<Context>,
    ledger: Arc<Ledger>,
    admissions: Arc<Admissions>,
    /// Deliveries without a valid signature.
    refused: Refused,
    /// Deliveries with a valid signature, but with a body or headers that the webhook refuses.
    unfit: Refused,
}

impl Webhooks {
    /// The webhooks of the apps of `context`.
    pub(crate) fn new(context: &Arc<Context>, ledger: &Arc<Ledger>, admissions: &Arc<Admissions>) -> Self {
        let (context, ledger, admissions) = (Arc::clone(context), Arc::clone(ledger), Arc::clone(admissions));
        Self { context, ledger, admissions, refused: Refused::default(), unfit: Refused::default() }
    }
}

/// A request to a webhook.
pub(crate) struct Incoming {
    pub(crate) app: ServedApp,
    pub(crate) automation: Arc<Automation>,
    /// The index of the webhook in `automation`.
    pub(crate) index: usize,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
    pub(crate) now_ms: i64,
}

impl Incoming {
    fn webhook(&self) -> &Webhook {
        &self.automation.webhooks[self.index]
    }

    fn book(&self) -> String {
        book::webhook(&self.app, &self.webhook().name)
    }

    /// The value of `header.…`, `raw`, `body` or a path of the body in the delivery.
    fn lookup(&self, body: Option<&Value>, reference: &str) -> Option<Value> {
        if let Some(name) = reference.strip_prefix("header.") {
            return self.headers.get(name).and_then(|value| value.to_str().ok()).map(Value::from);
        }
        match reference {
            "raw" => std::str::from_utf8(&self.bytes).ok().map(Value::from),
            "body" => body.cloned(),
            path => template::at_path(body?, path.strip_prefix("body.")?).cloned(),
        }
    }

    /// The same as JSON text, as it was written.
    fn lookup_text(&self, body: Option<&Value>, reference: &str) -> Option<String> {
        let Some(path) = reference.strip_prefix("body") else {
            return self.lookup(body, reference).map(|value| value.to_string());
        };
        body?;
        let text = std::str::from_utf8(&self.bytes).ok()?;
        match path {
            "" => Some(text.to_owned()),
            path => template::text_at_path(text, path.strip_prefix('.')?).map(str::to_owned),
        }
    }

    fn entry(&self, key: String, verdict: &str, run_id: Option<String>) -> Entry {
        let body = json!({"headers": kept_headers(&self.headers, self.webhook().verify.as_ref()), "delivery_id": key});
        let (book, state) = (self.book(), verdict.to_owned());
        Entry { book, key, at_ms: self.now_ms, state, run_id, body: body.to_string(), ..Entry::default() }
    }
}

/// The headers that describe a delivery. Any other header may be a secret, under a name that no list knows.
fn kept_headers(headers: &HeaderMap, verify: Option<&Verify>) -> Map<String, Value> {
    const KEPT: [&str; 4] = ["content-type", "content-length", "user-agent", "webhook-timestamp"];
    const ENDS: [&str; 5] = ["-event", "-topic", "-delivery", "-id", "-kind"];
    // A session id is as good as a key.
    const SECRET: [&str; 10] =
        ["auth", "cookie", "token", "secret", "signature", "key", "pass", "session", "jwt", "credential"];
    let own = verify.and_then(|verify| verify.header.as_deref());
    let is_kept = |name: &str| {
        (KEPT.contains(&name) || ENDS.iter().any(|end| name.ends_with(end)))
            && Some(name) != own
            && !SECRET.iter().any(|part| name.contains(part))
    };
    let kept = headers.iter().filter(|(name, _)| is_kept(name.as_str()));
    let text =
        |value: &http::HeaderValue| value.to_str().unwrap_or_default().chars().take(MAX_HEADER).collect::<String>();
    kept.map(|(name, value)| (name.as_str().to_owned(), text(value).into())).collect()
}

/// Outcome of a valid delivery.
pub(crate) enum Received {
    /// The document about the delivery: its run, or the reason that it starts none.
    Delivery(Value),
    /// The reply to a sender that verifies the address. No run begins.
    Handshake(Value),
}

/// Verifies a delivery and starts its run. A refusal for its content is noted.
pub(crate) fn accept(webhooks: &Webhooks, incoming: &Incoming) -> Result<Received, Problem> {
    let webhook = incoming.webhook();
    let by = webhook.verify.as_ref().ok_or_else(|| Problem::not_found("there is no such webhook"))?;
    let secrets: Vec<String> = by.secrets.iter().filter_map(|secret| webhooks.context.apps().expand(secret)).collect();
    let delivery = verify::Delivery { headers: &incoming.headers, body: &incoming.bytes, now_ms: incoming.now_ms };
    if !verify::verify(by, &secrets, &delivery) {
        note_refused(webhooks, incoming, None)?;
        return Err(Problem::new(Code::Unauthenticated, "the signature of the delivery is not valid"));
    }
    let taken = take(webhooks, incoming, by);
    if let Err(problem) = &taken
        && problem.code().status() < 500
    {
        note_refused(webhooks, incoming, Some(problem))?;
    }
    taken
}

/// Handles a delivery with a valid signature.
fn take(webhooks: &Webhooks, incoming: &Incoming, by: &Verify) -> Result<Received, Problem> {
    let parsed = serde_json::from_slice::<Value>(&incoming.bytes);
    if let Some(answer) = parsed.as_ref().ok().and_then(|body| verify::handshake(by, body)) {
        return Ok(Received::Handshake(answer));
    }
    deliver(webhooks, incoming, by, parsed).map(Received::Delivery)
}

/// Starts the run of a delivery with a valid signature.
fn deliver(
    webhooks: &Webhooks,
    incoming: &Incoming,
    by: &Verify,
    parsed: serde_json::Result<Value>,
) -> Result<Value, Problem> {
    let webhook = incoming.webhook();
    let own_id = verify::delivery_id(by, &incoming.headers, parsed.as_ref().unwrap_or(&Value::Null));
    let digest = Digest::of(&incoming.bytes);
    let id = match (&own_id, webhook.repeats) {
        (Some(id), _) => id.clone(),
        (None, true) => uuid::Uuid::new_v4().to_string(),
        (None, false) => digest.to_string(),
    };
    let body = match parsed {
        Ok(body) => Some(body),
        Err(error) if needs_json(webhook) => return Err(malformed(&error, &incoming.bytes)),
        Err(_) => None,
    };
    let holds = |(path, wanted): &(String, Comparand)| {
        let found = incoming.lookup_text(body.as_ref(), path).and_then(|text| Comparand::parse(&text).ok());
        found.is_some_and(|found| found.is_same(wanted))
    };
    if !webhook.when.iter().all(holds) {
        let written = note(webhooks, incoming.entry(id.clone(), "ignored", None), Expected::Nothing)?;
        return Ok(match written {
            Written::Other(Some(first)) => response(&first),
            _ => json!({"delivery_id": id, "run_id": null, "ignored": "when"}),
        });
    }
    let admission = admit(webhooks, incoming, body.as_ref(), own_id.as_deref(), digest)?;
    let submission = admission.submission.clone();
    let run_id = submission.run.id.clone();
    let entry = incoming.entry(id.clone(), "accepted", None);
    let write = Write { entry, expected: Expected::Nothing, submission: Some(submission), is_alone: false };
    let first = match webhooks.ledger.write(&write)? {
        Written::Done => {
            admission.accepted(&webhooks.admissions)?;
            return Ok(json!({"delivery_id": id, "run_id": run_id}));
        }
        Written::Full => return Err(admission.full.problem(&webhooks.admissions)),
        Written::Held { run_id } => return Err(Full::Pipeline(run_id).problem(&webhooks.admissions)),
        Written::Other(first) => first.map(|first| *first),
        Written::Repeated { run_id, .. } => {
            let query = EntryQuery { book: incoming.book(), run_id: Some(run_id), ..EntryQuery::default() };
            webhooks.ledger.entries(&query)?.into_iter().rfind(|entry| entry.state == "accepted")
        }
        Written::Busy(_) => None,
    };
    let first = first.ok_or_else(|| Problem::new(Code::Bug, "the first delivery is not in the journal"))?;
    let repeated = format!("repeated {}", uuid::Uuid::new_v4());
    let mut entry = incoming.entry(repeated, "repeated", first.run_id.clone());
    let body = json!({"headers": kept_headers(&incoming.headers, Some(by)), "delivery_id": id});
    entry.body = body.to_string();
    note(webhooks, entry, Expected::Nothing)?;
    Ok(response(&first))
}

/// True if a condition or the input of the webhook needs the body as JSON.
fn needs_json(webhook: &Webhook) -> bool {
    let uses_body = |reference: &String| reference.starts_with("body");
    let references = webhook.input.as_ref().map(|input| template::references(&Value::from(input.clone())));
    webhook.when.iter().any(|(path, _)| uses_body(path))
        || references.is_none_or(|references| references.iter().any(uses_body))
}

/// Notes a refused delivery: with its problem, or without one if the signature is invalid. Anyone can send the latter, so in each
/// second only some reach the journal.
fn note_refused(webhooks: &Webhooks, incoming: &Incoming, problem: Option<&Problem>) -> Result<(), Problem> {
    // Strangers do not take the places of those with a signature.
    let (refused, name) = if problem.is_some() { (&webhooks.unfit, "unfit") } else { (&webhooks.refused, "refused") };
    let Some(number) = refused.number(incoming.now_ms) else { return Ok(()) };
    let slot = format!("{name} {}", number % MAX_REFUSED);
    let mut entry = incoming.entry(slot.clone(), "refused", None);
    if let Some(problem) = problem {
        let headers = kept_headers(&incoming.headers, incoming.webhook().verify.as_ref());
        let body = serde_json::from_slice(&incoming.bytes).unwrap_or_default();
        let by = incoming.webhook().verify.as_ref();
        let id = by.and_then(|by| verify::delivery_id(by, &incoming.headers, &body)).unwrap_or(slot);
        entry.body = json!({"headers": headers, "delivery_id": id, "reason": problem.code().word()}).to_string();
    }
    note(webhooks, entry, Expected::Anything).map(drop)
}

/// The response for a repeated delivery.
fn response(first: &Entry) -> Value {
    match first.state.as_str() {
        "ignored" => json!({"delivery_id": first.key, "run_id": null, "ignored": "when"}),
        _ => json!({"delivery_id": first.key, "run_id": first.run_id}),
    }
}

fn note(webhooks: &Webhooks, entry: Entry, expected: Expected) -> Result<Written, Problem> {
    let write = Write { entry, expected, submission: None, is_alone: false };
    webhooks.ledger.write(&write)
}

fn admit(
    webhooks: &Webhooks,
    incoming: &Incoming,
    body: Option<&Value>,
    own_id: Option<&str>,
    digest: Digest,
) -> Result<Admission, Problem> {
    let webhook = incoming.webhook();
    let target = match &webhook.target {
        Some(Target::Pipeline(name)) => RunTarget::Pipeline(name.clone()),
        Some(Target::Machine(name)) => RunTarget::Machine(name.clone()),
        None => return Err(Problem::not_found("there is no such webhook")),
    };
    let loaded = webhooks.context.startable(&incoming.app.dir, &target);
    let (_, definition) = loaded.map_err(|error| not_loaded(error, "", &target.to_string()))?;
    let text = match &webhook.input {
        // As it was sent: numbers keep their digits.
        None => String::from_utf8_lossy(&incoming.bytes).into_owned(),
        Some(input) => {
            let filled = template::fill(input, &|reference| incoming.lookup_text(body, reference));
            let missing = |reference| Problem::invalid("", format!("the delivery has no `{reference}`"));
            filled.map_err(missing)?
        }
    };
    let input = Json::parse(&text).map_err(|_| Problem::invalid("", "the body must be a JSON object"))?;
    let book = incoming.book();
    let by_id = own_id.map(|id| UniqueKey { key: format!("{book} id {id}"), digest: None });
    let by_body = (!webhook.repeats).then(|| UniqueKey { key: format!("{book} body {digest}"), digest: None });
    let request = Request::new(input, definition.app.display().to_string());
    let by = Some(format!("webhook:{}", webhook.name));
    let placement = Placement { cause: Cause::Webhook, by, ..Placement::default() };
    let keys = by_id.into_iter().chain(by_body).collect();
    let candidate = Candidate { request, placement, has_priority: false, keys, tick: None };
    admission::admit(&webhooks.admissions, &incoming.app, &definition, candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SECURITY.md, "A client of a server": only headers that describe the delivery are kept; an unknown one may be a secret.
    #[test]
    fn headers_that_are_not_known_are_not_kept() {
        let mut headers = HeaderMap::new();
        let names = [
            ("content-type", true),
            ("user-agent", true),
            ("x-github-event", true),
            ("x-github-delivery", true),
            ("webhook-id", true),
            ("webhook-timestamp", true),
            ("x-api-pass", false),
            ("x-session-id", false),
            ("cf-access-jwt-assertion", false),
            ("x-goog-iap-jwt-assertion", false),
            ("x-forwarded-for", false),
            ("x-hub-signature-256", false),
            ("x-other", false),
        ];
        for (name, _) in names {
            headers.insert(name, http::HeaderValue::from_static("v"));
        }
        let kept = kept_headers(&headers, None);
        for (name, is_kept) in names {
            assert_eq!(kept.contains_key(name), is_kept, "{name}");
        }
    }
}

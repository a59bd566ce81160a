//! Attempts to deliver pending notices.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use etude_runtime::clock::rfc3339;
use etude_runtime::engine::{Entry, EntryQuery, Expected, Write, Written};
use ring::hmac::{self, HMAC_SHA256, Key};
use serde_json::{Value, json};

use super::reach::{self, Outcome, Parcel};
use super::{Found, Notices};
use crate::blocking::blocking;
use crate::problem::Problem;

/// The delay after each failed attempt, in milliseconds.
const DELAYS_MS: [i64; 7] = [5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 86_400_000];

/// The lease of an attempt, in milliseconds: after it, another server may repeat the attempt.
const LEASE_MS: i64 = 60_000;

/// Maximum number of attempts that one look begins for a receiver.
const BATCH: u32 = 8;

/// Begins the attempts that are due.
pub(super) fn deliver(notices: &Arc<Notices>, found: &Found) -> Result<(), Problem> {
    let now = notices.context.clock().now_ms();
    let (state, due_ms, limit) = (Some("pending".to_owned()), Some(now), Some(BATCH));
    let due = EntryQuery { book: found.book(), state, due_ms, limit, ..EntryQuery::default() };
    for entry in notices.ledger.entries(&due)? {
        let claimed = Entry { due_ms: Some(now + LEASE_MS), ..entry.clone() };
        if replace(notices, &entry, claimed.clone())? == Written::Done {
            let (notices, found) = (Arc::clone(notices), found.clone());
            tokio::runtime::Handle::current().spawn(attempt(notices, found, claimed));
        }
    }
    Ok(())
}

/// Replaces `entry` by `next`, unless it has changed.
fn replace(notices: &Notices, entry: &Entry, next: Entry) -> Result<Written, Problem> {
    let expected = Expected::Entry { state: entry.state.clone(), due_ms: entry.due_ms };
    notices.ledger.write(&Write { entry: next, expected, submission: None, is_alone: false })
}

async fn attempt(notices: Arc<Notices>, found: Found, entry: Entry) {
    let mut body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
    let at_ms = notices.context.clock().now_ms();
    let outcome = match parcel(&notices, &found, &entry.key, &body["payload"].to_string(), at_ms) {
        Ok(parcel) => reach::send(&parcel).await,
        Err(error) => Outcome { error: Some(error), ..Outcome::default() },
    };
    let attempted = json!({"at": rfc3339(at_ms), "status": outcome.status, "error": outcome.error});
    let attempts = body["attempts"].as_array_mut().map_or(0, |attempts| {
        attempts.push(attempted);
        attempts.len()
    });
    let delay = attempts.checked_sub(1).and_then(|nth| DELAYS_MS.get(nth)).filter(|_| !outcome.is_final);
    let (state, due_ms) = match delay {
        _ if outcome.is_delivered() => ("delivered", None),
        Some(delay) => ("pending", Some(notices.context.clock().now_ms() + delay)),
        None => ("failed", None),
    };
    notices.metrics.notice(if state == "pending" { "retried" } else { state });
    let next = Entry { state: state.to_owned(), due_ms, body: body.to_string(), ..entry.clone() };
    // If the journal fails, the lease ends and the notice is sent again.
    let _ = blocking(move || replace(&notices, &entry, next)).await;
}

fn parcel(notices: &Notices, found: &Found, id: &str, body: &str, now_ms: i64) -> Result<Parcel, &'static str> {
    let notice = found.notice();
    let expand =
        |text: &str| notices.context.apps().expand(text).filter(|text| !text.is_empty()).ok_or("unset_variable");
    let (url, secret) = (expand(&notice.url)?, expand(&notice.secret)?);
    let time = now_ms.div_euclid(1_000).to_string();
    let signature = sign(&secret, id, &time, body).ok_or("secret")?;
    let headers = vec![
        ("content-type", "application/json".to_owned()),
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", time),
        ("webhook-signature", signature),
    ];
    Ok(Parcel { url, allows_private: notice.allows_private, headers, body: body.to_owned() })
}

/// The signature of Standard Webhooks; `None` if the secret is not `whsec_` and base64.
fn sign(secret: &str, id: &str, time: &str, body: &str) -> Option<String> {
    let key = STANDARD.decode(secret.strip_prefix("whsec_")?).ok().filter(|key| !key.is_empty())?;
    let tag = hmac::sign(&Key::new(HMAC_SHA256, &key), format!("{id}.{time}.{body}").as_bytes());
    Some(format!("v1,{}", STANDARD.encode(tag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-122: the signature is that of the vector of the Standard Webhooks libraries.
    #[test]
    fn a_notice_has_a_signature_of_standard_webhooks() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let signature = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "{\"test\": 2432232314}");
        assert_eq!(signature.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
        assert_eq!(sign("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a", "1", "{}"), None);
        assert_eq!(sign("whsec_", "a", "1", "{}"), None);
    }
}

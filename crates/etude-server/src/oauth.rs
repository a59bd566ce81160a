//! Access tokens of an OAuth authorization server (serve, section 4): the server is a resource server. It trusts the signature of
//! one issuer, and requests only the keys from it.

mod fetch;
mod keys;
pub(crate) mod resource;
mod token;
mod wire;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etude_spec::config::auth::Auth;

use self::keys::{Keys, Verdict};
use self::token::{Fault, LEEWAY_MS, Signed, parse};
use crate::door;
use crate::listen::Peer;
use crate::problem::{Code, Problem};
use crate::server::Server;
use crate::token::Caller;
use crate::work::event::Event;

pub(crate) use self::token::is_jwt;

/// Minimum time between two requests for the keys, whatever tokens arrive, in milliseconds.
const PAUSE_MS: i64 = 30_000;

/// Age of keys at which they are read again, in milliseconds.
const REFRESH_MS: i64 = 60 * 60 * 1_000;

/// Age of keys at which they expire, in milliseconds: an issuer may be unreachable for less than that without effect.
const HOLD_MS: i64 = 2 * REFRESH_MS;

/// Receiver of the events that an issuer is unreachable, and that it is reachable again.
type Say = Box<dyn Fn(&Event) + Send + Sync>;

/// The issuer of access tokens, with its keys as last read.
pub(crate) struct Issuer {
    auth: Auth,
    held: Mutex<Held>,
    /// Held by the task that reads the keys.
    turn: tokio::sync::Mutex<()>,
    say: Say,
}

/// The state of the keys. Times are those of the server's clock, in milliseconds since 1970.
#[derive(Debug, Default)]
struct Held {
    keys: Option<Arc<Keys>>,
    /// The time of the last successful reading.
    read_ms: i64,
    /// The time of the last request.
    asked_ms: Option<i64>,
    /// True if the last request failed.
    has_failed: bool,
}

impl Held {
    /// The keys, and true if they should be read again; `None` if they are too old.
    fn current(&self, now_ms: i64) -> Option<(Arc<Keys>, bool)> {
        let keys = self.keys.as_ref().filter(|_| age(self.read_ms, now_ms) < HOLD_MS)?;
        Some((Arc::clone(keys), age(self.read_ms, now_ms) >= REFRESH_MS))
    }

    /// The refusal of a token that came at `now_ms` with an unknown key, and that claims to be made at `claimed_ms`.
    ///
    /// The token's key may be newer than the keys here, which must not be read again yet or could not be. Then the token does not
    /// count as a guess, and its client may retry. A token that is older than the keys names a removed key. Its client gets a new
    /// token at once, however often others have the keys read. The claimed time is not verified. A false one gains the milder
    /// refusal and nothing else: no signature can be guessed, the keys are read no more often, and nothing is stored.
    fn unknown(&self, claimed_ms: Option<i64>, now_ms: i64) -> Refusal {
        let may_be_newer = claimed_ms.is_some_and(|at_ms| at_ms.saturating_add(LEEWAY_MS) >= self.read_ms);
        if self.read_ms >= now_ms || !may_be_newer {
            return Refusal::Fault(Fault::Key);
        }
        let since_ms = self.asked_ms.map_or(PAUSE_MS, |asked_ms| age(asked_ms, now_ms).min(PAUSE_MS));
        Refusal::Unread { rest_s: (PAUSE_MS - since_ms).unsigned_abs().div_ceil(1_000).max(1) }
    }

    fn may_ask(&self, now_ms: i64) -> bool {
        self.asked_ms.is_none_or(|asked_ms| age(asked_ms, now_ms) >= PAUSE_MS)
    }
}

/// The time from `then_ms` to now. Of two concurrent requests, one may have read the clock before the other, so small negative
/// ages are 0. A clock that was set back by more makes the age infinite.
fn age(then_ms: i64, now_ms: i64) -> i64 {
    match now_ms.saturating_sub(then_ms) {
        age if age < -PAUSE_MS => i64::MAX,
        age => age.max(0),
    }
}

/// Reason why a signature was not found valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// The signature or another part of the token is wrong.
    Fault(Fault),
    /// The issuer's keys cannot be read.
    Away,
    /// The token's key may be newer than the keys here, which can be read again after this time.
    Unread { rest_s: u64 },
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("auth", &self.auth).finish_non_exhaustive()
    }
}

impl Issuer {
    /// The issuer of `auth`. Its keys are read when the first token needs them.
    pub(crate) fn new(auth: &Auth, say: Say) -> Arc<Self> {
        Arc::new(Self { auth: auth.clone(), held: Mutex::default(), turn: tokio::sync::Mutex::default(), say })
    }

    /// The issuer's part of the configuration.
    pub(crate) fn auth(&self) -> &Auth {
        &self.auth
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller that a token identifies.
    async fn caller(self: &Arc<Self>, token: &str, now_ms: i64) -> Result<Caller, Refusal> {
        let signed = parse(token).map_err(Refusal::Fault)?;
        self.verify(&signed, now_ms).await?;
        signed.caller(&self.auth, now_ms).map_err(Refusal::Fault)
    }

    /// Verifies the signature of a token. Keys that are due are read in the background; the request waits for them only if the
    /// known keys cannot decide.
    async fn verify(self: &Arc<Self>, signed: &Signed<'_>, now_ms: i64) -> Result<(), Refusal> {
        let ask = |keys: &Keys| keys.verify(signed.algorithm, signed.key.as_deref(), signed.message, &signed.signature);
        let known = self.held().current(now_ms);
        if let Some((keys, is_due)) = known {
            match ask(&keys) {
                Verdict::Wrong => return Err(Refusal::Fault(Fault::Signature)),
                Verdict::Valid => {
                    if is_due && self.held().may_ask(now_ms) {
                        drop(tokio::spawn(Arc::clone(self).read(now_ms)));
                    }
                    return Ok(());
                }
                Verdict::Unknown => {}
            }
        }
        // A separate task: a client that disconnects does not end it for the others.
        let _ = tokio::spawn(Arc::clone(self).read(now_ms)).await;
        let (known, unknown) = {
            let held = self.held();
            (held.current(now_ms), held.unknown(signed.claimed_ms(), now_ms))
        };
        let Some((keys, _)) = known else { return Err(Refusal::Away) };
        match ask(&keys) {
            Verdict::Valid => Ok(()),
            Verdict::Wrong => Err(Refusal::Fault(Fault::Signature)),
            Verdict::Unknown => Err(unknown),
        }
    }

    /// Reads the keys, one reader at a time and not too often.
    async fn read(self: Arc<Self>, now_ms: i64) {
        let _turn = self.turn.lock().await;
        {
            let mut held = self.held();
            if !held.may_ask(now_ms) {
                return;
            }
            held.asked_ms = Some(now_ms);
        }
        let read = fetch::keys(&self.auth.issuer).await;
        let event = {
            let mut held = self.held();
            let failed_before = std::mem::replace(&mut held.has_failed, read.is_err());
            match (read, failed_before) {
                (Ok(keys), failed) => {
                    (held.keys, held.read_ms) = (Some(Arc::new(keys)), now_ms);
                    failed.then(|| Event::IssuerReachable { issuer: self.auth.issuer.clone() })
                }
                (Err(message), false) => Some(Event::IssuerUnreachable { issuer: self.auth.issuer.clone(), message }),
                (Err(_), true) => None,
            }
        };
        if let Some(event) = event {
            (self.say)(&event);
        }
    }
}

/// The caller of a request whose token is one of the issuer.
pub(crate) async fn caller(server: &Server, issuer: &Arc<Issuer>, peer: &Peer, token: &str) -> Result<Caller, Problem> {
    match issuer.caller(token, server.clock().now_ms()).await {
        Ok(caller) => Ok(caller),
        Err(Refusal::Away) => {
            let detail = "the keys of the issuer of access tokens cannot be read";
            Err(Problem::new(Code::JournalUnavailable, detail).hint("the server still accepts its own tokens"))
        }
        Err(Refusal::Unread { rest_s }) => {
            let detail = "the key of the access token is unknown, and the keys of its issuer were fetched a moment ago";
            Err(Problem::new(Code::JournalUnavailable, detail).retry_after(rest_s))
        }
        Err(Refusal::Fault(fault)) => {
            let refused = if fault.is_guess() { door::wrong_token(server, peer) } else { door::refused_token() };
            Err(refused.hint(fault.to_string()))
        }
    }
}

/// The end of everything that a token of an issuer has begun, in milliseconds since 1970. `None`: the caller has another token,
/// or none.
pub(crate) fn until_ms(caller: &Caller) -> Option<i64> {
    let expires_at_ms = caller.expires_at_ms.filter(|_| caller.token.is_none())?;
    Some(expires_at_ms.saturating_add(LEEWAY_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys are valid for two hours and due after one. Requests for them are half a minute apart, even if two of them read the
    /// clock in another order than they came.
    #[test]
    fn keys_grow_old() {
        let at = 1_800_000_000_000;
        let held = Held { keys: Some(Arc::default()), read_ms: at, asked_ms: Some(at), has_failed: false };
        let due = |after_ms: i64| held.current(at + after_ms).map(|(_, is_due)| is_due);
        assert_eq!([due(0), due(REFRESH_MS - 1), due(REFRESH_MS)], [Some(false), Some(false), Some(true)]);
        assert_eq!([due(HOLD_MS - 1), due(HOLD_MS), due(-PAUSE_MS - 1)], [Some(true), None, None]);
        let may = |after_ms: i64| held.may_ask(at + after_ms);
        assert_eq!([may(-1), may(PAUSE_MS - 1), may(PAUSE_MS), may(-PAUSE_MS - 1)], [false, false, true, true]);
        // A token that may be newer than the keys can retry after the pause. An older one is wrong, and so is one that had the
        // keys read.
        let unknown = |claimed_ms: i64, after_ms: i64| held.unknown(Some(at + claimed_ms), at + after_ms);
        let (wrong, unread) = (Refusal::Fault(Fault::Key), |rest_s| Refusal::Unread { rest_s });
        assert_eq!([unknown(0, 1), unknown(-LEEWAY_MS, 29_001)], [unread(30), unread(1)]);
        assert_eq!([unknown(0, 0), unknown(-LEEWAY_MS - 1, 1), held.unknown(None, at + 1)], [wrong; 3]);
        // The last reading has failed.
        assert_eq!(Held { asked_ms: Some(at + 90_000), ..held }.unknown(Some(at), at + 90_000), unread(30));
        assert!(Held::default().may_ask(at) && Held::default().current(at).is_none());
    }
}

//! Login codes, cookie sessions, and the limit of wrong tokens.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use blake3::Hash;

use crate::token::{encoded, hash, random};

/// The time for which a login code is valid.
const CODE_VALID_MS: i64 = 2 * 60 * 1000;

/// The time after which an unused session ends.
const IDLE_MS: i64 = 12 * 60 * 60 * 1000;

/// Sessions and codes beyond this number replace the oldest.
const MAX_KEPT: usize = 1_000;

/// Wrong tokens that an address may send in [`WINDOW`].
const MAX_WRONG: u32 = 10;

/// The window of [`MAX_WRONG`].
const WINDOW: Duration = Duration::from_secs(60);

/// Sessions and login codes. Only their hashes are kept.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The end of each login code.
    codes: BTreeMap<[u8; 32], i64>,
    sessions: BTreeMap<[u8; 32], Session>,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    /// The hash of the token that the session stands for.
    token: Hash,
    used_at_ms: i64,
}

impl Sessions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A login code, and the end of its validity in milliseconds since 1970.
    pub(crate) fn new_code(&self, now_ms: i64) -> (String, i64) {
        let (code, end) = (encoded(&random()), now_ms.saturating_add(CODE_VALID_MS));
        let mut state = self.state();
        state.codes.retain(|_, end| now_ms < *end);
        if state.codes.len() < MAX_KEPT {
            state.codes.insert(*hash(&code).as_bytes(), end);
        }
        (code, end)
    }

    /// Uses a login code up. True if it was valid.
    pub(crate) fn take_code(&self, code: &str, now_ms: i64) -> bool {
        self.state().codes.remove(hash(code).as_bytes()).is_some_and(|end| now_ms < end)
    }

    /// Begins a session for the token with this hash and returns the cookie's value.
    pub(crate) fn begin(&self, token: Hash, now_ms: i64) -> String {
        let secret = encoded(&random());
        let mut state = self.state();
        state.sessions.retain(|_, session| now_ms < session.used_at_ms.saturating_add(IDLE_MS));
        if state.sessions.len() >= MAX_KEPT
            && let Some(oldest) = state.sessions.iter().min_by_key(|(_, session)| session.used_at_ms).map(|(id, _)| *id)
        {
            state.sessions.remove(&oldest);
        }
        state.sessions.insert(*hash(&secret).as_bytes(), Session { token, used_at_ms: now_ms });
        secret
    }

    /// The hash of the token that a cookie stands for.
    pub(crate) fn find(&self, cookie: &str, now_ms: i64) -> Option<Hash> {
        let mut state = self.state();
        let session = state.sessions.get_mut(hash(cookie).as_bytes())?;
        if now_ms >= session.used_at_ms.saturating_add(IDLE_MS) {
            return None;
        }
        session.used_at_ms = now_ms;
        Some(session.token)
    }

    /// Ends the session of a cookie.
    pub(crate) fn end(&self, cookie: &str) {
        self.state().sessions.remove(hash(cookie).as_bytes());
    }
}

/// Counts wrong tokens by address.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    wrong: Mutex<BTreeMap<String, (Instant, u32)>>,
}

impl Throttle {
    /// Notes a wrong token. True if the address has sent too many.
    pub(crate) fn note(&self, address: &str, now: Instant) -> bool {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
        if wrong.len() >= 10_000 && !wrong.contains_key(address) {
            return true;
        }
        let (_, count) = wrong.entry(address.to_owned()).or_insert((now, 0));
        *count += 1;
        *count > MAX_WRONG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-19: a login code works once, and not after two minutes.
    #[test]
    fn a_login_code_works_once_for_two_minutes() {
        let sessions = Sessions::default();
        let (code, end) = sessions.new_code(1_000);
        assert_eq!(end, 121_000);
        assert!(sessions.take_code(&code, 120_999));
        assert!(!sessions.take_code(&code, 120_999));
        let (code, _) = sessions.new_code(1_000);
        assert!(!sessions.take_code(&code, 121_000));
    }

    /// S-20: a session ends with its logout, and after twelve idle hours.
    #[test]
    fn a_session_ends_with_logout_and_when_idle() {
        let sessions = Sessions::default();
        let token = hash("token");
        let cookie = sessions.begin(token, 0);
        assert_eq!(sessions.find(&cookie, IDLE_MS - 1), Some(token));
        assert_eq!(sessions.find(&cookie, 2 * IDLE_MS - 2), Some(token));
        assert_eq!(sessions.find(&cookie, 3 * IDLE_MS), None);
        let cookie = sessions.begin(token, 0);
        sessions.end(&cookie);
        assert_eq!(sessions.find(&cookie, 1), None);
    }

    /// S-22: the eleventh wrong token in a minute is one too many.
    #[test]
    fn the_eleventh_wrong_token_in_a_minute_is_too_many() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..10 {
            assert!(!throttle.note("127.0.0.1", now));
        }
        assert!(throttle.note("127.0.0.1", now));
        assert!(!throttle.note("::1", now));
        assert!(!throttle.note("127.0.0.1", now + WINDOW));
    }
}

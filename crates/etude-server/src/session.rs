//! Login codes, cookie sessions, and the limit of wrong tokens.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use blake3::Hash;
use etude_files::private;
use etude_files::whole::{self, Access, Durability};

use crate::token::{encoded, hash, random};

/// Validity of a login code, in milliseconds.
const CODE_VALID_MS: i64 = 2 * 60 * 1000;

/// Idle time after which a session ends, in milliseconds.
const IDLE_MS: i64 = 12 * 60 * 60 * 1000;

/// Maximum number of sessions, and of codes.
const MAX_KEPT: usize = 1_000;

/// Maximum number of wrong tokens of an address in [`WINDOW`].
const MAX_WRONG: u32 = 10;

/// The window of [`MAX_WRONG`].
const WINDOW: Duration = Duration::from_secs(60);

/// Maximum difference between the time in a session's file and its last use, in milliseconds.
const NOTED_MS: i64 = 10 * 60 * 1000;

/// Interval of removing files of ended sessions, while sessions begin, in milliseconds.
const LOOK_MS: i64 = 60 * 60 * 1000;

/// Sessions and login codes. Only their hashes are stored. A session has a file too, so that it survives the server.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// The directory of session files.
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The expiry of each login code, and the token whose session it begins; `None`: the owner's.
    codes: BTreeMap<[u8; 32], (i64, Option<Hash>)>,
    sessions: BTreeMap<[u8; 32], Session>,
    /// The next look for files of ended sessions, in milliseconds since 1970.
    next_look_ms: i64,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    /// The hash of the token that the session represents.
    token: Hash,
    used_at_ms: i64,
    /// The value of [`Self::used_at_ms`] in the file.
    noted_at_ms: i64,
}

impl Session {
    fn is_over(&self, now_ms: i64) -> bool {
        now_ms >= self.used_at_ms.saturating_add(IDLE_MS)
    }

    /// Reads the file of a session.
    fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let (token, used) = text.trim_end().split_once(' ')?;
        let used_at_ms = used.parse().ok()?;
        Some(Self { token: Hash::from_hex(token).ok()?, used_at_ms, noted_at_ms: used_at_ms })
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(dir) = path.parent() {
            private::create_dir_all(dir)?;
        }
        let text = format!("{} {}\n", self.token.to_hex(), self.used_at_ms);
        whole::replace(path, text.as_bytes(), Access::Owner, Durability::Process)
    }
}

impl Sessions {
    /// The sessions whose files are in `dir`.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), state: Mutex::default() }
    }

    fn path(&self, id: &[u8; 32]) -> PathBuf {
        self.dir.join(Hash::from_bytes(*id).to_hex().as_str())
    }

    /// Deletes the file of a session, if there is one.
    fn forget(&self, id: &[u8; 32]) {
        drop(fs::remove_file(self.path(id)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A login code for a session of the token with this hash, or of the owner's; and its expiry in milliseconds since 1970.
    pub(crate) fn new_code(&self, token: Option<Hash>, now_ms: i64) -> (String, i64) {
        let (code, end) = (encoded(&random()), now_ms.saturating_add(CODE_VALID_MS));
        let mut state = self.state();
        state.codes.retain(|_, (end, _)| now_ms < *end);
        if state.codes.len() < MAX_KEPT {
            state.codes.insert(*hash(&code).as_bytes(), (end, token));
        }
        (code, end)
    }

    /// Consumes a login code. If it was valid, returns the token whose session it begins; the inner `None` is the owner's.
    pub(crate) fn take_code(&self, code: &str, now_ms: i64) -> Option<Option<Hash>> {
        let (end, token) = self.state().codes.remove(hash(code).as_bytes())?;
        (now_ms < end).then_some(token)
    }

    /// Removes the files of ended sessions, including those that no server remembers.
    fn remove_over(&self, now_ms: i64) {
        // Another server may have used the session up to this much later.
        let is_over = |session: Session| session.is_over(now_ms.saturating_sub(NOTED_MS));
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if Session::read(&path).is_some_and(is_over) {
                drop(fs::remove_file(path));
            }
        }
    }

    /// Begins a session for the token with this hash and returns the cookie's value.
    pub(crate) fn begin(&self, token: Hash, now_ms: i64) -> String {
        let secret = encoded(&random());
        let id = *hash(&secret).as_bytes();
        let session = Session { token, used_at_ms: now_ms, noted_at_ms: now_ms };
        let mut state = self.state();
        let over: Vec<[u8; 32]> =
            state.sessions.iter().filter(|(_, session)| session.is_over(now_ms)).map(|(id, _)| *id).collect();
        let oldest = state.sessions.iter().min_by_key(|(_, session)| session.used_at_ms).map(|(id, _)| *id);
        let oldest = oldest.filter(|_| state.sessions.len() - over.len() >= MAX_KEPT);
        for id in over.into_iter().chain(oldest) {
            state.sessions.remove(&id);
            self.forget(&id);
        }
        if now_ms >= state.next_look_ms {
            state.next_look_ms = now_ms.saturating_add(LOOK_MS);
            self.remove_over(now_ms);
        }
        // A session whose file cannot be written ends with the server.
        drop(session.write(&self.path(&id)));
        state.sessions.insert(id, session);
        secret
    }

    /// The hash of the token whose session has this cookie. Counts as a use.
    pub(crate) fn find(&self, cookie: &str, now_ms: i64) -> Option<Hash> {
        let id = *hash(cookie).as_bytes();
        let mut state = self.state();
        let known = state.sessions.get(&id).copied();
        let mut session = known.or_else(|| Session::read(&self.path(&id)))?;
        if session.is_over(now_ms) {
            state.sessions.remove(&id);
            self.forget(&id);
            return None;
        }
        session.used_at_ms = now_ms;
        if now_ms >= session.noted_at_ms.saturating_add(NOTED_MS) {
            session.noted_at_ms = now_ms;
            drop(session.write(&self.path(&id)));
        }
        state.sessions.insert(id, session);
        Some(session.token)
    }

    /// True if the session of a cookie with this hash has not ended.
    pub(crate) fn is_open(&self, cookie: Hash, now_ms: i64) -> bool {
        self.state().sessions.get(cookie.as_bytes()).is_some_and(|session| !session.is_over(now_ms))
    }

    /// Ends the session of a cookie.
    pub(crate) fn end(&self, cookie: &str) {
        let id = *hash(cookie).as_bytes();
        self.state().sessions.remove(&id);
        self.forget(&id);
    }
}

/// Counters of wrong tokens by address.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    wrong: Mutex<BTreeMap<String, (Instant, u32)>>,
}

impl Throttle {
    /// Counts a wrong token. True if the address has sent too many.
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
        let sessions = Sessions::new(Path::new("none"));
        let (code, end) = sessions.new_code(None, 1_000);
        assert_eq!(end, 121_000);
        assert_eq!(sessions.take_code(&code, 120_999), Some(None));
        assert_eq!(sessions.take_code(&code, 120_999), None);
        let (code, _) = sessions.new_code(None, 1_000);
        assert_eq!(sessions.take_code(&code, 121_000), None);
        let token = hash("a token");
        let (code, _) = sessions.new_code(Some(token), 1_000);
        assert_eq!(sessions.take_code(&code, 2_000), Some(Some(token)));
    }

    /// S-20: a session ends with its logout, and after twelve idle hours.
    #[test]
    fn a_session_ends_with_logout_and_when_idle() {
        let dir = tempfile::tempdir().expect("a directory");
        let sessions = Sessions::new(dir.path());
        let token = hash("token");
        let cookie = sessions.begin(token, 0);
        assert_eq!(sessions.find(&cookie, IDLE_MS - 1), Some(token));
        assert_eq!(sessions.find(&cookie, 2 * IDLE_MS - 2), Some(token));
        assert_eq!(sessions.find(&cookie, 3 * IDLE_MS), None);
        let cookie = sessions.begin(token, 0);
        sessions.end(&cookie);
        assert_eq!(sessions.find(&cookie, 1), None);
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 0, "an ended session has no file");
    }

    /// S-135: a session outlives the server, with the same limits, and ends in all servers.
    #[test]
    fn a_session_outlives_the_server() {
        let dir = tempfile::tempdir().expect("a directory");
        let (token, first) = (hash("token"), Sessions::new(dir.path()));
        let cookie = first.begin(token, 0);
        assert_eq!(first.find(&cookie, NOTED_MS), Some(token));
        let next = Sessions::new(dir.path());
        assert_eq!(next.find(&cookie, NOTED_MS + IDLE_MS - 1), Some(token));
        assert_eq!(Sessions::new(dir.path()).find(&cookie, NOTED_MS + 2 * IDLE_MS), None);
        let cookie = next.begin(token, 0);
        next.end(&cookie);
        assert_eq!(Sessions::new(dir.path()).find(&cookie, 1), None);
    }

    /// S-135: the file of a session that no server remembers is removed after its end.
    #[test]
    fn files_of_sessions_that_are_over_do_not_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let token = hash("token");
        let files = || fs::read_dir(dir.path()).expect("a directory").count();
        Sessions::new(dir.path()).begin(token, 0);
        let next = Sessions::new(dir.path());
        next.begin(token, IDLE_MS);
        assert_eq!(files(), 2, "another server may have noted its use late");
        next.begin(token, IDLE_MS + LOOK_MS);
        assert_eq!(files(), 2, "the first one is over, and the others are not");
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

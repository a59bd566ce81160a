//! Access tokens: their form, their scopes, and the file that holds their hashes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use blake3::Hash;
use etude_core::words;
use etude_files::private;
use etude_files::whole::{self, Access, Durability};
use serde_json::{Value, json};
use tokio::sync::watch;

use self::wire::{Kept, parse};

mod wire;

/// The name of the owner's token.
pub const OWNER: &str = "owner";

/// The prefix of every token, so that scanners of secrets recognize it.
const PREFIX: &str = "etd_";

/// Crockford's alphabet.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Length of the random part: 32 characters with 160 bits.
const RANDOM: usize = 32;

/// Length of the checksum: 6 characters with 30 bits.
const CHECKSUM: usize = 6;

/// Maximum size of the file of hashed tokens, in bytes.
const MAX_FILE: u64 = 16 * 1024 * 1024;

words! {
    /// A permission of a token, by its word in commands and documents.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Scope {
        /// Read access.
        Read = "read",
        /// Permission to start, cancel and resume runs.
        Run = "run",
        /// Permission to decide questions.
        Approve = "approve",
        /// All permissions.
        Admin = "admin",
    }
}

/// The authenticated caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token.
    pub name: String,
    /// The scopes of the token; `admin` passes all routes.
    pub scopes: Vec<Scope>,
    /// Globs of the visible pipelines, machines and skills; empty: all.
    pub only: Vec<String>,
    /// The expiry in milliseconds since 1970.
    pub expires_at_ms: Option<i64>,
    /// The hash of the token; `None` for the owner of the process itself, and for tokens of an issuer.
    pub(crate) token: Option<Hash>,
    /// The hash of the cookie, if a session represents the token in this request.
    pub(crate) session: Option<Hash>,
}

impl Caller {
    /// The caller with all rights: the owner of the server.
    pub fn owner() -> Self {
        Self {
            name: OWNER.to_owned(),
            scopes: vec![Scope::Admin],
            only: Vec::new(),
            expires_at_ms: None,
            token: None,
            session: None,
        }
    }

    /// True if the token permits `scope`.
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|own| *own == scope || *own == Scope::Admin)
    }

    /// True if the token covers the pipeline, machine or skill `name`.
    pub fn covers(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|glob| matches_glob(glob, name))
    }
}

/// True if `name` matches `glob`, in which `*` stands for any characters and `?` for one.
fn matches_glob(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    let (mut at, mut of, mut star) = (0, 0, None);
    while of < name.len() {
        match glob.get(at) {
            Some('*') => {
                star = Some((at, of));
                at += 1;
            }
            Some(letter) if *letter == '?' || *letter == name[of] => {
                at += 1;
                of += 1;
            }
            _ => match star {
                Some((back, taken)) => {
                    star = Some((back, taken + 1));
                    at = back + 1;
                    of = taken + 1;
                }
                None => return false,
            },
        }
    }
    glob[at..].iter().all(|letter| *letter == '*')
}

/// A secret with 160 random bits.
pub(crate) fn random() -> [u8; 20] {
    let mut hasher = blake3::Hasher::new();
    // Two UUIDs carry 244 random bits; the hash spreads them.
    hasher.update(uuid::Uuid::new_v4().as_bytes()).update(uuid::Uuid::new_v4().as_bytes());
    let mut bytes = [0; 20];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// Encodes bytes in Crockford's alphabet.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    let (mut bits, mut have, mut text) = (0_u32, 0, String::new());
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        have += 8;
        while have >= 5 {
            have -= 5;
            text.push(char::from(ALPHABET[(bits >> have & 31) as usize]));
        }
        bits &= (1 << have) - 1;
    }
    text
}

fn checksum(random: &str) -> String {
    let hash = blake3::derive_key("etude access token checksum 1", random.as_bytes());
    let mut text = encoded(&hash[..5]);
    text.truncate(CHECKSUM);
    text
}

/// A new token.
fn generate() -> String {
    let random = encoded(&random());
    format!("{PREFIX}{random}{}", checksum(&random))
}

/// True if `text` has the form of a token.
fn is_well_formed(text: &str) -> bool {
    let Some(rest) = text.strip_prefix(PREFIX) else { return false };
    rest.len() == RANDOM + CHECKSUM && rest.is_ascii() && checksum(&rest[..RANDOM]) == rest[RANDOM..]
}

/// The hash under which a token is stored.
pub(crate) fn hash(secret: &str) -> Hash {
    blake3::hash(secret.as_bytes())
}

/// The tokens of a user.
#[derive(Debug)]
pub struct Tokens {
    dir: PathBuf,
    /// The content of the file at its last reading, with its tokens.
    last: Mutex<(Vec<u8>, Vec<Kept>)>,
    owner: Mutex<Option<Hash>>,
    /// The number of observed changes of the file.
    changes: watch::Sender<u64>,
}

/// A token to be created.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// The name for people and logs: 1 to 64 letters, digits, `.`, `_` or `-`.
    pub name: String,
    /// The scopes of the token; `admin` passes all routes.
    pub scopes: Vec<Scope>,
    /// Globs of the visible pipelines, machines and skills; empty: all.
    pub only: Vec<String>,
    /// The expiry in milliseconds since 1970; `None`: never.
    pub expires_at_ms: Option<i64>,
}

/// Failure of an operation on tokens.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name has other characters, or the wrong length.
    #[error("`{0}` is not a token name: use 1 to 64 letters, digits, `.`, `_` or `-`")]
    Name(String),
    /// The name is in use.
    #[error("there is already a token `{0}`")]
    Exists(String),
    /// There is no such token.
    #[error("there is no token `{0}`")]
    Unknown(String),
    /// The owner's token cannot be revoked.
    #[error("the token `{OWNER}` belongs to the server and cannot be revoked")]
    Owner,
    /// The file cannot be read or written.
    #[error("`{}` cannot be used: {source}", path.display())]
    Io {
        /// The file of hashed tokens.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
}

impl Tokens {
    /// The tokens in the directory `dir`, which may be missing.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), last: Mutex::default(), owner: Mutex::default(), changes: watch::Sender::default() }
    }

    fn owner_path(&self) -> PathBuf {
        self.dir.join("owner.token")
    }

    fn path(&self) -> PathBuf {
        self.dir.join("tokens.json")
    }

    /// The owner's token; it is created if there is none.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn owner(&self) -> Result<String, Error> {
        let path = self.owner_path();
        let failed = |source| Error::Io { path: path.clone(), source };
        let _lock = self.lock()?;
        match fs::read_to_string(&path) {
            Ok(text) if is_well_formed(text.trim_end()) => {
                // Opening the file corrects a mode that was widened.
                private::open(&path, OpenOptions::new().read(true)).map_err(failed)?;
                return Ok(text.trim_end().to_owned());
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let token = generate();
        replace(&path, format!("{token}\n").as_bytes()).map_err(failed)?;
        Ok(token)
    }

    /// Creates a token and returns it. Only its hash is stored.
    ///
    /// # Errors
    /// The name is invalid or in use, or the file cannot be read or written.
    pub fn create(&self, new: &NewToken, now_ms: i64) -> Result<String, Error> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
        if !(1..=64).contains(&new.name.len()) || !new.name.chars().all(is_name) {
            return Err(Error::Name(new.name.clone()));
        }
        let token = generate();
        self.change(|tokens| {
            if new.name == OWNER || tokens.iter().any(|kept| kept.name == new.name) {
                return Err(Error::Exists(new.name.clone()));
            }
            tokens.push(Kept {
                name: new.name.clone(),
                blake3: hash(&token).to_hex().to_string(),
                scopes: new.scopes.iter().map(|scope| scope.word().to_owned()).collect(),
                only: new.only.clone(),
                created_at_ms: now_ms,
                expires_at_ms: new.expires_at_ms,
            });
            Ok(())
        })?;
        Ok(token)
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// There is no such token, or the file cannot be read or written.
    pub fn revoke(&self, name: &str) -> Result<(), Error> {
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|kept| kept.name != name);
            match (name, tokens.len() < before) {
                (_, true) => Ok(()),
                (OWNER, false) => Err(Error::Owner),
                _ => Err(Error::Unknown(name.to_owned())),
            }
        })
    }

    /// The tokens, in the order of their creation, as documents without any secret.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list(&self) -> Result<Vec<Value>, Error> {
        let document = |kept: &Kept| {
            json!({
                "name": kept.name, "scopes": kept.scopes, "only": kept.only,
                "created_at": etude_runtime::clock::rfc3339(kept.created_at_ms),
                "expires_at": kept.expires_at_ms.map(etude_runtime::clock::rfc3339),
            })
        };
        self.with(|tokens| tokens.iter().map(document).collect())
    }

    /// The caller with this token; `None` if it is wrong, expired or revoked. Hashes are compared in constant time.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn find(&self, token: &str, now_ms: i64) -> Result<Option<Caller>, Error> {
        if !is_well_formed(token) {
            return Ok(None);
        }
        self.find_hash(hash(token), now_ms)
    }

    /// The caller whose token has this hash; `None` if it is expired or revoked.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn find_hash(&self, given: Hash, now_ms: i64) -> Result<Option<Caller>, Error> {
        if self.owner_hash() == Some(given) {
            return Ok(Some(Caller { token: Some(given), ..Caller::owner() }));
        }
        self.with(|tokens| caller_of(tokens, given, now_ms))
    }

    /// True if the token of a caller is still valid according to the last reading of the file. [`look`](Self::look) reads it.
    pub(crate) fn is_valid(&self, token: Option<Hash>, now_ms: i64) -> bool {
        let Some(token) = token else { return true };
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        caller_of(&last.1, token, now_ms).is_some() || self.owner_hash() == Some(token)
    }

    /// Checks if another process has changed the tokens. Requests report a file that cannot be used.
    pub(crate) fn look(&self) {
        let _ = self.with(|_| ());
    }

    /// A receiver that changes after a change of the tokens, which ends the streams of revoked ones (S-17).
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The hash of the owner's token. The token never changes, so it is read only once.
    fn owner_hash(&self) -> Option<Hash> {
        let mut known = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            let text = fs::read_to_string(self.owner_path()).ok()?;
            *known = Some(hash(text.trim_end()));
        }
        *known
    }

    /// Reads the file, parses it if it has changed, and passes its tokens to `work`.
    fn with<T>(&self, work: impl FnOnce(&[Kept]) -> T) -> Result<T, Error> {
        let path = self.path();
        let failed = |source| Error::Io { path: path.clone(), source };
        let bytes = match etude_files::regular::read(&path, MAX_FILE) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != bytes {
            let tokens = parse(&bytes).map_err(failed)?;
            *last = (bytes, tokens);
            self.changes.send_modify(|changes| *changes += 1);
        }
        Ok(work(&last.1))
    }

    fn change(&self, work: impl FnOnce(&mut Vec<Kept>) -> Result<(), Error>) -> Result<(), Error> {
        let _lock = self.lock()?;
        let mut tokens = self.with(<[Kept]>::to_vec)?;
        work(&mut tokens)?;
        let path = self.path();
        let text = json!({"version": 1, "tokens": tokens}).to_string();
        replace(&path, text.as_bytes()).map_err(|source| Error::Io { path, source })?;
        self.look();
        Ok(())
    }

    /// Keeps other processes from changing tokens until the returned file is closed.
    fn lock(&self) -> Result<File, Error> {
        let path = self.dir.join("tokens.lock");
        private::lock(&path).map_err(|source| Error::Io { path, source })
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    whole::replace(path, bytes, Access::Owner, Durability::Power)
}

/// The caller whose token has this hash, if it is valid at that time.
fn caller_of(tokens: &[Kept], given: Hash, now_ms: i64) -> Option<Caller> {
    // All tokens are compared, so that the time does not depend on the match.
    let fits = |kept: &&Kept| Hash::from_hex(&kept.blake3).is_ok_and(|own| own == given);
    let found = tokens.iter().rfind(fits)?;
    let is_valid = found.expires_at_ms.is_none_or(|end| now_ms < end);
    is_valid.then(|| Caller {
        name: found.name.clone(),
        scopes: found.scopes.iter().filter_map(|word| Scope::from_word(word)).collect(),
        only: found.only.clone(),
        expires_at_ms: found.expires_at_ms,
        token: Some(given),
        session: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_prefix_160_bits_and_a_checksum() {
        let token = generate();
        assert_eq!(token.len(), PREFIX.len() + RANDOM + CHECKSUM);
        assert!(is_well_formed(&token));
        let mut other = token.into_bytes();
        other[10] = if other[10] == b'0' { b'1' } else { b'0' };
        assert!(!is_well_formed(std::str::from_utf8(&other).expect("it is ASCII")));
        for wrong in ["", "etd_", "etd_é", "x"] {
            assert!(!is_well_formed(wrong), "{wrong}");
        }
    }

    #[test]
    fn globs_match_names() {
        for (glob, name, matches) in [
            ("deploy-*", "deploy-eu", true),
            ("deploy-*", "deploy", false),
            ("*", "x", true),
            ("a?c", "abc", true),
            ("*-eu-*", "a-eu-b-eu-c", true),
            ("a*b", "acd", false),
            ("deploy", "deployment", false),
        ] {
            assert_eq!(matches_glob(glob, name), matches, "{glob} {name}");
        }
    }

    /// S-17: a token is refused once it is revoked or expired.
    #[test]
    fn revoked_and_expired_tokens_are_wrong() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::new(dir.path());
        let new = |name: &str, expires_at_ms| NewToken {
            name: name.to_owned(),
            scopes: vec![Scope::Read],
            only: Vec::new(),
            expires_at_ms,
        };
        let (ci, old) =
            (tokens.create(&new("ci", None), 1).expect("ci"), tokens.create(&new("old", Some(100)), 1).expect("old"));
        let name = |token: &str, now| tokens.find(token, now).expect("the file").map(|caller| caller.name);
        assert_eq!(name(&ci, 50).as_deref(), Some("ci"));
        assert_eq!(name(&old, 99).as_deref(), Some("old"));
        assert_eq!(name(&old, 100), None);
        assert!(matches!(tokens.create(&new("ci", None), 1), Err(Error::Exists(_))));
        // Another process revokes the token.
        Tokens::new(dir.path()).revoke("ci").expect("revoked");
        // A thousand streams check each second without reading the file; only a look reads it.
        let token = Some(hash(&ci));
        assert!(tokens.is_valid(token, 50));
        tokens.look();
        assert!(!tokens.is_valid(token, 50));
        assert_eq!(name(&ci, 50), None);
    }
}

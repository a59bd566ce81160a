//! Confirmations: a person's one-time answer to one command with exact arguments and content (C-1.14).

mod wire;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use etude_spec::application::findings;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{CommandCall, Envelope, Fresh, RunEffect, Status};
use crate::ledger::{Ledger, LedgerError};
use etude_runtime::{clock, run_id};

/// Lifetime of a request until its answer is used, in milliseconds.
const LIFETIME_MS: i64 = 60 * 60 * 1_000;

/// Time for which answers are remembered after they expire, in milliseconds, so that a command can report a stale one.
const MEMORY_MS: i64 = 7 * 24 * 60 * 60 * 1_000;

/// Prefix of request ids.
const PREFIX: &str = "ask-";

/// The requests of one user, with their answers.
#[derive(Debug, Clone)]
pub struct Confirmations {
    requests: Ledger,
    log: Ledger,
}

/// A question about one command, kept until it is answered and used, or expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Random and unique; answers refer to it.
    pub id: String,
    /// Slug of the package.
    pub slug: String,
    /// Version of the package, as written in its contract.
    pub version: String,
    /// Directory of the package, absolute.
    pub root: PathBuf,
    /// Digest of the package's content: an answer counts for this content only.
    pub digest: String,
    /// Declared path of the command.
    pub command: String,
    /// The complete command line.
    pub argv: Vec<String>,
    /// SHA-256 digest of the stdin; `None`: empty stdin.
    pub stdin: Option<String>,
    /// Variables that the caller has added, with the SHA-256 digests of their values. Documents show only the names: a value
    /// may be a secret, and the digest of a short value reveals it.
    pub env: BTreeMap<String, String>,
    /// Expiry time, in milliseconds since 1970.
    pub expires_ms: i64,
    /// The person's answer; `None`: open.
    pub answer: Option<Answer>,
    /// True if the answer has been used.
    pub is_used: bool,
    /// The effect of a run that has used the answer.
    used_by: Option<String>,
}

/// Values that bind an answer, besides the command and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Digest of the package's content.
    pub digest: String,
    /// Digest of the stdin; `None`: empty stdin.
    pub stdin: Option<String>,
    /// Variables that the caller has added, with the digests of their values.
    pub env: BTreeMap<String, String>,
}

impl Bound {
    /// Binds an answer to the content `digest`, the bytes on stdin, and the variables that the caller has added.
    pub fn new(digest: impl Into<String>, stdin: Option<&[u8]>, env: BTreeMap<&str, &OsStr>) -> Self {
        let hash = |bytes: &[u8]| format!("sha256:{}", etude_core::digest::hex(&Sha256::digest(bytes)));
        Self {
            digest: digest.into(),
            stdin: stdin.filter(|bytes| !bytes.is_empty()).map(hash),
            env: env.into_iter().map(|(name, value)| (name.to_owned(), hash(value.as_encoded_bytes()))).collect(),
        }
    }
}

/// A person's answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// True for a confirmation, false for a denial.
    pub approved: bool,
    /// The person who answered, as the front end names them.
    pub by: String,
    /// Time of the answer, RFC 3339 in UTC.
    pub at: String,
    /// The person's reason for a denial; `None`: none was given.
    pub reason: Option<String>,
}

/// The decision about a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A person has confirmed the command; the answer is now used.
    Confirmed(Answer),
    /// A person has denied the command; the answer is now used.
    Denied(Answer),
    /// A question to a person is open.
    Waiting {
        /// The open question; answers refer to its id.
        request: Box<Request>,
        /// Reason why an earlier answer does not count.
        stale: Option<&'static str>,
    },
}

/// Reason why an answer was rejected.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The request does not exist.
    #[error("there is no request `{0}`")]
    Unknown(String),
    /// The request has been answered already.
    #[error("`{0}` has already been answered")]
    Answered(String),
    /// The request has expired.
    #[error("`{0}` has expired; run the command again for a new request")]
    Expired(String),
    /// The file of requests cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Confirmations {
    /// The requests below the user's state directory.
    pub fn new(state_dir: &Path) -> Self {
        let ledger = |name| Ledger::new(state_dir, name);
        Self { requests: ledger("confirmations.json"), log: ledger("confirmations.log") }
    }

    /// True if `id` has the form of a request id.
    pub fn is_id(id: &str) -> bool {
        id.starts_with(PREFIX)
    }

    /// Decides whether a command may run now, with this content and this stdin. The answer is used up, except for the same
    /// effect of a run: that effect is repeated after a crash, and is not another call.
    ///
    /// # Errors
    /// The file of requests cannot be used.
    pub fn ask(&self, call: &CommandCall, bound: &Bound, by: Option<&RunEffect>) -> Result<Verdict, LedgerError> {
        let now = clock::now_ms();
        self.change(|requests| {
            requests.retain(|request| request.expires_ms + MEMORY_MS > now);
            let is_open = |request: &Request| request.is_open(call, bound, by, now);
            if let Some(request) = requests.iter_mut().find(|request| is_open(request) && request.answer.is_some()) {
                request.is_used = true;
                request.used_by = by.map(RunEffect::to_string);
                if let Some(answer) = request.answer.clone() {
                    return if answer.approved { Verdict::Confirmed(answer) } else { Verdict::Denied(answer) };
                }
            }
            let stale = requests.iter().rfind(|request| request.is_about(call) && request.answer.is_some());
            let stale = stale.map(|earlier| why_stale(earlier, bound, &call.argv));
            let waiting = requests.iter().find(|request| is_open(request)).cloned();
            let request = waiting.unwrap_or_else(|| {
                let request = new_request(call, bound, now);
                requests.push(request.clone());
                request
            });
            Verdict::Waiting { request: Box::new(request), stale }
        })
        .inspect(|verdict| self.note(call, verdict))
    }

    /// True if a request for exactly this call is open or answered, or was answered for this very effect.
    ///
    /// # Errors
    /// The file of requests cannot be used.
    pub fn is_open(&self, call: &CommandCall, bound: &Bound, by: Option<&RunEffect>) -> Result<bool, LedgerError> {
        let now = clock::now_ms();
        let requests = self.requests.read(wire::parse)?;
        Ok(requests.iter().any(|request| request.is_open(call, bound, by, now)))
    }

    /// The current state of the request `id`.
    ///
    /// # Errors
    /// The file of requests cannot be used.
    pub fn find(&self, id: &str) -> Result<Option<Request>, LedgerError> {
        Ok(self.requests.read(wire::parse)?.into_iter().find(|request| request.id == id))
    }

    /// Records a person's answer.
    ///
    /// # Errors
    /// No open request has this id, or the file of requests cannot be used.
    pub fn answer(&self, id: &str, answer: Answer) -> Result<Request, AnswerError> {
        let now = clock::now_ms();
        let answered = self.change(|requests| {
            let Some(request) = requests.iter_mut().find(|request| request.id == id) else {
                return Err(AnswerError::Unknown(id.to_owned()));
            };
            if request.answer.is_some() {
                return Err(AnswerError::Answered(id.to_owned()));
            }
            if request.expires_ms <= now {
                return Err(AnswerError::Expired(id.to_owned()));
            }
            request.answer = Some(answer);
            Ok(request.clone())
        })??;
        let decision = answered.answer.as_ref();
        let entry = json!({
            "at": decision.map(|answer| &answer.at), "event": "answered", "id": id, "slug": answered.slug, "argv": answered.argv,
            "approved": decision.map(|answer| answer.approved), "by": decision.map(|answer| &answer.by),
            "reason": decision.and_then(|answer| answer.reason.as_ref()),
        });
        self.log.note(&entry)?;
        Ok(answered)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Request>) -> T) -> Result<T, LedgerError> {
        let _lock = self.requests.lock()?;
        let mut requests = self.requests.read(wire::parse)?;
        let result = change(&mut requests);
        self.requests.write(wire::document(requests))?;
        Ok(result)
    }

    /// Logs the decision. A failure to log must not change the decision.
    fn note(&self, call: &CommandCall, verdict: &Verdict) {
        let (event, by) = match verdict {
            Verdict::Confirmed(answer) => ("confirmed", Some(&answer.by)),
            Verdict::Denied(answer) => ("denied", Some(&answer.by)),
            Verdict::Waiting { .. } => ("asked", None),
        };
        let entry = json!({
            "at": clock::now_rfc3339(), "event": event, "slug": call.package.contract.slug,
            "root": call.package.root, "argv": call.argv, "by": by,
        });
        let _ = self.log.note(&entry);
    }
}

fn new_request(call: &CommandCall, bound: &Bound, now: i64) -> Request {
    Request {
        id: format!("{PREFIX}{}", run_id::new()),
        slug: call.package.contract.slug.clone(),
        version: call.package.contract.version.clone(),
        root: call.package.root.clone(),
        digest: bound.digest.clone(),
        stdin: bound.stdin.clone(),
        env: bound.env.clone(),
        command: call.command.clone(),
        argv: call.argv.clone(),
        expires_ms: now + LIFETIME_MS,
        answer: None,
        is_used: false,
        used_by: None,
    }
}

fn why_stale(earlier: &Request, bound: &Bound, argv: &[String]) -> &'static str {
    if earlier.argv != argv {
        "it was for other arguments"
    } else if earlier.digest != bound.digest {
        "the package has changed since"
    } else if earlier.stdin != bound.stdin {
        "it was for a different stdin"
    } else if earlier.env != bound.env {
        "it was for other environment variables"
    } else if earlier.is_used {
        "it has been used"
    } else {
        "it has expired"
    }
}

impl Request {
    fn is_about(&self, call: &CommandCall) -> bool {
        self.root == call.package.root && self.command == call.command
    }

    /// True if the request is for exactly this call with this content, is unused and has not expired.
    fn is_open(&self, call: &CommandCall, bound: &Bound, by: Option<&RunEffect>, now: i64) -> bool {
        let own = Bound { digest: self.digest.clone(), stdin: self.stdin.clone(), env: self.env.clone() };
        let is_exact = own == *bound && self.argv == call.argv;
        let is_same = self.used_by.is_some() && self.used_by == by.map(RunEffect::to_string);
        self.is_about(call) && is_exact && (is_same || !self.is_used && self.expires_ms > now)
    }

    /// The request as documents show it, with the facts for the person.
    pub fn document(&self, fresh: &Fresh) -> Value {
        let mut document = json!({
            "id": self.id,
            "slug": self.slug,
            "version": self.version,
            "root": self.root,
            "digest": self.digest,
            "command": self.command,
            "argv": self.argv,
            "expires_at": clock::rfc3339(self.expires_ms),
            "description": fresh.description,
            "state": fresh.state,
        });
        if let Some(stdin) = &self.stdin {
            document["stdin"] = json!(stdin);
        }
        if !self.env.is_empty() {
            document["env"] = self.env.keys().cloned().collect();
        }
        document
    }
}

#[cfg(test)]
mod tests;

impl CommandCall {
    /// The document of a command that waits for confirmation.
    pub fn waiting(&self, request: &Request, stale: Option<&str>, fresh: &Fresh) -> Envelope {
        let path = self.package.file();
        let stale = stale.map(|why| findings::not_confirmed_any_more(&path, &self.command, why));
        let diagnostics =
            stale.into_iter().chain([findings::must_be_confirmed(&path, &self.command, &request.id)]).collect();
        let mut envelope = self.envelope(Status::ConfirmationRequired, diagnostics);
        envelope.confirmation = Some(request.document(fresh));
        envelope
    }
}

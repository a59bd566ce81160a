//! Confirmations: a person's answer to one command with exactly these arguments, of exactly this content, once (C-1.14).

mod wire;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use etude_spec::application::findings;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Call, Envelope, Fresh, RunEffect, Status};
use crate::ledger::{Ledger, LedgerError};
use etude_runtime::{clock, run_id};

/// How long a request waits for an answer, and an answer for its command, in milliseconds.
const LIFETIME_MS: i64 = 60 * 60 * 1_000;

/// How long answers are remembered, in milliseconds: so long a command learns that an earlier answer does not count.
const MEMORY_MS: i64 = 7 * 24 * 60 * 60 * 1_000;

/// What ids of requests begin with.
const PREFIX: &str = "ask-";

/// The requests of one user and their answers.
#[derive(Debug, Clone)]
pub struct Confirmations {
    requests: Ledger,
    log: Ledger,
}

/// A question whether a command may run, kept until it is answered or used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Random, and used once: an answer names it.
    pub id: String,
    /// The slug of the package.
    pub slug: String,
    /// The version of the package, as written in its contract.
    pub version: String,
    /// The directory of the package, absolute.
    pub root: PathBuf,
    /// The digest of the package's content: an answer counts for this content only.
    pub digest: String,
    /// The declared path of the command.
    pub command: String,
    /// Everything that would be started.
    pub argv: Vec<String>,
    /// The SHA-256 digest of what stands on its stdin; `None`: nothing.
    pub stdin: Option<String>,
    /// The variables that the caller has added, with the SHA-256 digests of their values. Documents show the names: a
    /// value may be a secret, and a digest gives a short one away.
    pub env: BTreeMap<String, String>,
    /// When it loses its force, in milliseconds since 1970.
    pub expires_ms: i64,
    /// What a person has said.
    pub answer: Option<Answer>,
    /// The answer has been used.
    pub is_used: bool,
    /// Which effect of a run has used it.
    used_by: Option<String>,
}

/// What an answer is bound to, besides the command and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The digest of the package's content.
    pub digest: String,
    /// The digest of what stands on stdin; `None`: nothing.
    pub stdin: Option<String>,
    /// The variables that the caller has added, with the digests of their values.
    pub env: BTreeMap<String, String>,
}

impl Bound {
    /// A package with the content `digest`, the bytes on stdin, and the variables that the caller has added.
    pub fn new(digest: impl Into<String>, stdin: Option<&[u8]>, env: BTreeMap<&str, &OsStr>) -> Self {
        let hash = |bytes: &[u8]| format!("sha256:{}", etude_core::digest::hex(&Sha256::digest(bytes)));
        Self {
            digest: digest.into(),
            stdin: stdin.filter(|bytes| !bytes.is_empty()).map(hash),
            env: env.into_iter().map(|(name, value)| (name.to_owned(), hash(value.as_encoded_bytes()))).collect(),
        }
    }
}

/// What a person has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Yes or no.
    pub approved: bool,
    /// The person who answered, as the front end names them.
    pub by: String,
    /// When, as RFC 3339 in UTC.
    pub at: String,
    /// The person's words for a denial; `None`: none were given.
    pub reason: Option<String>,
}

/// What the answers so far mean for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A person has confirmed it; that is used up now.
    Confirmed(Answer),
    /// A person has denied it; that is used up now.
    Denied(Answer),
    /// A question to a person is open.
    Waiting {
        /// The open question, with the id that an answer names.
        request: Box<Request>,
        /// Why an earlier answer does not count.
        stale: Option<&'static str>,
    },
}

/// An answer that was not taken.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// There is no such request.
    #[error("there is no request `{0}`")]
    Unknown(String),
    /// Somebody was faster.
    #[error("`{0}` has already been answered")]
    Answered(String),
    /// It came too late.
    #[error("`{0}` has expired; give the command again for a new request")]
    Expired(String),
    /// The file of requests.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Confirmations {
    /// The requests below the user's state directory.
    pub fn new(state_dir: &Path) -> Self {
        let ledger = |name| Ledger::new(state_dir, name);
        Self { requests: ledger("confirmations.json"), log: ledger("confirmations.log") }
    }

    /// True if `id` looks like that of a request.
    pub fn is_id(id: &str) -> bool {
        id.starts_with(PREFIX)
    }

    /// Asks whether a command of a package with this content may run now, with this stdin. An answer is used up by that, but for the
    /// same effect of a run: that is not another call, but this one done again after a crash.
    ///
    /// # Errors
    /// The file of requests.
    pub fn ask(&self, call: &Call, bound: &Bound, by: Option<&RunEffect>) -> Result<Verdict, LedgerError> {
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

    /// True if a request for exactly this call waits for an answer, or was answered for this very effect.
    ///
    /// # Errors
    /// The file of requests.
    pub fn is_open(&self, call: &Call, bound: &Bound, by: Option<&RunEffect>) -> Result<bool, LedgerError> {
        let now = clock::now_ms();
        let requests = self.requests.read(wire::parse)?;
        Ok(requests.iter().any(|request| request.is_open(call, bound, by, now)))
    }

    /// The request `id`, as it is now.
    ///
    /// # Errors
    /// The file of requests.
    pub fn find(&self, id: &str) -> Result<Option<Request>, LedgerError> {
        Ok(self.requests.read(wire::parse)?.into_iter().find(|request| request.id == id))
    }

    /// Takes a person's answer.
    ///
    /// # Errors
    /// There is nothing to answer, or the file of requests.
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

    /// Keeps who decided what; that this fails is no reason to run what was denied, or the other way round.
    fn note(&self, call: &Call, verdict: &Verdict) {
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

fn new_request(call: &Call, bound: &Bound, now: i64) -> Request {
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
        "it was for another stdin"
    } else if earlier.env != bound.env {
        "it was for other environment variables"
    } else if earlier.is_used {
        "it has been used"
    } else {
        "it has expired"
    }
}

impl Request {
    fn is_about(&self, call: &Call) -> bool {
        self.root == call.package.root && self.command == call.command
    }

    /// It is for exactly this call of a package with the content `digest`, not used and not too old.
    fn is_open(&self, call: &Call, bound: &Bound, by: Option<&RunEffect>, now: i64) -> bool {
        let own = Bound { digest: self.digest.clone(), stdin: self.stdin.clone(), env: self.env.clone() };
        let is_exact = own == *bound && self.argv == call.argv;
        let is_same = self.used_by.is_some() && self.used_by == by.map(RunEffect::to_string);
        self.is_about(call) && is_exact && (is_same || !self.is_used && self.expires_ms > now)
    }

    /// The request as documents show it, with what a person should know.
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

impl Call {
    /// The document that says what a command waits for.
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

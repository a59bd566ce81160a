//! A person's confirmation, requested here for every caller (C-1.14).

use std::sync::{Arc, OnceLock};

use etude_invoke::chain::{Throw, ThrowKind};

use super::confirmations::Bound;
use super::{Answer, CommandCall, Confirmations, Fresh, ProgramContext, Refusal, Request, Verdict};
use etude_invoke::Confirms;
use etude_runtime::clock;

/// Asks a person who is present. Blocks. `None` leaves the question open.
pub type Ask = Arc<dyn Fn(&Request, &Fresh) -> Option<Answer> + Send + Sync>;

/// Availability of a person who can confirm a command.
#[derive(Clone)]
pub enum Person {
    /// No person: the question stays open.
    Unattended,
    /// A person who may answer later.
    Later,
    /// A person who has just confirmed exactly this command.
    HasConfirmed,
    /// A person who can be asked now.
    Here(Ask),
}

/// Reason why a command that needs confirmation does not run now.
#[derive(Debug, Clone)]
pub enum Unconfirmed {
    /// A person has denied the command.
    Denied(Refusal),
    /// A question to a person is open.
    Waiting {
        /// The open question; answers refer to its id.
        request: Box<Request>,
        /// Reason why an earlier answer does not count.
        stale: Option<&'static str>,
        /// Description and state for the person; empty if there is none.
        fresh: Fresh,
    },
    /// The confirmation is out of date: the content differs, or the question has expired.
    Stale,
    /// The file of requests cannot be used; the text says why.
    Broken(String),
}

/// The confirmation of one call.
pub(super) struct Confirmation {
    pub(super) store: Confirmations,
    pub(super) call: Arc<CommandCall>,
    /// Content, stdin and variables that the confirmation is bound to.
    pub(super) bound: Bound,
    pub(super) person: Person,
    pub(super) program_context: ProgramContext,
    /// The reason why the call is not made.
    pub(super) why: OnceLock<Unconfirmed>,
}

impl Confirms for Confirmation {
    fn confirm(&self) -> Result<(), Throw> {
        let Err(why) = self.see_to() else { return Ok(()) };
        let (kind, message) = match &why {
            Unconfirmed::Denied(_) => (ThrowKind::NotTrusted, "a person has denied it".to_owned()),
            Unconfirmed::Waiting { request, .. } => {
                (ThrowKind::Waiting, format!("a person must confirm it (`{}`)", request.id))
            }
            Unconfirmed::Stale => (ThrowKind::NotTrusted, "its confirmation is no longer valid".to_owned()),
            Unconfirmed::Broken(why) => (ThrowKind::Environment, why.clone()),
        };
        // A chain obtains a confirmation only once.
        let _ = self.why.set(why);
        Err(Throw::new(kind, "confirm", message))
    }
}

impl Confirmation {
    fn see_to(&self) -> Result<(), Unconfirmed> {
        let (call, bound, by) = (&*self.call, &self.bound, self.program_context.run_effect.as_ref());
        let broken = |error: &dyn std::error::Error| Unconfirmed::Broken(error.to_string());
        let mut has_confirmed = matches!(self.person, Person::HasConfirmed);
        if has_confirmed && !self.store.is_open(call, bound, by).map_err(|error| broken(&error))? {
            return Err(Unconfirmed::Stale);
        }
        let mut has_asked = false;
        loop {
            let (request, stale) = match self.store.ask(call, bound, by).map_err(|error| broken(&error))? {
                Verdict::Confirmed(_) => return Ok(()),
                Verdict::Denied(answer) => {
                    return Err(Unconfirmed::Denied(call.denied(&answer.by, answer.reason.as_deref())));
                }
                Verdict::Waiting { request, stale } => (request, stale),
            };
            let answer = match &self.person {
                // A person has answered the gate of this very call.
                Person::HasConfirmed if std::mem::take(&mut has_confirmed) => {
                    let by = "the answer to the run's question".to_owned();
                    Answer { approved: true, by, at: clock::now_rfc3339(), reason: None }
                }
                Person::Here(ask) if !std::mem::replace(&mut has_asked, true) => {
                    let fresh = call.fresh(&self.program_context);
                    match ask(&request, &fresh) {
                        Some(answer) => answer,
                        None => return Err(Unconfirmed::Waiting { request, stale, fresh }),
                    }
                }
                Person::Unattended => return Err(Unconfirmed::Waiting { request, stale, fresh: Fresh::default() }),
                _ => {
                    let fresh = call.fresh(&self.program_context);
                    return Err(Unconfirmed::Waiting { request, stale, fresh });
                }
            };
            self.store.answer(&request.id, answer).map_err(|error| broken(&error))?;
        }
    }
}

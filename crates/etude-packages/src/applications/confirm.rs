//! Seeing to a person's confirmation: the one place that asks for it, for every caller (C-1.14).

use std::sync::{Arc, OnceLock};

use etude_invoke::chain::{Throw, ThrowKind};

use super::confirmations::Bound;
use super::{Answer, Call, Confirmations, Fresh, ProgramContext, Refusal, Request, Verdict};
use etude_invoke::Confirms;
use etude_runtime::clock;

/// Asks somebody who sits there. Blocks. Nothing is no answer: the question stays open.
pub type Ask = Arc<dyn Fn(&Request, &Fresh) -> Option<Answer> + Send + Sync>;

/// The person who can confirm a command, if there is one.
#[derive(Clone)]
pub enum Person {
    /// There is no one: the question stays open.
    Unattended,
    /// Somebody who is not here now.
    Later,
    /// Somebody who has just answered exactly this question with yes.
    HasConfirmed,
    /// Somebody who can be asked.
    Here(Ask),
}

/// Why a command that needs confirmation does not run now.
#[derive(Debug, Clone)]
pub enum Unconfirmed {
    /// A person has said no.
    Denied(Refusal),
    /// A question to a person is open.
    Waiting {
        /// The open question, with the id that an answer names.
        request: Box<Request>,
        /// Why an earlier answer does not count.
        stale: Option<&'static str>,
        /// What a person must see; nothing if no one can be.
        fresh: Fresh,
    },
    /// The answer was to something else: another content, or a question of yesterday.
    Stale,
    /// The file of requests fails.
    Broken(String),
}

/// The confirmation of one call.
pub(super) struct Confirmation {
    pub(super) store: Confirmations,
    pub(super) call: Arc<Call>,
    /// The content and the stdin that it is bound to.
    pub(super) bound: Bound,
    pub(super) person: Person,
    pub(super) program_context: ProgramContext,
    /// Why the call is not made.
    pub(super) why: OnceLock<Unconfirmed>,
}

impl Confirms for Confirmation {
    fn confirm(&self) -> Result<(), Throw> {
        let Err(why) = self.see_to() else { return Ok(()) };
        let (kind, message) = match &why {
            Unconfirmed::Denied(_) => (ThrowKind::NotTrusted, "a person has denied it".to_owned()),
            Unconfirmed::Waiting { request, .. } => {
                (ThrowKind::Waiting, format!("a person has to confirm it (`{}`)", request.id))
            }
            Unconfirmed::Stale => (ThrowKind::NotTrusted, "its confirmation no longer holds".to_owned()),
            Unconfirmed::Broken(why) => (ThrowKind::Environment, why.clone()),
        };
        // A chain passes this once.
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
                // The gate that was opened for this very call has been answered.
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

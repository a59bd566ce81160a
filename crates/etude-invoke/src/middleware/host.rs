//! The program's own middleware around host calls: redaction, the user's policy, a person's confirmation.
//!
//! It acts only on targets with a [`HostCall`].

use crate::chain::{Middleware, Options, Resume, Step, Throw, ThrowKind, View};
use etude_core::tool::{ToolError, ToolReply, ToolResult};
use etude_models::Redactor;
use etude_tools::Decision;
use serde_json::{Value, json};

use super::Once;
use crate::call::{Asker, HostCall};

/// Name of the middleware that redacts results.
pub(crate) const REDACT: &str = "scrub";

/// Name of the middleware that applies the user's policy.
pub(crate) const APPROVE: &str = "approve";

/// Name of the middleware that obtains a person's confirmation (C-1.14).
pub(crate) const CONFIRM: &str = "confirm";

/// Name of the effect that [`CONFIRM`] invokes: it reads files, runs programs and may wait for a person.
pub(crate) const CONFIRMATION: &str = "!confirmation";

/// Redacts results, refusals and questions from any source, because they go to a model and into the journal.
pub(super) struct Redact;

impl Middleware for Redact {
    fn step(&self, view: &mut View<'_>, resume: Resume) -> Step {
        let redactor = HostCall::of(view.target()).and_then(|call| call.checks.redactor.clone());
        let Some(redactor) = redactor else { return Step::Done(None) };
        match resume {
            Resume::Start => Step::Next,
            Resume::Next(Err(throw)) => {
                let reply = throw.reply.map(|reply| Box::new(redacted(*reply, &redactor)));
                Step::Throw(Throw { message: cleaned(&redactor, throw.message), reply, ..throw })
            }
            _ => {
                let target = view.target_mut();
                target.result = target.result.take().map(|result| redactor.redact_value(result));
                Step::Done(None)
            }
        }
    }
}

/// A redacted text; it may be JSON, like a result.
fn cleaned(redactor: &Redactor, text: String) -> String {
    redactor.cleaned(&text).unwrap_or(text)
}

fn redacted(reply: ToolReply, redactor: &Redactor) -> ToolReply {
    match reply {
        ToolReply::Done(ToolResult { content, error, sandbox }) => {
            let error = error.map(|error| ToolError { message: cleaned(redactor, error.message), ..error });
            ToolReply::Done(ToolResult { content: cleaned(redactor, content), error, sandbox })
        }
        ToolReply::Held { key, question, is_once } => {
            ToolReply::Held { key: redactor.redact(&key), question: redactor.redact(&question), is_once }
        }
    }
}

/// Applies the user's policy to the call.
pub(super) struct Approve;

impl Once for Approve {
    fn run(&self, view: &mut View<'_>) -> Result<Option<Value>, Throw> {
        let Some(call) = HostCall::of(view.target()) else { return Ok(None) };
        let checks = &call.checks;
        let (Some(policy), Some(tool), Some(subject)) =
            (&checks.policy, &checks.tool, checks.subject(&view.target().args))
        else {
            return Ok(None);
        };
        match policy.judge(tool, &subject) {
            // A denial by name holds, regardless of approvals.
            Decision::Deny { code: Decision::BY_NAME, reason } => {
                Err(Throw::new(ThrowKind::NotTrusted, APPROVE, format!("{reason} (no one can approve it here)")))
            }
            _ if checks.is_approved => match checks.differs(&subject) {
                None => Ok(None),
                Some(why) => Err(Throw::new(ThrowKind::NotTrusted, APPROVE, why)),
            },
            Decision::Allow => Ok(None),
            // The confirmation replaces a question, because it demands more; a denial stays.
            Decision::Ask { .. } if checks.is_confirmed_later => Ok(None),
            Decision::Ask { key, summary } if checks.asker == Asker::Gate => {
                Err(call.hold(APPROVE, &key, &summary, false))
            }
            decided => match decided.unanswered() {
                Decision::Deny { reason, .. } => Err(Throw::new(ThrowKind::NotTrusted, APPROVE, reason)),
                _ => Ok(None),
            },
        }
    }
}

/// Obtains a person's confirmation of exactly this call, if the call needs one.
pub(super) struct Confirm;

impl Middleware for Confirm {
    fn step(&self, view: &mut View<'_>, resume: Resume) -> Step {
        match resume {
            Resume::Start => {
                let needs_one = HostCall::of(view.target()).is_some_and(|call| call.checks.confirmation.is_some());
                if !needs_one {
                    return Step::Done(None);
                }
                let options = Options { target: Some(view.target_id()), is_exempt: true, ..Options::default() };
                Step::Invoke { reference: CONFIRMATION.to_owned(), args: json!({}), options }
            }
            Resume::Invoked(Err(throw)) => Step::Throw(throw),
            _ => Step::Done(None),
        }
    }
}

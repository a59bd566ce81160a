//! The layers of the program around what its host invokes: secrets, the user's approvals, a person's confirmation.
//!
//! They do nothing for anything else. What they look at is the [`HostCall`] of their target.

use crate::chain::{Middleware, Options, Resume, Step, Throw, ThrowKind, View};
use etude_core::tool::{ToolError, ToolReply, ToolResult};
use etude_models::Redactor;
use etude_tools::Decision;
use serde_json::{Value, json};

use super::{Once, refusal};
use crate::call::{Asker, HostCall};

/// The layer that takes secrets out of what comes back.
pub(crate) const REDACT: &str = "scrub";

/// The layer that asks what the user's policy says.
pub(crate) const APPROVE: &str = "approve";

/// The layer that sees to a person's confirmation (C-1.14).
pub(crate) const CONFIRM: &str = "confirm";

/// What [`CONFIRM`] has the host do: it reads files, runs programs and may wait for somebody.
pub(crate) const CONFIRMATION: &str = "!confirmation";

/// Results, refusals and questions without secrets: they go to a model and into the journal, wherever they come from.
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

/// A text without secrets; it may be JSON, as that of a result.
fn cleaned(redactor: &Redactor, text: String) -> String {
    redactor.cleaned_json(&text).unwrap_or(text)
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

/// What the user's policy says of the call.
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
            // What the policy denies by name stays denied, no matter who has approved it.
            Decision::Deny { code: Decision::BY_NAME, reason } => {
                Err(refusal(ThrowKind::NotTrusted, APPROVE, format!("{reason} (no one can approve it)")))
            }
            _ if checks.is_approved => match checks.differs(&subject) {
                None => Ok(None),
                Some(why) => Err(refusal(ThrowKind::NotTrusted, APPROVE, why)),
            },
            Decision::Allow => Ok(None),
            // A question gives way to the confirmation, which asks for more; a denial does not.
            Decision::Ask { .. } if checks.is_confirmed_later => Ok(None),
            Decision::Ask { key, summary } if checks.asker == Asker::Gate => {
                Err(call.hold(APPROVE, &key, &summary, false))
            }
            decided => match decided.unanswered() {
                Decision::Deny { reason, .. } => Err(refusal(ThrowKind::NotTrusted, APPROVE, reason)),
                _ => Ok(None),
            },
        }
    }
}

/// A person's confirmation of exactly this call, if it needs one.
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

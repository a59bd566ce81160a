//! A command of a package in its chain: a person's confirmation, the app's middleware, then the program.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use etude_core::outcome::Exit;
use etude_process::Cancelled;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::confirm::Confirmation;
use super::confirmations::Bound;
use super::execute::Ran;
use super::form::CommandForm;
use super::schemas;
use super::{CommandCall, Confirmations, Envelope, Limits, Person, ProgramContext, Unconfirmed};
use crate::trust::{Content, Store};
use etude_invoke::{Checks, Confirms, Expected, Invocation, InvocationKind, Invoker};

/// Settings for the invocation of a command.
#[derive(Clone)]
pub struct Invoking {
    /// Environment of the command.
    pub program_context: ProgramContext,
    /// Limits of time and output.
    pub limits: Limits,
    /// The person who can confirm the command.
    pub person: Person,
    /// The state directory, which stores confirmations.
    pub state_dir: PathBuf,
    /// The store of approvals: the approval is extended to the command's own changes below `app/`.
    pub trust: Option<Store>,
    /// Abandons the middleware around the command; [`ProgramContext::cancel`] stops the command itself.
    pub given_up: CancellationToken,
}

/// The outcome of an invocation.
#[derive(Debug)]
pub enum Invoked {
    /// The command ran, middleware refused it, or it could not be started.
    Ended(Box<Envelope>),
    /// The command has not been confirmed.
    Unconfirmed(Unconfirmed),
}

/// The content of a call's package. Reading all of it may take long.
async fn content_of(call: &Arc<CommandCall>) -> io::Result<Content> {
    let call = Arc::clone(call);
    tokio::task::spawn_blocking(move || call.package.content()).await.map_err(io::Error::other)?
}

impl CommandCall {
    /// Invokes the command through its chain.
    ///
    /// # Errors
    /// The package cannot be read, so no confirmation or approval can be bound to it; it has changed since its approval or
    /// confirmation; or the command's changes cannot be stored.
    pub async fn invoke(self, invoker: &Invoker, invoking: Invoking) -> io::Result<Invoked> {
        let call = Arc::new(self);
        let Invoking { program_context, limits, person, state_dir, trust, given_up } = invoking;
        let content = match &call.access.content {
            None if call.needs_confirmation() => Some(content_of(&call).await?),
            known => known.clone(),
        };
        let confirmation = content.as_ref().filter(|_| call.needs_confirmation()).map(|content| {
            Arc::new(Confirmation {
                store: Confirmations::new(&state_dir),
                call: Arc::clone(&call),
                bound: Bound::new(content.digest(), program_context.stdin.as_deref(), program_context.granted()),
                person,
                program_context: program_context.clone(),
                why: OnceLock::new(),
            })
        });
        let schema = if limits.is_text { None } else { schemas::of(&call.package, &call.command) };
        let returns = schema.map(|schema| Arc::new(Expected::new(schema, limits.is_strict)));
        let checks = Checks {
            returns: returns.clone(),
            confirmation: confirmation.clone().map(|confirmation| confirmation as Arc<dyn Confirms>),
            ..Checks::default()
        };
        let (name, args) = (call.name(), Arc::new(json!({ "argv": call.argv })));
        // Within a run, the key contains that of the effect, which distinguishes two calls of one command.
        let key = program_context
            .run_effect
            .as_ref()
            .map_or_else(|| name.clone(), |run_effect| format!("{}/{name}", run_effect.key));
        let invocation = Invocation { kind: InvocationKind::Call, key, name, args, checks, given_up };
        let facts = Arc::new(OnceLock::new());
        let own_facts = Arc::clone(&facts);
        let fault = Arc::new(OnceLock::new());
        let (own_fault, own_call, own_limits) = (Arc::clone(&fault), Arc::clone(&call), limits.clone());
        let form = CommandForm { is_text: limits.is_text };
        let ended = invoker.invoke(invocation, form, || async move {
            let work = tokio::task::spawn_blocking(move || {
                let ran = own_call.run_approved(content.as_ref(), &program_context, &own_limits, trust.as_ref());
                ran.unwrap_or_else(|why| {
                    let exit = Exit::NotStarted(why.to_string());
                    // A chain makes at most one call.
                    let _ = own_fault.set(why);
                    Ran::not_started(exit)
                })
            });
            // A panic of the thread counts as an abandoned command.
            let Ok(ran) = work.await else { return Err(Cancelled::default()) };
            let _ = own_facts.set((ran.is_over, ran.took, ran.has_begun));
            ran.ended
        });
        let ended = ended.await;
        if let Some(why) = confirmation.and_then(|confirmation| confirmation.why.get().cloned()) {
            return Ok(Invoked::Unconfirmed(why));
        }
        if let Some(why) = Arc::into_inner(fault).and_then(OnceLock::into_inner) {
            return Err(why);
        }
        let fault = returns.as_ref().and_then(|returns| returns.fault());
        let (is_over, took, has_begun) = facts.get().copied().unwrap_or_default();
        let envelope = call.envelope_of(Ran { ended, is_over, took, has_begun }, fault, &limits);
        Ok(Invoked::Ended(Box::new(envelope)))
    }
}

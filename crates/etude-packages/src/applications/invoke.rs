//! A command of a package through its chain: a person's confirmation, the layers of the app, then the program.

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
use super::{Call, Confirmations, Envelope, Limits, Person, ProgramContext, Unconfirmed};
use crate::trust::{Content, Store};
use etude_invoke::{Checks, Confirms, Expected, Invocation, Invoker, Kind};

/// With what a command is invoked.
#[derive(Clone)]
pub struct Invoking {
    /// What it is started with.
    pub program_context: ProgramContext,
    /// Limits of time and output.
    pub limits: Limits,
    /// The person who can confirm it, if there is one.
    pub person: Person,
    /// The state directory, which keeps confirmations.
    pub state_dir: PathBuf,
    /// Where approvals are kept: the approval goes on for what the command itself writes below `app/`.
    pub trust: Option<Store>,
    /// Gives up the layers around it; the command itself has [`Surroundings::cancel`].
    pub given_up: CancellationToken,
}

/// The end of an invocation.
#[derive(Debug)]
pub enum Invoked {
    /// It ran, or a layer refused it, or it could not be started.
    Ended(Box<Envelope>),
    /// It has not been confirmed.
    Unconfirmed(Unconfirmed),
}

/// What lies in the package of a call. All of it is read, which may take long.
async fn content_of(call: &Arc<Call>) -> io::Result<Content> {
    let call = Arc::clone(call);
    tokio::task::spawn_blocking(move || call.package.content()).await.map_err(io::Error::other)?
}

impl Call {
    /// Invokes the command.
    ///
    /// # Errors
    /// The package cannot be read, so that there is nothing that a confirmation or an approval could be bound to; it is no
    /// longer what was approved or confirmed; or what the command has changed cannot be kept.
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
        // Within a run the key is the effect's, so that two calls of one command are distinguished.
        let key = program_context
            .run_effect
            .as_ref()
            .map_or_else(|| name.clone(), |run_effect| format!("{}/{name}", run_effect.key));
        let invocation = Invocation { kind: Kind::Call, key, name, args, checks, given_up };
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
                    // A chain makes one call.
                    let _ = own_fault.set(why);
                    Ran::not_started(exit)
                })
            });
            // A thread that panicked is a command that was given up.
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

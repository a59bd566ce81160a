//! Processes and model calls of a run, as invocations.

use std::sync::Arc;

use etude_core::effect::{EffectId, ProcessCall};
use etude_core::model::{CallFailure, ModelResponse, Request};
use etude_core::outcome::ProcessEnd;
use etude_invoke::invoker::CancellationToken;
use etude_invoke::{Checks, Form, Invocation, InvocationKind, Invoker};
use etude_process::Cancelled;
use etude_runtime::host::{Boxed, EffectMiddleware, RunProcess, SendRequest};
use serde_json::json;

use super::forms::{self, ModelForm, ProcessForm};

/// The middleware chains around the processes and model calls of a run.
#[derive(Debug)]
pub(crate) struct Passing(pub(crate) Invoker);

impl EffectMiddleware for Passing {
    fn ignores_processes(&self) -> bool {
        self.0.is_idle(InvocationKind::Process)
    }

    fn process(
        &self,
        call: &ProcessCall,
        given_up: CancellationToken,
        run_effect: RunProcess,
    ) -> Boxed<Result<ProcessEnd, Cancelled>> {
        let form = ProcessForm { protocol: call.protocol };
        let args = if self.0.is_seen(InvocationKind::Process) { forms::document(&call.stdin) } else { Ok(json!({})) };
        let args = match args {
            Ok(args) => args,
            Err(throw) => return Box::pin(std::future::ready(form.changed(None, Err(throw)))),
        };
        let (name, key) = (call.key.clone(), call.key.clone());
        let invocation = Invocation {
            kind: InvocationKind::Process,
            name,
            key,
            args: Arc::new(args),
            checks: Checks::default(),
            given_up: given_up.clone(),
        };
        let invoker = self.0.clone();
        Box::pin(async move {
            let run = || async move {
                let ended = tokio::task::spawn_blocking(run_effect).await;
                ended.unwrap_or_else(|_| Err(Cancelled::default()))
            };
            let end = invoker.invoke(invocation, form, run).await;
            match end {
                // After a cancellation, the result that middleware produced is of no use.
                Ok(end) if given_up.is_cancelled() => Err(Cancelled(end.stderr)),
                end => end,
            }
        })
    }

    fn model(
        &self,
        effect: &EffectId,
        request: Request,
        ask: SendRequest,
    ) -> Boxed<Result<ModelResponse, CallFailure>> {
        // A turn of an agent is not an invocation; each of its tool calls is.
        if !request.tools.is_empty() {
            return ask(request);
        }
        let args = if self.0.is_seen(InvocationKind::Model) { forms::request(&request) } else { json!({}) };
        let (name, key) = (effect.as_str().to_owned(), effect.as_str().to_owned());
        let given_up = CancellationToken::new();
        let guard = given_up.clone().drop_guard();
        let (args, checks) = (Arc::new(args), Checks::default());
        let invocation = Invocation { kind: InvocationKind::Model, name, key, args, checks, given_up };
        let invoker = self.0.clone();
        Box::pin(async move {
            let end = invoker.invoke(invocation, ModelForm, || ask(request)).await;
            drop(guard);
            end
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use etude_invoke::MiddlewareSettings;
    use tokio::sync::mpsc;

    use super::*;
    use crate::invocation::EventRelay;

    /// A process is an invocation only for middleware and observers.
    #[test]
    fn processes_are_ignored_without_middleware_and_observers() {
        let ignores_processes = |is_observed| {
            let access = MiddlewareSettings::default().access(Vec::new(), false);
            let relay = Box::new(EventRelay::new(mpsc::unbounded_channel().0));
            Passing(Invoker::open(Path::new("."), None, access, relay, is_observed)).ignores_processes()
        };
        assert_eq!([false, true].map(ignores_processes), [true, false]);
    }
}

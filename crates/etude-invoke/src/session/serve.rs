//! Invocations by the host: as many at once as there are, in one machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::chain::{ContextId, Options, Outcome, Payload, Tool};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Session, Watch};
use crate::invoker::HostCall;

/// An invocation that the host wants.
pub(crate) struct Incoming {
    pub(crate) tool: Arc<Tool>,
    pub(crate) args: Value,
    pub(crate) call: Arc<HostCall>,
    /// Gives it up, with the programs of its layers.
    pub(crate) given_up: CancellationToken,
    pub(crate) reply: oneshot::Sender<Outcome>,
}

impl Session {
    /// Runs what comes in until nothing more will and everything has ended, handlers of events included.
    pub(crate) async fn serve(mut self, mut calls: mpsc::UnboundedReceiver<Incoming>, watch: &mut dyn Watch) {
        let mut waiting: BTreeMap<ContextId, oneshot::Sender<Outcome>> = BTreeMap::new();
        let (mut is_open, mut is_stopping) = (true, false);
        while is_open || !waiting.is_empty() || !self.handlers.is_empty() {
            tokio::select! {
                biased;
                () = self.stop.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    self.stop_waiting();
                }
                Some(message) = self.from.recv() => self.take(message, watch),
                call = calls.recv(), if is_open => match call {
                    Some(call) => self.open(call, &mut waiting),
                    None => is_open = false,
                },
            }
            self.pump(watch);
            for (id, outcome) in std::mem::take(&mut self.ended) {
                self.machine.take(id);
                self.tokens.remove(&id);
                if let Some(reply) = waiting.remove(&id) {
                    // Whoever invoked it may have been dropped.
                    let _ = reply.send(outcome);
                }
            }
        }
        // What handlers of the last events have left running is ended by blocking calls.
        let _ = tokio::task::spawn_blocking(move || self.close()).await;
    }

    /// What stops everything that this session runs.
    pub(crate) fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    fn open(&mut self, call: Incoming, waiting: &mut BTreeMap<ContextId, oneshot::Sender<Outcome>>) {
        let Incoming { tool, args, call, given_up, reply } = call;
        self.set_time();
        let options = Options { payload: Some(Payload(call)), ..Options::default() };
        let id = self.machine.invoke_tool(tool, args, options);
        self.tokens.insert(id, given_up);
        waiting.insert(id, reply);
    }
}

//! Hooks: tools that observe every entry of a chain, before and after it (D-4.7, D-15).
//!
//! A hook is invoked with the served context as its target and `{"phase": "before" | "after" | "error", "entry": NAME}` as its
//! arguments. Its result is ignored. A throw of a hook replaces the outcome of the entry.

use serde_json::{Value, json};

use super::{Hooked, Hooking, Machine, Options, Tools, Waiter, Work};
use crate::chain::Outcome;
use crate::chain::context::ContextId;

impl Machine {
    /// Notifies hooks of an entry: before it without `outcome`, after it with the outcome.
    pub(super) fn hook(&mut self, of: Hooked, outcome: Option<Outcome>) {
        self.work.push(Work::Hook(Box::new(Hooking { of, reported: 0, outcome })));
    }

    /// Runs the next hook, or continues when all have run.
    pub(super) fn run_hook(&mut self, tools: &mut dyn Tools, hooking: Box<Hooking>) {
        let owner = hooking.of.owner;
        let hook = self.contexts.get(&owner).and_then(|context| context.tool.hooks.get(hooking.reported).cloned());
        let Some(hook) = hook else { return self.hooks_reported(tools, *hooking) };
        let phase = match &hooking.outcome {
            None => "before",
            Some(Ok(_)) => "after",
            Some(Err(_)) => "error",
        };
        let args = json!({"phase": phase, "entry": &*hooking.of.entry});
        let options = Options { target: Some(owner), is_exempt: true, ..Options::default() };
        let id = ContextId(self.new_id());
        self.begin(tools, &hook, args, options, Some(owner), Waiter::Hook(hooking), id);
    }

    /// Handles the end of a hook.
    pub(super) fn hook_reported(&mut self, mut hooking: Box<Hooking>, outcome: Outcome) {
        hooking.reported += 1;
        match outcome {
            Ok(_) => self.work.push(Work::Hook(hooking)),
            // A throw of a hook never hides the throw of the entry.
            Err(throw) => {
                let Hooked { owner, then, .. } = hooking.of;
                let outcome = match hooking.outcome {
                    Some(Err(first)) => Err(first),
                    _ => Err(throw),
                };
                self.work.push(Work::Reply(Waiter::Entry(owner, Box::new(then)), outcome));
            }
        }
    }

    fn hooks_reported(&mut self, tools: &mut dyn Tools, hooking: Hooking) {
        let Hooked { owner, entry, then } = hooking.of;
        match hooking.outcome {
            None => {
                let waiter = Waiter::Hooked(Box::new(Hooked { owner, entry: entry.clone(), then }));
                self.enter(tools, owner, &entry, waiter);
            }
            Some(outcome) => self.work.push(Work::Reply(Waiter::Entry(owner, Box::new(then)), outcome)),
        }
    }

    /// The arguments of an entry.
    pub(super) fn entry_args(&self, owner: ContextId, entry: &str) -> Value {
        let context = self.contexts.get(&owner).filter(|_| self.entries_get_values);
        context.and_then(|context| context.metadata(entry)).cloned().unwrap_or_else(|| json!({}))
    }
}

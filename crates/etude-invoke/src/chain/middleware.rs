//! Layers that need no one else: they run inside the machine.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::chain::Outcome;
use crate::chain::context::{Context, ContextId};
use crate::chain::machine::Options;
use crate::chain::throw::Throw;

/// The function of a tool that is part of the program: a stage, a directive.
///
/// It is a state machine: it is entered with [`Resume::Start`], says what it waits for, and is entered again with what
/// came of it. What it must remember in between it keeps in the locals of its own context.
pub trait Middleware: Send + Sync {
    /// Goes on until something must be awaited, or to the end.
    fn step(&self, view: &mut View<'_>, resume: Resume) -> Step;
}

/// What a layer goes on with.
#[derive(Debug, Clone, PartialEq)]
pub enum Resume {
    /// It was called just now.
    Start,
    /// The rest of the target's chain has run.
    Next(Result<(), Throw>),
    /// The tool that it invoked has come to an end.
    Invoked(Outcome),
    /// The target's function has come to an end.
    Executed(Outcome),
}

/// What a layer waits for, or its end.
#[derive(Debug)]
pub enum Step {
    /// It is over: with a value, which becomes the target's result and ends the chain, or with nothing.
    Done(Option<Value>),
    /// It ends with a throw, which the rest of the target's chain may handle.
    Throw(Throw),
    /// The rest of the target's chain is to run.
    Next,
    /// A tool must be invoked.
    Invoke {
        /// The name or path of the tool.
        reference: String,
        /// The arguments as the layer gives them.
        args: Value,
        /// The options of the call, such as its caller.
        options: Options,
    },
    /// The target's own function is to run, on the target's context.
    Execute,
}

/// What a layer sees while it runs.
#[derive(Debug)]
pub struct View<'a> {
    pub(crate) contexts: &'a mut BTreeMap<ContextId, Context>,
    pub(crate) own: ContextId,
    pub(crate) target: ContextId,
    /// What all invocations of the program share.
    pub globals: &'a mut Value,
}

impl View<'_> {
    /// The id of the context that is served: the layer's own, if it is called as a tool rather than as an entry.
    pub fn target_id(&self) -> ContextId {
        self.target
    }

    /// The context that is served.
    pub fn target(&self) -> &Context {
        &self.contexts[&self.target]
    }

    /// The context that is served, to be changed.
    pub fn target_mut(&mut self) -> &mut Context {
        self.contexts.get_mut(&self.target).expect("a target outlives its entries")
    }

    /// The layer's own context, which is gone when the layer is over.
    pub fn own(&self) -> &Context {
        &self.contexts[&self.own]
    }

    /// The layer's own context, to be changed.
    pub fn own_mut(&mut self) -> &mut Context {
        self.contexts.get_mut(&self.own).expect("a layer runs in its context")
    }

    /// The context whose `allowed-tools` hold for the target.
    pub fn caller(&self) -> Option<&Context> {
        self.contexts.get(&self.target().caller?)
    }

    /// The target as a document.
    pub fn target_json(&self) -> Value {
        self.target().json(self.globals)
    }
}

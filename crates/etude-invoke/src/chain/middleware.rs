//! Built-in middleware, which runs inside the machine.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::chain::Outcome;
use crate::chain::context::{Context, ContextId};
use crate::chain::machine::Options;
use crate::chain::throw::Throw;

/// The function of a tool that is part of the program: standard middleware or a directive.
///
/// It is a state machine: it starts with [`Resume::Start`], returns the step that it waits for, and resumes with the result.
/// State between steps is kept in the locals of its own context.
pub trait Middleware: Send + Sync {
    /// Runs until the next wait, or to the end.
    fn step(&self, view: &mut View<'_>, resume: Resume) -> Step;
}

/// The event with which middleware resumes.
#[derive(Debug, Clone, PartialEq)]
pub enum Resume {
    /// The middleware was called.
    Start,
    /// The rest of the target's chain has run.
    Next(Result<(), Throw>),
    /// The invoked tool has ended.
    Invoked(Outcome),
    /// The target's function has ended.
    Executed(Outcome),
}

/// The next wait of middleware, or its end.
#[derive(Debug)]
pub enum Step {
    /// Ends with a value, which becomes the target's result and ends the chain, or with nothing.
    Done(Option<Value>),
    /// Ends with a throw, which outer entries of the target's chain may handle.
    Throw(Throw),
    /// Runs the rest of the target's chain.
    Next,
    /// Invokes a tool.
    Invoke {
        /// The name or path of the tool.
        reference: String,
        /// Arguments of the call, without options.
        args: Value,
        /// The options of the call, such as its caller.
        options: Options,
    },
    /// Runs the target's own function on the target's context.
    Execute,
}

/// The state that middleware sees while it runs.
#[derive(Debug)]
pub struct View<'a> {
    pub(crate) contexts: &'a mut BTreeMap<ContextId, Context>,
    pub(crate) own: ContextId,
    pub(crate) target: ContextId,
    /// `globals`, shared by all invocations of the machine.
    pub globals: &'a mut Value,
}

impl View<'_> {
    /// The id of the served context. Middleware that is called as a tool serves its own context.
    pub fn target_id(&self) -> ContextId {
        self.target
    }

    /// The served context.
    pub fn target(&self) -> &Context {
        &self.contexts[&self.target]
    }

    /// The mutable served context.
    pub fn target_mut(&mut self) -> &mut Context {
        self.contexts.get_mut(&self.target).expect("a target outlives its entries")
    }

    /// The middleware's own context, which ends with it.
    pub fn own(&self) -> &Context {
        &self.contexts[&self.own]
    }

    /// The mutable own context of the middleware.
    pub fn own_mut(&mut self) -> &mut Context {
        self.contexts.get_mut(&self.own).expect("middleware runs in its context")
    }

    /// The context whose `allowed-tools` apply to the target.
    pub fn caller(&self) -> Option<&Context> {
        self.contexts.get(&self.target().caller?)
    }

    /// The target as a document.
    pub fn target_json(&self) -> Value {
        self.target().json(self.globals)
    }
}

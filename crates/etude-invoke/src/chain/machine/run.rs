//! The execution of single work items.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    Awaited, Call, CallId, Command, Event, EventKind, Hooked, Machine, Options, Swallowed, Tools, Waiter, Work,
    split_options,
};
use crate::chain::Outcome;
use crate::chain::context::{Context, ContextId, Frame};
use crate::chain::middleware::{Resume, Step, View};
use crate::chain::throw::{Throw, ThrowKind};
use crate::chain::tool::{Tool, ToolHandler};

/// Maximum depth of nested invocations.
const MAX_DEPTH: u32 = 64;

/// Number of invocations that a refusal names.
const SHOWN_DEPTH: usize = 8;

impl Machine {
    pub(super) fn run(&mut self, tools: &mut dyn Tools, work: Work) {
        match work {
            Work::Chain(id, waiter) => self.next(tools, id, waiter),
            Work::Call(id, waiter) => self.call(id, waiter),
            Work::Step(call, resume) => self.step(call, resume),
            Work::Reply(waiter, outcome) => self.reply_to(waiter, outcome),
            Work::Hook(hooking) => self.run_hook(tools, hooking),
            Work::Invoke { reference, args, options, from, waiter } => {
                let id = ContextId(self.new_id());
                self.begin(tools, &reference, args, options, from, waiter, id);
            }
        }
    }

    /// Steps 1 to 5 of an invocation; the chain is already compiled (D-7.1).
    #[expect(clippy::too_many_arguments, reason = "an invocation is made of this much")]
    pub(super) fn begin(
        &mut self,
        tools: &mut dyn Tools,
        reference: &str,
        args: Value,
        mut options: Options,
        from: Option<ContextId>,
        waiter: Waiter,
        id: ContextId,
    ) {
        let args = split_options(args, &mut options);
        let asking = from.and_then(|from| self.contexts.get(&from));
        let tool = match tools.find(reference, asking) {
            Ok(tool) => tool,
            Err(throw) => return self.work.push(Work::Reply(waiter, Err(throw))),
        };
        if asking.is_some_and(|from| options.target.is_none() && from.depth >= MAX_DEPTH) {
            let throw = self.too_deep(reference, from);
            return self.work.push(Work::Reply(waiter, Err(throw)));
        }
        self.start(tool, Arc::new(args), options, from, waiter, id);
    }

    /// The refusal of an invocation that is nested too deeply. It names the innermost ones, which show the cycle.
    fn too_deep(&self, reference: &str, from: Option<ContextId>) -> Throw {
        let mut way = vec![reference.to_owned()];
        let mut next = from;
        while let Some(context) = next.and_then(|id| self.contexts.get(&id)).filter(|_| way.len() < SHOWN_DEPTH) {
            way.push(context.tool.name.to_string());
            next = context.parent;
        }
        let dots = if next.is_some() { "… -> " } else { "" };
        way.reverse();
        let message = format!(
            "`{reference}` is not invoked: it is nested in {MAX_DEPTH} invocations ({dots}{}); a skill or middleware \
             of it that invokes itself needs an end",
            way.join(" -> ")
        );
        Throw::new(ThrowKind::Definition, reference, message)
    }

    /// Creates the context of an invocation and begins its chain.
    pub(super) fn start(
        &mut self,
        tool: Arc<Tool>,
        args: Arc<Value>,
        options: Options,
        from: Option<ContextId>,
        waiter: Waiter,
        id: ContextId,
    ) {
        let asking = from.and_then(|from| self.contexts.get(&from));
        let before = asking.and_then(|from| from.history.clone());
        let frame = Frame { tool: Arc::clone(&tool.name), args: Arc::clone(&args), at_ms: self.now_ms, before };
        let caller = match (options.is_exempt, options.caller) {
            (true, _) => None,
            (false, Some(caller)) => Some(caller),
            (false, None) => asking.map(|from| self.served(from)),
        };
        let mut context = Context {
            id,
            target: options.target,
            parent: from,
            caller,
            args,
            about: Map::new(),
            result: None,
            error: None,
            config: Arc::clone(&self.config),
            prompt: tool.prompt.clone(),
            locals: Map::new(),
            nonlocals: asking.map_or_else(|| of_root(id), |from| Arc::clone(&from.nonlocals)),
            history: Some(Arc::new(frame)),
            payload: options.payload,
            depth: asking.map_or(0, |from| if options.target.is_some() { from.depth } else { from.depth + 1 }),
            taken: 0,
            is_stopped: false,
            is_executed: false,
            is_of_hook: matches!(waiter, Waiter::Hook(_)) || asking.is_some_and(|from| from.is_of_hook),
            tool,
        };
        if let Some(overlay) = &options.context {
            context.take_over(overlay);
        }
        self.event(&context, || EventKind::Started);
        self.contexts.insert(id, context);
        self.waiting.insert(id, waiter);
        self.work.push(Work::Chain(id, Waiter::Chain(id)));
    }

    /// The nearest context that is not an entry: the tool that an entry serves (D-10).
    fn served(&self, from: &Context) -> ContextId {
        let mut at = from;
        while let Some(target) = at.target.and_then(|target| self.contexts.get(&target)) {
            at = target;
        }
        at.id
    }

    /// Invokes the next entry; does nothing if there is none or the chain has ended (D-7.2).
    fn next(&mut self, tools: &mut dyn Tools, id: ContextId, waiter: Waiter) {
        let entry = match self.contexts.get_mut(&id) {
            Some(context) if !context.is_stopped => {
                let entry = context.tool.chain.get(context.taken).cloned();
                context.taken += 1;
                entry
            }
            _ => None,
        };
        let Some(entry) = entry else {
            return self.work.push(Work::Reply(waiter, Ok(None)));
        };
        let is_hooked =
            self.contexts.get(&id).is_some_and(|context| !context.is_of_hook && !context.tool.hooks.is_empty());
        if is_hooked {
            return self.hook(Hooked { owner: id, entry, then: waiter }, None);
        }
        self.enter(tools, id, &entry, Waiter::Entry(id, Box::new(waiter)));
    }

    /// Invokes an entry of a chain.
    pub(super) fn enter(&mut self, tools: &mut dyn Tools, owner: ContextId, entry: &str, waiter: Waiter) {
        let args = self.entry_args(owner, entry);
        let options = Options { target: Some(owner), is_exempt: true, ..Options::default() };
        let inner = ContextId(self.new_id());
        self.begin(tools, entry, args, options, Some(owner), waiter, inner);
    }

    /// Calls the function of a context's tool.
    fn call(&mut self, id: ContextId, waiter: Waiter) {
        let Some(context) = self.contexts.get(&id) else { return };
        let target = context.target.unwrap_or(id);
        let middleware = match &context.tool.body {
            ToolHandler::Nothing => return self.work.push(Work::Reply(waiter, Ok(None))),
            ToolHandler::Middleware(middleware) => Some(Arc::clone(middleware)),
            ToolHandler::Effect => None,
        };
        let call = CallId(self.new_id());
        let is_middleware = middleware.is_some();
        self.calls.insert(call, Call { context: id, target, waiter, middleware });
        if is_middleware {
            self.work.push(Work::Step(call, Resume::Start));
        } else {
            self.commands.push_back(Command::Run { call, context: id });
        }
    }

    /// Starts or resumes middleware.
    fn step(&mut self, id: CallId, resume: Resume) {
        let Some(call) = self.calls.get(&id) else { return };
        let Some(middleware) = call.middleware.clone() else { return };
        let (own, target) = (call.context, call.target);
        if !self.contexts.contains_key(&own) || !self.contexts.contains_key(&target) {
            // The served invocation is over, because its caller did not wait for its own request.
            self.calls.remove(&id);
            return;
        }
        let mut view = View { contexts: &mut self.contexts, own, target, globals: &mut self.globals };
        match middleware.step(&mut view, resume) {
            Step::Done(value) => self.finish(id, Ok(value)),
            Step::Throw(throw) => self.finish(id, Err(throw)),
            Step::Next => self.work.push(Work::Chain(target, Waiter::Middleware(id, Awaited::Next))),
            Step::Execute => {
                if let Some(context) = self.contexts.get_mut(&target) {
                    context.is_executed = true;
                }
                self.work.push(Work::Call(target, Waiter::Middleware(id, Awaited::Executed)));
            }
            Step::Invoke { reference, args, options } => {
                let waiter = Waiter::Middleware(id, Awaited::Invoked);
                self.work.push(Work::Invoke { reference, args, options, from: Some(own), waiter });
            }
        }
    }

    fn reply_to(&mut self, waiter: Waiter, outcome: Outcome) {
        match waiter {
            Waiter::Outside(context) => self.commands.push_back(Command::Finished { context, outcome }),
            Waiter::Chain(id) => self.chain_has_run(id, outcome),
            Waiter::Fallback(id) => {
                if let Some(context) = self.contexts.get_mut(&id) {
                    match &outcome {
                        Ok(None) => {}
                        Ok(value) => context.result.clone_from(value),
                        Err(throw) => context.error = Some(throw.clone()),
                    }
                }
                self.over(id, outcome);
            }
            Waiter::Entry(id, then) => self.entry_has_run(id, *then, outcome),
            Waiter::Hooked(of) => self.hook(*of, Some(outcome)),
            Waiter::Hook(hooking) => self.hook_reported(hooking, outcome),
            Waiter::Middleware(call, awaited) => {
                let resume = match awaited {
                    Awaited::Next => Resume::Next(outcome.map(drop)),
                    Awaited::Invoked => Resume::Invoked(outcome),
                    Awaited::Executed => Resume::Executed(outcome),
                };
                self.work.push(Work::Step(call, resume));
            }
            Waiter::Request(call, token, awaited) => {
                let Some(running) = self.calls.get(&call) else { return };
                let result = || self.contexts.get(&running.target).and_then(|target| target.result.clone());
                let outcome = if awaited == Awaited::Next { outcome.map(|_| result()) } else { outcome };
                self.commands.push_back(Command::Reply { call, token, outcome });
            }
        }
    }

    /// Handles the end of an entry. A value ends the chain as the target's result, no value continues it, and a throw ends it
    /// (D-7.2, D-7.5).
    fn entry_has_run(&mut self, id: ContextId, then: Waiter, outcome: Outcome) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        match outcome {
            Ok(None) => self.work.push(Work::Chain(id, then)),
            Ok(value) => {
                context.result = value;
                context.is_stopped = true;
                self.work.push(Work::Reply(then, Ok(None)));
            }
            Err(throw) => {
                // Outer entries see the throw in `error`, even if one swallows it.
                context.error = Some(throw.clone());
                context.is_stopped = self.swallowed == Swallowed::Ends;
                self.work.push(Work::Reply(then, Err(throw)));
            }
        }
    }

    /// Handles the end of a chain. Calls the tool's own function if no entry has called it and none would have (D-7.4).
    fn chain_has_run(&mut self, id: ContextId, outcome: Outcome) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        if let Err(throw) = outcome {
            return self.over(id, Err(throw));
        }
        let is_left = context.result.is_none() && !context.is_stopped && !context.is_executed;
        if is_left && !context.tool.has_execute() {
            context.is_executed = true;
            return self.work.push(Work::Call(id, Waiter::Fallback(id)));
        }
        let result = context.result.clone();
        self.over(id, Ok(result));
    }

    /// Ends an invocation.
    fn over(&mut self, id: ContextId, outcome: Outcome) {
        let Some(waiter) = self.waiting.remove(&id) else { return };
        if let Some(mut context) = self.contexts.remove(&id) {
            self.event(&context, || match &outcome {
                Ok(_) => EventKind::Ended,
                Err(throw) => EventKind::Failed(Throw::clone(throw)),
            });
            // Only an outside caller may read the context afterwards.
            if matches!(waiter, Waiter::Outside(_)) {
                context.error = outcome.as_ref().err().cloned();
                context.is_stopped = true;
                self.contexts.insert(id, context);
            }
        }
        self.work.push(Work::Reply(waiter, outcome));
    }

    fn event(&mut self, context: &Context, kind: impl FnOnce() -> EventKind) {
        if self.is_observed {
            let serves = context.target.and_then(|target| self.contexts.get(&target));
            let serves = serves.map(|target| Arc::clone(&target.tool.name));
            let tool = Arc::clone(&context.tool.name);
            self.commands.push_back(Command::Event(Event { kind: kind(), context: context.id, tool, serves }));
        }
    }
}

/// `nonlocals` of an invocation from outside: the id of its context (D-8).
fn of_root(id: ContextId) -> Arc<Map<String, Value>> {
    Arc::new(Map::from_iter([("rootContextId".to_owned(), Value::from(id.0))]))
}

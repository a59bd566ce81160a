//! The interpreter of chains.

mod hooks;
mod run;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::chain::Outcome;
use crate::chain::context::{Context, ContextId, Payload};
use crate::chain::middleware::{Middleware, Resume};
use crate::chain::throw::Throw;
use crate::chain::tool::Tool;

/// Lookup of tools. The driver of the machine implements it; it must not block.
pub trait Tools {
    /// The tool with that name or at that path, with its chain (D-9.1). `from` is the caller.
    ///
    /// # Errors
    /// The tool does not exist, or its definition is invalid.
    fn find(&mut self, reference: &str, from: Option<&Context>) -> Result<Arc<Tool>, Throw>;
}

/// Identifies a running function. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u64);

/// Identifies a request of a running function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

/// Options of an invocation (D-7.1).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// The context to serve, as an entry of its chain would.
    pub target: Option<ContextId>,
    /// The context whose `allowed-tools` apply; `None`: the nearest tool that is not an entry.
    pub caller: Option<ContextId>,
    /// Exempts the call from all `allowed-tools`: for calls that middleware itself makes.
    pub is_exempt: bool,
    /// Values to put over the new context: `locals`, `nonlocals`, `run.tool`.
    pub context: Option<Value>,
    /// Payload for the host's own middleware.
    pub payload: Option<Payload>,
}

/// A request of a running function.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// The rest of the chain of the target of its context.
    Next,
    /// A call of another tool, with a chain of its own.
    Invoke {
        /// The name or path of the tool.
        reference: String,
        /// Its arguments, with options in `$context`.
        args: Value,
        /// Explicit options, which win over those in `args`.
        options: Box<Options>,
    },
}

/// A command to the driver of [`Machine`].
#[derive(Debug)]
pub enum Command {
    /// Run the effect of a tool, then call [`Machine::finish`].
    Run {
        /// The id for later calls.
        call: CallId,
        /// The context for the effect.
        context: ContextId,
    },
    /// Pass the result of a request to its function.
    Reply {
        /// The call of the waiting function.
        call: CallId,
        /// The answered request.
        token: Token,
        /// The outcome of the invocation, or for `next` the target's result.
        outcome: Outcome,
    },
    /// An invocation from outside has ended.
    Finished {
        /// Its context, which stays until it is taken.
        context: ContextId,
        /// The result of the tool, or the throw that ended it.
        outcome: Outcome,
    },
    /// An event to log.
    Event(Event),
}

/// Start or end of an invocation, for observers.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Start, end or failure of the invocation.
    pub kind: EventKind,
    /// The context of the invocation, which is unique in the machine.
    pub context: ContextId,
    /// Name of the invoked tool or middleware.
    pub tool: Arc<str>,
    /// The tool that an entry serves; `None` for other invocations.
    pub serves: Option<Arc<str>>,
}

/// The kind of an event, with its facts.
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// The invocation began.
    Started,
    /// The invocation ended without a throw.
    Ended,
    /// The invocation ended with a throw.
    Failed(Throw),
}

/// Effect of a swallowed throw on the rest of the chain (D-7.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Swallowed {
    /// The chain ends: neither the failed entries nor the remaining ones run.
    #[default]
    Ends,
    /// The chain continues with the entry after the failed one.
    GoesOn,
}

/// The interpreter. It takes the time and the ends of effects; poll it until it returns `None`.
#[derive(Default)]
pub struct Machine {
    contexts: BTreeMap<ContextId, Context>,
    /// The receiver of each invocation's outcome.
    waiting: BTreeMap<ContextId, Waiter>,
    calls: BTreeMap<CallId, Call>,
    work: Vec<Work>,
    commands: VecDeque<Command>,
    last_id: u64,
    now_ms: u64,
    /// `globals`, which all invocations share.
    pub globals: Value,
    /// `locals.config` of new contexts: the initial `globals.config`.
    config: Arc<Value>,
    /// True if events are reported.
    pub is_observed: bool,
    /// Effect of a swallowed throw.
    pub swallowed: Swallowed,
    /// True if an entry gets the value of its key as arguments (D-7.2); otherwise it gets none.
    pub entries_get_values: bool,
}

struct Call {
    context: ContextId,
    target: ContextId,
    waiter: Waiter,
    middleware: Option<Arc<dyn Middleware>>,
}

/// The receiver of an outcome.
#[derive(Debug)]
enum Waiter {
    /// The driver of the machine.
    Outside(ContextId),
    /// The invocation whose chain has run.
    Chain(ContextId),
    /// The invocation whose function was called because its chain has no `execute`.
    Fallback(ContextId),
    /// The chain of a context, one of whose entries has run; then the receiver for that chain.
    Entry(ContextId, Box<Waiter>),
    /// An entry that hooks observe, with its receiver.
    Hooked(Box<Hooked>),
    /// Hooks that have not run yet.
    Hook(Box<Hooking>),
    /// Middleware in the machine.
    Middleware(CallId, Awaited),
    /// A function outside the machine.
    Request(CallId, Token, Awaited),
}

/// An entry that hooks observe.
#[derive(Debug)]
struct Hooked {
    /// The context whose chain has the entry.
    owner: ContextId,
    entry: Arc<str>,
    /// The receiver for the rest of that chain.
    then: Waiter,
}

/// Hooks that observe an entry.
#[derive(Debug)]
struct Hooking {
    of: Hooked,
    /// Number of hooks that have run.
    reported: usize,
    /// The outcome of the entry; `None` before it runs.
    outcome: Option<Outcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Next,
    Invoked,
    Executed,
}

enum Work {
    /// Run the rest of a chain.
    Chain(ContextId, Waiter),
    /// Call the function of a context's tool on that context.
    Call(ContextId, Waiter),
    /// Resume middleware.
    Step(CallId, Resume),
    /// Deliver an outcome.
    Reply(Waiter, Outcome),
    /// Run the next hook of an entry.
    Hook(Box<Hooking>),
    /// Invoke a tool.
    Invoke { reference: String, args: Value, options: Options, from: Option<ContextId>, waiter: Waiter },
}

impl Machine {
    /// A machine with these globals.
    pub fn new(globals: Value) -> Self {
        let config = globals.get("config").cloned().map_or_else(Arc::default, Arc::new);
        Self { globals, config, ..Self::default() }
    }

    /// Sets the time for histories, in milliseconds since 1970.
    pub fn set_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Invokes a tool from outside. [`Command::Finished`] reports its end.
    pub fn invoke(&mut self, tools: &mut dyn Tools, reference: &str, args: Value, options: Options) -> ContextId {
        let id = ContextId(self.new_id());
        self.begin(tools, reference, args, options, None, Waiter::Outside(id), id);
        id
    }

    /// Invokes a given tool, which needs no name in [`Tools`]. Its arguments are data, perhaps of a model, so they cannot
    /// contain options.
    pub fn invoke_tool(&mut self, tool: Arc<Tool>, args: Arc<Value>, options: Options) -> ContextId {
        let id = ContextId(self.new_id());
        self.start(tool, args, options, None, Waiter::Outside(id), id);
        id
    }

    /// The next command; `None` if everything waits for the driver.
    pub fn poll(&mut self, tools: &mut dyn Tools) -> Option<Command> {
        loop {
            if let Some(command) = self.commands.pop_front() {
                return Some(command);
            }
            let work = self.work.pop()?;
            self.run(tools, work);
        }
    }

    /// Reports the end of a function that [`Command::Run`] requested.
    pub fn finish(&mut self, call: CallId, outcome: Outcome) {
        if let Some(call) = self.calls.remove(&call) {
            self.work.push(Work::Reply(call.waiter, outcome));
        }
    }

    /// Takes a request of a running function, which [`Command::Reply`] answers. `None` if the function has ended.
    pub fn request(&mut self, call: CallId, request: Request) -> Option<Token> {
        let running = self.calls.get(&call)?;
        let (context, target) = (running.context, running.target);
        let token = Token(self.new_id());
        self.work.push(match request {
            Request::Next => Work::Chain(target, Waiter::Request(call, token, Awaited::Next)),
            Request::Invoke { reference, args, options } => {
                let waiter = Waiter::Request(call, token, Awaited::Invoked);
                Work::Invoke { reference, args, options: *options, from: Some(context), waiter }
            }
        });
        Some(token)
    }

    /// The context of an invocation; `None` if it has ended and was removed.
    pub fn context(&self, id: ContextId) -> Option<&Context> {
        self.contexts.get(&id)
    }

    /// The mutable context of an invocation.
    pub(crate) fn context_mut(&mut self, id: ContextId) -> Option<&mut Context> {
        self.contexts.get_mut(&id)
    }

    /// The context of a running function, and the context that it serves.
    pub fn contexts_of(&self, call: CallId) -> Option<(&Context, &Context)> {
        let call = self.calls.get(&call)?;
        Some((self.contexts.get(&call.context)?, self.contexts.get(&call.target)?))
    }

    /// The mutable context that a running function serves.
    pub fn target_mut(&mut self, call: CallId) -> Option<&mut Context> {
        let target = self.calls.get(&call)?.target;
        self.contexts.get_mut(&target)
    }

    /// Removes and returns the context of an invocation that is over.
    pub fn take(&mut self, id: ContextId) -> Option<Context> {
        self.contexts.remove(&id)
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// Removes options from the arguments (D-7.1 step 1): `$context` becomes the option `context`, where an explicit one wins field
/// by field. Other names with `$` are unknown options and are dropped.
fn split_options(args: Value, options: &mut Options) -> Value {
    let Value::Object(members) = args else { return args };
    if !members.keys().any(|key| key.starts_with('$')) {
        return Value::Object(members);
    }
    let (named, rest): (Map<String, Value>, Map<String, Value>) =
        members.into_iter().partition(|(key, _)| key.starts_with('$'));
    if let Some(given) = named.get("$context") {
        match &mut options.context {
            Some(explicit) => fill(explicit, given),
            none => *none = Some(given.clone()),
        }
    }
    Value::Object(rest)
}

/// Adds the members of `with` that `value` lacks.
fn fill(value: &mut Value, with: &Value) {
    if let (Value::Object(value), Value::Object(with)) = (value, with) {
        for (key, member) in with {
            match value.get_mut(key) {
                Some(known) => fill(known, member),
                None => drop(value.insert(key.clone(), member.clone())),
            }
        }
    }
}

#[cfg(test)]
mod tests;

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

/// Finds tools. Implemented by anyone who drives the machine; must not wait.
pub trait Tools {
    /// The tool of that name, or at that path, with its chain (D-9.1). `from` is the caller.
    ///
    /// # Errors
    /// There is none, or its definition does not hold.
    fn find(&mut self, reference: &str, from: Option<&Context>) -> Result<Arc<Tool>, Throw>;
}

/// Names a function that is running. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u64);

/// Names a request of a running function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

/// How a tool is invoked (D-7.1).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// The context to serve, as an entry of its chain would.
    pub target: Option<ContextId>,
    /// Whose `allowed-tools` hold, if not those of the nearest tool that is no entry.
    pub caller: Option<ContextId>,
    /// No one's `allowed-tools` hold: for the calls that stages themselves make.
    pub is_exempt: bool,
    /// What is laid over the new context: `locals`, `nonlocals`, `run.tool`.
    pub context: Option<Value>,
    /// What the host's own layers find in the new context.
    pub payload: Option<Payload>,
}

/// What a running function asks for.
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
        /// Options that win over those.
        options: Box<Options>,
    },
}

/// Work for the caller of [`Machine`].
#[derive(Debug)]
pub enum Command {
    /// Perform the effect of a tool, then [`Machine::finish`].
    Run {
        /// Its name from now on.
        call: CallId,
        /// The context that it runs with.
        context: ContextId,
    },
    /// Tell a running function what came of its request.
    Reply {
        /// The call of the function that waits.
        call: CallId,
        /// The request that is answered.
        token: Token,
        /// For an invocation its outcome, for `next` the target's result.
        outcome: Outcome,
    },
    /// An invocation from outside is over.
    Finished {
        /// Its context, which is there until it is taken.
        context: ContextId,
        /// The result of the tool, or the throw that ended it.
        outcome: Outcome,
    },
    /// Something that may be logged.
    Event(Event),
}

/// Something that happened, for reporters.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Beginning, end or failure of the invocation.
    pub kind: EventKind,
    /// The context of the invocation, which is unique in the machine.
    pub context: ContextId,
    /// The name of the tool or layer that is invoked.
    pub tool: Arc<str>,
    /// The tool that it serves as an entry, if it is one.
    pub serves: Option<Arc<str>>,
}

/// The kind of an event, with its facts.
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// An invocation began.
    Started,
    /// The invocation ended without a throw.
    Ended,
    /// It ended by a throw.
    Failed(Throw),
}

/// What a throw that an entry swallowed leaves of the chain (D-7.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Swallowed {
    /// Nothing: what was taken from the chain, and what is left of it, does not run.
    #[default]
    Ends,
    /// The rest: it goes on with the entry after the one that threw.
    GoesOn,
}

/// The interpreter. Give it time and the ends of effects; poll it until it has no more to say.
#[derive(Default)]
pub struct Machine {
    contexts: BTreeMap<ContextId, Context>,
    /// Who waits for the invocation of a context.
    waiting: BTreeMap<ContextId, Waiter>,
    calls: BTreeMap<CallId, Call>,
    work: Vec<Work>,
    commands: VecDeque<Command>,
    last_id: u64,
    now_ms: u64,
    /// `globals`, which all invocations share.
    pub globals: Value,
    /// `locals.config` of new contexts: `globals.config` as it was at the start.
    config: Arc<Value>,
    /// Whether events are reported.
    pub is_observed: bool,
    /// What a swallowed throw leaves.
    pub swallowed: Swallowed,
    /// Whether an entry gets the value of its key as its arguments (D-7.2); else it gets none.
    pub entries_get_values: bool,
}

/// A function that runs.
struct Call {
    context: ContextId,
    target: ContextId,
    waiter: Waiter,
    layer: Option<Arc<dyn Middleware>>,
}

/// Who receives an end.
#[derive(Debug)]
enum Waiter {
    /// Anyone who drives the machine.
    Outside(ContextId),
    /// The invocation whose chain has run.
    Chain(ContextId),
    /// The invocation whose function was called because its chain has no `execute`.
    Fallback(ContextId),
    /// The chain of a context, one of whose entries has run; then the waiter for that chain.
    Entry(ContextId, Box<Waiter>),
    /// The entry of a chain that hooks look at, and the waiter for it.
    Hooked(Box<Hooked>),
    /// What hooks have not seen yet.
    Hook(Box<Hooking>),
    /// A layer's function waits.
    Middleware(CallId, Awaited),
    /// A function elsewhere.
    Request(CallId, Token, Awaited),
}

/// An entry that hooks look at.
#[derive(Debug)]
struct Hooked {
    /// The context whose chain it is an entry of.
    owner: ContextId,
    entry: Arc<str>,
    /// Who waits for the rest of that chain.
    then: Waiter,
}

/// Hooks that observe an entry.
#[derive(Debug)]
struct Hooking {
    of: Hooked,
    /// Number of hooks that have run.
    reported: usize,
    /// What came of the entry; nothing before it.
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
    /// Enter a layer again.
    Step(CallId, Resume),
    /// Tell somebody of an end.
    Reply(Waiter, Outcome),
    /// Tell the next hook of an entry.
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

    /// The time, for histories, in milliseconds since 1970.
    pub fn set_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Invokes a tool from outside. [`Command::Finished`] tells its end.
    pub fn invoke(&mut self, tools: &mut dyn Tools, reference: &str, args: Value, options: Options) -> ContextId {
        let id = ContextId(self.new_id());
        self.begin(tools, reference, args, options, None, Waiter::Outside(id), id);
        id
    }

    /// The same for a tool that is at hand and that no one could find by a name. Its arguments are data of anyone who is served,
    /// a model perhaps: no options are taken out of them.
    pub fn invoke_tool(&mut self, tool: Arc<Tool>, args: Arc<Value>, options: Options) -> ContextId {
        let id = ContextId(self.new_id());
        self.start(tool, args, options, None, Waiter::Outside(id), id);
        id
    }

    /// What to do next; `None` if everything waits for something outside.
    pub fn poll(&mut self, tools: &mut dyn Tools) -> Option<Command> {
        loop {
            if let Some(command) = self.commands.pop_front() {
                return Some(command);
            }
            let work = self.work.pop()?;
            self.run(tools, work);
        }
    }

    /// Tells the end of a function that was to be run.
    pub fn finish(&mut self, call: CallId, outcome: Outcome) {
        if let Some(call) = self.calls.remove(&call) {
            self.work.push(Work::Reply(call.waiter, outcome));
        }
    }

    /// Takes a request of a running function; [`Command::Reply`] answers it. `None` if the function is over.
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

    /// The context of an invocation; `None`: it has ended and was removed.
    pub fn context(&self, id: ContextId) -> Option<&Context> {
        self.contexts.get(&id)
    }

    /// A context, to be changed.
    pub(crate) fn context_mut(&mut self, id: ContextId) -> Option<&mut Context> {
        self.contexts.get_mut(&id)
    }

    /// The context of a running function, and the one that it serves.
    pub fn contexts_of(&self, call: CallId) -> Option<(&Context, &Context)> {
        let call = self.calls.get(&call)?;
        Some((self.contexts.get(&call.context)?, self.contexts.get(&call.target)?))
    }

    /// The context that a running function serves, to be changed.
    pub fn target_mut(&mut self, call: CallId) -> Option<&mut Context> {
        let target = self.calls.get(&call)?.target;
        self.contexts.get_mut(&target)
    }

    /// Takes the context of an invocation that is over.
    pub fn take(&mut self, id: ContextId) -> Option<Context> {
        self.contexts.remove(&id)
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// Takes the options out of the arguments (D-7.1 step 1): `$context` becomes the option `context`, where an explicit one
/// wins field by field. Other names with `$` are options that do not exist and are dropped.
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

/// Adds what `value` lacks.
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

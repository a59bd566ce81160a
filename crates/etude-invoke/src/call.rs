//! One invocation of the host, as the program's own middleware checks it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::chain::{Context, Throw, ThrowKind};
use etude_core::schema::Schema;
use etude_core::tool::ToolReply;
use etude_models::Redactor;
use etude_tools::confine::PathArgument;
use etude_tools::pattern::{Subject, Verdict, Withheld};
use etude_tools::tool::members;
use etude_tools::{AllowedTools, Effect, Policy, Roots, Tool};
use serde_json::Value;

/// Who can say yes to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Asker {
    /// No one: what needs asking is denied.
    #[default]
    Unattended,
    /// Anyone who answers the gate that the run opens: the call is held.
    Gate,
}

/// A person's confirmation of one call (C-1.14).
pub trait Confirms: Send + Sync {
    /// Sees to it. Blocks.
    ///
    /// # Errors
    /// The call is not made now, and why.
    fn confirm(&self) -> Result<(), Throw>;
}

/// What a result must look like.
pub struct Expected {
    schema: Schema,
    /// A result that does not fit is a failure; else it is only noted.
    is_binding: bool,
    fault: OnceLock<String>,
}

impl Expected {
    /// A schema; a result that does not fit is a failure if `is_binding`.
    pub fn new(schema: Schema, is_binding: bool) -> Self {
        Self { schema, is_binding, fault: OnceLock::new() }
    }

    /// Looks at a result; what is wrong with it, if that is a failure.
    pub fn misfit(&self, result: &Value) -> Option<&str> {
        let first = self.schema.violations(result).first()?.to_string();
        let fault = self.fault.get_or_init(|| first);
        self.is_binding.then_some(fault)
    }

    /// What was wrong with the result.
    pub fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }
}

/// What the program's own layers check. What is not there is not checked.
#[derive(Default, Clone)]
pub struct Checks {
    /// What is called, as patterns see it and with the schema of its arguments.
    pub tool: Option<Arc<Tool>>,
    /// The path among its arguments, resolved: what is judged, and what is used.
    pub path: Option<Arc<PathArgument>>,
    /// The folders that patterns with paths mean.
    pub roots: Option<Roots>,
    /// The lists that narrow what the caller may call.
    pub allowed: Vec<AllowedTools>,
    /// What the user allows without being asked.
    pub policy: Option<Arc<Policy>>,
    /// The policy need not be asked: somebody has said yes, or the envelope of a stage allows it.
    pub is_approved: bool,
    /// The same, and of nothing but this very call: no envelope of a stage counts.
    pub is_confirmed: bool,
    /// The key of the question that a person has said yes to.
    pub approved_key: Option<String>,
    /// A confirmation of its own follows, which asks for more than the policy does.
    pub is_confirmed_later: bool,
    /// The way to a person who can allow the call, if there is one.
    pub asker: Asker,
    /// A confirmation that the call needs.
    pub confirmation: Option<Arc<dyn Confirms>>,
    /// What the result must look like.
    pub returns: Option<Arc<Expected>>,
    /// What is taken out of results, refusals and questions.
    pub redactor: Option<Arc<Redactor>>,
}

impl Checks {
    /// The call with these arguments as patterns see it.
    pub fn subject<'a>(&'a self, args: &'a Value) -> Option<Subject<'a>> {
        Some(Subject::of(self.tool.as_ref()?, members(args), self.roots.as_ref()?, self.path.as_ref()))
    }

    /// Why what was approved is not this call: its path leads elsewhere now, or was not shown in the question.
    pub fn differs(&self, subject: &Subject<'_>) -> Option<String> {
        let tool = self.tool.as_ref()?;
        self.path.as_ref().filter(|_| tool.effect != Effect::Reads)?;
        let redact =
            |text: &str| self.redactor.as_ref().map_or_else(|| text.to_owned(), |redactor| redactor.redact(text));
        let is_own = |key: &&String| key.strip_prefix(&tool.name).is_some_and(|rest| rest.starts_with('('));
        let key = redact(&subject.key());
        match self.approved_key.as_ref().filter(is_own) {
            Some(approved) if *approved == key => None,
            Some(approved) => Some(format!("`{approved}` was approved, and the path leads to `{key}` now")),
            // By its name alone, or by its arguments as they are written.
            None => subject.written().map(|written| {
                format!("`{}` is a symbolic link's name for `{key}`: use the path without links", redact(written))
            }),
        }
    }

    /// The files that the user's policy and the lists keep from the call.
    pub fn withheld(&self, args: &Value) -> Withheld {
        let Some(subject) = self.subject(args) else { return Withheld::default() };
        let policy = self.policy.iter().flat_map(|policy| &policy.allow);
        Withheld::new(&subject, policy.chain(self.allowed.iter().flat_map(AllowedTools::patterns)))
    }

    /// The list that does not let the call through, if one does not.
    pub fn refusing(&self, args: &Value) -> Option<&str> {
        let subject = self.subject(args)?;
        let mut lists = self.allowed.iter();
        let list = lists.find(|list| matches!(list.verdict(&subject), Verdict::Unlisted | Verdict::Deny));
        list.map(AllowedTools::as_str)
    }
}

/// One invocation of the host: the payload of its context.
pub(crate) struct HostCall {
    /// The effect of the run that it is.
    pub(crate) key: String,
    pub(crate) checks: Checks,
    held: OnceLock<Throw>,
}

impl fmt::Debug for HostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostCall").field("key", &self.key).finish_non_exhaustive()
    }
}

impl HostCall {
    pub(crate) fn new(key: String, checks: Checks) -> Self {
        Self { key, checks, held: OnceLock::new() }
    }

    /// The call that a context is.
    pub(crate) fn of(context: &Context) -> Option<&Self> {
        context.payload.as_ref()?.get()
    }

    /// Holds the call until there is an answer: nothing of it has been done. Where the key holds a secret, only this one call is
    /// answered for: without the secret, the key is that of other calls as well.
    pub(crate) fn hold(&self, layer: &str, key: &str, question: &str, is_once: bool) -> Throw {
        let redact = |text: &str| {
            self.checks.redactor.as_ref().map_or_else(|| text.to_owned(), |redactor| redactor.redact(text))
        };
        let (shown, question) = (redact(key), redact(question));
        let (is_once, key) = (is_once || shown != key, shown);
        let throw =
            Throw::new(ThrowKind::Waiting, layer, question.clone()).with(ToolReply::Held { key, question, is_once });
        self.held.get_or_init(|| throw).clone()
    }

    /// The throw of a call that is held.
    pub(crate) fn held(&self) -> Option<Throw> {
        self.held.get().cloned()
    }
}

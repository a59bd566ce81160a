//! One invocation by the host, with the checks of etude's own middleware.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::chain::{Context, Throw, ThrowKind};
use etude_core::exact::Exact;
use etude_core::schema::Schema;
use etude_core::tool::{ToolReply, all_digits};
use etude_models::Redactor;
use etude_tools::confine::PathArgument;
use etude_tools::pattern::{Subject, Verdict, Withheld};
use etude_tools::tool::members;
use etude_tools::{AllowedTools, Effect, Policy, Roots, Tool};
use serde_json::Value;

/// The way to a person who can approve a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Asker {
    /// No way: calls that need approval are denied.
    #[default]
    Unattended,
    /// A gate of the run, which a person answers later: the call is held.
    Gate,
}

/// A person's confirmation of one call (C-1.14).
pub trait Confirms: Send + Sync {
    /// Obtains the confirmation. Blocks.
    ///
    /// # Errors
    /// The call is not made now; the throw says why.
    fn confirm(&self) -> Result<(), Throw>;
}

/// The schema that a result must match.
pub struct Expected {
    schema: Schema,
    /// True if a mismatch is a failure; otherwise it is only noted.
    is_binding: bool,
    fault: OnceLock<String>,
}

impl Expected {
    /// A schema; a mismatch is a failure if `is_binding`.
    pub fn new(schema: Schema, is_binding: bool) -> Self {
        Self { schema, is_binding, fault: OnceLock::new() }
    }

    /// Checks a result and keeps its first fault. Returns the fault if the schema is binding.
    pub fn misfit(&self, result: &Value) -> Option<&str> {
        let first = self.schema.violations(result).first()?.to_string();
        let fault = self.fault.get_or_init(|| first);
        self.is_binding.then_some(fault)
    }

    /// The first fault that was found in a result.
    pub fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }
}

/// All digits of the numbers in the arguments of a call.
#[derive(Debug)]
pub struct Digits {
    /// The arguments as a tree, which rounds some numbers.
    rounded: Arc<Value>,
    /// The arguments with a text of its digits in place of each rounded number.
    pub shown: Value,
    /// The arguments as the tool gets them.
    pub exact: Exact,
}

impl Digits {
    /// The digits of the arguments in `text`, which a tree reads as `rounded`. `None` if the tree keeps them.
    pub fn parse(text: &str, rounded: &Arc<Value>) -> Option<Self> {
        let exact = all_digits(text)?;
        Some(Self { rounded: Arc::clone(rounded), shown: exact.shown(), exact })
    }
}

/// Checks of etude's own middleware for one call. A missing member is not checked.
#[derive(Default, Clone)]
pub struct Checks {
    /// The called tool as patterns see it, with the schema of its arguments.
    pub tool: Option<Arc<Tool>>,
    /// All digits of the arguments, if a tree rounds some. The tool gets them, so they are judged.
    pub digits: Option<Arc<Digits>>,
    /// The resolved path among the arguments: the same file is judged and used.
    pub path: Option<Arc<PathArgument>>,
    /// Folders that patterns with paths refer to.
    pub roots: Option<Roots>,
    /// Allow lists that restrict the caller.
    pub allowed: Vec<AllowedTools>,
    /// The user's policy; `None`: not checked.
    pub policy: Option<Arc<Policy>>,
    /// Skips the policy: a person has approved the call, or the envelope of a stage allows it.
    pub is_approved: bool,
    /// A person has confirmed exactly this call; the envelope of a stage does not count.
    pub is_confirmed: bool,
    /// Key of the question that a person has approved.
    pub approved_key: Option<String>,
    /// A confirmation follows, which demands more than the policy.
    pub is_confirmed_later: bool,
    /// The way to a person who can approve the call.
    pub asker: Asker,
    /// A confirmation that the call needs.
    pub confirmation: Option<Arc<dyn Confirms>>,
    /// The schema of the result.
    pub returns: Option<Arc<Expected>>,
    /// Redacts results, refusals and questions.
    pub redactor: Option<Arc<Redactor>>,
}

impl Checks {
    /// The call with these arguments as patterns see it.
    pub fn subject<'a>(&'a self, args: &'a Value) -> Option<Subject<'a>> {
        Some(Subject::of(self.tool.as_ref()?, members(self.shown(args)), self.roots.as_ref()?, self.path.as_ref()))
    }

    /// Arguments as people and patterns see them: with a text of its digits in place of each number that a tree rounds.
    pub fn shown<'a>(&'a self, args: &'a Value) -> &'a Value {
        self.digits_of(args).map_or(args, |digits| &digits.shown)
    }

    /// All digits of `args`. `None` if a tree keeps them, or if the call was made with other arguments.
    pub fn digits_of(&self, args: &Value) -> Option<&Digits> {
        self.digits.as_deref().filter(|digits| *digits.rounded == *args)
    }

    /// Reason why the approval does not cover this call: its path leads elsewhere now, or was not shown in the question.
    pub fn differs(&self, subject: &Subject<'_>) -> Option<String> {
        let tool = self.tool.as_ref()?;
        self.path.as_ref().filter(|_| tool.effect != Effect::Reads)?;
        let redact =
            |text: &str| self.redactor.as_ref().map_or_else(|| text.to_owned(), |redactor| redactor.redact(text));
        let is_own = |key: &&String| key.strip_prefix(&tool.name).is_some_and(|rest| rest.starts_with('('));
        let key = redact(&subject.key());
        match self.approved_key.as_ref().filter(is_own) {
            Some(approved) if *approved == key => None,
            Some(approved) => Some(format!("`{approved}` was approved, but the path now leads to `{key}`")),
            // The approval was by the tool's name alone, or by the arguments as written.
            None => subject.written().map(|written| {
                format!("`{}` leads to `{key}` through a symbolic link: use the path without links", redact(written))
            }),
        }
    }

    /// Files that the user's policy and the lists hide from the call.
    pub fn withheld(&self, args: &Value) -> Withheld {
        let Some(subject) = self.subject(args) else { return Withheld::default() };
        let policy = self.policy.iter().flat_map(|policy| &policy.allow);
        Withheld::new(&subject, policy.chain(self.allowed.iter().flat_map(AllowedTools::patterns)))
    }

    /// The list that refuses the call; `None` if all let it through.
    pub fn refusing(&self, args: &Value) -> Option<&str> {
        let subject = self.subject(args)?;
        let mut lists = self.allowed.iter();
        let list = lists.find(|list| matches!(list.verdict(&subject), Verdict::Unlisted | Verdict::Deny));
        list.map(AllowedTools::as_str)
    }
}

/// The payload of the context of an invocation by the host.
pub(crate) struct HostCall {
    /// Effect of the run that makes the call.
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

    /// The call in the payload of a context.
    pub(crate) fn of(context: &Context) -> Option<&Self> {
        context.payload.as_ref()?.get()
    }

    /// Holds the call until a person answers; nothing has run yet. If the key holds a secret, the answer counts for this call
    /// only: redacted, the key would match other calls as well.
    pub(crate) fn hold(&self, middleware: &str, key: &str, question: &str, is_once: bool) -> Throw {
        let redact = |text: &str| {
            self.checks.redactor.as_ref().map_or_else(|| text.to_owned(), |redactor| redactor.redact(text))
        };
        let (shown, question) = (redact(key), redact(question));
        let (is_once, key) = (is_once || shown != key, shown);
        let throw = Throw::new(ThrowKind::Waiting, middleware, question.clone()).with(ToolReply::Held {
            key,
            question,
            is_once,
        });
        self.held.get_or_init(|| throw).clone()
    }

    /// The throw of a call that is held.
    pub(crate) fn held(&self) -> Option<Throw> {
        self.held.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etude_tools::tool::{ApprovalKey, Origin};
    use serde_json::json;

    /// A-7.3: an approval key has all digits of a number, because the tool gets them. Otherwise an answer for one call would
    /// cover a call with another number.
    #[test]
    fn keys_have_all_digits() {
        let dir = tempfile::tempdir().expect("a directory");
        let origin = Origin::App { file: "tools/pay.yaml".to_owned() };
        let mut tool = Tool::new("pay", "Pays.", json!({"type": "object"}), Effect::Executes, origin);
        tool.approval_key = ApprovalKey::Template("pay({{args.id}})".to_owned());
        let mut checks = Checks {
            tool: Some(Arc::new(tool)),
            roots: Some(Roots::new(dir.path(), &[], &[]).expect("roots")),
            ..Checks::default()
        };
        let mut key = |text: &str, args: &Value| {
            let parsed: Value = serde_json::from_str(text).expect("JSON");
            checks.digits = Digits::parse(text, &Arc::new(parsed)).map(Arc::new);
            checks.subject(args).expect("a subject").key()
        };
        let (one, other) = (r#"{"id":12345678901234567890123}"#, r#"{"id":12345678901234567890124}"#);
        let rounded: Value = serde_json::from_str(one).expect("JSON");
        assert_eq!(rounded, serde_json::from_str::<Value>(other).expect("JSON"));
        assert_eq!(key(one, &rounded), "pay(12345678901234567890123)");
        assert_eq!(key(other, &rounded), "pay(12345678901234567890124)");
        // Arguments that middleware has changed are judged as they are.
        assert_eq!(key(one, &json!({"id": 7})), "pay(7)");
        assert_eq!(key(r#"{"id":7}"#, &json!({"id": 7})), "pay(7)");
    }
}

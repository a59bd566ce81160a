//! Middleware that checks a call and its result.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use crate::chain::{Context, Middleware, Resume, Step, Throw, ThrowKind, View};
use etude_core::schema::Schema;
use etude_spec::cascade::strategy::DenyPrecedence;
use etude_tools::Tool;
use etude_tools::pattern::{Pattern, Subject, Verdict};
use serde_json::{Map, Value, json};

use super::{Once, Shared};
use crate::call::HostCall;

/// A compiled schema, or the fault of an invalid one.
pub(super) type Compiled = Result<Arc<Schema>, String>;

/// Checks arguments against `params`; a tool without `params` takes none (D-10).
pub(super) struct Arguments {
    pub(super) shared: Arc<Shared>,
}

/// Checks the result against `returns`, after everything that may still produce one (D-10).
pub(super) struct Returns {
    pub(super) shared: Arc<Shared>,
}

/// Checks the call against the `allowed-tools` of its caller (D-10).
pub(super) struct AllowedTools {
    pub(super) shared: Arc<Shared>,
}

impl Once for Arguments {
    fn run(&self, view: &mut View<'_>) -> Result<Option<Value>, Throw> {
        let target = view.target();
        if target.is_entry() {
            return Ok(None);
        }
        let name = &target.tool.name;
        let refused = |message: String| Err(Throw::new(ThrowKind::Arguments, "validate-args", message));
        if let Some(call) = HostCall::of(target) {
            // A call without a schema takes any arguments; other schemas are compiled already.
            let tool = call.checks.tool.as_ref();
            return match tool.and_then(|tool| Some((tool, tool.misfit(&target.args)?))) {
                Some((tool, why)) => {
                    refused(format!("the arguments of `{}` do not match its input schema:\n{why}", tool.name))
                }
                None => Ok(None),
            };
        }
        match target.about("params").filter(|params| !params.is_null()) {
            None => match target.args.as_object() {
                Some(args) if !args.is_empty() => {
                    let given: Vec<String> = args.keys().map(|key| format!("`{key}`")).collect();
                    let given = given.join(", ");
                    refused(format!(
                        "`{name}` takes no arguments, but received {given}; `metadata.params` declares them"
                    ))
                }
                _ => Ok(None),
            },
            Some(params) => match self.shared.violations(params, &target.args) {
                Ok(None) => Ok(None),
                Ok(Some(why)) => refused(format!("the arguments of `{name}` are not valid: {why}")),
                Err(why) => Err(no_schema("params", "validate-args", name, &why)),
            },
        }
    }
}

impl Middleware for Returns {
    fn step(&self, view: &mut View<'_>, resume: Resume) -> Step {
        match resume {
            Resume::Start => Step::Next,
            Resume::Next(Err(throw)) => Step::Throw(throw),
            _ => {
                let target = view.target();
                let result = target.result.as_ref().unwrap_or(&Value::Null);
                let expected = HostCall::of(target).and_then(|call| call.checks.returns.as_ref());
                let schema = target.about("returns").filter(|returns| !returns.is_null() && !target.is_entry());
                let name = &target.tool.name;
                let why = match (expected.and_then(|expected| expected.misfit(result)), schema) {
                    (Some(why), _) => Ok(Some(why.to_owned())),
                    (None, schema) => schema.map_or(Ok(None), |schema| self.shared.violations(schema, result)),
                };
                let why = match why {
                    Ok(why) => why,
                    Err(why) => return Step::Throw(no_schema("returns", "validate-returns", name, &why)),
                };
                let refused = |why| {
                    Throw::new(
                        ThrowKind::Returns,
                        "validate-returns",
                        format!("the result of `{name}` is not valid: {why}"),
                    )
                };
                why.map_or(Step::Done(None), |why| Step::Throw(refused(why)))
            }
        }
    }
}

/// The refusal of a declared value that is not a JSON Schema.
pub(super) fn no_schema(key: &str, stage: &str, name: &str, why: &str) -> Throw {
    Throw::new(ThrowKind::Definition, stage, format!("`{key}` of `{name}` is not a JSON Schema: {why}"))
}

impl Shared {
    /// The violations of a value in one line, `None` without any. The error is the fault of the schema itself.
    fn violations(&self, schema: &Value, value: &Value) -> Result<Option<String>, String> {
        let found = self.compiled(schema)?.faults(value);
        Ok((!found.is_empty()).then(|| found.join("; ")))
    }

    /// The fault of an invalid schema. A null schema declares nothing.
    pub(super) fn fault(&self, schema: &Value) -> Option<String> {
        if schema.is_null() { None } else { self.compiled(schema).err() }
    }

    /// A schema, compiled on first use.
    fn compiled(&self, schema: &Value) -> Compiled {
        let mut known = self.schemas.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || Schema::compile("the schema", schema.clone(), BTreeMap::new()).map(Arc::new);
        known.entry(schema.to_string()).or_insert_with(made).clone()
    }
}

impl Once for AllowedTools {
    fn run(&self, view: &mut View<'_>) -> Result<Option<Value>, Throw> {
        let target = view.target();
        if let Some(call) = HostCall::of(target) {
            let Some(list) = call.checks.refusing(&target.args) else { return Ok(None) };
            let name = call.checks.tool.as_ref().map_or(&*target.tool.name, |tool| &tool.name);
            let message = format!("the allowed tools do not permit this call of `{name}`: {list}");
            return Err(Throw::new(ThrowKind::NotAllowed, "validate-allowed-tools", message));
        }
        let caller = view.caller().filter(|_| !target.is_entry());
        let Some((caller, allowed)) = caller.and_then(|caller| Some((caller, caller.tool.allowed_tools.clone()?)))
        else {
            return Ok(None);
        };
        let verdict = self.shared.verdict(&allowed, target);
        if verdict == Verdict::Allow || verdict == Verdict::Ask {
            return Ok(None);
        }
        let (name, caller) = (&target.tool.name, &caller.tool.name);
        let why = match verdict {
            Verdict::Deny => "denies it",
            _ => "does not list it",
        };
        let message = format!("`{caller}` may not call `{name}`: its `allowed-tools` ({allowed}) {why}");
        Err(Throw::new(ThrowKind::NotAllowed, "validate-allowed-tools", message))
    }
}

impl Shared {
    /// The verdict of a list of patterns on the call of `context`.
    pub(super) fn verdict(&self, patterns: &str, context: &Context) -> Verdict {
        let tool = as_tool(context);
        let args = shown(context);
        let path = HostCall::of(context).and_then(|call| call.checks.path.as_ref());
        let subject = Subject::of(&tool, &args, &self.roots, path);
        let all = etude_tools::AllowedTools::parse(patterns);
        match self.strategy.deny_precedence {
            DenyPrecedence::DenyWins => all.verdict(&subject),
            DenyPrecedence::FirstMatch => {
                let one = |pattern: &str| etude_tools::AllowedTools::parse(pattern).verdict(&subject);
                let mut verdicts = all.patterns().iter().map(|pattern| one(pattern.as_str()));
                verdicts.find(|verdict| *verdict != Verdict::Unlisted).unwrap_or(Verdict::Unlisted)
            }
        }
    }

    /// The patterns of a list that match the call, each with its verdict.
    pub(super) fn matching(&self, patterns: &str, context: &Context) -> Vec<(String, Verdict)> {
        let tool = as_tool(context);
        let args = shown(context);
        let path = HostCall::of(context).and_then(|call| call.checks.path.as_ref());
        let subject = Subject::of(&tool, &args, &self.roots, path);
        // Patterns may also use an agent tool's own name: `Bash(git *)`.
        let own = HostCall::of(context).and_then(|call| call.checks.subject(&context.args));
        let all = etude_tools::AllowedTools::parse(patterns);
        let verdict = |pattern: &Pattern| match (pattern.rule(&subject), &own) {
            (Verdict::Unlisted, Some(own)) => pattern.rule(own),
            (verdict, _) => verdict,
        };
        let each = all.patterns().iter().map(|pattern| (pattern.as_str().to_owned(), verdict(pattern)));
        each.filter(|(_, verdict)| *verdict != Verdict::Unlisted).collect()
    }
}

/// The arguments of a call as patterns see them.
fn shown(context: &Context) -> Map<String, Value> {
    let args = HostCall::of(context).map_or(&*context.args, |call| call.checks.shown(&context.args));
    args.as_object().cloned().unwrap_or_default()
}

/// The tool of a context as patterns see it: name, tags and arguments.
fn as_tool(context: &Context) -> Tool {
    let schema = context.about("params").cloned().unwrap_or_else(|| json!({"type": "object"}));
    let tags = context.about("tags").or_else(|| context.metadata("tags"));
    let tags = tags.map(etude_spec::cascade::skill::names).unwrap_or_default();
    Tool::named(&context.tool.name, tags, schema)
}

//! An llm step: model call, structural validation, content validation, and the conversation that repeats them.
//!
//! | state      | event                                   | next                                    |
//! |------------|-----------------------------------------|-----------------------------------------|
//! | asking     | no response, refusal, cut off           | over, with that failure                 |
//! | asking     | empty response, retry left              | rejected                                |
//! | asking     | empty response, none left               | over, with that failure                 |
//! | asking     | response breaks the schema              | rejected                                |
//! | asking     | response satisfies the schema           | checking, or over if no validator       |
//! | checking   | `{"valid": true}` and exit 0            | over, with the output                   |
//! | checking   | errors                                  | rejected                                |
//! | checking   | neither                                 | over: the validator is broken           |
//! | rejected   | retry left                              | asking, with the reasons                |
//! | rejected   | none left                               | over: validation exhausted              |

mod choose;

use std::sync::Arc;
use std::task::Poll;

use serde_json::Value;

pub(super) use choose::ChooseTask;

use super::binding::unresolved;
use super::outcome_error::{call_failed, check_exit, limit, unexpected_outcome};
use super::step_context::StepContext;
use super::validator::{self, Verdict};
use super::values::Values;
use super::{Cx, JOINS_QUESTIONS, TAKES_LAST, Task};
use crate::cause::OF_PROVIDER;
use crate::data::Json;
use crate::effect::{Command, Effect, EffectId, ProcessCall, Protocol, Setting};
use crate::extract;
use crate::failure::{Attempt, Failure, FailureKind, RejectedBy};
use crate::model::{CallFailure, Message, ModelResponse, Part, Request, ResponseSchema, Role, Stop};
use crate::outcome::{Completed, Outcome, ProcessEnd, Stdout};
use crate::plan::{Llm, Step, StepKind};
use crate::report::Event;
use crate::schema::Schema;
use crate::template::{Scope, Template};
use crate::tree;

/// The first version of the interpreter that asks again after an empty response even if there is no schema.
const ASKS_AGAIN: u32 = 8;

/// Reason to reject a response if any text is allowed.
const EMPTY: &str = "the answer is empty";

#[derive(Debug)]
pub(super) struct LlmTask {
    step: Arc<Step>,
    step_context: StepContext,
    values: Arc<Values>,
    request: Request,
    /// Schema of the response.
    schema: Option<Arc<Schema>>,
    /// The members of the response that are lists of choices, where `none` excludes all others (L-47).
    choices: Vec<String>,
    attempt: u32,
    attempts: Vec<Attempt>,
    /// The response that was rejected last, once no retry is left.
    rejected: Option<String>,
    state: State,
    stopped: Option<Failure>,
}

#[derive(Debug)]
enum State {
    Asking { is_started: bool },
    Checking { response: LlmAttempt, output: Json },
}

/// The response that is being checked, with its time and tokens.
#[derive(Debug, Clone)]
struct LlmAttempt {
    text: String,
    elapsed_ms: u64,
    tokens: u64,
}

impl LlmTask {
    pub(super) fn new(step: Arc<Step>, step_context: StepContext, values: Arc<Values>) -> Result<Self, Failure> {
        let schema = llm_of(&step).schema.clone();
        Self::asking(step, step_context, values, schema, &[])
    }

    /// The same call, but it rejects `none` beside other choices in these members of the response.
    fn excluding_none(self, choices: Vec<String>) -> Self {
        Self { choices, ..self }
    }

    /// A call with another schema, and with the prompts and images of further steps in the same message.
    fn asking(
        step: Arc<Step>,
        step_context: StepContext,
        values: Arc<Values>,
        schema: Option<Arc<Schema>>,
        more: &[&Llm],
    ) -> Result<Self, Failure> {
        let mut request = request(llm_of(&step), &step.name, &step_context, &values, schema.as_deref())?;
        let parts = &mut request.messages[0].parts;
        for llm in more {
            let text = llm.prompt.render(&*values).map_err(|e| unresolved(&e))?;
            parts.push(Part::Text(format!("\n\n{text}")));
            if values.abi() >= JOINS_QUESTIONS {
                let images = images(llm, &step_context, &values)?;
                // An image that is already in the message is not sent twice.
                let further: Vec<Part> = images.into_iter().filter(|image| !parts.contains(image)).collect();
                parts.extend(further);
            }
        }
        let state = State::Asking { is_started: false };
        let (choices, attempts, rejected) = (Vec::new(), Vec::new(), None);
        let attempt = 1;
        Ok(Self {
            step,
            step_context,
            values,
            request,
            schema,
            choices,
            attempt,
            attempts,
            rejected,
            state,
            stopped: None,
        })
    }

    /// The JSON of the response that was rejected last, once no retry is left.
    fn rejected(&self) -> Option<Value> {
        let found = extract::fitting(self.rejected.as_deref()?, |_| false)?;
        tree::parse_response(found).ok()
    }

    /// The failure of step `name`, whose responses were rejected until no retry was left, the last one for these
    /// reasons.
    fn exhausted(&self, name: &str, reasons: &[String]) -> Failure {
        let last = reasons.join("; ");
        let tries = match llm_of(&self.step).retry {
            0 => "once (no retries)".to_owned(),
            1 => "twice (1 attempt + 1 retry)".to_owned(),
            n => format!("{} times (1 attempt + {n} retries)", n + 1),
        };
        let message = format!("llm step `{name}` was rejected {tries}; last reason: {last}");
        self.with_attempts(Failure::new(FailureKind::ValidationExhausted, message))
    }

    fn call_id(&self) -> EffectId {
        self.step_context.path.attempt(self.attempt)
    }

    fn check_id(&self) -> EffectId {
        EffectId::new(format!("{}/validate", self.call_id()))
    }

    fn ask(&mut self, cx: &mut Cx, is_started: bool) -> Poll<Result<Json, Failure>> {
        if let Some(why) = self.stopped.as_ref().filter(|_| !is_started) {
            return Poll::Ready(Err(self.with_attempts(why.clone())));
        }
        let id = self.call_id();
        if !is_started {
            cx.may_spend().map_err(|failure| self.with_attempts(failure))?;
            self.state = State::Asking { is_started: true };
        }
        let request = &self.request;
        let Poll::Ready(done) = cx.run_effect(&id, || Effect::Model(Box::new(request.clone()))) else {
            return Poll::Pending;
        };
        cx.book(self.step_context.ledger, &id, &done);
        let charged = match &done.outcome {
            Outcome::Response(response) => {
                cx.count_attempt(self.step_context.ledger, self.attempt);
                cx.charge(self.step_context.ledger, &response.usage)
            }
            _ => Ok(()),
        };
        if let Some(why) = &self.stopped {
            return Poll::Ready(Err(self.with_attempts(why.clone())));
        }
        charged.map_err(|failure| self.with_attempts(failure))?;
        self.receive(cx, done)
    }

    /// Judges the outcome of a model call.
    fn receive(&mut self, cx: &mut Cx, done: Completed) -> Poll<Result<Json, Failure>> {
        let response = match done.outcome {
            Outcome::Response(response) => response,
            Outcome::CallFailed(failure) => {
                self.attempts.extend(transport_attempt(&failure, done.elapsed_ms));
                return Poll::Ready(Err(
                    self.with_attempts(call_failed(&format!("llm step `{}`", self.step.name), &failure))
                ));
            }
            _ => return Poll::Ready(Err(unexpected_outcome(&self.call_id()))),
        };
        let tokens = response.usage.input_tokens + response.usage.output_tokens;
        let is_empty = cx.facts.abi >= ASKS_AGAIN && self.is_empty(&response);
        let is_last = self.attempt > llm_of(&self.step).retry;
        if is_empty && is_last && self.attempt > 1 {
            let (rejected_by, errors) = (RejectedBy::Schema, vec![EMPTY.to_owned()]);
            self.attempts.push(Attempt { rejected_by, errors, elapsed_ms: done.elapsed_ms, tokens });
        }
        if !is_empty || is_last {
            self.check_stop(cx, &response)?;
        }
        let response = LlmAttempt { text: response.text, elapsed_ms: done.elapsed_ms, tokens };
        if is_empty {
            return self.reject(cx, &response, RejectedBy::Schema, vec![EMPTY.to_owned()]);
        }
        match self.check_structure(&response.text, cx.facts.abi) {
            Err(errors) => self.reject(cx, &response, RejectedBy::Schema, errors),
            Ok(output) if llm_of(&self.step).validate.is_none() => Poll::Ready(Ok(output)),
            Ok(output) => {
                self.state = State::Checking { response, output };
                Poll::Pending
            }
        }
    }

    /// True if the response is empty although any text is allowed.
    fn is_empty(&self, response: &ModelResponse) -> bool {
        let is_whole = !matches!(response.stop, Stop::Refusal(_) | Stop::Length);
        is_whole && response.text.trim().is_empty() && self.request.schema.is_none()
    }

    /// Turns a refusal, or a truncated or empty response, into its specific failure.
    fn check_stop(&self, cx: &Cx, response: &ModelResponse) -> Result<(), Failure> {
        let name = &self.step.name;
        let model = &response.model;
        let failure = match &response.stop {
            Stop::Refusal(reason) if reason.is_empty() => {
                Failure::new(FailureKind::ModelRefused, format!("{model} refused to respond to llm step `{name}`"))
            }
            Stop::Refusal(reason) => Failure::new(
                FailureKind::ModelRefused,
                format!("{model} refused to respond to llm step `{name}`: {reason}"),
            ),
            Stop::Length => {
                let limit = match llm_of(&self.step).max_tokens {
                    Some(n) => format!(" (`max_tokens` is {n})"),
                    None => limit(cx, &response.usage, &format!("the step or of {OF_PROVIDER}")),
                };
                Failure::new(
                    FailureKind::ModelTruncated,
                    format!("the response of {model} to llm step `{name}` was cut off at the maximum length{limit}"),
                )
            }
            _ if self.is_empty(response) => {
                Failure::new(FailureKind::ModelError, format!("{model} gave an empty response to llm step `{name}`"))
            }
            _ => return Ok(()),
        };
        Err(self.with_attempts(failure))
    }

    /// Structural validation: returns the output, or every fault.
    fn check_structure(&self, text: &str, abi: u32) -> Result<Json, Vec<String>> {
        let Some(schema) = &self.schema else {
            return Ok(Json::string(text));
        };
        let found = match abi < TAKES_LAST {
            true => extract::json(text),
            false => extract::fitting(text, |found| {
                tree::parse_response(found).is_ok_and(|value| self.violations(schema, &value).is_empty())
            }),
        };
        let Some(found) = found else {
            let why = tree::parse_response(text).err().map(|e| e.to_string()).unwrap_or_default();
            let start: String = text.chars().take(120).collect();
            return Err(vec![if text.trim().is_empty() {
                "the answer is empty; it must be JSON".to_owned()
            } else {
                format!("the answer is not JSON ({why}); it begins with: {start}")
            }]);
        };
        let json = Json::trusted(found);
        let value = tree::parse_response(found).map_err(|e| vec![format!("the answer cannot be looked into: {e}")])?;
        let violations = self.violations(schema, &value);
        if violations.is_empty() { Ok(json) } else { Err(violations) }
    }

    fn violations(&self, schema: &Schema, value: &Value) -> Vec<String> {
        let faults = schema.faults(value);
        if faults.is_empty() { choose::contradictions(&self.choices, value) } else { faults }
    }

    fn check(&mut self, cx: &mut Cx, response: &LlmAttempt, output: &Json) -> Poll<Result<Json, Failure>> {
        let id = self.check_id();
        let call = || self.validator_call(output);
        let Poll::Ready(done) = cx.run_effect(&id, || Effect::Process(Box::new(call()))) else {
            return Poll::Pending;
        };
        cx.book(self.step_context.ledger, &id, &done);
        if let Some(why) = &self.stopped {
            return Poll::Ready(Err(self.with_attempts(why.clone())));
        }
        let Outcome::Process(end) = done.outcome else {
            return Poll::Ready(Err(unexpected_outcome(&id)));
        };
        match judge_validator(&self.validator().to_string(), &end) {
            Ok(errors) if errors.is_empty() => Poll::Ready(Ok(output.clone())),
            Ok(errors) => self.reject(cx, response, RejectedBy::Validate, errors),
            Err(failure) => Poll::Ready(Err(self.with_attempts(failure))),
        }
    }

    /// The validator's command; only called if the step has a validator.
    fn validator(&self) -> Command {
        llm_of(&self.step).validate.clone().unwrap_or(Command::Script(String::new()))
    }

    fn validator_call(&self, output: &Json) -> ProcessCall {
        ProcessCall {
            command: self.validator(),
            dir: self.step_context.dir.to_string(),
            env: Vec::new(),
            key: self.check_id().as_str().to_owned(),
            attempt: self.attempt,
            stdin: self.values.validator_stdin(output),
            protocol: Protocol::Document,
            setting: Setting::default(),
        }
    }

    /// Continues the conversation, or ends it.
    fn reject(
        &mut self,
        cx: &mut Cx,
        response: &LlmAttempt,
        rejected_by: RejectedBy,
        errors: Vec<String>,
    ) -> Poll<Result<Json, Failure>> {
        let reasons = errors.clone();
        self.attempts.push(Attempt { rejected_by, errors, elapsed_ms: response.elapsed_ms, tokens: response.tokens });
        let retry = llm_of(&self.step).retry;
        if self.attempt > retry {
            self.rejected = Some(response.text.clone());
            return Poll::Ready(Err(self.exhausted(&self.step.name, &reasons)));
        }
        if let Some(row) = self.step_context.ledger {
            let (item, attempt, max_attempts) = (self.step_context.item.clone(), self.attempt, retry + 1);
            let reasons = reasons.clone();
            cx.emit(Event::AttemptRejected { row, item, attempt, max_attempts, rejected_by, reasons });
        }
        // Providers refuse an empty message, and the model must see its previous response.
        let said = if response.text.trim().is_empty() { "(empty answer)" } else { response.text.trim_end() };
        self.request.messages.push(Message::assistant(said));
        self.request.messages.push(Message::user(correction(&reasons)));
        self.attempt += 1;
        self.state = State::Asking { is_started: false };
        Poll::Pending
    }

    fn with_attempts(&self, mut failure: Failure) -> Failure {
        failure.attempts = self.attempts.clone();
        failure
    }
}

impl Task for LlmTask {
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        loop {
            let (id, ready) = match &self.state {
                State::Asking { is_started } => (self.call_id(), self.ask(cx, *is_started)),
                State::Checking { response, output } => {
                    let (response, output) = (response.clone(), output.clone());
                    (self.check_id(), self.check(cx, &response, &output))
                }
            };
            if ready.is_ready() {
                return ready;
            }
            // Pending either because an effect is in progress, or because the state has just changed.
            let is_same = match &self.state {
                State::Asking { is_started } => *is_started && self.call_id() == id,
                State::Checking { .. } => self.check_id() == id,
            };
            if is_same {
                return Poll::Pending;
            }
        }
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        cx.abandon(&match &self.state {
            State::Asking { .. } => self.call_id(),
            State::Checking { .. } => self.check_id(),
        });
    }
}

fn llm_of(step: &Step) -> &Llm {
    match &step.kind {
        StepKind::Llm(llm) => llm,
        other => unreachable!("an llm task for a step of type {}", other.word()),
    }
}

fn request(
    llm: &Llm,
    name: &str,
    step_context: &StepContext,
    values: &Values,
    schema: Option<&Schema>,
) -> Result<Request, Failure> {
    let render = |template: &Template| template.render(values).map_err(|e| unresolved(&e));
    let mut parts = vec![Part::Text(render(&llm.prompt)?)];
    parts.extend(images(llm, step_context, values)?);
    Ok(Request {
        tier: llm.tier,
        system: llm.system.as_ref().map(render).transpose()?,
        messages: vec![Message { role: Role::User, parts }],
        schema: schema.map(|schema| ResponseSchema { name: name.to_owned(), schema: schema.bundled() }),
        tools: Vec::new(),
        must_call: None,
        temperature: llm.temperature,
        max_tokens: llm.max_tokens,
        cache_prompt: llm.cache_prompt,
    })
}

/// The images of an llm step, as parts of its message.
fn images(llm: &Llm, step_context: &StepContext, values: &Values) -> Result<Vec<Part>, Failure> {
    let image = |path: &Template| {
        let path = path.render(values).map_err(|e| unresolved(&e))?;
        Ok(Part::Image { path: format!("{}/{path}", step_context.dir) })
    };
    llm.images.iter().map(image).collect()
}

/// Message to the model about its rejected response.
fn correction(reasons: &[String]) -> String {
    let list: String = reasons.iter().map(|reason| format!("- {reason}\n")).collect();
    format!("Your last answer was rejected:\n\n{list}\nAnswer again, in full, with these faults corrected.")
}

/// A call with several attempts and no response, as an entry of `attempts`. A call with a single attempt is not one:
/// the failure itself has its reason.
fn transport_attempt(failure: &CallFailure, elapsed_ms: u64) -> Option<Attempt> {
    let earlier = Some(&failure.transport_failures).filter(|tries| !tries.is_empty())?;
    let errors = earlier.iter().chain([&failure.message]).cloned().collect();
    Some(Attempt { rejected_by: RejectedBy::Transport, errors, elapsed_ms, tokens: 0 })
}

/// Evaluates a content validator: no errors, its errors, or the failure of a broken validator.
fn judge_validator(name: &str, end: &ProcessEnd) -> Result<Vec<String>, Failure> {
    let broken = |why: String| {
        let mut failure = Failure::new(FailureKind::ValidatorBroken, format!("validator `{name}` {why}"));
        failure.stderr = Some(end.stderr.clone());
        if let crate::outcome::Exit::Status(status) = end.exit {
            failure.exit_status = Some(status);
        }
        failure
    };
    let verdict = match &end.stdout {
        Stdout::Value(json) => json.value().ok(),
        Stdout::Unusable { .. } => None,
    };
    let exit = check_exit("it", end, &[0]).map_err(|failure| failure.message);
    match (validator::verdict(verdict.as_ref(), exit.is_ok()), exit) {
        (Verdict::Good, _) => Ok(Vec::new()),
        (Verdict::Bad(reasons), _) => Ok(reasons),
        (Verdict::Contradiction, how) => {
            let how = how.err().unwrap_or_default();
            Err(broken(format!("contradicts itself: it printed `{{\"valid\": true}}`, but {how}")))
        }
        (Verdict::Missing, Err(how)) => Err(broken(format!("failed: {how} and printed no verdict"))),
        (Verdict::Missing, Ok(())) => {
            let found = match &end.stdout {
                Stdout::Value(json) => json.text().map(|t| t.chars().take(200).collect::<String>()).unwrap_or_default(),
                Stdout::Unusable { problem, found } if found.is_empty() => problem.clone(),
                Stdout::Unusable { found, .. } => found.clone(),
            };
            Err(broken(format!(
                "printed no verdict: expected `{{\"valid\": true}}` or `{{\"valid\": false, \"errors\": […]}}`, found: {found}"
            )))
        }
    }
}

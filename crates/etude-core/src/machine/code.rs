//! A code step: a process, repeated only if the step asks for that.
//!
//! | state    | event                          | next                                         |
//! |----------|--------------------------------|----------------------------------------------|
//! | running  | allowed exit, usable output    | over, with the output                        |
//! | running  | anything else, retry left      | waiting                                      |
//! | running  | anything else                  | over, with the failure and every attempt     |
//! | waiting  | time is up                     | running, next attempt                        |

use std::sync::Arc;
use std::task::Poll;

use super::binding::{unreadable, unresolved};
use super::outcome_error::{check_exit, unexpected_outcome};
use super::step_context::StepContext;
use super::values::Values;
use super::{Cx, Task};
use crate::data::Json;
use crate::digest::Digest;
use crate::effect::{Effect, EffectId, ProcessCall, Protocol, Sandbox, Setting, Stdin};
use crate::failure::{Attempt, Failure, FailureKind, RejectedBy};
use crate::outcome::{Exit, Outcome, ProcessEnd, Stdout, Warmth};
use crate::plan::{Code, CodeRetry, RetryOn, Step, StepKind, growing};
use crate::report::Event;
use crate::template::Template;

#[derive(Debug)]
pub(super) struct CodeTask {
    step: Arc<Step>,
    step_context: StepContext,
    /// The values that the step can see; stdin consists of them.
    values: Arc<Values>,
    /// The call without its stdin, which is built when the process starts.
    call: ProcessCall,
    /// Digest of the process effect.
    request: Digest,
    attempt: u32,
    /// The pause before the next attempt, and its length in milliseconds.
    pause: Option<(EffectId, u64)>,
    attempts: Vec<Attempt>,
    is_running: bool,
    stopped: Option<Failure>,
}

impl CodeTask {
    pub(super) fn new(step: Arc<Step>, step_context: StepContext, values: Arc<Values>) -> Result<Self, Failure> {
        let code = code_of(&step);
        let mut env = Vec::with_capacity(code.env.len());
        for (name, template) in &code.env {
            env.push((name.clone(), template.render(&*values).map_err(|e| unresolved(&e))?));
        }
        let call = ProcessCall {
            command: code.command.clone(),
            dir: step_context.dir.to_string(),
            env,
            key: step_context.path.as_str().to_owned(),
            attempt: 1,
            stdin: Stdin(Vec::new()),
            protocol: code.protocol,
            setting: setting(code, &values)?,
        };
        // The digest does not depend on the attempt.
        let request = call.digest_with(values.stdin_digest());
        debug_assert_eq!(request, effect(&call, &values).digest());
        Ok(Self {
            step,
            step_context,
            values,
            call,
            request,
            attempt: 1,
            pause: None,
            attempts: Vec::new(),
            is_running: false,
            stopped: None,
        })
    }

    fn judge(&self, end: &ProcessEnd, abi: u32) -> Result<Json, Failure> {
        let code = code_of(&self.step);
        check_exit(&format!("code step `{}`", self.step.name), end, &code.allow_exit)?;
        let output = match &end.stdout {
            Stdout::Value(output) => output.clone(),
            Stdout::Unusable { problem, found } => {
                return Err(Failure::new(
                    FailureKind::StepOutputInvalid,
                    unusable(&self.step.name, self.call.protocol, problem, found),
                ));
            }
        };
        let Some(schema) = &code.schema else { return Ok(output) };
        let value = output.value().map_err(|why| {
            let what = format!("the output of code step `{}`", self.step.name);
            unreadable(&what, &why, FailureKind::StepOutputInvalid, FailureKind::Environment, abi)
        })?;
        let violations = schema.faults(&value);
        if violations.is_empty() {
            return Ok(output);
        }
        let message = format!(
            "the output of code step `{}` does not satisfy `{}`: {}",
            self.step.name,
            schema.name(),
            violations.join("; ")
        );
        Err(Failure::new(FailureKind::StepOutputInvalid, message))
    }

    /// The wait before the next attempt, in milliseconds; `None` if there is none.
    fn next_pause(&self, failure: &Failure, end: &ProcessEnd) -> Option<u64> {
        let retry = code_of(&self.step).retry.as_ref()?;
        let is_retried = failure.kind == FailureKind::StepFailed && !matches!(end.exit, Exit::NotStarted(_));
        (is_retried && self.attempt <= retry.max && retry.covers(&end.exit))
            .then(|| retry.pause(self.attempt, self.step_context.path.as_str()))
    }

    /// Ends after a stop. The earlier attempts are kept, because they may explain why the step took so long.
    fn give_up(&mut self, mut why: Failure) -> Poll<Result<Json, Failure>> {
        why.attempts = std::mem::take(&mut self.attempts);
        Poll::Ready(Err(why))
    }

    fn fail(&mut self, mut failure: Failure) -> Poll<Result<Json, Failure>> {
        if self.attempt > 1 {
            failure.message = format!("{} (after {} attempts)", failure.message, self.attempt);
        }
        failure.attempts = std::mem::take(&mut self.attempts);
        Poll::Ready(Err(failure))
    }
}

impl Task for CodeTask {
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        if self.is_running && !cx.has_arrivals() {
            return Poll::Pending;
        }
        loop {
            if let Some((id, ms)) = self.pause.clone() {
                if let Some(why) = &self.stopped {
                    cx.forget(&id);
                    return self.give_up(why.clone());
                }
                let Poll::Ready(_) = cx.run_effect(&id, || Effect::Sleep { ms, deadline: false }) else {
                    return Poll::Pending;
                };
                self.pause = None;
                self.attempt += 1;
                self.call.attempt = self.attempt;
            }
            if let Some(why) = self.stopped.as_ref().filter(|_| !self.is_running) {
                return self.give_up(why.clone());
            }
            let id = self.step_context.path.attempt(self.attempt);
            if !self.is_running {
                cx.count_execution(self.step_context.row, self.step_context.ledger, self.attempt);
                self.is_running = true;
            }
            let effect = || effect(&self.call, &self.values);
            let Poll::Ready(done) = cx.run_known_effect(&id, self.request, effect) else {
                return Poll::Pending;
            };
            self.is_running = false;
            cx.book(self.step_context.ledger, &id, &done);
            if let Some(why) = &self.stopped {
                return self.give_up(why.clone());
            }
            let Outcome::Process(end) = done.outcome else {
                return self.fail(unexpected_outcome(&id));
            };
            if let (Some(row), Some(Warmth::Cold(why))) = (self.step_context.row, &end.conditions.worker) {
                cx.emit(Event::Detour { row, why: format!("no warm interpreter: {why}") });
            }
            let mut failure = match self.judge(&end, cx.facts.abi) {
                Ok(output) => return Poll::Ready(Ok(output)),
                Err(failure) => failure,
            };
            failure.elapsed_ms = Some(done.elapsed_ms);
            failure.stderr.get_or_insert_with(|| end.stderr.clone());
            let rejected_by =
                if failure.kind == FailureKind::StepOutputInvalid { RejectedBy::Schema } else { RejectedBy::Transport };
            if code_of(&self.step).retry.is_some() {
                let errors = vec![failure.message.clone()];
                self.attempts.push(Attempt {
                    rejected_by,
                    errors: errors.clone(),
                    elapsed_ms: done.elapsed_ms,
                    tokens: 0,
                });
                if let Some(ms) = self.next_pause(&failure, &end) {
                    if let Some(row) = self.step_context.ledger {
                        let max_attempts = code_of(&self.step).retry.as_ref().map_or(1, |retry| retry.max + 1);
                        let (item, attempt, reasons) = (self.step_context.item.clone(), self.attempt, errors);
                        let event = Event::AttemptRejected { row, item, attempt, max_attempts, rejected_by, reasons };
                        cx.emit(event);
                    }
                    self.pause = Some((self.step_context.path.aside(&format!("backoff{}", self.attempt)), ms));
                    continue;
                }
            }
            return self.fail(failure);
        }
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        cx.abandon(&self.step_context.path.attempt(self.attempt));
    }
}

/// The effect of a call, whose stdin consists of `values`.
fn effect(call: &ProcessCall, values: &Values) -> Effect {
    Effect::Process(Box::new(ProcessCall { stdin: values.stdin(), ..call.clone() }))
}

/// The environment of the step's process, with rendered paths.
fn setting(code: &Code, values: &Values) -> Result<Setting, Failure> {
    let filled = |paths: &[Template]| {
        paths.iter().map(|path| path.render(values).map_err(|e| unresolved(&e))).collect::<Result<Vec<_>, _>>()
    };
    let sandbox = match &code.sandbox {
        Some(rules) => {
            let (read, write) = (filled(&rules.read)?, filled(&rules.write)?);
            Some(Box::new(Sandbox { network: rules.network, read, write }))
        }
        None => None,
    };
    Ok(Setting { worker: code.worker, env_from: code.env_from.clone(), sandbox, ..Setting::default() })
}

fn code_of(step: &Step) -> &Code {
    match &step.kind {
        StepKind::Code(code) => code,
        other => unreachable!("a code task for a step of type {}", other.word()),
    }
}

fn unusable(step: &str, protocol: Protocol, problem: &str, found: &str) -> String {
    let rule = match protocol {
        Protocol::Step => "stdout must be exactly one JSON object with `output`",
        Protocol::Document => "stdout must be exactly one JSON value",
        Protocol::Text => "with `output: text` stdout must be UTF-8 text",
    };
    if found.is_empty() {
        format!("code step `{step}`: {problem}; {rule}")
    } else {
        format!("code step `{step}`: {problem}; {rule}; found: {found}")
    }
}

impl CodeRetry {
    fn covers(&self, exit: &Exit) -> bool {
        self.on.is_empty()
            || self.on.iter().any(|on| match (on, exit) {
                (RetryOn::Status(wanted), Exit::Status(status)) => wanted == status,
                (RetryOn::Signal, Exit::Signal { .. }) => true,
                _ => false,
            })
    }

    /// The wait after an attempt, in milliseconds. Jitter takes off up to half of it, by a fraction that depends on the
    /// step and the attempt alone: the same on every replay, another one for every step.
    fn pause(&self, attempt: u32, path: &str) -> u64 {
        let capped = growing(self.backoff_ms, self.factor, self.max_backoff_ms, attempt);
        if !self.jitter {
            return capped as u64;
        }
        let seed = Digest::of(format!("{path}#{attempt}").as_bytes());
        (capped * (1.0 - f64::from(seed.as_bytes()[0]) / 512.0)) as u64
    }
}

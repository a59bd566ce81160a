//! The work of a step, by its type.

use serde_json::{Map, Value, json};

use super::{Beside, Part, Place, Reference, Verdict, Window};
use crate::definition::{Approval, Call, Code, Llm, OnTimeout, Prints, Retry, Step, Work};
use crate::values::Scope;
use crate::world::{Asked, Ended, Time};

/// The prompt of a model call, with the checks of its completions.
pub(super) struct Question<'a> {
    pub(super) step: &'a Step,
    pub(super) prompt: String,
    pub(super) schema: Option<Value>,
    pub(super) retry: u32,
    pub(super) has_validator: bool,
    /// Check of a completion.
    pub(super) is_good: &'a dyn Fn(&Value) -> bool,
    /// Check of the last completion.
    pub(super) is_enough: &'a dyn Fn(&Value) -> bool,
}

/// The verdict of a content validator.
enum Check {
    Passes,
    Rejects,
    Broken,
}

impl Reference<'_> {
    pub(super) fn work(
        &self,
        step: &Step,
        place: &Place,
        scope: &Scope,
        window: Window,
        answer_by: Time,
        beside: Beside<'_>,
    ) -> Part {
        match &step.work {
            Work::Code(code) => self.code(step, code, place, scope, window),
            Work::Llm(llm) => self.llm(step, llm, place, scope, window),
            Work::Choose(choose) => self.choose(step, choose, place, scope, window, beside),
            Work::Group(group) => self.group(group, place, scope, window),
            Work::Call(call) => self.call(step, call, place, scope, window),
            Work::Approval(approval) => self.approval(step, approval, place, scope, window, answer_by),
        }
    }

    /// runs a process, and repeats it if the step allows retries.
    fn code(&self, step: &Step, code: &Code, place: &Place, scope: &Scope, window: Window) -> Part {
        let mut part = Part::at_once(window.from, Verdict::Stopped);
        let variable = |(name, value): &(String, _)| Ok((name.clone(), scope.text(value)?));
        let Ok(env) = code.env.iter().map(variable).collect::<Result<_, crate::values::Missing>>() else {
            return Part::refused(window.from, place.fault("template_unresolved", step));
        };
        let asked = Asked::Process {
            command: format!("work {} {}", code.prints.word(), step.name),
            dir: place.dir.clone(),
            env,
            key: place.path.clone(),
            stdin: Value::Object(scope.stdin()).to_string(),
            reads: if code.prints == Prints::Text { "text" } else { "step" },
        };
        for attempt in 1.. {
            let Some(ended) = self.execute(&mut part, &place.attempt(attempt), &asked, window) else { break };
            part.verdict = judge(step, code, place, &ended);
            let wait = match &code.retry {
                Some(retry) if retry.covers(code, &ended) && attempt <= retry.max => retry.wait_ms(attempt),
                _ => return part,
            };
            // The step is not over yet.
            part.verdict = Verdict::Stopped;
            let pause = format!("{}!backoff{attempt}", place.path);
            if self.execute(&mut part, &pause, &Asked::Timer { ms: wait }, window).is_none() {
                break;
            }
        }
        part
    }

    /// asks a model for a completion.
    fn llm(&self, step: &Step, llm: &Llm, place: &Place, scope: &Scope, window: Window) -> Part {
        let Ok(prompt) = scope.text(&llm.prompt) else {
            return Part::refused(window.from, place.fault("template_unresolved", step));
        };
        let question = Question {
            step,
            prompt,
            schema: llm.wants_n.then(Llm::schema),
            retry: llm.retry,
            has_validator: llm.has_validator,
            is_good: &|value| value["n"].is_i64(),
            is_enough: &|value| value["n"].is_i64(),
        };
        self.ask(&question, place, scope, window)
    }

    /// calls a model until a completion passes both checks or no retry is left.
    pub(super) fn ask(&self, question: &Question<'_>, place: &Place, scope: &Scope, window: Window) -> Part {
        let mut part = Part::at_once(window.from, Verdict::Stopped);
        let mut turns = Vec::new();
        for attempt in 1..=question.retry + 1 {
            let id = place.attempt(attempt);
            let (prompt, schema) = (question.prompt.clone(), question.schema.clone());
            let asked = Asked::Model { prompt, turns: turns.clone(), schema };
            let Some(ended) = self.execute(&mut part, &id, &asked, window) else { return part };
            let failed = |kind| place.fault(kind, question.step);
            let (text, means) = match ended {
                Ended::Answer { text, means } => (text, means),
                Ended::Refusal => return Part { verdict: failed("model_refused"), ..part },
                Ended::Cut => return Part { verdict: failed("model_truncated"), ..part },
                _ => return Part { verdict: failed("model_error"), ..part },
            };
            let is_empty = text.trim().is_empty();
            let is_last = attempt > question.retry;
            let output = match question.schema {
                Some(_) if is_last => means.filter(question.is_enough),
                Some(_) => means.filter(question.is_good),
                None => (!is_empty).then(|| text.clone().into()),
            };
            // *(open)* Without a schema, an empty last completion is an error of the model.
            let exhausted = if question.schema.is_none() && is_empty { "model_error" } else { "validation_exhausted" };
            let check = match &output {
                None => Some(Check::Rejects),
                Some(output) if question.has_validator => {
                    self.validate(&mut part, question, output, &id, place, scope, window)
                }
                Some(_) => Some(Check::Passes),
            };
            match (check, output) {
                (None, _) => return part,
                (Some(Check::Passes), Some(output)) => return Part { verdict: Verdict::Output(output), ..part },
                (Some(Check::Broken), _) => return Part { verdict: failed("validator_broken"), ..part },
                _ if is_last => return Part { verdict: failed(exhausted), ..part },
                _ => {}
            }
            // *(open)* Providers refuse messages that are empty or end with blanks.
            turns.push(format!("assistant: {}", if is_empty { "(empty answer)" } else { text.trim_end() }));
            turns.push("user".to_owned());
        }
        unreachable!("the last attempt returns")
    }

    /// runs the content validator; `None` if it was stopped.
    #[expect(clippy::too_many_arguments, reason = "the place of a validator is its call's")]
    fn validate(
        &self,
        part: &mut Part,
        question: &Question<'_>,
        output: &Value,
        id: &str,
        place: &Place,
        scope: &Scope,
        window: Window,
    ) -> Option<Check> {
        let mut stdin = Map::new();
        stdin.insert("output".to_owned(), output.clone());
        stdin.extend(scope.stdin());
        let id = format!("{id}/validate");
        let asked = Asked::Process {
            command: format!("check {}", question.step.name),
            dir: place.dir.clone(),
            env: Vec::new(),
            key: id.clone(),
            stdin: Value::Object(stdin).to_string(),
            reads: "document",
        };
        let ended = self.execute(part, &id, &asked, window)?;
        Some(match ended {
            Ended::Exit { status, printed: Some(printed) } => match printed["valid"].as_bool() {
                Some(true) if status == 0 => Check::Passes,
                Some(false) => Check::Rejects,
                _ => Check::Broken,
            },
            _ => Check::Broken,
        })
    }

    /// X-3 `pipeline`: runs the steps of another pipeline, without constructor and destructor.
    fn call(&self, step: &Step, call: &Call, place: &Place, scope: &Scope, window: Window) -> Part {
        let bound = call.input.iter().map(|(name, binding)| Ok((name.clone(), scope.bound(binding)?)));
        let Ok(input) = bound.collect::<Result<Map<String, Value>, crate::values::Missing>>() else {
            return Part::refused(window.from, place.fault("template_unresolved", step));
        };
        let pipeline = &call.pipeline;
        if pipeline.parameters.iter().any(|parameter| parameter.is_integer && !is_integer(&input[&parameter.name])) {
            return Part::refused(window.from, place.fault("input_invalid", step));
        }
        let caller = place.caller.clone().or_else(|| Some(step.name.clone()));
        let place = Place { dir: format!("pipelines/{}", pipeline.name), caller, ..place.clone() };
        self.pipeline(pipeline, &place, scope.below(input), window)
    }

    /// X-3 `approval`: asks a person for a decision.
    fn approval(
        &self,
        step: &Step,
        approval: &Approval,
        place: &Place,
        scope: &Scope,
        window: Window,
        answer_by: Time,
    ) -> Part {
        let Ok(message) = scope.text(&approval.message) else {
            return Part::refused(window.from, place.fault("template_unresolved", step));
        };
        let mut part = Part::at_once(window.from, Verdict::Stopped);
        let limit = Window { until: window.until.min(answer_by), ..window };
        let ended = self.execute(&mut part, &place.path, &Asked::Gate { message }, limit);
        let (approved, by, at) = match ended {
            Some(Ended::Decided { approved }) => (approved, "ada", json!(crate::machine::DECIDED_AT)),
            // The step was stopped before the time for a decision was over.
            _ if window.until <= answer_by => return part,
            _ => (approval.on_timeout == OnTimeout::Approve, "timeout", Value::Null),
        };
        part.verdict = match approved || approval.continues {
            true => Verdict::Output(json!({"approved": approved, "answer": null, "by": by, "at": at})),
            false => place.fault("approval_denied", step),
        };
        part
    }
}

/// True for a JSON number without a fraction.
fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64()
}

/// judges the exit status first, then the output, then its schema.
fn judge(step: &Step, code: &Code, place: &Place, ended: &Ended) -> Verdict {
    match ended {
        Ended::Exit { status, printed } if code.allow_exit.contains(status) => match printed {
            Some(output) if !code.wants_integer || is_integer(output) => Verdict::Output(output.clone()),
            _ => place.fault("step_output_invalid", step),
        },
        _ => place.fault("step_failed", step),
    }
}

impl Retry {
    /// true if a failed process may be repeated: its exit status is not a result, or a signal ended it.
    fn covers(&self, code: &Code, ended: &Ended) -> bool {
        let lists = |word: &Value| self.on.is_empty() || self.on.contains(word);
        match ended {
            Ended::Exit { status, .. } => !code.allow_exit.contains(status) && lists(&(*status).into()),
            Ended::Signal => lists(&"signal".into()),
            _ => false,
        }
    }

    /// The wait after an attempt, counted from 1, in milliseconds.
    fn wait_ms(&self, attempt: u32) -> u64 {
        (self.backoff_ms * self.factor.pow(attempt - 1)).min(self.max_backoff_ms)
    }
}

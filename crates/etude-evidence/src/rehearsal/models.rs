//! Models and processes of a rehearsal.

use std::sync::Arc;

use etude_core::data::bare;
use etude_core::effect::{EffectId, ProcessCall};
use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Request, Stop, Usage};
use etude_core::outcome::{Conditions, Exit, ProcessEnd, Stderr, Stdout};
use etude_process::Cancelled;
use etude_runtime::host::{Boxed, EffectMiddleware, RunProcess, SendRequest};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{Programs, Rehearsal};

/// Middleware of model calls in a rehearsal: recorded answers, or the models themselves. Processes run if the rehearsal
/// permits them.
#[derive(Debug)]
pub struct Answers {
    /// The rehearsal with the recorded answers.
    pub rehearsal: Arc<Rehearsal>,
    /// The next middleware for effects of the run.
    pub inner: Arc<dyn EffectMiddleware>,
}

impl EffectMiddleware for Answers {
    fn process(
        &self,
        call: &ProcessCall,
        given_up: CancellationToken,
        run_effect: RunProcess,
    ) -> Boxed<Result<ProcessEnd, Cancelled>> {
        let may_run = match self.rehearsal.programs {
            Programs::All => true,
            Programs::Sandboxed => call.setting.sandbox.is_some(),
            Programs::Nothing => false,
        };
        if !may_run {
            return Box::pin(std::future::ready(Ok(not_run())));
        }
        self.inner.process(call, given_up, run_effect)
    }

    fn model(
        &self,
        effect: &EffectId,
        request: Request,
        ask: SendRequest,
    ) -> Boxed<Result<ModelResponse, CallFailure>> {
        let answer = match &self.rehearsal.answers {
            // The agent after a deviation: the rehearsal ends here.
            _ if is_of_agent(effect) => Ok(response("rehearsed".to_owned())),
            Some(answers) => answer(answers, effect, &request).map(response),
            None => return self.inner.model(effect, request, ask),
        };
        Box::pin(std::future::ready(answer))
    }
}

/// End of a program that must not run beside an agent.
fn not_run() -> ProcessEnd {
    let why = "a shadow run does not start programs without a sandbox".to_owned();
    ProcessEnd {
        exit: Exit::NotStarted(why.clone()),
        stdout: Stdout::Unusable { problem: why, found: String::new() },
        stderr: Stderr::default(),
        conditions: Conditions::default(),
    }
}

/// True for effects of the agent that continues after a deviation: their names are below `PIPELINE@skill`.
fn is_of_agent(effect: &EffectId) -> bool {
    effect.as_str().split('/').next().is_some_and(|first| first.ends_with("@skill"))
}

/// Recorded answer to a request. For questions in one call, it has the answer of each step; otherwise it is that of the step.
fn answer(answers: &Map<String, Value>, effect: &EffectId, request: &Request) -> Result<String, CallFailure> {
    let step = step_of(effect);
    let questions = request.schema.as_ref().and_then(|schema| schema.schema["properties"].as_object());
    let names = || questions.into_iter().flat_map(Map::keys);
    if names().any(|name| *name == step)
        && names().all(|name| answers.contains_key(name))
        && !has_object(answers, &step)
    {
        let of = |name: &String| of_element(&answers[name], effect, &questions.and_then(|all| all.get(name)));
        let all: Map<String, Value> = names().map(|name| (name.clone(), of(name))).collect();
        return Ok(Value::Object(all).to_string());
    }
    answers.get(&step).map(|answer| bare(answer).into_owned()).ok_or_else(|| CallFailure {
        kind: CallFailureKind::NotRecorded,
        message: format!("the case has no recorded response for step `{step}`"),
        model: None,
        transport_failures: Vec::new(),
    })
}

/// Answer for one element of a `for_each`: the answers for all elements are a list.
fn of_element(answer: &Value, effect: &EffectId, question: &Option<&Value>) -> Value {
    let last = effect.as_str().rsplit('/').next().unwrap_or_default();
    let index = last.split_once('[').and_then(|(_, rest)| rest.split(']').next()?.parse::<usize>().ok());
    let is_list = question.is_some_and(|question| question["type"] == "array");
    let element = index.filter(|_| !is_list).and_then(|index| answer.get(index));
    element.unwrap_or(answer).clone()
}

/// True for the answer of a step with a schema of its own, which may have a property with the name of the step.
fn has_object(answers: &Map<String, Value>, step: &str) -> bool {
    answers.get(step).is_some_and(Value::is_object)
}

/// Name of a step in the id of an effect: `which` in `return-items/which#2`.
fn step_of(effect: &EffectId) -> String {
    let last = effect.as_str().rsplit('/').next().unwrap_or_default();
    last.split(['#', '[', '!']).next().unwrap_or_default().to_owned()
}

fn response(text: String) -> ModelResponse {
    ModelResponse {
        text,
        tool_calls: Vec::new(),
        stop: Stop::End,
        usage: Usage::default(),
        model: "recorded/case".to_owned(),
        reasoning: None,
        transport_failures: Vec::new(),
    }
}

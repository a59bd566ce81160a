//! One question to a model, with a schema for the answer and the retries of an `llm` step: the machine itself asks it.

use std::sync::Arc;
use std::time::Instant;

use etude_core::data::Json;
use etude_core::effect::Effect;
use etude_core::failure::{Failure, FailureKind};
use etude_core::machine::{Command, Machine, Start};
use etude_core::model::{Part, Request, Tier, Usage};
use etude_core::outcome::{Completed, Outcome};
use etude_runtime::host::ModelPort;
use etude_spec::lower;
use serde_json::Value;

/// A question to a model outside a run, with the schema of the answer.
pub(crate) struct Question {
    /// Tier of the model.
    pub(crate) tier: Tier,
    /// Purpose of the question, for messages.
    pub(crate) name: &'static str,
    pub(crate) system: &'static str,
    pub(crate) prompt: String,
    /// JSON Schema of the answer.
    pub(crate) schema: Value,
}

/// The model's answer, and the cost of the calls.
pub(crate) struct Reply {
    pub(crate) value: Result<Json, Failure>,
    pub(crate) usage: Usage,
    pub(crate) calls: Vec<RoutingCall>,
}

/// A model call before a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RoutingCall {
    /// Purpose: `route`, `parameters` or `wording`.
    pub purpose: &'static str,
    /// `provider/model`, if one was chosen.
    pub model: Option<String>,
    /// The system prompt.
    pub system: String,
    /// Last message of the prompt: the question, or the faults of the previous answer.
    pub prompt: String,
    /// Text of the completion, or the error message.
    pub answer: Result<String, String>,
    /// Tokens and US dollars of the call.
    pub usage: Usage,
    /// Time until the response, in milliseconds.
    pub elapsed_ms: u64,
}

/// Asks a model of the question's tier; failures are part of the reply.
pub(crate) async fn ask(models: &Arc<dyn ModelPort>, question: Question) -> Reply {
    let (purpose, system) = (question.name, question.system);
    let plan = lower::question(question.tier, purpose, system, question.prompt, question.schema);
    let mut done = Vec::new();
    let mut machine = Machine::new(&plan, Start::new(String::new()));
    loop {
        let mut calls = machine.poll().into_iter().filter_map(|command| match command {
            Command::Start(id, Effect::Model(request)) => Some((id, request)),
            _ => None,
        });
        let Some((id, request)) = calls.next() else { break };
        let prompt = last_text(&request);
        let began = Instant::now();
        let answered = models.call(*request).await;
        let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (model, answer, usage) = match &answered {
            Ok(answer) => (Some(answer.model.clone()), Ok(answer.text.clone()), answer.usage),
            Err(failure) => (failure.model.clone(), Err(failure.message.clone()), Usage::default()),
        };
        done.push(RoutingCall { purpose, model, system: system.to_owned(), prompt, answer, usage, elapsed_ms });
        let outcome = match answered {
            Ok(answer) => Outcome::Response(Box::new(answer)),
            Err(failure) => Outcome::CallFailed(failure),
        };
        machine.complete(&id, Completed { outcome, elapsed_ms });
    }
    let result = machine.snapshot();
    let unanswered = || Failure::new(FailureKind::Internal, "internal error: the model call did not end");
    let value = match result.errors.into_iter().next() {
        Some(failure) => Err(failure),
        None => result.output.ok_or_else(unanswered),
    };
    Reply { value, usage: result.usage, calls: done }
}

fn last_text(request: &Request) -> String {
    let parts = request.messages.last().into_iter().flat_map(|message| &message.parts);
    let texts = parts.filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

//! One question to a model, with a schema for the answer and the retries of an llm step: the machine itself asks it.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::effect::Effect;
use etude_core::failure::{Failure, Kind, Phase};
use etude_core::machine::{Command, Limits, Machine, Start};
use etude_core::model::{Tier, Usage};
use etude_core::outcome::{Completed, Outcome};
use etude_core::plan::{Llm, Origin, Plan, Step, StepKind};
use etude_core::schema::Schema;
use etude_core::template::Template;
use etude_runtime::host::ModelPort;
use serde_json::Value;

/// A question.
pub(super) struct Question {
    /// What it is for, as messages name it.
    pub(super) name: &'static str,
    pub(super) system: &'static str,
    pub(super) prompt: String,
    /// JSON Schema of the answer.
    pub(super) schema: Value,
}

/// What came back, and what it cost.
pub(super) struct Reply {
    pub(super) value: Result<Json, Failure>,
    pub(super) usage: Usage,
}

/// Asks the `lite` tier.
pub(super) async fn ask(models: &Arc<dyn ModelPort>, question: Question) -> Reply {
    let plan = plan(question);
    let start = Start {
        run_id: String::new(),
        input: Json::trusted("{}"),
        limits: Limits::default(),
        spent: Usage::default(),
        app_dir: String::new(),
        yolo: false,
        slots: Default::default(),
    };
    let mut machine = Machine::new(&plan, start);
    loop {
        let mut calls = machine.poll().into_iter().filter_map(|command| match command {
            Command::Start(id, Effect::Model(request)) => Some((id, request)),
            _ => None,
        });
        let Some((id, request)) = calls.next() else { break };
        let outcome = match models.call(*request).await {
            Ok(answer) => Outcome::Answer(Box::new(answer)),
            Err(failure) => Outcome::CallFailed(failure),
        };
        machine.complete(&id, Completed { outcome, elapsed_ms: 0 });
    }
    let result = machine.snapshot();
    let unanswered = || Failure::new(Kind::Internal, "the question came to no end");
    let value = match result.errors.into_iter().next() {
        Some(failure) => Err(failure),
        None => result.output.ok_or_else(unanswered),
    };
    Reply { value, usage: result.usage }
}

/// A pipeline of one llm step.
fn plan(question: Question) -> Plan {
    let llm = Llm {
        tier: Tier::Lite,
        system: Some(Template::literal(question.system)),
        prompt: Template::literal(question.prompt),
        schema: Some(Arc::new(Schema::lazy(question.name, question.schema, BTreeMap::new()))),
        validate: None,
        retry: 2,
        temperature: None,
        max_tokens: None,
        cache_prompt: false,
        images: Vec::new(),
    };
    Step::plain(question.name.to_owned(), StepKind::Llm(Box::new(llm)), Origin::default()).alone(
        "routing".to_owned(),
        String::new(),
        Phase::Routing,
    )
}

//! Shadows: candidates that run beside an agent (`learn.md` 1.2, 1.7). The module selects the runs, restricts the definition,
//! and records the comparison.

use std::sync::Arc;

use etude_core::digest::Digest;
use etude_core::machine::Limits;
use etude_core::model::Usage;
use etude_core::plan::{Plan, SandboxRules, Sequence, StepKind};
use etude_core::verbatim::request_digest;
use etude_process::blob::BlobStore;
use etude_runtime::engine::{Engine, Entry, EntryQuery, Error, Expected, RunView, Write};
use etude_spec::tool::AppTool;
use serde_json::{Value, json};

use super::book::{self, Row, RowKind};
use super::{Verdict, compare};
use crate::rehearsal::{Made, Recorded, RehearsedCall};
use crate::trace::{self, effect_class};
use etude_runs::document::shadow_json;
use etude_runs::header::Header;

/// Maximum time of a shadow, in milliseconds: its comparison is in the journal 10 s after the run.
const MAX_MS: u64 = 8_000;

/// Book of the usage of shadows, by run.
const USAGE: &str = "learned-shadow-usage";

/// True if a run is in the share that is shadowed: a hash of its id decides.
pub fn is_selected(run: &str, share: f64) -> bool {
    let bytes = Digest::of(run.as_bytes());
    let (head, _) = bytes.as_bytes().split_at(8);
    let number = head.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    share > 0.0 && number as f64 / u64::MAX as f64 <= share
}

/// Part of a plan that a shadow may run: constructor, destructor and the agent after a deviation belong to the run beside it.
/// If `is_sandboxed`, its code runs in a sandbox without network and without writable paths.
pub fn harmless(plan: Plan, is_sandboxed: bool) -> Plan {
    let body = if is_sandboxed { sandboxed(&plan.body) } else { Arc::clone(&plan.body) };
    Plan { before: None, body, after: None, ..plan }
}

fn sandboxed(sequence: &Sequence) -> Arc<Sequence> {
    let mut sequence = sequence.clone();
    for step in &mut sequence.steps {
        confine(&mut Arc::make_mut(step).kind);
    }
    Arc::new(sequence)
}

fn confine(kind: &mut StepKind) {
    match kind {
        StepKind::Code(code) => {
            code.sandbox = Some(Box::new(SandboxRules { network: false, read: Vec::new(), write: Vec::new() }));
        }
        StepKind::Pipeline(call) => call.sequence = sandboxed(&call.sequence),
        StepKind::Parallel(group) => {
            for step in &mut group.steps {
                confine(&mut Arc::make_mut(step).kind);
            }
        }
        _ => {}
    }
}

/// The agent's side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// All calls of the agent with their results, which the shadow reuses.
    pub recorded: Vec<Recorded>,
    /// Calls of the agent that may have written.
    pub writes: Vec<RehearsedCall>,
}

impl Agent {
    /// Calls of the agent in a run.
    pub fn of(view: &RunView, blobs: &dyn BlobStore, tools: &[AppTool]) -> Self {
        let mut agent = Self { recorded: Vec::new(), writes: Vec::new() };
        for call in trace::of(view, blobs).into_iter().filter(|call| call.result.is_some()) {
            let document = call.to_trace(effect_class(&call.tool, tools));
            let is_made = call.result.as_ref().is_some_and(|result| !result.is_error());
            if is_made && effect_class(&call.tool, tools) != "reads" {
                agent.writes.push(RehearsedCall { tool: call.tool.clone(), arguments: call.arguments.clone() });
            }
            agent.recorded.push(Recorded::parse(&document));
        }
        agent
    }
}

/// Limits of a shadow: the rest of the run's budget (L-56).
pub fn limits(header: &Header, usage: &Usage) -> Limits {
    let Limits { max_cost_usd, max_tokens, timeout_ms } = header.request.limits;
    Limits {
        max_cost_usd: max_cost_usd.map(|most| (most - usage.cost_usd.unwrap_or(0.0)).max(0.0)),
        max_tokens: max_tokens.map(|most| most.saturating_sub(usage.input_tokens + usage.output_tokens)),
        timeout_ms: Some(timeout_ms.map_or(MAX_MS, |most| most.min(MAX_MS))),
    }
}

/// Result of a shadow.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Shadowed {
    /// Writes that it would have made.
    pub made: Made,
    /// Step and reason, if it left its pipeline.
    pub fell_back: Option<(Option<String>, String)>,
}

/// Row that compares the writes of the pipeline with those of the agent.
pub fn comparison(view: &RunView, request: &str, agent: &Agent, shadowed: &Shadowed, usage: &Usage) -> Row {
    let pipeline = &shadowed.made.writes;
    let (verdict, fallback) = match &shadowed.fell_back {
        Some(why)
            if pipeline.iter().all(|call| {
                agent.writes.iter().any(|own| compare::is_same(std::slice::from_ref(own), std::slice::from_ref(call)))
            }) =>
        {
            (Verdict::FellBack, Some(why.clone()))
        }
        _ if compare::is_same(&agent.writes, pipeline) => (Verdict::Agreed, None),
        _ => (Verdict::Disagreed, None),
    };
    let (step, reason) = fallback.map_or((None, None), |(step, reason)| (step, Some(reason)));
    let list = |calls: &[RehearsedCall]| calls.iter().map(RehearsedCall::to_json).collect::<Vec<_>>();
    Row {
        kind: RowKind::Shadow,
        run: view.row.id.clone(),
        at_ms: view.row.created_at_ms,
        ended_at_ms: view.row.changed_at_ms,
        verdict,
        step,
        reason,
        digest: request_digest([request]),
        writes: !(agent.writes.is_empty() && pipeline.is_empty()),
        calls: json!({"agent": list(&agent.writes), "pipeline": list(pipeline)}),
        usage: shadow_json(usage),
    }
}

/// Stores a comparison under the content of the candidate.
///
/// # Errors
/// The journal cannot be written.
pub async fn keep(engine: &dyn Engine, content: &str, row: &Row) -> Result<(), Error> {
    book::add_row(engine, content, row).await
}

/// Stores the usage of a run's shadow, also if there is no comparison.
///
/// # Errors
/// The journal cannot be written.
pub async fn keep_usage(engine: &dyn Engine, run: &str, usage: &Usage, at_ms: i64) -> Result<(), Error> {
    let body = shadow_json(usage).to_string();
    let entry = Entry {
        book: USAGE.to_owned(),
        key: run.to_owned(),
        at_ms,
        state: "used".to_owned(),
        body,
        ..Entry::default()
    };
    let write = Write { entry, expected: Expected::Anything, submission: None, is_alone: false };
    engine.write(&write).await.map(|_| ())
}

/// Usage of a run's shadow: `{"calls", "input_tokens", "output_tokens"}`; zeros without a shadow.
///
/// # Errors
/// The journal cannot be read.
pub fn usage_of(engine: &dyn Engine, run: &str) -> Result<Value, Error> {
    let query = EntryQuery { book: USAGE.to_owned(), key: Some(run.to_owned()), ..EntryQuery::default() };
    let entry = engine.entries(&query)?.into_iter().next();
    Ok(entry.and_then(|entry| serde_json::from_str(&entry.body).ok()).unwrap_or_else(|| shadow_json(&Usage::default())))
}

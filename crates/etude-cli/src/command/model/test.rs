//! `etude model test`: requests one structured response and one tool call of each tier.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use etude_core::model::{Message, ModelResponse, Request, ResponseSchema, Stop, Tier, Tool};
use etude_core::report::duration;
use etude_core::schema::Schema;
use etude_models::Models;
use serde_json::{Value, json};

use super::{hint_of_withheld, resolve};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::harmless;
use crate::runtime::block_on;
use crate::settings::{self, Need, Resolved};
use crate::{signals, stdout};

/// Result of one call.
struct Called {
    /// `ok`, `wrong` (unexpected response), `inconclusive` (the response was cut off) or `failed`.
    status: &'static str,
    ms: u64,
    /// Description of the fault.
    why: Option<String>,
    cost_usd: Option<f64>,
    tokens: u64,
}

/// Maximum number of tokens of a response. Reasoning models need more than a few hundred.
const MAX_TOKENS: u32 = 4_000;

/// The same limit for a model on this machine, which would need minutes for more.
const MAX_LOCAL_TOKENS: u32 = 500;

/// Test results of a tier.
struct TierTest {
    tier: Tier,
    model: Option<String>,
    structured: Called,
    tool: Called,
}

pub(super) fn test(context: &Context, only: Option<Tier>) -> Result<Exit, Problem> {
    let tiers: Vec<Tier> = Tier::ALL.into_iter().filter(|tier| only.is_none_or(|only| only == *tier)).collect();
    let resolved = settings::ready(&context.global, resolve(context)?, &tiers, Need::Ask)?;
    let models = Models::new(resolved.settings.clone()).map_err(|error| Problem::environment(error.to_string()))?;
    let mut tried: Vec<TierTest> = Vec::new();
    for tier in tiers {
        // Tiers with the same model share one test.
        let same = tried.iter().find(|other| other.model.is_some() && other.model == models.describe(tier));
        let one = match same {
            Some(same) => {
                TierTest { tier, model: same.model.clone(), structured: copy(&same.structured), tool: copy(&same.tool) }
            }
            None => block_on(stoppable(tier, &models, limit(&resolved, tier)))??,
        };
        if !context.is_json() {
            stdout::text(&text(&one, &resolved));
        }
        tried.push(one);
    }
    if context.is_json() {
        stdout::json(&json!({"tiers": tried.iter().map(|one| document(one, &resolved)).collect::<Vec<_>>()}));
    }
    hint_of_withheld(context, &resolved);
    Ok(exit(&tried))
}

/// Exit status: `environment` if a tier cannot respond at all, `failed` if a response was wrong.
fn exit(tried: &[TierTest]) -> Exit {
    if tried.iter().any(|one| one.structured.status == "failed") {
        return Exit::Environment;
    }
    let calls = tried.iter().flat_map(|one| [&one.structured, &one.tool]);
    match calls.into_iter().all(|call| call.status == "ok") {
        true => Exit::Done,
        false => Exit::Failed,
    }
}

fn limit(resolved: &Resolved, tier: Tier) -> u32 {
    let is_local = resolved.first(tier).is_some_and(|model| resolved.is_local(model));
    if is_local { MAX_LOCAL_TOKENS } else { MAX_TOKENS }
}

async fn stoppable(tier: Tier, models: &Models, limit: u32) -> Result<TierTest, Problem> {
    let mut stop = signals::listen()?;
    tokio::select! {
        tried = test_tier(tier, models, limit) => Ok(tried),
        _ = stop.changed() => Err(Problem::new(
            Exit::Interrupted, etude_core::failure::FailureKind::Cancelled, "the test was interrupted"
        )),
    }
}

async fn test_tier(tier: Tier, models: &Models, limit: u32) -> TierTest {
    let structured = call(models, Request { max_tokens: Some(limit), ..structured(tier) }, |answer| {
        let value: Value = serde_json::from_str(answer.text.trim()).map_err(|e| format!("not JSON: {e}"))?;
        match satisfies(schema(), &value) {
            true => Ok(()),
            false => Err(format!("it does not satisfy the schema: {value}")),
        }
    })
    .await;
    let tool = call(models, Request { max_tokens: Some(limit), ..with_tool(tier) }, |answer| {
        let called =
            answer.tool_calls.first().ok_or_else(|| format!("it called no tool and responded: {}", answer.text))?;
        let arguments: Value = serde_json::from_str(&called.arguments).map_err(|e| format!("not JSON: {e}"))?;
        match called.name == "weather" && satisfies(parameters(), &arguments) {
            true => Ok(()),
            false => Err(format!("it called `{}` with {arguments}", called.name)),
        }
    })
    .await;
    TierTest { tier, model: models.describe(tier), structured, tool }
}

async fn call(models: &Models, request: Request, judge: impl FnOnce(&ModelResponse) -> Result<(), String>) -> Called {
    let start = Instant::now();
    let result = models.call(&request).await;
    let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    match result {
        Err(failure) => Called { status: "failed", ms, why: Some(failure.message), cost_usd: None, tokens: 0 },
        Ok(answer) => {
            let limit = request.max_tokens.unwrap_or_default();
            let (status, why) = match answer.stop {
                Stop::Length => ("inconclusive", Some(format!("the response was cut off at {limit} tokens"))),
                _ => match judge(&answer) {
                    Ok(()) => ("ok", None),
                    Err(why) => ("wrong", Some(why)),
                },
            };
            Called {
                status,
                ms,
                why,
                cost_usd: answer.usage.cost_usd,
                tokens: answer.usage.input_tokens + answer.usage.output_tokens,
            }
        }
    }
}

fn satisfies(schema: Value, value: &Value) -> bool {
    Schema::lazy("test", schema, BTreeMap::new()).violations(value).is_empty()
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 40},
            "people": {"type": "integer", "minimum": 1, "maximum": 99},
        },
        "required": ["city", "people"],
        "additionalProperties": false,
    })
}

fn structured(tier: Tier) -> Request {
    Request {
        tier,
        messages: vec![Message::user("We are three friends and travel to Lisbon. Say where to, and how many people.")],
        schema: Some(ResponseSchema { name: "trip".to_owned(), schema: Arc::new(schema()) }),
        ..Request::default()
    }
}

fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": false,
    })
}

fn with_tool(tier: Tier) -> Request {
    let tool = Tool {
        name: "weather".to_owned(),
        description: "Says what the weather is like in a city right now.".to_owned(),
        parameters: Arc::new(parameters()),
    };
    Request {
        tier,
        messages: vec![Message::user("What is the weather like in Lisbon? Use the tool.")],
        tools: vec![tool],
        ..Request::default()
    }
}

fn copy(call: &Called) -> Called {
    Called { why: call.why.clone(), ..*call }
}

fn price(resolved: &Resolved, tier: Tier) -> Option<etude_models::Price> {
    Models::new(resolved.settings.clone()).ok()?.price(tier)
}

fn document(one: &TierTest, resolved: &Resolved) -> Value {
    let call = |call: &Called| json!({"status": call.status, "latency_ms": call.ms, "tokens": call.tokens, "cost_usd": call.cost_usd, "why": call.why});
    let price = price(resolved, one.tier).map(|price| json!({"input": price.input, "output": price.output}));
    json!({
        "tier": one.tier.word(),
        "model": one.model,
        "because": resolved.why.get(&one.tier).map(settings::Why::text),
        "structured": call(&one.structured),
        "tool_call": call(&one.tool),
        "price": price,
    })
}

fn text(one: &TierTest, resolved: &Resolved) -> String {
    let model = one.model.as_deref().unwrap_or("no model");
    let price = match price(resolved, one.tier) {
        None => "price unknown".to_owned(),
        Some(price) if price.input + price.output == 0.0 => "free".to_owned(),
        Some(price) => format!("${} and ${} per million input and output tokens", price.input, price.output),
    };
    let mut text = format!("{}  {}, {price}\n", one.tier.word(), harmless(model));
    for (what, call) in [("structured answer", &one.structured), ("tool call", &one.tool)] {
        let why = call.why.as_deref().map(|why| format!(": {}", harmless(why))).unwrap_or_default();
        let cost = call.cost_usd.filter(|cost| *cost > 0.0).map(|cost| format!(", ${cost:.5}")).unwrap_or_default();
        text.push_str(&format!("    {what:<18} {:<6} {}{cost}{why}\n", call.status, duration(call.ms)));
    }
    text
}

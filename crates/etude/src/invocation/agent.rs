//! The tool `agent`: the prompt of a Markdown skill, executed by a model that calls skills through their chains (D-14).

use std::sync::Arc;

use etude_core::failure::{Failure, FailureKind};
use etude_core::machine::{ABI, Start};
use etude_core::model::Tool as ModelTool;
use etude_core::outcome::Outcome as Effected;
use etude_core::tool::{AvailableTool, ToolCall, ToolList, ToolReply, ToolResult, ToolSelection};
use etude_invoke::chain::{Outcome, Throw, ThrowKind};
use etude_models::Redactor;
use etude_process::blob::FileBlobs;
use etude_runtime::blob::BlobStore;
use etude_runtime::driver::{Drive, Driven, OnMismatch, Stop};
use etude_runtime::engine::{Engine, NewRun, Placement, Record};
use etude_runtime::host::{Boxed, CacheUse, Host, ModelPort, ToolPort};
use etude_runtime::memory::MemoryEngine;
use etude_runtime::record;
use etude_spec::cascade::skill::Role;
use etude_spec::cascade::{Compiler, Skill};
use etude_spec::lower;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use etude_invoke::{Caller, Handler};
use etude_runtime::clock::now_ms;
use etude_runtime::run_id;

/// The handler of `agent`, with the models that it calls.
#[derive(Debug)]
pub struct Agent {
    /// The port that sends the requests of the agent to providers.
    pub models: Arc<dyn ModelPort>,
    /// Redacts the results of calls before the model and the trace get them.
    pub redactor: Arc<Redactor>,
}

impl Handler for Agent {
    fn run(&self, args: Arc<Value>, caller: Caller) -> Boxed<Outcome> {
        let (models, redactor) = (Arc::clone(&self.models), Arc::clone(&self.redactor));
        let handle = tokio::runtime::Handle::current();
        // The session of a run must stay on one thread.
        let work = tokio::task::spawn_blocking(move || handle.block_on(follow(models, redactor, &args, caller)));
        Box::pin(async move {
            work.await.unwrap_or_else(|error| {
                Err(Throw::new(ThrowKind::Failed, "agent", format!("the agent panicked: {error}")))
            })
        })
    }
}

async fn follow(models: Arc<dyn ModelPort>, redactor: Arc<Redactor>, args: &Value, caller: Caller) -> Outcome {
    let failed = |why: String| Throw::new(ThrowKind::Failed, "agent", why);
    let plan = lower::prompt_skill(args, caller.serves.as_deref()).map_err(failed)?;
    let models = match lower::named_model(args) {
        None => models,
        Some(id) => models.only(id).ok_or_else(|| {
            let message =
                format!("the model `{id}` is not available here; `model.id` can also be lite, standard or reasoning");
            Throw::new(ThrowKind::Environment, "agent", message)
        })?,
    };
    let blobs = Arc::new(FileBlobs::new(caller.scratch.join("values"), false));
    let engine = Arc::new(MemoryEngine::new(blobs));
    let id = run_id::new();
    let run = NewRun {
        id: id.clone(),
        app: caller.dir().display().to_string(),
        target: "agent".to_owned(),
        abi: ABI,
        created_at_ms: now_ms(),
        header: "{}".to_owned(),
        placement: Placement::default(),
    };
    let session = engine.create(&run).await.map_err(|error| failed(error.to_string()))?;
    let host = Host {
        cache: CacheUse::default(),
        processes: Arc::clone(&caller.processes),
        tools: Arc::new(Skills { caller: caller.clone(), models: Arc::clone(&models), redactor }),
        models,
        engine: Arc::clone(&engine) as Arc<dyn Engine>,
        effect_middleware: None,
    };
    let view_id = id.clone();
    let (stopping, stop) = watch::channel(Stop::No);
    let cancel = caller.cancel.clone();
    let watcher = tokio::spawn(async move {
        cancel.cancelled().await;
        let _ = stopping.send(Stop::Kill("the call was cancelled".to_owned()));
        // The channel must stay open until the run has ended.
        std::future::pending::<()>().await;
    });
    let drive = Drive {
        plan: &plan,
        start: Start::new(id),
        is_resumed: false,
        session: &*session,
        records: Vec::new(),
        host: &host,
        stop,
        on_mismatch: OnMismatch::Refuse,
        streams_completions: false,
        middleware_events: None,
        meter: None,
    };
    let driven = drive.run(&mut |_| ()).await;
    watcher.abort();
    if let Ok(view) = engine.view(&view_id) {
        caller.leave_trace(trace(&args["prompt"], &view.records, &*engine.blobs()));
    }
    match driven.map_err(|error| failed(error.to_string()))? {
        Driven::Waiting { .. } => Err(Throw::new(ThrowKind::Waiting, "agent", "the agent waits for an answer")),
        Driven::Finished(result) => match (result.output, result.errors.first()) {
            (Some(output), None) => output.value().map(Some).map_err(|error| failed(error.to_string())),
            (_, Some(failure)) => Err(thrown(failure)),
            (None, None) => Ok(None),
        },
    }
}

/// The conversation of an agent: its prompt, the turns of the model, its calls, and their results.
fn trace(prompt: &Value, records: &[Record], blobs: &dyn BlobStore) -> Value {
    let mut trace = vec![json!({"role": "user", "text": prompt})];
    for record in records {
        match record::to_outcome(record, blobs).map(|completed| completed.outcome) {
            Ok(Effected::Response(response)) => {
                let calls = response.tool_calls.iter().map(|call| {
                    let args = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!(call.arguments));
                    json!({"tool": call.name, "args": args})
                });
                let calls: Vec<Value> = calls.collect();
                trace.push(json!({"role": "assistant", "text": response.text, "calls": calls}));
            }
            Ok(Effected::Tool(reply)) => {
                let ToolReply::Done(result) = *reply else { continue };
                // The effect of a call is named after its tool, with its position among the calls of its turn.
                let last = record.key.rsplit('/').next().unwrap_or_default();
                let (tool, error) = (last.split('[').next(), result.error.map(|error| error.code));
                trace.push(json!({"role": "tool", "tool": tool, "text": result.content, "error": error}));
            }
            _ => {}
        }
    }
    Value::Array(trace)
}

fn thrown(failure: &Failure) -> Throw {
    let kind = if failure.kind == FailureKind::Environment { ThrowKind::Environment } else { ThrowKind::Failed };
    Throw::new(kind, "agent", failure.message.clone())
}

/// The skills that an agent may call.
#[derive(Debug)]
struct Skills {
    caller: Caller,
    models: Arc<dyn ModelPort>,
    redactor: Arc<Redactor>,
}

impl ToolPort for Skills {
    fn open(&self, tool_selection: Arc<ToolSelection>) -> Boxed<ToolList> {
        let (tools, problems) = self.available(tool_selection.allowed.as_deref());
        let window = self.models.window_tokens(tool_selection.tier);
        Box::pin(async move {
            let window_tokens = window.await;
            ToolList { tools, window_tokens, problems, ..ToolList::default() }
        })
    }

    fn call(&self, call: ToolCall, _cancel: CancellationToken) -> Boxed<ToolReply> {
        let (caller, redactor) = (self.caller.clone(), Arc::clone(&self.redactor));
        Box::pin(async move {
            let args = match etude_core::tool::arguments(&call.arguments).map(|json| json.value()) {
                Some(Ok(args)) => args,
                _ => {
                    return ToolReply::Done(ToolResult::terminal(
                        "InputInvalid",
                        "the arguments are not a JSON object",
                    ));
                }
            };
            // Members that begin with `$` are options, which models may not set.
            let args = match args {
                Value::Object(members) => {
                    Value::Object(members.into_iter().filter(|(key, _)| !key.starts_with('$')).collect())
                }
                other => other,
            };
            ToolReply::Done(replied(caller.invoke(&call.name, args).await, &redactor))
        })
    }
}

impl Skills {
    /// The skills that match the patterns, are not hidden and are not part of a pipeline (D-14). The skill whose instructions
    /// the agent follows is left out.
    fn available(&self, allowed: Option<&[String]>) -> (Vec<AvailableTool>, Vec<String>) {
        let catalog = self.caller.catalog();
        let patterns = allowed.map(etude_tools::AllowedTools::from_list);
        let compiler = Compiler::new(catalog, self.caller.scope());
        let (mut tools, mut problems) = (Vec::new(), Vec::new());
        for skill in catalog.list() {
            let is_tool = matches!(skill.role(), Role::Tool) && !skill.is_hidden();
            let named = etude_tools::Tool::named(&skill.name, skill.tags(), json!({"type": "object"}));
            let is_own = self.caller.serves.as_deref() == Some(&*skill.name);
            if !is_tool || is_own || patterns.as_ref().is_some_and(|patterns| !patterns.lists(&named)) {
                continue;
            }
            match compiler.compile(&skill).0 {
                Some(compiled) => tools.push(available(&skill, compiled.merged.get("params"))),
                None => problems
                    .push(format!("the skill `{}` has errors; list them with `etude skill explain {0}`", skill.name)),
            }
        }
        (tools, problems)
    }
}

fn available(skill: &Skill, params: Option<&Value>) -> AvailableTool {
    let nothing = || json!({"type": "object", "properties": {}, "additionalProperties": false});
    let mut parameters = params.map_or_else(nothing, etude_spec::cascade::resolve::without);
    if parameters.get("type").is_none() {
        parameters["type"] = json!("object");
    }
    let tool = ModelTool {
        name: skill.name.clone(),
        description: skill.description.clone(),
        parameters: Arc::new(parameters),
    };
    AvailableTool { tool, is_pipeline: false, is_exclusive: true, is_kept: false, approval_key: None }
}

/// The outcome of a call as the model gets it, without secrets.
fn replied(outcome: Outcome, redactor: &Redactor) -> ToolResult {
    match outcome {
        Ok(value) => ToolResult::ok(shown(value.map(|value| redactor.redact_value(value)))),
        Err(throw) => {
            let message = redactor.cleaned(&throw.message).unwrap_or(throw.message);
            ToolResult::terminal(code(throw.kind), &message)
        }
    }
}

fn shown(value: Option<Value>) -> String {
    match value {
        None | Some(Value::Null) => "[done, no result]".to_owned(),
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
    }
}

/// The code word of a failed call (`b-stages` §18).
fn code(kind: ThrowKind) -> &'static str {
    match kind {
        ThrowKind::Arguments => "InputInvalid",
        ThrowKind::NotAllowed | ThrowKind::NotTrusted | ThrowKind::Waiting => "ApprovalDenied",
        ThrowKind::Unknown => "ToolNotRegistered",
        _ => "ToolExecutionFailed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etude_models::Secret;

    /// D-14: the results and errors of an agent's calls reach its model without secrets.
    #[test]
    fn results_of_calls_show_no_secrets() {
        let redactor = Redactor::new([&Secret::new("sk-canary/0001")].into_iter());
        let of = |outcome| {
            let ToolResult { content, error, .. } = replied(outcome, &redactor);
            error.map_or(content, |error| error.message)
        };
        let value = json!({"sk-canary/0001": ["is sk-canary/0001", "{\"a\": \"sk-canary\\/0001\"}"]});
        assert_eq!(of(Ok(Some(value))), r#"{"***":["is ***","{\"a\": \"***\"}"]}"#);
        assert_eq!([of(Ok(Some(json!("sk-canary/0001")))), of(Ok(None))], ["***", "[done, no result]"]);
        assert_eq!(of(Err(Throw::new(ThrowKind::Failed, "x", "bad key sk-canary/0001"))), "bad key ***");
    }
}

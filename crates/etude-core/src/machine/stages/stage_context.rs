//! The state of one stage execution, for its hooks and events.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::audit::emit;
use super::declared::Roots;
use super::shared::{Shared, View};
use crate::data::overlaid;
use crate::document::Document;
use crate::effect::EffectId;
use crate::machine::{Cx, Path};
use crate::model::{Message, Part, Role};
use crate::outcome::Decision;
use crate::plan::stages::{Root, Stage};
use crate::tool::{exact_arguments, shown_arguments};

/// The state of a stage execution.
#[derive(Debug)]
pub(super) struct StageContext {
    pub(super) stage: Arc<Stage>,
    /// The `stageExecutionId`, which stays the same if the execution restarts (B-ID2).
    pub(super) id: String,
    pub(super) base: Path,
    /// Number of the start, from 1: each restart adds one.
    pub(super) incarnation: u32,
    pub(super) upstream: Vec<Value>,
    /// Id of the compound turn that the execution belongs to.
    pub(super) compound: Option<String>,
    pub(super) ctx: Map<String, Value>,
    pub(super) attempts: Vec<Value>,
    /// Number of the attempt, from 1.
    pub(super) attempt: u32,
    pub(super) parsed: Option<Value>,
    pub(super) cap_hit: bool,
    pub(super) result: Option<Value>,
    /// The execution's row in the report.
    pub(super) row: usize,
}

impl StageContext {
    /// Path of the execution's effects.
    pub(super) fn path(&self) -> Path {
        self.base.incarnation(self.incarnation)
    }

    /// Resets the state for a restart at Setup.
    pub(super) fn renew(&mut self) {
        self.incarnation += 1;
        self.ctx = Map::new();
        self.attempts = Vec::new();
        self.attempt = 1;
        (self.parsed, self.cap_hit, self.result) = (None, false, None);
    }

    /// The context, with the fields that etude itself adds (`b-stages` §8).
    pub(super) fn context(&self, shared: &Shared) -> Value {
        let mut ctx = Map::new();
        ctx.insert("workflowRunId".to_owned(), json!(shared.run_id));
        ctx.insert("stageExecutionId".to_owned(), json!(self.id));
        ctx.insert("upstream".to_owned(), json!(self.upstream));
        ctx.insert("attempts".to_owned(), json!(self.attempts));
        ctx.extend(self.ctx.clone());
        Value::Object(ctx)
    }

    fn run(&self, shared: &Shared) -> Value {
        json!({
            "workflowRunId": shared.run_id, "stageExecutionId": self.id, "attempt": self.attempt,
            "compoundTurnId": self.compound, "cwd": shared.app_dir,
        })
    }

    /// The input of a script (`b-stages` §20.4), with further members of its own.
    pub(super) fn document(&self, shared: &Shared, view: &View, hook: &str, more: Value) -> Value {
        let mut own = json!({
            "stage": {
                "id": self.stage.id, "name": self.stage.name, "turnCap": self.stage.turn_cap, "tags": self.stage.tags,
            },
            "run": self.run(shared), "ctx": self.context(shared), "act": null, "result": null,
        });
        if !shared.machine.policy.strict_upstream {
            own["steps"] = Value::Object(view.steps.clone());
        }
        shared.document(hook, &view.slot, overlaid(own, more))
    }

    /// The `act` member of a script's input. `transcript` is the conversation without its opening.
    pub(super) fn act(&self, system: &str, transcript: &[Message]) -> Value {
        let mut act = Map::new();
        if let Some(parsed) = &self.parsed {
            act.insert("parsed".to_owned(), parsed.clone());
        }
        act.insert("capHit".to_owned(), json!(self.cap_hit));
        let messages: Vec<Value> = transcript.iter().enumerate().flat_map(|(at, m)| self.message(at, m)).collect();
        act.insert("transcript".to_owned(), json!({"systemPrompt": system, "messages": messages}));
        act.insert("attempts".to_owned(), json!(self.attempts));
        Value::Object(act)
    }

    /// The input of a script with the arguments of all calls in [`Self::act`] as their tools get them.
    pub(super) fn with_calls(mut stdin: Document, transcript: &[Message], abi: u32) -> Document {
        let mut at = 0;
        for message in transcript {
            let calls = message.parts.iter().filter_map(|part| match part {
                Part::ToolCall { arguments, .. } => Some(arguments),
                _ => None,
            });
            for (call, arguments) in calls.enumerate().filter(|_| message.role == Role::Assistant) {
                let pointer = format!("/act/transcript/messages/{at}/toolCalls/{call}/args");
                stdin = stdin.with(pointer, exact_arguments(arguments, abi));
            }
            at += match message.role {
                Role::Tool => message.parts.iter().filter(|part| matches!(part, Part::ToolResult { .. })).count(),
                Role::User | Role::Assistant => 1,
            };
        }
        stdin
    }

    /// A message in the form for scripts (B-A4): each tool result becomes a message of its own.
    fn message(&self, at: usize, message: &Message) -> Vec<Value> {
        let id = format!("{}/message{}", self.id, at + 1);
        let text: String = message.parts.iter().filter_map(text_of).collect();
        match message.role {
            Role::User => vec![json!({"role": "user", "content": text, "correlationId": id})],
            Role::Assistant => {
                let calls: Vec<Value> = message.parts.iter().filter_map(call_of).collect();
                let mut out = json!({"role": "assistant", "content": text, "correlationId": id});
                if !calls.is_empty() {
                    out["toolCalls"] = json!(calls);
                }
                vec![out]
            }
            Role::Tool => {
                let result = |part: &Part| match part {
                    Part::ToolResult { id: call, content } => {
                        Some(json!({"role": "tool", "content": content, "toolCallId": call, "correlationId": id}))
                    }
                    _ => None,
                };
                message.parts.iter().filter_map(result).collect()
            }
        }
    }

    /// The payload of an event about the execution.
    pub(super) fn event(&self, shared: &Shared, more: Value) -> Value {
        let mut out = json!({
            "sessionId": shared.run_id, "workflowRunId": shared.run_id, "stageId": self.stage.id,
            "stageExecutionId": self.id, "attempt": self.attempt,
        });
        if let Some(compound) = &self.compound {
            out["compoundTurnId"] = json!(compound);
            out["parentCompoundTurnId"] = json!(compound);
        }
        overlaid(out, more)
    }

    /// Emits that a person is asked, and that no one is there to answer at once (B-HL1).
    pub(super) fn emit_raised(&self, cx: &mut Cx, shared: &Shared, kind: &str, id: &EffectId) {
        let facts = json!({"kind": kind, "correlationId": id.as_str()});
        emit(cx, "InteractionRaised", self.event(shared, facts));
        let hint = format!("answer with `etude approve` or `etude deny`, then `etude runs resume {}`", shared.run_id);
        let facts = json!({"requestKind": kind, "correlationId": id.as_str(), "hint": hint});
        emit(cx, "permission-required", self.event(shared, facts));
    }

    /// Emits the answer to a question.
    pub(super) fn emit_answered(&self, cx: &mut Cx, shared: &Shared, decided: &Decision) {
        let facts = json!({"winnerInteractorIndex": 0, "answeredAt": decided.at, "approved": decided.approved});
        emit(cx, "InteractionAnswered", self.event(shared, facts));
    }
}

fn text_of(part: &Part) -> Option<&str> {
    match part {
        Part::Text(text) => Some(text),
        _ => None,
    }
}

fn call_of(part: &Part) -> Option<Value> {
    match part {
        Part::ToolCall { id, name, arguments } => {
            Some(json!({"id": id, "name": name, "args": shown_arguments(arguments)}))
        }
        _ => None,
    }
}

/// The values that a declarative hook can read.
pub(super) struct Sources<'a> {
    pub(super) stage_context: &'a StageContext,
    pub(super) shared: &'a Shared,
    pub(super) view: &'a View,
}

impl Roots for Sources<'_> {
    fn abi(&self) -> u32 {
        self.shared.abi
    }

    fn root(&self, root: Root) -> Option<Value> {
        let stage_context = self.stage_context;
        match root {
            Root::Input => Some(self.shared.input.clone()),
            Root::Ctx => Some(stage_context.context(self.shared)),
            Root::Slot => Some(self.view.slot.clone()),
            Root::Upstream => Some(json!(stage_context.upstream)),
            Root::Run => Some(stage_context.run(self.shared)),
            Root::Parsed => stage_context.parsed.clone(),
            Root::Result => stage_context.result.clone(),
            Root::Attempts => Some(json!(stage_context.attempts)),
            Root::CapHit => Some(json!(stage_context.cap_hit)),
        }
    }
}

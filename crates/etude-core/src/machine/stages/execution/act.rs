//! Act: the conversation of a stage with its completion channel (`b-stages` §6).

use std::sync::Arc;
use std::task::Poll;

use serde_json::{Value, json};

use super::{Execution, State, Step};
use crate::failure::Failure;
use crate::machine::Cx;
use crate::machine::conversation::{Completion, Conversation, End, Settings};
use crate::machine::stages::audit::emit;
use crate::machine::stages::envelope::Gatehouse;
use crate::machine::stages::fault::{Phase, leak};
use crate::machine::stages::shared::{Shared, View};
use crate::machine::stages::stage_context::StageContext;
use crate::model::{Message, Tool};

/// The first message of a conversation, because providers refuse an empty conversation (B-A5).
const OPENING: &str = "Begin.";

/// A part of the model's input: the word for the part, and its text.
type Part = (&'static str, fn(&Act) -> String);

/// The parts of the model's input before the first message (B-IS2).
pub(super) const PARTS: [Part; 2] = [("systemPrompt", |act| act.system().to_owned()), ("toolManifest", Act::manifest)];

/// The work of a stage.
#[derive(Debug)]
pub(super) struct Act {
    conversation: Conversation,
}

impl Act {
    pub(super) fn new(stage_context: &StageContext, shared: &Shared, system: String) -> Self {
        let stage = &stage_context.stage;
        let available =
            |name: &String| shared.tool_list.tools.iter().find(|available| available.tool.name == *name).cloned();
        let channel = Tool {
            name: stage.completion_tool.clone(),
            description: format!(
                "Hands in the result of stage \"{}\" and ends it. Call it alone, when everything is done.",
                stage.name
            ),
            parameters: as_object(stage.completion_schema.bundled()),
        };
        let settings = Settings {
            who: format!("stage `{}`", stage.id),
            tier: shared.machine.tier,
            system,
            tool_selection: Arc::clone(&shared.tool_selection),
            manifest: stage.allowed_tools.iter().filter_map(available).collect(),
            completion: Completion::Channel {
                tool: channel,
                schema: Arc::clone(&stage.completion_schema),
                is_wrapped: false,
            },
            turn_cap: stage.turn_cap,
            window_tokens: shared.tool_list.window_tokens,
            stage_execution: Some(stage_context.id.clone()),
            typed: Some(Arc::clone(&shared.typed)),
        };
        let conversation =
            Conversation::new(settings, Message::user(OPENING), stage_context.path(), None, shared.ledger);
        Self { conversation }
    }

    /// The rendered prompt.
    pub(super) fn system(&self) -> &str {
        self.conversation.system()
    }

    /// The tools, as text.
    fn manifest(&self) -> String {
        let tool = |tool: &Tool| format!("{}\n{}\n{}", tool.name, tool.description, tool.parameters);
        self.conversation.manifest().iter().map(tool).collect::<Vec<_>>().join("\n")
    }

    /// The messages after the opening.
    pub(super) fn transcript(&self) -> &[Message] {
        self.conversation.transcript().get(1..).unwrap_or_default()
    }

    /// Reason of the last rejection of the completion tool's arguments in this attempt.
    pub(super) fn parse_error(&self) -> Option<&str> {
        self.conversation.parse_error()
    }

    pub(super) fn reenter(&mut self, reason: &str) {
        self.conversation.reenter(reason);
    }

    /// The failure of the last call, if it failed by itself when the stage was stopped.
    pub(super) fn failed(&self) -> Option<&Failure> {
        self.conversation.failed()
    }

    /// Abandons effects that died with their process.
    pub(super) fn forget(&self, cx: &mut Cx) {
        self.conversation.forget(cx);
    }
}

impl Execution {
    pub(super) fn acting(&mut self, cx: &mut Cx, shared: &mut Shared, view: &View) -> Result<Step, Failure> {
        if self.open != Some(Phase::Act) {
            self.check_stop()?;
            self.enter(cx, shared, Phase::Act);
            // Entering counts as an attempt, whatever the end (B-R8).
            cx.stages.rows[self.stage_context.row].attempt_count = self.stage_context.attempt;
        }
        let Some(act) = &mut self.act else { return Ok(Step::Waits) };
        let mut gate = Gatehouse { envelope: &mut self.envelope, stage_context: &self.stage_context, shared, view };
        let ended = act.conversation.poll(cx, &mut gate);
        if self.envelope.is_answered {
            self.envelope.is_answered = false;
            self.restart(cx);
            return Ok(Step::GoesOn);
        }
        let Poll::Ready(ended) = ended else { return Ok(Step::Waits) };
        let ended = ended?;
        if let End::Leak(secret) = &ended {
            return Err(leak(&self.stage_context.stage.id, "history", secret));
        }
        self.end_act(cx, shared, &ended);
        Ok(Step::GoesOn)
    }

    fn end_act(&mut self, cx: &mut Cx, shared: &Shared, end: &End) {
        let Some(act) = &self.act else { return };
        let (turns, parse_error) = (act.conversation.turns(), act.parse_error().map(str::to_owned));
        let stage_context = &mut self.stage_context;
        stage_context.cap_hit = *end == End::Cap;
        let parsed: Option<Value> = match end {
            End::Completed(json) => json.value().ok(),
            _ => None,
        };
        let mut attempt = json!({"attempt": stage_context.attempt, "turns": turns, "capHit": stage_context.cap_hit});
        if let Some(error) = parse_error {
            attempt["parseError"] = json!(error);
        }
        if let Some(parsed) = &parsed {
            attempt["parsed"] = parsed.clone();
        }
        stage_context.parsed = parsed;
        stage_context.attempts.push(attempt);
        cx.stages.rows[stage_context.row].cap_hit = stage_context.cap_hit;
        let facts = json!({"turns": turns, "capHit": stage_context.cap_hit});
        emit(cx, "StageActEnded", self.stage_context.event(shared, facts));
        self.leave(cx, shared);
        self.state = State::Assert(None);
    }

    pub(super) fn stop_acting(&mut self, cx: &mut Cx, shared: &mut Shared, view: &View, why: &Failure) {
        if let Some(act) = &mut self.act {
            let mut gate = Gatehouse { envelope: &mut self.envelope, stage_context: &self.stage_context, shared, view };
            act.conversation.stop(cx, &mut gate, why);
        }
    }
}

/// A schema as the parameters of a tool, with `type: object`, which providers require. The payload is checked against
/// the original schema.
fn as_object(schema: Arc<Value>) -> Arc<Value> {
    let is_said = |schema: &Value| schema.get("type").and_then(Value::as_str) == Some("object");
    match &*schema {
        Value::Object(members) if !is_said(&schema) => {
            let mut members = members.clone();
            members.insert("type".to_owned(), "object".into());
            Arc::new(Value::Object(members))
        }
        _ => schema,
    }
}

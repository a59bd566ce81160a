//! An agent as a step (A-7, X-3 `skill`): its tools are listed, then a model is asked and calls them until it is done.
//!
//! Stages use the same `conversation` with other settings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

use super::binding::unresolved;
use super::conversation::batch::{Admission, Gatekeeper, Proposal};
use super::conversation::{Completion, Conversation, End, Settings};
use super::outcome_error::unexpected_outcome;
use super::pipeline_tool::PipelineCall;
use super::step_context::StepContext;
use super::values::Values;
use super::{Cx, MARKS_PIPELINES, Task};
use crate::cause::MAX_TURNS;
use crate::data::Json;
use crate::effect::{Effect, EffectId};
use crate::failure::{Failure, FailureKind};
use crate::model::{Message, Tool};
use crate::outcome::Outcome;
use crate::plan::{Agent, PipelineTool, Step, StepKind};
use crate::report::Event;
use crate::schema::{Schema, root};
use crate::tool::{AvailableTool, ToolList, ToolResult};

/// The tool with which an agent submits an answer that has a schema.
const SUBMIT_TOOL: &str = "submit_answer";

#[derive(Debug)]
pub(super) struct AgentTask {
    step: Arc<Step>,
    step_context: StepContext,
    system: String,
    prompt: String,
    gate: AvailableTools,
    conversation: Option<Conversation>,
    stopped: Option<Failure>,
}

/// Gatekeeper that admits calls of the listed tools; the host then applies the policy.
#[derive(Debug)]
struct AvailableTools {
    /// Names of the tools, each with true for a pipeline.
    names: BTreeMap<String, bool>,
    /// The pipelines that the agent may call as tools (L-77).
    pipelines: Vec<Arc<PipelineTool>>,
    step_context: StepContext,
    values: Values,
    request: String,
    /// The limit on tool calls, if there is one.
    steps: Option<Steps>,
}

/// Budget of tool calls of an agent (D-14): the maximum, the rest, and the turn whose calls first exceeded it.
#[derive(Debug)]
struct Steps {
    most: u32,
    left: u32,
    over_in: Option<String>,
}

impl Steps {
    /// Counts a call. Returns an error result for a call beyond the limit, or a failure if an earlier turn has exceeded
    /// it already.
    fn count(&mut self, call: &Proposal) -> Option<Result<ToolResult, Failure>> {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return None;
        }
        let turn = call.path.as_str().rsplit_once('/').map_or("", |(turn, _)| turn);
        if self.over_in.get_or_insert_with(|| turn.to_owned()) != turn {
            return Some(Err(self.failure()));
        }
        let message = format!("all {} tool calls are used up; give your answer with what you know", self.most);
        Some(Ok(ToolResult::terminal("StepLimit", &message)))
    }

    fn failure(&self) -> Failure {
        let message = format!("the skill has used up its {} tool calls; it can have more with `maxSteps`", self.most);
        Failure::new(FailureKind::BudgetExceeded, message)
    }
}

impl Gatekeeper for AvailableTools {
    fn admit(&mut self, cx: &mut Cx, call: &Proposal) -> Poll<Result<Admission, Failure>> {
        if let Some(over) = self.steps.as_mut().and_then(|steps| steps.count(call)) {
            return Poll::Ready(over.map(Admission::Refuse));
        }
        if let Some(refusal) = cx.refusal(&call.name, &call.arguments) {
            return Poll::Ready(Ok(Admission::Refuse(refusal)));
        }
        let is_available = self.names.contains_key(&call.name);
        // A tool may have the same name as a pipeline that is not in the list.
        let is_pipeline = is_available && (self.names[&call.name] || cx.facts.abi < MARKS_PIPELINES);
        let pipeline = self.pipelines.iter().find(|pipeline| is_pipeline && pipeline.tool.name == call.name);
        if let Some(pipeline) = pipeline {
            let begun = PipelineCall::new(pipeline, call, (&self.step_context, &self.values, &self.request));
            return Poll::Ready(Ok(begun.map_or_else(Admission::Refuse, |begun| Admission::Pipeline(Box::new(begun)))));
        }
        if is_available {
            return Poll::Ready(Ok(Admission::Run { is_approved: false }));
        }
        let names: Vec<&str> = self.names.keys().map(String::as_str).collect();
        let message = match names.is_empty() {
            true => "there are no tools".to_owned(),
            false => format!("there is no tool of that name; there are {}", names.join(", ")),
        };
        Poll::Ready(Ok(Admission::Refuse(ToolResult::terminal("ToolNotRegistered", &message))))
    }
}

impl AgentTask {
    pub(super) fn new(step: Arc<Step>, step_context: StepContext, values: &Values) -> Result<Self, Failure> {
        let agent = agent_of(&step);
        let system = agent.system.render(values).map_err(|e| unresolved(&e))?;
        let prompt = agent.prompt.render(values).map_err(|e| unresolved(&e))?;
        let gate = AvailableTools {
            names: BTreeMap::new(),
            pipelines: agent.pipelines.clone(),
            step_context: step_context.clone(),
            values: values.clone(),
            request: prompt.clone(),
            steps: agent.step_cap.map(|most| Steps { most, left: most, over_in: None }),
        };
        Ok(Self { step, step_context, system, prompt, gate, conversation: None, stopped: None })
    }

    fn open_id(&self) -> EffectId {
        self.step_context.path.child("tools").attempt(1)
    }

    /// Begins the conversation with the tools that the host has listed.
    fn begin(&mut self, tool_list: ToolList) -> Conversation {
        let agent = agent_of(&self.step);
        let of = |available: &AvailableTool| (available.tool.name.clone(), available.is_pipeline);
        self.gate.names = tool_list.tools.iter().map(of).collect();
        let completion = match &agent.schema {
            None => Completion::Text,
            Some(schema) => completion_channel(schema),
        };
        let mut system = self.system.clone();
        for text in [&tool_list.context, &problems(&tool_list.problems)].into_iter().filter(|text| !text.is_empty()) {
            system.push_str("\n\n");
            system.push_str(text);
        }
        let settings = Settings {
            who: format!("skill `{}`", agent.skill),
            tier: agent.tier,
            system,
            tool_selection: Arc::clone(&agent.tool_selection),
            manifest: tool_list.tools,
            completion,
            turn_cap: agent.turn_cap,
            window_tokens: tool_list.window_tokens,
            stage_execution: None,
            typed: None,
        };
        let opening = Message::user(self.prompt.as_str());
        Conversation::new(
            settings,
            opening,
            self.step_context.path.clone(),
            self.step_context.row,
            self.step_context.ledger,
        )
    }

    fn end(&self, end: End) -> Result<Json, Failure> {
        match end {
            End::Text(text) => Ok(Json::string(&text)),
            End::Completed(json) => Ok(json),
            End::Leak(secret) => {
                let message = format!(
                    "skill `{}` was stopped: a message to the model contains the value of `{secret}`",
                    agent_of(&self.step).skill
                );
                Err(Failure::new(FailureKind::StepFailed, message))
            }
            End::Cap => {
                let agent = agent_of(&self.step);
                let plural = if agent.turn_cap == 1 { "" } else { "s" };
                let message = format!(
                    "skill `{}` did not finish within {} turn{plural}; raise the limit with {MAX_TURNS}",
                    agent.skill, agent.turn_cap
                );
                Err(Failure::new(FailureKind::BudgetExceeded, message))
            }
        }
    }
}

impl Task for AgentTask {
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        if self.conversation.is_none() {
            let id = self.open_id();
            if let (Some(why), false) = (&self.stopped, cx.is_started(&id)) {
                return Poll::Ready(Err(why.clone()));
            }
            cx.open_work.begin(id.as_str());
            let tool_selection = &agent_of(&self.step).tool_selection;
            let Poll::Ready(done) = cx.run_effect(&id, || Effect::Open(Arc::clone(tool_selection))) else {
                return Poll::Pending;
            };
            cx.book(self.step_context.ledger, &id, &done);
            if let Some(why) = &self.stopped {
                return Poll::Ready(Err(why.clone()));
            }
            let Outcome::Opened(tool_list) = done.outcome else {
                return Poll::Ready(Err(unexpected_outcome(&id)));
            };
            if let (Some(row), false) = (self.step_context.row, tool_list.problems.is_empty()) {
                cx.emit(Event::ToolsMissing { row, problems: tool_list.problems.clone() });
            }
            cx.open_work.succeed(id.as_str());
            let conversation = self.begin(*tool_list);
            self.conversation = Some(conversation);
        }
        let Some(conversation) = &mut self.conversation else { return Poll::Pending };
        let Poll::Ready(end) = conversation.poll(cx, &mut self.gate) else {
            return Poll::Pending;
        };
        if matches!(end, Ok(End::Cap | End::Leak(_))) {
            // The turns so far are a dead end: another attempt begins the conversation again.
            cx.open_work.begin(self.step_context.path.as_str());
        }
        Poll::Ready(end.and_then(|end| self.end(end)))
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        match &mut self.conversation {
            Some(conversation) => conversation.stop(cx, &mut self.gate, why),
            None => cx.abandon(&self.open_id()),
        }
    }
}

fn agent_of(step: &Step) -> &Agent {
    match &step.kind {
        StepKind::Skill(agent) => agent,
        other => unreachable!("an agent for a step of type {}", other.word()),
    }
}

/// The tool for an answer with a schema. Arguments are an object, so an answer that is not an object is wrapped in one.
fn completion_channel(schema: &Arc<Schema>) -> Completion {
    let parameters = schema.bundled();
    let is_wrapped = !root::is_plain_object(&parameters);
    let tool = Tool {
        name: SUBMIT_TOOL.to_owned(),
        description: "Gives your answer and ends the task. Call it once, alone, when everything is done.".to_owned(),
        parameters: if is_wrapped { Arc::new(root::wrapped((*parameters).clone())) } else { parameters },
    };
    Completion::Channel { tool, schema: Arc::clone(schema), is_wrapped }
}

fn problems(problems: &[String]) -> String {
    if problems.is_empty() { String::new() } else { format!("Some tools are missing: {}", problems.join("; ")) }
}

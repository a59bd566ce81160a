//! A conversation with a model that calls tools: turns, their tool calls, and the end.
//!
//! | state   | event                                        | next                                          |
//! |---------|----------------------------------------------|-----------------------------------------------|
//! | asking  | a secret is in the text to send              | over, and nothing is sent                     |
//! | asking  | no response, refusal                         | over, with that failure                       |
//! | asking  | text alone                                   | over; a stage is steered, asking              |
//! | asking  | text alone of an agent with a channel        | over, if it fits the schema; else asking, and |
//! |         |                                              | the model must call the channel               |
//! | asking  | an agent's response that misfits, 3 times    | over, with the faults of the last one         |
//! | asking  | the channel alone, with fitting arguments    | over, with these                              |
//! | asking  | the channel otherwise                        | asking; the model gets the reason             |
//! | asking  | tool calls                                   | calling                                       |
//! | calling | all calls are over                           | asking, with the results                      |
//! | asking  | an agent's calls are cut off, 3 times        | over: a truncated response                    |
//! | any     | the maximum of turns is used up              | over: the cap is hit                          |

pub(super) mod batch;
mod message;
mod window;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Poll;

use self::batch::{Batch, BatchContext, Gatekeeper, Proposal};
use self::message::{assistant_message, checked, fitting, payload, received, text_of};
use self::window::Window;
use crate::cause::OF_PROVIDER;
use crate::data::Json;
use crate::effect::{Effect, EffectId, Scan};
use crate::failure::{Failure, FailureKind};
use crate::machine::outcome_error::{call_failed, limit, unexpected_outcome};
use crate::machine::{Cx, NAMES_LIMIT, Path, TRIMS_ARGUMENTS};
use crate::model::{Message, ModelResponse, Part, Request, Role, Stop, Tier, Tool, ToolCall};
use crate::outcome::Outcome;
use crate::report::Event;
use crate::schema::Schema;
use crate::tool::{AvailableTool, ToolResult, ToolSelection};

/// Parameters of a conversation.
#[derive(Debug, Clone)]
pub(in crate::machine) struct Settings {
    /// Name of the agent, for messages: ``skill `x` ``, ``stage `y` ``.
    pub(in crate::machine) who: String,
    pub(in crate::machine) tier: Tier,
    pub(in crate::machine) system: String,
    pub(in crate::machine) tool_selection: Arc<ToolSelection>,
    /// The tools that the model sees, in this order; the channel comes after them.
    pub(in crate::machine) manifest: Vec<AvailableTool>,
    pub(in crate::machine) completion: Completion,
    /// Maximum number of turns per entry.
    pub(in crate::machine) turn_cap: u32,
    /// Context window of the model, in tokens; `None` if unknown.
    pub(in crate::machine) window_tokens: Option<u64>,
    /// The `stageExecutionId`, if the conversation is the act of a stage.
    pub(in crate::machine) stage_execution: Option<String>,
    /// Text that the user has typed; set if the model's input must be scanned for secrets (B-IS2).
    pub(in crate::machine) typed: Option<Arc<str>>,
}

/// Condition that ends a conversation.
#[derive(Debug, Clone)]
pub(in crate::machine) enum Completion {
    /// The first response that calls no tool.
    Text,
    /// A call of this tool, alone in its response, whose arguments fit the schema. If `is_wrapped`, their only member
    /// must fit.
    Channel { tool: Tool, schema: Arc<Schema>, is_wrapped: bool },
}

/// The end of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::machine) enum End {
    /// A response that calls no tool; never empty.
    Text(String),
    /// The response that was submitted through the channel.
    Completed(Json),
    /// All turns are used up.
    Cap,
    /// The model was about to receive the value of this secret.
    Leak(String),
}

/// Number of empty responses in a row that ends an agent: a silent provider will not say more.
const MAX_SILENT_TURNS: u32 = 3;

/// Number of responses in a row, cut off within their calls, that ends an agent: the next one would be as long.
const MAX_CUT_RESPONSES: u32 = 3;

/// Number of responses in a row without a match for the schema that ends an agent.
const MAX_MISFITS: u32 = 3;

/// Replacement for the content of something that is activated a second time.
const ALREADY_SHOWN: &str = "This is active already, unchanged: see above.";

#[derive(Debug)]
pub(in crate::machine) struct Conversation {
    settings: Settings,
    path: Path,
    batch_context: BatchContext,
    window: Window,
    transcript: Vec<Message>,
    /// Number of messages that have been scanned for secrets.
    scanned: usize,
    /// Responses so far; effects are named by it.
    responses: u32,
    /// Responses since the last entry.
    turns: u32,
    /// Number of the last responses in a row that were empty.
    silent: u32,
    /// Number of the last responses in a row that were cut off within their calls.
    cut: u32,
    /// Number of the last responses of an agent in a row that did not fit its schema.
    misfits: u32,
    /// True if the next response must call the channel.
    is_forced: bool,
    state: State,
    parse_error: Option<String>,
    stopped: Option<Failure>,
    /// Failure of the last call by itself, although it was stopped.
    failed: Option<Failure>,
}

#[derive(Debug)]
enum State {
    Asking { sent_bytes: Option<u64> },
    Calling(Batch),
}

impl Conversation {
    /// A conversation that begins with `opening`. Its effects get paths below `path` and are booked on `ledger`; its
    /// events name `row`.
    pub(in crate::machine) fn new(
        settings: Settings,
        opening: Message,
        path: Path,
        row: Option<usize>,
        ledger: Option<usize>,
    ) -> Self {
        let batch_context = BatchContext {
            tool_selection: Arc::clone(&settings.tool_selection),
            row,
            ledger,
            stage_execution: settings.stage_execution.clone(),
            always: BTreeSet::new(),
        };
        let window = Window::new(settings.window_tokens);
        let state = State::Asking { sent_bytes: None };
        let (transcript, parse_error, stopped) = (vec![opening], None, None);
        // Scanning the opening is the caller's task.
        let (scanned, responses, turns, silent, cut, misfits) = (transcript.len(), 0, 0, 0, 0, 0);
        Self {
            settings,
            path,
            batch_context,
            window,
            transcript,
            scanned,
            responses,
            turns,
            silent,
            cut,
            misfits,
            is_forced: false,
            state,
            parse_error,
            stopped,
            failed: None,
        }
    }

    /// All messages so far, including tool results and corrections.
    pub(in crate::machine) fn transcript(&self) -> &[Message] {
        &self.transcript
    }

    /// The tools as the model receives them.
    pub(in crate::machine) fn manifest(&self) -> Vec<Tool> {
        let mut tools: Vec<Tool> = self.settings.manifest.iter().map(|available| available.tool.clone()).collect();
        if let Completion::Channel { tool, .. } = &self.settings.completion {
            tools.push(tool.clone());
        }
        tools
    }

    /// The system prompt.
    pub(in crate::machine) fn system(&self) -> &str {
        &self.settings.system
    }

    /// Responses since the last entry.
    pub(in crate::machine) fn turns(&self) -> u32 {
        self.turns
    }

    /// Reason of the last rejection of the channel's arguments, since the last entry.
    pub(in crate::machine) fn parse_error(&self) -> Option<&str> {
        self.parse_error.as_deref()
    }

    /// Enters the conversation again after its end, with `reason` as the user's next message (B-R4, B-R5).
    pub(in crate::machine) fn reenter(&mut self, reason: &str) {
        let open: Vec<Part> = match self.transcript.last() {
            Some(Message { role: Role::Assistant, parts }) => parts.iter().filter_map(received).collect(),
            _ => Vec::new(),
        };
        if !open.is_empty() {
            self.transcript.push(Message { role: Role::Tool, parts: open });
        }
        self.transcript.push(Message::user(reason));
        self.turns = 0;
        self.parse_error = None;
        self.state = State::Asking { sent_bytes: None };
    }

    /// Advances until the conversation waits.
    pub(in crate::machine) fn poll(&mut self, cx: &mut Cx, gate: &mut dyn Gatekeeper) -> Poll<Result<End, Failure>> {
        loop {
            let end = match &mut self.state {
                State::Asking { .. } => match self.ask(cx)? {
                    Poll::Ready(end) => end,
                    Poll::Pending => return Poll::Pending,
                },
                State::Calling(batch) => {
                    let polled = batch.poll(cx, gate, &mut self.batch_context, self.stopped.as_ref());
                    let Poll::Ready(results) = polled? else {
                        return Poll::Pending;
                    };
                    self.take_results(results);
                    None
                }
            };
            if let Some(end) = end {
                return Poll::Ready(Ok(end));
            }
            if self.turns >= self.settings.turn_cap && matches!(self.state, State::Asking { .. }) {
                return Poll::Ready(Ok(End::Cap));
            }
        }
    }

    /// Asks the conversation to end soon; it is polled until everything that it has started is gone.
    pub(in crate::machine) fn stop(&mut self, cx: &mut Cx, gate: &mut dyn Gatekeeper, why: &Failure) {
        self.stopped = Some(why.clone());
        match &mut self.state {
            State::Asking { .. } => {
                cx.abandon(&self.scan_id());
                cx.abandon(&self.turn_id());
            }
            State::Calling(batch) => {
                gate.stop(cx, why);
                batch.stop(cx);
            }
        }
    }

    /// The failure of the last call, if it failed by itself when the conversation was stopped.
    pub(in crate::machine) fn failed(&self) -> Option<&Failure> {
        self.failed.as_ref()
    }

    /// Abandons the effects that died with their process. The conversation is not polled again.
    pub(in crate::machine) fn forget(&self, cx: &mut Cx) {
        match &self.state {
            State::Asking { .. } => {
                cx.forget(&self.scan_id());
                cx.forget(&self.turn_id());
            }
            State::Calling(batch) => batch.forget(cx),
        }
    }

    fn turn_path(&self) -> Path {
        self.path.child(&format!("turn{}", self.responses + 1))
    }

    fn turn_id(&self) -> EffectId {
        self.turn_path().attempt(1)
    }

    fn scan_id(&self) -> EffectId {
        self.turn_path().aside("scan")
    }

    /// Scans the messages that the model has not received yet, and returns the name of a secret in them.
    fn scan(&mut self, cx: &mut Cx) -> Poll<Result<Option<String>, Failure>> {
        let Some(typed) = &self.settings.typed else { return Poll::Ready(Ok(None)) };
        let id = self.scan_id();
        let is_due = self.stopped.is_none() && self.scanned < self.transcript.len();
        if !is_due && !cx.is_started(&id) {
            return Poll::Ready(Ok(None));
        }
        let assistant_message =
            || self.transcript[self.scanned..].iter().filter(|message| message.role != Role::Assistant);
        let scan =
            || Scan { text: assistant_message().map(text_of).collect::<Vec<_>>().join("\n"), typed: typed.to_string() };
        let Poll::Ready(done) = cx.run_effect(&id, || Effect::Scan(Box::new(scan()))) else { return Poll::Pending };
        cx.book(self.batch_context.ledger, &id, &done);
        self.scanned = self.transcript.len();
        match done.outcome {
            _ if self.stopped.is_some() => Poll::Ready(Ok(None)),
            Outcome::Scanned(secrets) => Poll::Ready(Ok(secrets.into_iter().next())),
            _ => Poll::Ready(Err(unexpected_outcome(&id))),
        }
    }

    /// One turn: `Ready(None)` means that the conversation continues.
    fn ask(&mut self, cx: &mut Cx) -> Result<Poll<Option<End>>, Failure> {
        let State::Asking { sent_bytes } = self.state else { return Ok(Poll::Ready(None)) };
        let id = self.turn_id();
        cx.open_work.begin(id.as_str());
        let done = match sent_bytes {
            None => {
                let Poll::Ready(secret) = self.scan(cx) else { return Ok(Poll::Pending) };
                if let Some(why) = &self.stopped {
                    return Err(why.clone());
                }
                if let Some(secret) = secret? {
                    return Ok(Poll::Ready(Some(End::Leak(secret))));
                }
                cx.may_spend()?;
                let (request, bytes) = self.request(cx);
                self.state = State::Asking { sent_bytes: Some(bytes) };
                cx.run_effect(&id, || Effect::Model(Box::new(request)))
            }
            Some(_) => cx.take(&id),
        };
        let Poll::Ready(done) = done else { return Ok(Poll::Pending) };
        cx.book(self.batch_context.ledger, &id, &done);
        let charged = match &done.outcome {
            Outcome::Response(response) => {
                cx.count_attempt(self.batch_context.ledger, 1);
                cx.charge(self.batch_context.ledger, &response.usage)
            }
            _ => Ok(()),
        };
        if let Some(why) = &self.stopped {
            if let Outcome::CallFailed(failure) = &done.outcome {
                self.failed = Some(call_failed(&self.settings.who, failure));
            }
            return Err(why.clone());
        }
        if let (Err(failure), Outcome::Response(_)) = (&charged, &done.outcome) {
            // The response is there and paid for: with a higher budget the conversation continues with it.
            cx.open_work.succeed(id.as_str());
            return Err(failure.clone());
        }
        let response = match done.outcome {
            Outcome::Response(response) => *response,
            Outcome::CallFailed(failure) => return Err(call_failed(&self.settings.who, &failure)),
            _ => return Err(unexpected_outcome(&id)),
        };
        self.window.learn(sent_bytes.unwrap_or(0), response.usage.input_tokens);
        let next = self.receive(cx, response)?;
        cx.open_work.succeed(id.as_str());
        Ok(Poll::Ready(next))
    }

    fn request(&mut self, cx: &mut Cx) -> (Request, u64) {
        let tools = self.manifest();
        let size = |tool: &Tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len();
        let fixed = self.settings.system.len() + tools.iter().map(size).sum::<usize>();
        let before = self.window.left_out();
        let (messages, bytes) = self.window.view(&self.transcript, fixed as u64, cx.facts.abi >= TRIMS_ARGUMENTS);
        if let (true, Some(row)) = (self.window.left_out() > before, self.batch_context.row) {
            cx.emit(Event::ContextTrimmed { row, left_out: self.window.left_out() });
        }
        let request = Request {
            tier: self.settings.tier,
            system: Some(self.settings.system.clone()).filter(|system| !system.is_empty()),
            messages,
            schema: None,
            tools,
            must_call: self.must_call(),
            temperature: None,
            max_tokens: None,
            cache_prompt: true,
        };
        (request, bytes)
    }

    /// The channel's name, if the last response should have called it.
    fn must_call(&self) -> Option<String> {
        match &self.settings.completion {
            Completion::Channel { tool, .. } if self.is_forced => Some(tool.name.clone()),
            _ => None,
        }
    }

    /// Handles a response: the end of the conversation, or `None` if it continues.
    fn receive(&mut self, cx: &mut Cx, response: ModelResponse) -> Result<Option<End>, Failure> {
        let turn = self.turn_path();
        self.responses += 1;
        self.turns += 1;
        self.state = State::Asking { sent_bytes: None };
        self.is_forced = false;
        if let Stop::Refusal(reason) = &response.stop {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            let message = format!("{} refused to continue {}{reason}", response.model, self.settings.who);
            return Err(Failure::new(FailureKind::ModelRefused, message));
        }
        self.handle_silence(&response)?;
        self.handle_cut(cx, &response)?;
        // The text that ends a conversation is its output.
        let is_last = matches!(self.settings.completion, Completion::Text) && response.tool_calls.is_empty();
        if let Some(row) = self.batch_context.row.filter(|_| !is_last) {
            cx.emit(Event::AgentText { row, turn: self.responses, text: response.text.clone() });
        }
        self.transcript.push(assistant_message(&response));
        if response.tool_calls.is_empty() {
            return self.receive_text(cx, response);
        }
        if response.stop == Stop::Length {
            // The arguments of a call may be cut off, so no part of the response can be trusted.
            let message = "Your answer was cut off. Nothing was run; make fewer or shorter calls.";
            self.push_results(response.tool_calls.iter().map(|call| (call.id.clone(), message.to_owned())));
            return Ok(None);
        }
        match &self.settings.completion {
            Completion::Channel { tool, .. } if response.tool_calls.iter().any(|call| call.name == tool.name) => {
                let [call] = &response.tool_calls[..] else {
                    let message = format!(
                        "`{0}` must be the only tool call of an answer. Nothing was run. Call your other tools first, and \
                         `{0}` alone when you are done.",
                        tool.name
                    );
                    self.push_results(response.tool_calls.iter().map(|call| (call.id.clone(), message.clone())));
                    return Ok(None);
                };
                self.complete(call)
            }
            _ => {
                self.misfits = 0;
                let proposals = self.propose(&turn, response.tool_calls);
                self.state = State::Calling(Batch::new(proposals));
                Ok(None)
            }
        }
    }

    /// Ends an agent whose model repeatedly responds with nothing. A stage has its own cap, and a verdict after it (B-A14).
    fn handle_silence(&mut self, response: &ModelResponse) -> Result<(), Failure> {
        let is_silent =
            response.text.trim().is_empty() && response.tool_calls.is_empty() && response.stop != Stop::Length;
        self.silent = if is_silent && self.settings.stage_execution.is_none() { self.silent + 1 } else { 0 };
        if self.silent < MAX_SILENT_TURNS {
            return Ok(());
        }
        let message = format!(
            "{} gave {} an empty response {MAX_SILENT_TURNS} times in a row: neither text nor a tool call",
            response.model, self.settings.who
        );
        Err(Failure::new(FailureKind::ModelError, message))
    }

    /// Ends an agent whose responses are repeatedly cut off within their calls. A stage has its own cap, and a verdict
    /// after it (B-A14).
    fn handle_cut(&mut self, cx: &Cx, response: &ModelResponse) -> Result<(), Failure> {
        let is_cut = response.stop == Stop::Length && !response.tool_calls.is_empty();
        self.cut = if is_cut && self.settings.stage_execution.is_none() { self.cut + 1 } else { 0 };
        if self.cut < MAX_CUT_RESPONSES || cx.facts.abi < NAMES_LIMIT {
            return Ok(());
        }
        let message = format!(
            "{MAX_CUT_RESPONSES} responses of {} to {} in a row were cut off at the maximum length{}",
            response.model,
            self.settings.who,
            limit(cx, &response.usage, OF_PROVIDER)
        );
        Err(Failure::new(FailureKind::ModelTruncated, message))
    }

    fn receive_text(&mut self, cx: &Cx, response: ModelResponse) -> Result<Option<End>, Failure> {
        let text = response.text.trim();
        match &self.settings.completion {
            Completion::Text if response.stop == Stop::Length => {
                let limit = limit(cx, &response.usage, OF_PROVIDER);
                let message = format!("the response of {} was cut off at the maximum length{limit}", response.model);
                Err(Failure::new(FailureKind::ModelTruncated, message))
            }
            Completion::Text if !text.is_empty() => Ok(Some(End::Text(text.to_owned()))),
            Completion::Text => {
                self.transcript.push(Message::user("Your answer was empty. Answer the request, or call a tool."));
                Ok(None)
            }
            Completion::Channel { tool, .. } if self.settings.stage_execution.is_some() => {
                let message = format!("Go on with your task, and call `{}` when you are done.", tool.name);
                self.transcript.push(Message::user(message));
                Ok(None)
            }
            Completion::Channel { tool, schema, is_wrapped } => {
                let fault = match response.stop {
                    Stop::Length => "it was cut off".to_owned(),
                    _ => match fitting(schema, *is_wrapped, text, cx.facts.abi) {
                        Ok(json) => return Ok(Some(End::Completed(json))),
                        Err(fault) => fault,
                    },
                };
                let message = format!(
                    "Your answer is not what was asked for: {fault}\nCall `{}` with it, in full, and say nothing else.",
                    tool.name
                );
                self.misfit(&fault)?;
                self.transcript.push(Message::user(message));
                self.is_forced = true;
                Ok(None)
            }
        }
    }

    /// Counts a response that does not fit the schema; a stage has its own cap instead.
    fn misfit(&mut self, fault: &str) -> Result<(), Failure> {
        self.misfits += 1;
        if self.settings.stage_execution.is_some() || self.misfits < MAX_MISFITS {
            return Ok(());
        }
        let message = format!(
            "{} gave {MAX_MISFITS} responses in a row that do not match its schema; the last: {fault}",
            self.settings.who
        );
        Err(Failure::new(FailureKind::ValidationExhausted, message))
    }

    /// Handles a call of the channel, alone in its response.
    fn complete(&mut self, call: &ToolCall) -> Result<Option<End>, Failure> {
        let Completion::Channel { schema, tool, is_wrapped } = &self.settings.completion else { return Ok(None) };
        let fault = match payload(&call.arguments) {
            Err(why) => format!("the arguments of `{}` are not JSON: {why}", tool.name),
            Ok(found) => match checked(schema, *is_wrapped, found) {
                Ok(json) => return Ok(Some(End::Completed(json))),
                Err(faults) => {
                    format!("the arguments of `{}` do not fit its schema:\n- {}", tool.name, faults.join("\n- "))
                }
            },
        };
        self.misfit(&fault)?;
        self.push_results([(
            call.id.clone(),
            format!("{fault}\nCall it again, in full, with these faults corrected."),
        )]);
        self.parse_error = Some(fault);
        Ok(None)
    }

    fn propose(&self, turn: &Path, calls: Vec<ToolCall>) -> Vec<Proposal> {
        let propose = |(n, call): (usize, ToolCall)| {
            let available = self.settings.manifest.iter().find(|available| available.tool.name == call.name);
            // A name that is not in the tool list is a model's text, which must not become part of a path.
            let name = available.map_or("unknown", |available| available.tool.name.as_str());
            let path = turn.child(name).item(n);
            let is_exclusive = available.is_none_or(|available| available.is_exclusive);
            Proposal { id: call.id, name: call.name, arguments: call.arguments, path, is_exclusive }
        };
        calls.into_iter().enumerate().map(propose).collect()
    }

    fn take_results(&mut self, results: Vec<(Proposal, ToolResult)>) {
        let at = self.transcript.len();
        let mut reported: Vec<(String, String)> = Vec::with_capacity(results.len());
        for (n, (proposal, result)) in results.into_iter().enumerate() {
            let manifest = &self.settings.manifest;
            let is_kept = manifest.iter().any(|available| available.is_kept && available.tool.name == proposal.name);
            let is_shown_here = || (0..n).any(|n| self.window.keeps(at, n) && reported[n].1 == result.content);
            if is_kept && result.error.is_none() && (self.was_shown(&result.content) || is_shown_here()) {
                // One copy of an activated skill or contract is enough (C-1.17, C-2.8).
                reported.push((proposal.id, ALREADY_SHOWN.to_owned()));
                continue;
            }
            if is_kept {
                self.window.keep(at, n);
            }
            reported.push((proposal.id, result.content));
        }
        self.push_results(reported);
        if matches!(self.settings.completion, Completion::Text) && self.turns + 1 == self.settings.turn_cap {
            let last = "This is your last turn: answer now with what you know, without calling tools.";
            self.transcript.push(Message::user(last));
        }
        self.state = State::Asking { sent_bytes: None };
    }

    /// True if the conversation has a result with exactly this text, which is always kept.
    fn was_shown(&self, text: &str) -> bool {
        let is_it = |part: &Part| matches!(part, Part::ToolResult { content, .. } if content == text);
        self.transcript.iter().enumerate().any(|(at, message)| {
            message.parts.iter().enumerate().any(|(n, part)| is_it(part) && self.window.keeps(at, n))
        })
    }

    fn push_results(&mut self, results: impl IntoIterator<Item = (String, String)>) {
        let part = |(id, content): (String, String)| Part::ToolResult { id, content };
        self.transcript.push(Message { role: Role::Tool, parts: results.into_iter().map(part).collect() });
    }
}

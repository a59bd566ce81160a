//! Whole walks through stage machines, as text. `testdata/walks/*/` holds a machine with its stages. `script.txt` has
//! the turns of the model and the results of hooks, tools and people. `expected.txt` has every request to the model,
//! every event, and the result. UPDATE=1 writes the expected texts.
//!
//! A line of a script belongs to a stage (`outline say hm`, `outline call Read {"p":1}; Write {}`, `outline done
//! {"summary":"s"}`), a hook (`hook assert outline {"verdict":"ok"}`, `hook gate outline exit 3`), a tool (`tool Read
//! busy`), or is an answer (`approve`, `deny`), `resume`, `crash` (before the next effect of that name), or `cancel`.
//! Lines are used up in their order. Effects without a line succeed, except for a model without a line: it is still
//! running when it is cancelled.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::effect::{Chunk, Effect, EffectId, ProcessCall};
use etude_core::machine::{Command, Limits, Machine, Start};
use etude_core::model::{Message, ModelResponse, Part, Request, Role, Stop, Tool, ToolCall, Usage};
use etude_core::outcome::{Completed, Conditions, Decision, Exit, Outcome, ProcessEnd, Stderr, Stdout};
use etude_core::plan::{MachineCall, MachineInput, Plan, Step, StepKind};
use etude_core::report::{Event, error_json};
use etude_core::tool::{AvailableTool, ToolError, ToolList, ToolReply, ToolResult};
use etude_spec::stage_machine::{Machines, Rules};
use serde_json::{Value, json};

use crate::definitions::{compare, testdata};
use crate::disk::Disk;

/// B-5 to B-15: the phases, the channel, batches, verdicts, transitions, grants, guards, cancellation and resumption
/// are each shown as a readable walk.
#[test]
fn machines_walk_as_their_scripts_say() {
    let wrong: Vec<String> =
        testdata("walks").iter().filter_map(|case| compare(case, &Walk::of(case).log).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// B-21.141: the same machine and the same script give the same events and the same conversation.
#[test]
fn the_same_script_gives_the_same_walk() {
    for case in testdata("walks") {
        assert_eq!(Walk::of(&case).log, Walk::of(&case).log, "{}", case.display());
    }
}

struct Walk {
    plan: Plan,
    machine: Machine,
    log: String,
    /// Lines of the script, by their speaker.
    says: BTreeMap<String, VecDeque<String>>,
    /// Actions of people while the run waits.
    people: VecDeque<String>,
    running: VecDeque<(EffectId, Effect)>,
    gates: Vec<(EffectId, String)>,
    history: Vec<Past>,
    answers: u32,
}

#[derive(Clone)]
enum Past {
    Done(EffectId, Box<Completed>),
    Resumed,
    Cancelled,
}

impl Walk {
    fn of(case: &Path) -> Self {
        let disk = Disk(case.to_owned());
        let machines = Machines::new(&disk, Rules::default());
        let name = machines.names().first().expect("a machine").clone();
        let (machine, diagnostics) = machines.machine(&name);
        let machine = machine.unwrap_or_else(|| panic!("{}: {diagnostics:?}", case.display()));
        let call = MachineCall { machine: machine.plan, input: MachineInput::Same, is_stage: false, may_skip: true };
        let step = Step::plain(name.clone(), StepKind::Machine(Box::new(call)), Default::default());
        let plan = step.alone(name, String::new(), etude_core::failure::Phase::Business);
        let script = std::fs::read_to_string(case.join("script.txt")).unwrap_or_default();
        let mut walk = Self {
            machine: Machine::new(&plan, start()),
            plan,
            log: String::new(),
            says: BTreeMap::new(),
            people: VecDeque::new(),
            running: VecDeque::new(),
            gates: Vec::new(),
            history: Vec::new(),
            answers: 0,
        };
        walk.read(&script);
        walk.walk_all();
        walk
    }

    fn read(&mut self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            let (who, what) = match words.as_slice() {
                ["approve" | "deny" | "resume" | "cancel"] => {
                    self.people.push_back(line.to_owned());
                    continue;
                }
                ["crash" | "cancel", at] => (format!("{} at {at}", words[0]), String::new()),
                ["hook", hook, stage, rest @ ..] => (format!("{hook} {stage}"), rest.join(" ")),
                ["tool", tool, rest @ ..] => (format!("tool {tool}"), rest.join(" ")),
                [stage, rest @ ..] => ((*stage).to_owned(), rest.join(" ")),
                [] => continue,
            };
            self.says.entry(who).or_default().push_back(what);
        }
    }

    fn next(&mut self, who: &str) -> Option<String> {
        self.says.get_mut(who)?.pop_front()
    }

    fn walk_all(&mut self) {
        self.execute_commands(false);
        loop {
            while let Some(at) = self.running.iter().position(|(id, effect)| self.can_go_on(id, effect)) {
                let Some((id, effect)) = self.running.remove(at) else { break };
                let name = name_of(&effect);
                if self.next(&format!("crash at {name}")).is_some() {
                    self.crash();
                    continue;
                }
                if self.next(&format!("cancel at {name}")).is_some() {
                    writeln!(self.log, "! cancelled while {name} is under way").expect("text");
                    self.running.push_front((id, effect));
                    self.machine.cancel("cancelled by the user");
                    self.history.push(Past::Cancelled);
                    self.execute_commands(false);
                    continue;
                }
                let outcome = self.run_effect(&id, &effect);
                self.complete(&id, outcome);
            }
            match (self.machine.result(), self.people.pop_front()) {
                (Some(_), _) => break,
                (None, Some(what)) => self.act(&what),
                (None, None) => {
                    writeln!(self.log, "! waits, or is still at work").expect("text");
                    break;
                }
            }
        }
        self.emit_end();
    }

    /// False for a stage whose model has no further line: it runs until it is cancelled.
    fn can_go_on(&self, id: &EffectId, effect: &Effect) -> bool {
        let has_turn = || self.says.get(&stage_of(id)).is_some_and(|turns| !turns.is_empty());
        !matches!(effect, Effect::Model(_)) || has_turn()
    }

    fn complete(&mut self, id: &EffectId, outcome: Outcome) {
        let completed = Completed { outcome, elapsed_ms: 0 };
        self.history.push(Past::Done(id.clone(), Box::new(completed.clone())));
        self.machine.complete(id, completed);
        self.execute_commands(false);
    }

    /// Performs an action of a person while the run waits.
    fn act(&mut self, what: &str) {
        writeln!(self.log, "! {what}").expect("text");
        match what {
            "cancel" => {
                self.machine.cancel("cancelled by the user");
                self.history.push(Past::Cancelled);
                self.execute_commands(false);
            }
            "resume" => self.crash(),
            _ => {
                let (id, _) = self.gates.remove(0);
                self.crash();
                let (by, at) = ("ada".to_owned(), "then".to_owned());
                let decision = Decision { approved: what == "approve", answer: Json::null(), by, at, reason: None };
                self.gates.retain(|(gate, _)| *gate != id);
                self.complete(&id, Outcome::Decided(decision));
            }
        }
    }

    /// The process dies, and another one continues from the journal.
    fn crash(&mut self) {
        writeln!(self.log, "! goes on in another process").expect("text");
        self.machine = Machine::new(&self.plan, start());
        (self.running, self.gates) = (VecDeque::new(), Vec::new());
        self.execute_commands(true);
        for past in self.history.clone() {
            match past {
                Past::Done(id, completed) => self.machine.complete(&id, *completed),
                Past::Resumed => self.machine.resume(self.machine.slots().clone()),
                Past::Cancelled => self.machine.cancel("cancelled by the user"),
            }
            self.execute_commands(true);
        }
        assert!(self.machine.handles_resumption());
        self.machine.resume(self.machine.slots().clone());
        self.history.push(Past::Resumed);
        // Earlier effects are started again only if the machine still wants them.
        let outstanding: Vec<EffectId> = self.running.iter().map(|(id, _)| id.clone()).collect();
        self.execute_commands(false);
        let wanted: Vec<EffectId> = self.machine.outstanding().map(|(id, _)| id.clone()).collect();
        self.running.retain(|(id, _)| !outstanding.contains(id) || wanted.contains(id));
    }

    fn execute_commands(&mut self, is_replay: bool) {
        loop {
            let commands = self.machine.poll();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                match command {
                    Command::Start(id, Effect::Gate(gate)) => self.gates.push((id, gate.message)),
                    Command::Start(id, effect) => {
                        // Time limits never expire here.
                        if !(matches!(effect, Effect::Sleep { .. }) && id.as_str().ends_with("!timeout")) {
                            self.running.push_back((id, effect));
                        }
                    }
                    Command::Abandon(id) => self.abandon(&id),
                    Command::Emit(event) if !is_replay => self.emit(&event),
                    Command::Emit(_) => {}
                }
            }
            self.running.retain({
                let done: Vec<EffectId> = self.history.iter().filter_map(done).collect();
                move |(id, _)| !is_replay || !done.contains(id)
            });
            let done: Vec<EffectId> = self.history.iter().filter_map(done).collect();
            self.gates.retain(|(id, _)| !done.contains(id));
        }
    }

    fn abandon(&mut self, id: &EffectId) {
        self.gates.retain(|(gate, _)| gate != id);
        let Some(at) = self.running.iter().position(|(running, _)| running == id) else { return };
        self.running.remove(at);
        if self.machine.outstanding().any(|(wanted, _)| wanted == id) {
            self.complete_abandoned(id);
        }
    }

    fn complete_abandoned(&mut self, id: &EffectId) {
        let completed = Completed { outcome: Outcome::Abandoned, elapsed_ms: 0 };
        self.history.push(Past::Done(id.clone(), Box::new(completed.clone())));
        self.machine.complete(id, completed);
    }

    fn emit(&mut self, event: &Event) {
        let Event::Stage { name, payload } = event else { return };
        let mut payload = payload.value().expect("a payload");
        let facts = payload.as_object_mut().expect("an object");
        for reported in
            ["sessionId", "workflowRunId", "parentCompoundTurnId", "correlationId", "proposalId", "argsDigest"]
        {
            facts.shift_remove(reported);
        }
        if facts.get("attempt") == Some(&json!(1)) {
            facts.shift_remove("attempt");
        }
        let execution = facts.shift_remove("stageExecutionId");
        let stage =
            execution.as_ref().and_then(Value::as_str).and_then(|id| id.split_once('/')).map(|(_, stage)| stage);
        let stage = stage.map(|stage| format!(" {stage}")).unwrap_or_default();
        if !stage.is_empty() {
            facts.shift_remove("stageId");
        }
        let phase = name.ends_with("Fired").then(|| facts.shift_remove("phase")).flatten();
        let phase = phase.as_ref().and_then(Value::as_str).map(|phase| format!(" {phase}")).unwrap_or_default();
        let rest = if facts.is_empty() { phase } else { format!("{phase} {payload}") };
        writeln!(self.log, "{name}{stage}{rest}").expect("text");
    }

    fn emit_end(&mut self) {
        let result = self.machine.snapshot();
        writeln!(self.log, "\nresult {}", result.status.word()).expect("text");
        for failure in &result.errors {
            let reported = error_json(failure);
            let facts = json!({"class": reported["class"], "code": reported["code"], "context": reported["context"]});
            writeln!(self.log, "error {} {} {facts}", failure.kind.word(), failure.message).expect("text");
        }
        for row in &result.stages.rows {
            let (verdict, attempts) = (row.verdict.unwrap_or("-"), row.attempt_count);
            let cap = if row.cap_hit { ", at the cap" } else { "" };
            writeln!(
                self.log,
                "row {} {} {verdict}, attempts {attempts}{cap}",
                row.stage_execution_id,
                row.status.word()
            )
            .expect("text");
        }
        if let Some(last) = &result.stages.last {
            writeln!(self.log, "output {last:?}").expect("text");
        }
    }

    fn run_effect(&mut self, id: &EffectId, effect: &Effect) -> Outcome {
        match effect {
            Effect::Open(_) => Outcome::Opened(Box::new(tool_list())),
            Effect::Model(request) => self.answer(id, request),
            Effect::Tool(call) => {
                writeln!(self.log, "> tool {} {}", call.name, call.arguments).expect("text");
                let reply = match self.next(&format!("tool {}", call.name)) {
                    Some(code) => ToolError::transient(&code, "not now").into(),
                    None => ToolResult::ok(format!("{}-out", call.name)),
                };
                Outcome::Tool(Box::new(ToolReply::Done(reply)))
            }
            Effect::Process(call) => self.hook(call),
            Effect::Sleep { ms, .. } => {
                writeln!(self.log, "> sleep {ms} ms").expect("text");
                Outcome::Slept
            }
            Effect::Scan(scan) => {
                let holds = scan.text.contains("hunter2") && !scan.typed.contains("hunter2");
                Outcome::Scanned(holds.then(|| "PASSWORD".to_owned()).into_iter().collect())
            }
            Effect::Recall { .. } => Outcome::Recalled(None),
            Effect::Remember { .. } => Outcome::Remembered,
            Effect::Gate(_) => unreachable!("gates wait for people"),
        }
    }

    fn hook(&mut self, call: &ProcessCall) -> Outcome {
        let stdin: Value = serde_json::from_str(&text_of(call)).expect("JSON on stdin");
        let hook = stdin["hook"].as_str().unwrap_or_default().to_owned();
        let stage = stdin["stage"]["id"].as_str().unwrap_or_default().to_owned();
        let said = self.next(&format!("{hook} {stage}")).unwrap_or_else(|| "nothing".to_owned());
        writeln!(self.log, "> hook {hook} {stage}: {said}").expect("text");
        let end = |status, stdout| {
            let stderr = Stderr { tail: String::new(), lines: 0, bytes: 0, blob: None };
            Outcome::Process(ProcessEnd {
                exit: Exit::Status(status),
                stdout,
                stderr,
                conditions: Conditions::default(),
            })
        };
        let empty = || Stdout::Unusable { problem: "stdout is empty".to_owned(), found: String::new() };
        let (status, said) = match said.strip_prefix("exit ") {
            Some(rest) => {
                let (status, rest) = rest.split_once(' ').unwrap_or((rest, "nothing"));
                (status.parse().expect("a status"), rest.to_owned())
            }
            None => (0, said),
        };
        match Json::parse(&said) {
            Ok(json) => end(status, Stdout::Value(json)),
            Err(_) if said == "nothing" => end(status, empty()),
            Err(error) => end(status, Stdout::Unusable { problem: error.to_string(), found: said }),
        }
    }

    fn answer(&mut self, id: &EffectId, request: &Request) -> Outcome {
        let stage = stage_of(id);
        let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        writeln!(self.log, "> {stage} is asked, with {}", tools.join(", ")).expect("text");
        if request.messages.len() == 1 {
            writeln!(self.log, "  system: {}", request.system.as_deref().unwrap_or_default().trim_end()).expect("text");
        }
        let from = request.messages.iter().rposition(|m| m.role == Role::Assistant).map_or(1, |at| at + 1);
        for message in request.messages.iter().skip(from) {
            writeln!(self.log, "  {}", words(message)).expect("text");
        }
        let said = self.next(&stage).unwrap_or_else(|| panic!("{stage} has no turn left:\n{}", self.log));
        writeln!(self.log, "< {stage} {said}").expect("text");
        let (verb, rest) = said.split_once(' ').unwrap_or((&said, ""));
        let channel = request.tools.last().map(|tool| tool.name.clone()).unwrap_or_default();
        let calls: Vec<String> = match verb {
            "call" => rest.split("; ").map(str::to_owned).collect(),
            "done" => vec![format!("{channel} {rest}")],
            _ => Vec::new(),
        };
        let tool_calls = calls.iter().map(|call| {
            self.answers += 1;
            let (name, arguments) = call.split_once(' ').unwrap_or((call, "{}"));
            ToolCall { id: format!("c{}", self.answers), name: name.to_owned(), arguments: arguments.to_owned() }
        });
        Outcome::Response(Box::new(ModelResponse {
            tool_calls: tool_calls.collect(),
            text: if verb == "say" { rest.to_owned() } else { String::new() },
            stop: Stop::End,
            usage: Usage { calls: 1, ..Usage::default() },
            model: "scripted/one".to_owned(),
            reasoning: None,
            transport_failures: Vec::new(),
        }))
    }
}

fn start() -> Start {
    Start {
        run_id: "r1".to_owned(),
        abi: etude_core::machine::ABI,
        input: Json::trusted(r#"{"task":"T1"}"#),
        request: None,
        limits: Limits::default(),
        spent: Usage::default(),
        app_dir: "/app".to_owned(),
        yolo: false,
        slots: Default::default(),
        restarts: Default::default(),
        attempt: Default::default(),
    }
}

fn tool_list() -> ToolList {
    let tool = |name: &str| AvailableTool {
        tool: Tool {
            name: name.to_owned(),
            description: String::new(),
            parameters: Arc::new(json!({"type": "object"})),
        },
        is_pipeline: false,
        is_exclusive: false,
        is_kept: false,
        approval_key: None,
    };
    ToolList { tools: ["Read", "Write", "Bash"].map(tool).to_vec(), ..ToolList::default() }
}

fn done(past: &Past) -> Option<EffectId> {
    match past {
        Past::Done(id, _) => Some(id.clone()),
        _ => None,
    }
}

fn name_of(effect: &Effect) -> String {
    match effect {
        Effect::Tool(call) => call.name.clone(),
        Effect::Process(call) => {
            let stdin: Value = serde_json::from_str(&text_of(call)).unwrap_or_default();
            format!(
                "{}-{}",
                stdin["hook"].as_str().unwrap_or_default(),
                stdin["stage"]["id"].as_str().unwrap_or_default()
            )
        }
        other => other.kind().to_owned(),
    }
}

/// Id of the stage that an effect belongs to.
fn stage_of(id: &EffectId) -> String {
    id.as_str().split('/').nth(2).and_then(|part| part.split('#').next()).unwrap_or_default().to_owned()
}

fn text_of(call: &ProcessCall) -> String {
    let text = |chunk: &Chunk| match chunk {
        Chunk::Text(text) => text.to_string(),
        Chunk::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Chunk::Json(json) => json.text().expect("a value").to_string(),
    };
    call.stdin.0.iter().map(text).collect()
}

fn words(message: &Message) -> String {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let part = |part: &Part| match part {
        Part::Reasoning(reasoning) => reasoning.json.to_string(),
        Part::Text(text) => text.replace('\n', " / "),
        Part::ToolResult { content, .. } => format!("[{}]", content.replace('\n', " / ")),
        Part::ToolCall { name, arguments, .. } => format!("{name} {arguments}"),
        Part::Image { path } => path.clone(),
    };
    format!("{role}: {}", message.parts.iter().map(part).collect::<Vec<_>>().join(" "))
}

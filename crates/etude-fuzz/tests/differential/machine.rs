//! The interpreter in the world of a test: the world decides the result and the end of each effect, one at a time. Ends are
//! recorded and can be replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::digest::Digest;
use etude_core::effect::{Chunk, Command as Program, Effect, EffectId, ProcessCall, Protocol, Stdin};
use etude_core::machine::{Attempt, Command, Limits, Machine, Start, time_budget};
use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Part, Request, Role, Stop, Usage};
use etude_core::outcome::{Completed, Conditions, Decision, Exit, Outcome, ProcessEnd, Stderr, Stdout};
use etude_core::plan::Plan;
use etude_core::report::{RunResult, is_below};
use etude_process::blob::FileBlobs;
use etude_runtime::record;
use serde_json::{Map, Value, json};

use crate::definition::{App, Pipeline};
use crate::reference;
use crate::world::{Asked, Ended, MS, Time, World};

/// Time of each decision by the world's person.
pub(crate) const DECIDED_AT: &str = "2026-01-01T00:00:00Z";

/// Id of every run.
pub(crate) const RUN_ID: &str = "r1";

/// A journal record of a run.
#[derive(Debug, Clone)]
enum Record {
    /// The outcome of an effect, with the hash of its request.
    Done(EffectId, Digest, Box<Completed>),
    Cancel,
}

/// State of a run right after a record.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Point {
    /// Number of started effects.
    started: usize,
    /// Effects under way, with the hashes of their requests.
    outstanding: Vec<(EffectId, Digest)>,
}

/// A completed run of the interpreter.
#[derive(Debug)]
pub(crate) struct Lived {
    pub(crate) result: RunResult,
    pub(crate) effects: Vec<reference::Effect>,
    /// The attempt whose constructor opened its scope.
    scope: u32,
    records: Vec<Record>,
    /// States of the run: at the start, then after each record.
    points: Vec<Point>,
}

/// The plan of an app, loaded from its files.
pub(crate) fn plan(app: &App) -> Result<Plan, String> {
    let files = app.files();
    let spec = etude_spec::App::new(&files);
    let sequence = |pipeline: &Pipeline| {
        let (sound, found) = spec.pipeline(&pipeline.name);
        let errors: Vec<String> = found.iter().filter(|found| found.is_error()).map(|d| d.message.clone()).collect();
        sound.map(|sound| sound.sequence).ok_or_else(|| format!("`{}` is not sound: {errors:?}", pipeline.name))
    };
    Ok(Plan {
        before: app.constructor.as_ref().map(sequence).transpose()?,
        body: sequence(&app.pipeline)?,
        after: app.destructor.as_ref().map(sequence).transpose()?,
        phase: etude_core::failure::Phase::Business,
        fallback: None,
    })
}

fn start(app: &App) -> Start {
    let limits = Limits { timeout_ms: app.timeout_ms, ..Limits::default() };
    let input = Json::of(&Value::Object(app.input.clone()));
    Start { input, limits, ..Start::new(RUN_ID.to_owned()) }
}

/// An effect under way.
struct Running {
    id: EffectId,
    effect: Effect,
    ends: Time,
    /// End of an abandoned effect, unless its natural end comes first.
    gone: Option<Time>,
}

struct Driver {
    machine: Machine,
    world: World,
    now: Time,
    running: Vec<Running>,
    effects: Vec<reference::Effect>,
    /// Outcomes of earlier attempts that no effect has used yet.
    left: BTreeMap<EffectId, (Digest, Completed)>,
}

/// Runs an app to its end.
pub(crate) fn live(app: &App, plan: &Plan, world: World) -> Result<Lived, String> {
    let cancel = app.cancel_ms.map(|ms| ms * MS);
    Driver::new(Machine::new(plan, start(app)), world).run(cancel, Vec::new())
}

/// Runs another attempt at an unsuccessful run, in another world: successful parts of the pipeline are kept.
pub(crate) fn live_again(app: &App, plan: &Plan, world: World, before: &Lived) -> Result<Lived, String> {
    let remains = &before.result.remains;
    let number = before.result.attempt + 1;
    let scope = if remains.is_scope_over { number } else { before.scope };
    let attempt = Attempt::new(number, scope);
    let parts = before.restarts().into_iter().filter(|_| plan.asks_together());
    let restarts = parts.map(|part| (part, number)).collect();
    let start = Start { limits: Limits::default(), attempt, restarts, ..start(app) };
    let mut driver = Driver::new(Machine::new(plan, start), world);
    let root = &app.pipeline.name;
    let constructor = app.constructor.as_ref().filter(|_| scope != number).map(|constructor| constructor.name.as_str());
    let (mut kept, mut constructed) = (Vec::new(), Vec::new());
    for record in &before.records {
        let Record::Done(id, ..) = record else { continue };
        if is_below(id.as_str(), root) && !remains.covers(id.as_str()) && *id != time_budget(plan) {
            kept.push(record.clone());
        } else if constructor.is_some_and(|name| is_below(id.as_str(), name)) {
            constructed.push(record.clone());
        }
    }
    driver.go_on()?;
    driver.feed(constructed, Machine::complete)?;
    Ok(Lived { scope, ..driver.run(None, kept)? })
}

impl Driver {
    fn new(machine: Machine, world: World) -> Self {
        Self { machine, world, now: 0, running: Vec::new(), effects: Vec::new(), left: BTreeMap::new() }
    }

    /// Runs until nothing is under way. `kept` is fed once the constructor is over, in the order of the journal.
    fn run(mut self, mut cancel: Option<Time>, kept: Vec<Record>) -> Result<Lived, String> {
        let (mut records, mut points, mut kept) = (Vec::new(), Vec::new(), Some(kept));
        self.go_on()?;
        loop {
            if let Some(kept) = kept.take_if(|_| self.machine.is_past_constructor()) {
                self.feed(kept, Machine::complete_kept)?;
            }
            points.push(self.point());
            let Some(next) = self.next() else { break };
            let ends = self.running[next].gone.unwrap_or(Time::MAX).min(self.running[next].ends);
            let record = match cancel.filter(|cancel| *cancel <= ends) {
                Some(at) => {
                    (self.now, cancel) = (at, None);
                    self.machine.cancel("cancelled by the user");
                    Record::Cancel
                }
                None => self.end(next, ends)?,
            };
            records.push(record);
            self.go_on()?;
        }
        let result = self.machine.result().cloned();
        let result = result.ok_or("the run hangs: nothing is under way, and it has no result")?;
        if let Some((id, _)) = self.machine.outstanding().next() {
            return Err(format!("the run is over, and `{id}` is under way"));
        }
        Ok(Lived { result, effects: self.effects, scope: 1, records, points })
    }

    /// Completes effects with outcomes of earlier attempts.
    fn feed(&mut self, records: Vec<Record>, complete: fn(&mut Machine, &EffectId, Completed)) -> Result<(), String> {
        for record in records {
            let Record::Done(id, request, completed) = record else { continue };
            if self.machine.request(&id) == Some(request) {
                let at = self.running.iter().position(|running| running.id == id);
                let at = at.ok_or_else(|| format!("`{id}` is waited for, and is not under way"))?;
                self.running.remove(at);
                self.effects.retain(|effect| effect.id != id.as_str());
                complete(&mut self.machine, &id, *completed);
                self.go_on()?;
            } else {
                self.left.insert(id, (request, *completed));
            }
        }
        Ok(())
    }

    /// Executes the machine's commands until it has none.
    fn go_on(&mut self) -> Result<(), String> {
        loop {
            let commands = self.machine.poll();
            if commands.is_empty() {
                return Ok(());
            }
            for command in commands {
                match command {
                    Command::Start(id, effect) => self.start(id, effect)?,
                    Command::Abandon(id) => self.abandon(&id)?,
                    Command::Emit(_) => {}
                }
            }
        }
    }

    fn start(&mut self, id: EffectId, effect: Effect) -> Result<(), String> {
        if let Some((request, completed)) = self.left.remove(&id)
            && request == effect.digest()
        {
            self.machine.complete_kept(&id, completed);
            return Ok(());
        }
        if self.effects.iter().any(|known| known.id == id.as_str()) {
            return Err(format!("`{id}` is started twice"));
        }
        let asked = asked(&effect);
        let ends = self.now + self.world.duration(id.as_str(), &asked);
        self.effects.push(reference::Effect { id: id.to_string(), asked, begins: self.now, ends, is_given_up: false });
        self.running.push(Running { id, effect, ends, gone: None });
        Ok(())
    }

    /// Abandons an effect. One that is abandoned at the moment of its start has not begun: it ends at once.
    fn abandon(&mut self, id: &EffectId) -> Result<(), String> {
        let found = self.running.iter().position(|running| running.id == *id);
        let at = found.ok_or_else(|| format!("`{id}` is given up, and is not under way"))?;
        let effect = self.effects.iter_mut().find(|effect| effect.id == id.as_str()).expect("it is under way");
        let grace = if effect.begins == self.now { 0 } else { self.world.grace(id.as_str(), &effect.asked) };
        (effect.is_given_up, effect.ends) = (true, effect.ends.min(self.now + grace));
        if matches!(self.running[at].effect, Effect::Sleep { .. } | Effect::Gate(_)) {
            self.running.remove(at);
        } else {
            self.running[at].gone = Some(self.now + grace);
        }
        Ok(())
    }

    /// Index of the effect that ends next; of simultaneous ends, the one that began first.
    fn next(&self) -> Option<usize> {
        let end = |running: &Running| running.gone.unwrap_or(Time::MAX).min(running.ends);
        (0..self.running.len()).min_by_key(|at| end(&self.running[*at]))
    }

    fn end(&mut self, next: usize, at: Time) -> Result<Record, String> {
        self.now = at;
        let Running { id, effect, ends, .. } = self.running.remove(next);
        let ended = if at < ends { Ended::GivenUp } else { self.world.end(id.as_str(), &asked(&effect)) };
        let completed = Completed { outcome: outcome(&ended), elapsed_ms: 10 };
        // The outcome is converted to a record and back, like in a journal.
        let request = self.machine.request(&id).ok_or_else(|| format!("`{id}` is not waited for"))?;
        let written = record::of_outcome(&id, request, &completed, Some(&effect), 0);
        let blobs = FileBlobs::new(std::path::Path::new("/nonexistent"), false);
        let read = record::to_outcome(&written, &blobs).map_err(|why| format!("the record of `{id}`: {why}"))?;
        if read != completed {
            return Err(format!("`{id}` is read as {read:?} and was {completed:?}"));
        }
        self.machine.complete(&id, completed);
        Ok(Record::Done(id, request, Box::new(read)))
    }

    fn point(&self) -> Point {
        point(&self.machine, self.effects.len())
    }
}

fn point(machine: &Machine, started: usize) -> Point {
    Point { started, outstanding: machine.outstanding().map(|(id, digest)| (id.clone(), digest)).collect() }
}

impl Lived {
    /// Paths of the parts that another attempt restarts.
    pub(crate) fn restarts(&self) -> BTreeSet<String> {
        self.result.remains.unfinished.iter().cloned().collect()
    }

    /// Number of records in the journal.
    pub(crate) fn records(&self) -> usize {
        self.records.len()
    }

    /// Simulates a crash after `cut` records. Another process replays them and continues: its pending effects must be those
    /// that were under way, and the run must reach the same end by the same effects.
    pub(crate) fn survives(&self, app: &App, plan: &Plan, cut: usize) -> Result<(), String> {
        let mut machine = Machine::new(plan, start(app));
        let mut started = Vec::new();
        let go_on = |machine: &mut Machine, started: &mut Vec<String>| loop {
            let commands = machine.poll();
            if commands.is_empty() {
                break;
            }
            let starts = commands.into_iter().filter_map(|command| match command {
                Command::Start(id, _) => Some(id.to_string()),
                _ => None,
            });
            started.extend(starts);
        };
        go_on(&mut machine, &mut started);
        for (at, record) in self.records.iter().enumerate() {
            if at == cut && point(&machine, started.len()) != self.points[cut] {
                let found = point(&machine, started.len());
                return Err(format!("after {cut} records: {found:#?}\nand it was {:#?}", self.points[cut]));
            }
            match record {
                Record::Done(id, _, completed) => machine.complete(id, completed.as_ref().clone()),
                Record::Cancel => machine.cancel("cancelled by the user"),
            }
            // A replay polls after every record; a run may poll less often.
            go_on(&mut machine, &mut started);
        }
        if !self.effects.iter().map(|effect| &effect.id).eq(&started) {
            return Err(format!("after {cut} records and the rest: other effects: {started:?}"));
        }
        match machine.result() {
            Some(result) if *result == self.result => Ok(()),
            other => Err(format!("after {cut} records and the rest: {other:#?}\nand it was {:#?}", self.result)),
        }
    }
}

/// An effect in the terms of the model.
fn asked(effect: &Effect) -> Asked {
    match effect {
        Effect::Process(call) => process(call),
        Effect::Model(request) => model(request),
        Effect::Gate(gate) => Asked::Gate { message: gate.message.clone() },
        Effect::Sleep { ms, .. } => Asked::Timer { ms: *ms },
        other => panic!("no pipeline of this test asks for {other:?}"),
    }
}

fn process(call: &ProcessCall) -> Asked {
    let Program::Direct(words) = &call.command else { panic!("{:?} needs no shell", call.command) };
    let reads = match call.protocol {
        Protocol::Step => "step",
        Protocol::Document => "document",
        Protocol::Text => "text",
    };
    let (command, dir, env, key) = (words.join(" "), call.dir.clone(), call.env.clone(), call.key.clone());
    Asked::Process { command, dir, env, key, stdin: stdin(&call.stdin), reads }
}

fn stdin(stdin: &Stdin) -> String {
    let text = |chunk: &Chunk| match chunk {
        Chunk::Text(text) => Arc::clone(text),
        Chunk::Bytes(bytes) => String::from_utf8_lossy(bytes).into(),
        Chunk::Json(json) => json.text().expect("it is in memory"),
    };
    let text: String = stdin.0.iter().map(|chunk| text(chunk).to_string()).collect();
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|why| panic!("stdin is no JSON: {why}\n{text}"));
    plain(&value).to_string()
}

fn model(request: &Request) -> Asked {
    let text = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        other => panic!("no pipeline of this test sends {other:?}"),
    };
    let texts = |parts: &[Part]| parts.iter().map(text).collect::<String>();
    let turn = |message: &etude_core::model::Message| match message.role {
        // *(open)* the wording of a correction.
        Role::User if !texts(&message.parts).is_empty() => "user".to_owned(),
        role => format!("{}: {}", if role == Role::Assistant { "assistant" } else { "?" }, texts(&message.parts)),
    };
    let (first, rest) = request.messages.split_first().expect("a conversation has a message");
    Asked::Model {
        prompt: texts(&first.parts),
        turns: rest.iter().map(turn).collect(),
        schema: request.schema.as_ref().map(|schema| schema.schema.as_ref().clone()),
    }
}

/// A value whose errors contain only what the model knows: kind and step.
pub(crate) fn plain(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) if members.contains_key("code") && members.contains_key("kind") => {
            let step = if is_stop(&members["kind"]) { &json!("") } else { &members["step"] };
            json!({"kind": members["kind"], "step": step})
        }
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), plain(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

/// True for kinds of failures that end a run from outside: their step is open.
pub(crate) fn is_stop(kind: &Value) -> bool {
    ["cancelled", "budget_exceeded"].iter().any(|stop| kind == stop)
}

fn outcome(ended: &Ended) -> Outcome {
    let process = |exit, printed: Option<&Value>| {
        let stdout = match printed {
            Some(value) => Stdout::Value(Json::of(value)),
            None => Stdout::Unusable { problem: Stdout::EMPTY.to_owned(), found: String::new() },
        };
        let (stderr, conditions) = (Stderr::default(), Conditions::default());
        Outcome::Process(ProcessEnd { exit, stdout, stderr, conditions })
    };
    match ended {
        Ended::Exit { status, printed } => process(Exit::Status(*status), printed.as_ref()),
        Ended::Signal => process(Exit::Signal { number: 9, name: "SIGKILL".to_owned() }, None),
        Ended::NotStarted => process(Exit::NotStarted("no such file".to_owned()), None),
        Ended::Answer { text, .. } => response(text, Stop::End),
        Ended::Refusal => response("", Stop::Refusal("no".to_owned())),
        Ended::Cut => response("and th", Stop::Length),
        Ended::NoAnswer => {
            let (kind, message) = (CallFailureKind::Model, "HTTP 503".to_owned());
            Outcome::CallFailed(CallFailure { kind, message, model: None, transport_failures: Vec::new() })
        }
        Ended::Decided { approved } => Outcome::Decided(Decision {
            approved: *approved,
            answer: Json::null(),
            by: "ada".to_owned(),
            at: DECIDED_AT.to_owned(),
            reason: None,
        }),
        Ended::TimeUp => Outcome::Slept,
        Ended::GivenUp => Outcome::Abandoned,
    }
}

fn response(text: &str, stop: Stop) -> Outcome {
    let usage = Usage { calls: 1, input_tokens: 3, output_tokens: 2, ..Usage::default() };
    Outcome::Response(Box::new(ModelResponse {
        text: text.to_owned(),
        tool_calls: Vec::new(),
        stop,
        usage,
        model: "test/model".to_owned(),
        reasoning: None,
        transport_failures: Vec::new(),
    }))
}

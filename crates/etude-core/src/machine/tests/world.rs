//! The world of a test: executes the machine's commands by a script, and keeps the log.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::build::Case;
use super::{log, script};
use crate::effect::{Chunk, Effect, EffectId};
use crate::failure::Phase;
use crate::machine::{Command, Machine};
use crate::model::Request;
use crate::outcome::{Completed, Outcome};
use crate::report::Event;

/// An input of the machine.
#[derive(Debug, Clone)]
pub(super) enum Input {
    Complete(EffectId, String),
    Cancel,
    Kill,
    /// The run continues in another process.
    Resume,
    /// The machine is polled.
    Poll,
}

pub(super) struct World {
    pub(super) machine: Machine,
    pub(super) log: String,
    pub(super) history: Vec<Input>,
    /// Every started effect, in order.
    pub(super) started: Vec<(EffectId, Effect)>,
    /// Effects in progress, oldest first.
    pub(super) running: Vec<(EffectId, Effect)>,
    pub(super) given_up: BTreeSet<EffectId>,
    is_over: bool,
    /// True while outcomes are reported, but the machine is not polled.
    is_paused: bool,
}

impl World {
    pub(super) fn new(case: &Case) -> Self {
        Self {
            machine: Machine::new(&case.plan, case.start.clone()),
            log: String::new(),
            history: Vec::new(),
            started: Vec::new(),
            running: Vec::new(),
            given_up: BTreeSet::new(),
            is_over: false,
            is_paused: false,
        }
    }

    /// Executes the script, then the remaining effects, oldest first.
    #[track_caller]
    pub(super) fn run_effect(&mut self, script: &str) {
        let mut lines = script.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
        // A run can be stopped before its first poll.
        if !lines.peek().is_some_and(|line| ["cancel", "kill"].contains(line)) {
            self.emit(Input::Poll);
        }
        for line in lines {
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            match first {
                "cancel" => self.emit(Input::Cancel),
                "kill" => self.emit(Input::Kill),
                "resume" => self.emit(Input::Resume),
                "reach" => self.reach(rest),
                "pause" => {
                    self.is_paused = true;
                    continue;
                }
                "go_on" => self.is_paused = false,
                id => {
                    self.reach(id);
                    self.emit(Input::Complete(EffectId::new(id), rest.trim().to_owned()));
                }
            }
            if !self.is_paused {
                self.emit(Input::Poll);
            }
        }
        assert!(!self.is_paused, "a script that pauses must go on");
        while self.proceed() {}
        if self.machine.result().is_none() {
            let gates: Vec<_> =
                self.running.iter().filter(|(_, e)| matches!(e, Effect::Gate(_))).map(|(i, _)| i.as_str()).collect();
            assert!(!gates.is_empty(), "the run hangs with {:?}; log:\n{}", self.running, self.log);
            writeln!(self.log, "waiting for {}", gates.join(", ")).expect("text");
        }
    }

    /// Continues until that effect is in progress.
    #[track_caller]
    pub(super) fn reach(&mut self, id: &str) {
        while !self.running.iter().any(|(i, _)| i.as_str() == id) {
            assert!(self.proceed(), "`{id}` is never started; log:\n{}", self.log);
        }
    }

    /// Ends the oldest effect that does not wait for the script. False if there is none.
    fn proceed(&mut self) -> bool {
        let next = self.running.iter().find(|(id, effect)| self.given_up.contains(id) || ends_by_itself(effect));
        let Some((id, effect)) = next else { return false };
        let outcome = if self.given_up.contains(id) { "abandoned".to_owned() } else { script::default(id, effect) };
        self.emit(Input::Complete(id.clone(), outcome));
        self.emit(Input::Poll);
        true
    }

    /// True if the event of the phase's start is in the log.
    pub(super) fn has_begun(&self, phase: Phase) -> bool {
        let line = log::event(&Event::PhaseStarted(phase), &[]);
        self.log.lines().any(|logged| logged == line)
    }

    /// Repeats the inputs of a run, with every outcome delivered twice.
    pub(super) fn repeat(&mut self, history: &[Input]) {
        for input in history {
            self.emit(input.clone());
            if let Input::Complete(id, outcome) = input {
                self.machine.complete(id, script::outcome(outcome));
            }
        }
        if self.machine.result().is_none() {
            let gates: Vec<_> =
                self.running.iter().filter(|(_, e)| matches!(e, Effect::Gate(_))).map(|(i, _)| i.as_str()).collect();
            writeln!(self.log, "waiting for {}", gates.join(", ")).expect("text");
        }
    }

    pub(super) fn emit(&mut self, input: Input) {
        self.history.push(input.clone());
        match input {
            Input::Complete(id, outcome) => {
                writeln!(self.log, "done {id} {outcome}").expect("text");
                self.running.retain(|(i, _)| *i != id);
                self.machine.complete(&id, script::outcome(&outcome));
            }
            Input::Cancel => {
                writeln!(self.log, "cancel").expect("text");
                self.machine.cancel("cancelled by the user");
            }
            Input::Kill => {
                writeln!(self.log, "kill").expect("text");
                self.machine.kill("killed by the user");
            }
            Input::Resume => {
                writeln!(self.log, "resume").expect("text");
                self.machine.resume(self.machine.slots().clone());
            }
            Input::Poll => self.poll(),
        }
    }

    /// Executes the machine's commands until there are none left.
    fn poll(&mut self) {
        loop {
            let commands = self.machine.poll();
            if commands.is_empty() {
                break;
            }
            for command in commands {
                match command {
                    Command::Start(id, effect) => self.start(id, effect),
                    Command::Abandon(id) => self.abandon(id),
                    Command::Emit(event) => {
                        writeln!(self.log, "{}", log::event(&event, self.machine.rows())).expect("text");
                    }
                }
            }
        }
        if let Some(result) = self.machine.result().filter(|_| !self.is_over) {
            self.log.push_str(&log::result(result));
            self.is_over = true;
        }
    }

    fn start(&mut self, id: EffectId, effect: Effect) {
        assert!(!self.started.iter().any(|(i, _)| *i == id), "`{id}` is started twice; log:\n{}", self.log);
        writeln!(self.log, "start {id} {}", log::effect(&effect)).expect("text");
        self.started.push((id.clone(), effect.clone()));
        self.running.push((id, effect));
    }

    /// Abandons an effect. Timers and gates are gone at once; others still report their end.
    fn abandon(&mut self, id: EffectId) {
        writeln!(self.log, "abandon {id}").expect("text");
        assert!(self.given_up.insert(id.clone()), "`{id}` is given up twice; log:\n{}", self.log);
        assert!(self.started.iter().any(|(i, _)| *i == id), "`{id}` is given up without a start");
        if self.running.iter().any(|(i, e)| *i == id && matches!(e, Effect::Sleep { .. } | Effect::Gate(_))) {
            self.running.retain(|(i, _)| *i != id);
            self.machine.complete(&id, Completed { outcome: Outcome::Abandoned, elapsed_ms: 0 });
        }
    }

    /// The effect with this id.
    #[track_caller]
    pub(super) fn asked(&self, id: &str) -> &Effect {
        let found = self.started.iter().find(|(i, _)| i.as_str() == id);
        &found.unwrap_or_else(|| panic!("`{id}` was not started; log:\n{}", self.log)).1
    }

    /// The whole stdin of a process, as text.
    #[track_caller]
    pub(super) fn stdin(&self, id: &str) -> String {
        let Effect::Process(call) = self.asked(id) else { panic!("`{id}` is no process") };
        let text = |chunk: &Chunk| match chunk {
            Chunk::Text(text) => text.to_string(),
            Chunk::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Chunk::Json(json) => json.text().expect("a readable value").to_string(),
        };
        call.stdin.0.iter().map(text).collect()
    }

    /// The conversation of a model call.
    #[track_caller]
    pub(super) fn request(&self, id: &str) -> &Request {
        let Effect::Model(request) = self.asked(id) else { panic!("`{id}` is no model call") };
        request
    }
}

/// The lines of a log that are events.
pub(super) fn emitted(log: &str) -> String {
    log.lines().filter(|line| line.starts_with("emit ")).collect::<Vec<_>>().join("\n")
}

/// The events that these inputs give a machine of which no effect is executed, as lines of a log.
pub(super) fn observe(case: &Case, history: &[Input]) -> String {
    let mut machine = Machine::new(&case.plan, case.start.clone()).observed();
    let mut log = String::new();
    for input in history {
        match input {
            Input::Complete(id, outcome) => machine.complete(id, script::outcome(outcome)),
            Input::Cancel => machine.cancel("cancelled by the user"),
            Input::Kill => machine.kill("killed by the user"),
            Input::Resume => machine.resume(machine.slots().clone()),
            Input::Poll => {
                for command in machine.poll_all() {
                    match command {
                        Command::Start(id, _) => panic!("`{id}` is started"),
                        Command::Abandon(_) => {}
                        Command::Emit(event) => {
                            writeln!(log, "{}", log::event(&event, machine.rows())).expect("text");
                        }
                    }
                }
            }
        }
    }
    emitted(&log)
}

/// False for effects that wait for the script: deadlines and gates.
pub(super) fn ends_by_itself(effect: &Effect) -> bool {
    !matches!(effect, Effect::Gate(_) | Effect::Sleep { deadline: true, .. })
}

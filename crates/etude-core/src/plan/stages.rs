//! State machines of stages as pure data (`b-stages` §2 to §4, §20).

mod grants;
mod hook;
mod next;
mod slot;
mod value;

use std::sync::Arc;

use serde_json::Value;

use super::{Origin, growing};
use crate::data::Json;
use crate::effect::Command;
use crate::model::Tier;
use crate::placeholder::Body;
use crate::schema::Schema;

pub use grants::{GrantDecision, GrantRule, Grants};
pub use hook::{Assert, Exit, Gate, GateOutcome, Output, Setup, Verdict};
pub use next::{FanOutFault, Next, NextCase, NextRule};
pub use slot::{Drift, Slot, SlotForm, SlotForms};
pub use value::{Path, Root, Rule, Source, Test};

/// A machine: its stages, and who decides between them (B-M2).
#[derive(Debug, Clone)]
pub struct StageMachine {
    /// Its id, which is the name of its directory.
    pub id: String,
    /// Its directory, relative to the app's: where its scripts run.
    pub dir: String,
    /// The model that all its stages ask.
    pub tier: Tier,
    /// The stage that runs first.
    pub entry: String,
    /// In the order of `machine.yaml`; they run as their `next` says.
    pub stages: Vec<Arc<Stage>>,
    /// Its state slot (B-ST1).
    pub slot: Slot,
    /// What its model must be able to do besides calling tools (B-CN6).
    pub requires: Vec<String>,
    /// Who decides about calls outside a stage's envelope before a person is asked (B-GT3).
    pub grants: Grants,
    /// Programs that may deny a call that was approved (B-H1).
    pub guards: Vec<Guard>,
    /// Is notified when a fan-out was aborted (B-P10).
    pub on_failure: Option<Script>,
    /// More executions than this end the run (B-N8).
    pub max_executions: u32,
    /// What its scripts are shown as `machine.config`.
    pub config: Json,
    /// What the user's configuration says about all machines.
    pub policy: Policy,
    /// File and line of `machine.yaml`, for failures.
    pub origin: Origin,
}

impl StageMachine {
    /// The stage with this id, which is unique in the machine; `None`: there is none.
    pub fn stage(&self, id: &str) -> Option<&Arc<Stage>> {
        self.stages.iter().find(|stage| stage.id == id)
    }
}

/// What the user's configuration says about all machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// A join may stand outside the list that it joins (B-P5).
    pub join_outside_next_stages: bool,
    /// Scripts do not see the outputs of all earlier stages (B-20.4).
    pub strict_upstream: bool,
}

/// One stage (B-F2).
#[derive(Debug, Clone)]
pub struct Stage {
    /// Its id (B-F10).
    pub id: String,
    /// Its name for people (B-F11).
    pub name: String,
    /// What it is for (B-F20).
    pub description: String,
    /// Words for authors' filters (B-F22).
    pub tags: Vec<String>,
    /// The tools it may call, each once (B-F12).
    pub allowed_tools: Vec<String>,
    /// The name of its completion channel (B-F13).
    pub completion_tool: String,
    /// What a completion must be (B-F14).
    pub completion_schema: Arc<Schema>,
    /// What each predecessor's result must be (B-F21).
    pub inputs_schema: Option<Arc<Schema>>,
    /// Most attempts, the first one included (B-F15).
    pub max_attempts: u32,
    /// The wait before another attempt.
    pub backoff: Backoff,
    /// Most model turns of an attempt (B-F16).
    pub turn_cap: u32,
    /// What `defer` and `block` cause (B-F17).
    pub resolution: Resolution,
    /// Its frontmatter, with the members that placeholders `{{stage.…}}` need.
    pub front: Value,
    /// The prompt, with placeholders that `ctx` and the frontmatter fill.
    pub body: Body,
    /// Decides what the prompt's fields are.
    pub setup: Setup,
    /// Decides whether the stage runs now.
    pub gate: Gate,
    /// Judges the work.
    pub assert: Assert,
    /// Says what the stage hands on.
    pub exit: Exit,
    /// Says what comes next.
    pub next: NextRule,
    /// File and line of the stage, for failures.
    pub origin: Origin,
}

/// The wait between attempts (B-R6), in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Backoff {
    /// The first wait; 0: none.
    pub initial_ms: u64,
    /// Each further wait is longer by this factor.
    pub factor: f64,
    /// The longest wait.
    pub max_ms: u64,
}

impl Backoff {
    /// The wait after that attempt, counted from 1.
    pub fn after(&self, attempt: u32) -> u64 {
        growing(self.initial_ms, self.factor, self.max_ms, attempt) as u64
    }
}

crate::words! {
    /// What the gate outcomes `defer` and `block` cause (B-G5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Resolution {
        /// The stage waits for another try.
        RetryLater = "retry-later",
        /// The stage is skipped.
        Skip = "skip",
        /// The stage fails.
        Fail = "fail",
        /// A person decides.
        Ask = "ask",
    }
}

/// A program that a machine runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// What is run, in the machine's directory.
    pub command: Command,
    /// Longest time, in milliseconds.
    pub timeout_ms: u64,
}

/// A guard (B-11.3).
#[derive(Debug, Clone, PartialEq)]
pub struct Guard {
    /// The program, which reads a proposal and may deny it.
    pub script: Script,
    /// Where, relative to the app's directory.
    pub dir: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-R6: without jitter, growing, and never longer than its longest.
    #[test]
    fn waits_grow_up_to_their_longest() {
        let fixed = Backoff { initial_ms: 250, factor: 1.0, max_ms: 250 };
        assert_eq!([fixed.after(1), fixed.after(9)], [250, 250]);
        let growing = Backoff { initial_ms: 100, factor: 2.0, max_ms: 300 };
        assert_eq!([growing.after(1), growing.after(2), growing.after(3)], [100, 200, 300]);
        assert_eq!(Backoff::default().after(1), 0);
    }
}

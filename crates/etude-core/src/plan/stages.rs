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

/// A stage machine: its stages, and the rules for the order between them (B-M2).
#[derive(Debug, Clone)]
pub struct StageMachine {
    /// The machine's id, which is the name of its directory.
    pub id: String,
    /// Directory relative to the app's; the machine's scripts run there.
    pub dir: String,
    /// Tier of the model for all stages.
    pub tier: Tier,
    /// The stage that runs first.
    pub entry: String,
    /// The stages in the order of `machine.yaml`; they run in the order of their `next`.
    pub stages: Vec<Arc<Stage>>,
    /// The machine's state slot (B-ST1).
    pub slot: Slot,
    /// Capabilities that the model must have besides calling tools (B-CN6).
    pub requires: Vec<String>,
    /// Rules for calls outside a stage's envelope, applied before a person is asked (B-GT3).
    pub grants: Grants,
    /// Programs that may deny an approved call (B-H1).
    pub guards: Vec<Guard>,
    /// Script that is informed of an aborted fan-out (B-P10).
    pub on_failure: Option<Script>,
    /// Maximum number of stage executions; more end the run (B-N8).
    pub max_executions: u32,
    /// Value of `machine.config` for scripts.
    pub config: Json,
    /// The user's configuration of all machines.
    pub policy: Policy,
    /// File and line of `machine.yaml`, for failures.
    pub origin: Origin,
}

impl StageMachine {
    /// The stage with this id, which is unique in the machine; `None` if there is none.
    pub fn stage(&self, id: &str) -> Option<&Arc<Stage>> {
        self.stages.iter().find(|stage| stage.id == id)
    }
}

/// The user's configuration of all machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// True if a join may be outside the list that it joins (B-P5).
    pub join_outside_next_stages: bool,
    /// True if scripts do not receive the outputs of all earlier stages (B-20.4).
    pub strict_upstream: bool,
}

/// One stage (B-F2).
#[derive(Debug, Clone)]
pub struct Stage {
    /// The stage's id (B-F10).
    pub id: String,
    /// The stage's name for people (B-F11).
    pub name: String,
    /// The stage's purpose (B-F20).
    pub description: String,
    /// Words for authors' filters (B-F22).
    pub tags: Vec<String>,
    /// The tools that the stage may call, each once (B-F12).
    pub allowed_tools: Vec<String>,
    /// The name of the stage's completion channel (B-F13).
    pub completion_tool: String,
    /// Schema of a completion (B-F14).
    pub completion_schema: Arc<Schema>,
    /// Schema of each predecessor's result (B-F21).
    pub inputs_schema: Option<Arc<Schema>>,
    /// Maximum number of attempts, the first one included (B-F15).
    pub max_attempts: u32,
    /// The wait before another attempt.
    pub backoff: Backoff,
    /// Maximum number of model turns per attempt (B-F16).
    pub turn_cap: u32,
    /// Effect of the gate outcomes `defer` and `block` (B-F17).
    pub resolution: Resolution,
    /// The stage's frontmatter, with the members that placeholders `{{stage.…}}` need.
    pub front: Value,
    /// The prompt, with placeholders that `ctx` and the frontmatter fill.
    pub body: Body,
    /// Source of the values for the prompt's fields.
    pub setup: Setup,
    /// Decision whether the stage runs now.
    pub gate: Gate,
    /// Judgement of the work.
    pub assert: Assert,
    /// Source of the output for later stages.
    pub exit: Exit,
    /// Choice of the next stages.
    pub next: NextRule,
    /// File and line of the stage, for failures.
    pub origin: Origin,
    /// Places of its hooks, for failures.
    pub hooks: HookOrigins,
}

/// Places of the hooks of a stage in its machine's file; `None` for a hook that the file does not have.
#[derive(Debug, Clone, Default)]
pub struct HookOrigins {
    /// The place of `setup`.
    pub setup: Option<Origin>,
    /// The place of `gate`.
    pub gate: Option<Origin>,
    /// The place of `assert`.
    pub assert: Option<Origin>,
    /// The place of `exit`.
    pub exit: Option<Origin>,
    /// The place of `next`.
    pub next: Option<Origin>,
}

/// The wait between attempts (B-R6), in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Backoff {
    /// First wait; 0: none.
    pub initial_ms: u64,
    /// Factor by which each further wait is longer.
    pub factor: f64,
    /// Maximum wait.
    pub max_ms: u64,
}

impl Backoff {
    /// The wait after an attempt, counted from 1, in milliseconds.
    pub fn after(&self, attempt: u32) -> u64 {
        growing(self.initial_ms, self.factor, self.max_ms, attempt) as u64
    }
}

crate::words! {
    /// Effect of the gate outcomes `defer` and `block` (B-G5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Resolution {
        /// The stage waits for another attempt.
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
    /// The program to run, in the machine's directory.
    pub command: Command,
    /// Maximum time, in milliseconds.
    pub timeout_ms: u64,
}

/// A guard (B-11.3).
#[derive(Debug, Clone, PartialEq)]
pub struct Guard {
    /// The program, which reads a proposal and may deny it.
    pub script: Script,
    /// Working directory of the program, relative to the app's.
    pub dir: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-R6: waits grow without jitter, up to their maximum.
    #[test]
    fn waits_grow_up_to_their_longest() {
        let fixed = Backoff { initial_ms: 250, factor: 1.0, max_ms: 250 };
        assert_eq!([fixed.after(1), fixed.after(9)], [250, 250]);
        let growing = Backoff { initial_ms: 100, factor: 2.0, max_ms: 300 };
        assert_eq!([growing.after(1), growing.after(2), growing.after(3)], [100, 200, 300]);
        assert_eq!(Backoff::default().after(1), 0);
    }
}

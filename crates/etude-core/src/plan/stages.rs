//! State machines of stages as pure data (`b-stages` §2 to §4, §20).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Origin, growing};
use crate::condition::Op;
use crate::data::Json;
use crate::effect::Command;
use crate::model::Tier;
use crate::placeholder::Body;
use crate::schema::Schema;
use crate::template::Segment;

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
    /// The stages.
    pub stages: Vec<Arc<Stage>>,
    /// Its state slot (B-ST1).
    pub slot: Slot,
    /// What its model must be able to do besides calling tools (B-CN6).
    pub requires: Vec<String>,
    /// Who decides about calls outside a stage's envelope before a person is asked (B-GT3).
    pub grants: Grants,
    /// Programs that may deny a call that was approved (B-H1).
    pub guards: Vec<Guard>,
    /// Is told when a fan-out was aborted (B-P10).
    pub on_failure: Option<Script>,
    /// More executions than this end the run (B-N8).
    pub max_executions: u32,
    /// What its scripts are shown as `machine.config`.
    pub config: Json,
    /// What the user's configuration says about all machines.
    pub policy: Policy,
    /// Where it is defined.
    pub origin: Origin,
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
    /// Its frontmatter, as far as placeholders `{{stage.…}}` need it.
    pub front: Value,
    /// The prompt.
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
    /// Where it is defined.
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

/// What the gate outcomes `defer` and `block` cause (B-G5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// The stage waits for another try.
    RetryLater,
    /// The stage is skipped.
    Skip,
    /// The stage fails.
    Fail,
    /// A person decides.
    Ask,
}

impl Resolution {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::RetryLater, Self::Skip, Self::Fail, Self::Ask];

    /// The word in stage files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::RetryLater => "retry-later",
            Self::Skip => "skip",
            Self::Fail => "fail",
            Self::Ask => "ask",
        }
    }

    /// The policy that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.word() == word)
    }
}

/// A program that a machine runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// What is run, in the machine's directory.
    pub command: Command,
    /// Longest time, in milliseconds.
    pub timeout_ms: u64,
}

/// A guard (B-11.3).
#[derive(Debug, Clone, PartialEq)]
pub struct Guard {
    /// What is run.
    pub script: Script,
    /// Where, relative to the app's directory.
    pub dir: String,
}

/// Where a declarative hook takes a value from (B-20.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    /// The run's input.
    Input,
    /// The stage's context.
    Ctx,
    /// The data of the state slot.
    Slot,
    /// The results of the predecessors.
    Upstream,
    /// Ids of the run.
    Run,
    /// The completion's payload.
    Parsed,
    /// The stage's result.
    Result,
    /// What became of each attempt.
    Attempts,
    /// Whether the last attempt ended at the turn cap.
    CapHit,
}

impl Root {
    /// Every root with its word.
    pub const WORDS: [(&'static str, Self); 9] = [
        ("input", Self::Input),
        ("ctx", Self::Ctx),
        ("slot", Self::Slot),
        ("upstream", Self::Upstream),
        ("run", Self::Run),
        ("parsed", Self::Parsed),
        ("result", Self::Result),
        ("attempts", Self::Attempts),
        ("capHit", Self::CapHit),
    ];

    /// The word in machine files.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, root)| *root == self).map_or("", |(word, _)| word)
    }

    /// The root that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, root)| *root)
    }
}

/// A way to a value: a root, then members and elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Where it begins.
    pub root: Root,
    /// How it goes on.
    pub segments: Vec<Segment>,
}

/// A value of a declarative hook.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Written down.
    Literal(Value),
    /// Taken from the run; `null` where there is none.
    From(Path),
}

/// One comparison of `when`.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// What is compared.
    pub path: Path,
    /// How.
    pub op: Op,
    /// With what.
    pub literal: Value,
}

/// A case of a declarative gate or assert: the first whose tests all hold decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule<T> {
    /// All must hold; none: always.
    pub when: Vec<Test>,
    /// What is decided.
    pub then: T,
    /// Why.
    pub reason: Option<String>,
}

/// Who fills the context.
#[derive(Debug, Clone, PartialEq)]
pub enum Setup {
    /// These fields.
    Set(Vec<(String, Source)>),
    /// A script.
    Script(Script),
}

/// What a gate says (B-G1, B-G2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateOutcome {
    /// The stage runs.
    Proceed,
    /// Not now.
    Defer,
    /// It must not.
    Block,
}

impl GateOutcome {
    /// Every outcome.
    pub const ALL: [Self; 3] = [Self::Proceed, Self::Defer, Self::Block];

    /// The word in machine files and scripts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Proceed => "proceed",
            Self::Defer => "defer",
            Self::Block => "block",
        }
    }

    /// The outcome that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.word() == word)
    }
}

/// Who decides whether a stage runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Gate {
    /// The first rule that holds; none: it runs (B-G4).
    Rules(Vec<Rule<GateOutcome>>),
    /// A script.
    Script(Script),
}

/// What becomes of a stage (B-R2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its work is good.
    Ok,
    /// Once more.
    Retry,
    /// Its work is not good.
    Fail,
    /// It was passed over.
    Skip,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Retry, Self::Fail, Self::Skip];

    /// The word in machine files and scripts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Retry => "retry",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }

    /// The verdict that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.word() == word)
    }
}

/// Who judges the work.
#[derive(Debug, Clone, PartialEq)]
pub enum Assert {
    /// The first rule that holds; none: `retry` after the cap, else `ok` (B-R3).
    Rules(Vec<Rule<Verdict>>),
    /// A validator as llm steps have it.
    Validate(Script),
    /// A script.
    Script(Script),
}

/// Who says what a stage hands on.
#[derive(Debug, Clone, PartialEq)]
pub enum Exit {
    /// Values.
    Values {
        /// The result's `output`.
        output: Option<Output>,
        /// Members that are laid over the slot's data.
        slot: Vec<(String, Source)>,
    },
    /// A script.
    Script(Script),
}

/// A declarative `output`.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// An object with these members.
    Members(Vec<(String, Source)>),
    /// One value.
    Whole(Source),
}

/// Who says what comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum NextRule {
    /// The first case that holds.
    Cases(Vec<NextCase>),
    /// A script.
    Script(Script),
}

/// A case of a declarative `next`.
#[derive(Debug, Clone, PartialEq)]
pub struct NextCase {
    /// All must hold; none: always (`else`).
    pub when: Vec<Test>,
    /// What comes next.
    pub next: Next,
}

/// What comes after a stage (B-N1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Terminal,
    /// These stages, one after the other.
    Sequential(Vec<String>),
    /// These stages at once, then possibly one that joins them.
    Parallel {
        /// The siblings, in order, without the join.
        siblings: Vec<String>,
        /// Runs if all siblings succeeded.
        join: Option<String>,
    },
}

impl Next {
    /// One word for the kind.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Terminal => "terminate",
            Self::Sequential(_) => "sequential",
            Self::Parallel { .. } => "parallel",
        }
    }

    /// Every stage that it names, the join last.
    pub fn targets(&self) -> Vec<&str> {
        match self {
            Self::Terminal => Vec::new(),
            Self::Sequential(list) => list.iter().map(String::as_str).collect(),
            Self::Parallel { siblings, join } => siblings.iter().chain(join).map(String::as_str).collect(),
        }
    }
}

/// Why a fan-out makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FanOutFault {
    /// It has fewer than two entries (B-P3).
    TooFew,
    /// Its join is not in its list (B-P4).
    DanglingJoin,
    /// A stage is named twice.
    Twice,
}

impl Next {
    /// A fan-out from its list and its join, which stands in the list unless `outside` (B-P4, B-P5).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parallel(list: Vec<String>, join: Option<String>, outside: bool) -> Result<Self, FanOutFault> {
        let is_inside = join.as_ref().is_some_and(|join| list.contains(join));
        if join.is_some() && !is_inside && !outside {
            return Err(FanOutFault::DanglingJoin);
        }
        if list.len() < 2 {
            return Err(FanOutFault::TooFew);
        }
        if (1..list.len()).any(|at| list[..at].contains(&list[at])) {
            return Err(FanOutFault::Twice);
        }
        let siblings = list.into_iter().filter(|stage| Some(stage) != join.as_ref()).collect();
        Ok(Self::Parallel { siblings, join })
    }
}

/// The state slot of a machine (B-14).
#[derive(Debug, Clone)]
pub struct Slot {
    /// The version of its form.
    pub version: String,
    /// What its data must be.
    pub schema: Arc<Schema>,
    /// What happens to data of another version (B-ST3).
    pub drift: Drift,
}

/// What happens to the data of an older slot.
#[derive(Debug, Clone, PartialEq)]
pub enum Drift {
    /// The run stops.
    Reject,
    /// It is taken as it is.
    Warn,
    /// A script changes it.
    Migrate(Script),
}

impl Drift {
    /// The word in machine files.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Warn => "warn",
            Self::Migrate(_) => "migrate",
        }
    }
}

/// The form of the data that a machine keeps: what a run goes on with may be of another (B-ST3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotForm {
    /// Its version.
    pub version: String,
    /// The word for what happens to data of another version.
    pub drift: String,
}

/// The forms of all slots of a plan, by the ids of their machines.
pub type SlotForms = BTreeMap<String, SlotForm>;

impl Slot {
    /// Its form.
    pub fn form(&self) -> SlotForm {
        SlotForm { version: self.version.clone(), drift: self.drift.word().to_owned() }
    }
}

/// Who decides about calls outside the envelope (B-GT3).
#[derive(Debug, Clone, PartialEq)]
pub enum Grants {
    /// The first rule that fits and is not used up; none: a person is asked.
    Rules(Vec<GrantRule>),
    /// A script.
    Script(Script),
}

/// A rule about calls outside the envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRule {
    /// The stage; `None`: any.
    pub stage: Option<String>,
    /// The tool.
    pub tool: String,
    /// What is decided.
    pub decision: GrantDecision,
    /// How often it decides in one run; `None`: always.
    pub times: Option<u32>,
}

/// What a policy says about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantDecision {
    /// Once, yes.
    Approve,
    /// No.
    Deny,
    /// A person decides.
    Defer,
}

impl GrantDecision {
    /// Every decision.
    pub const ALL: [Self; 3] = [Self::Approve, Self::Deny, Self::Defer];

    /// The word in machine files and scripts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Defer => "defer",
        }
    }

    /// The decision that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decision| decision.word() == word)
    }
}

impl StageMachine {
    /// The stage of that id.
    pub fn stage(&self, id: &str) -> Option<&Arc<Stage>> {
        self.stages.iter().find(|stage| stage.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    /// B-P3, B-P4, B-P5: the join stands in the list and is no sibling; a list has at least two entries.
    #[test]
    fn a_fan_out_is_built_only_if_it_makes_sense() {
        let parallel =
            |list: &[&str], join: Option<&str>, outside| Next::parallel(names(list), join.map(str::to_owned), outside);
        let with_join = Next::Parallel { siblings: names(&["a", "b"]), join: Some("j".into()) };
        assert_eq!(parallel(&["a", "b", "j"], Some("j"), false), Ok(with_join.clone()));
        assert_eq!(parallel(&["a", "b"], Some("j"), true), Ok(with_join));
        assert_eq!(parallel(&["a", "b"], Some("j"), false), Err(FanOutFault::DanglingJoin));
        assert_eq!(parallel(&["a"], None, false), Err(FanOutFault::TooFew));
        assert_eq!(parallel(&["a", "a"], None, false), Err(FanOutFault::Twice));
        assert!(parallel(&["a", "j"], Some("j"), false).is_ok());
    }

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

//! Report of a run from the plan and the input alone: nothing is started and no one is asked.

mod json;
mod known;
mod walk;

use std::ops::AddAssign;

use etude_core::data::Json;
use etude_core::effect::{Command, Sandbox};
use etude_core::failure::Phase;
use etude_core::machine::Limits;
use etude_core::model::Tier;
use etude_core::plan::{OnTimeout, Origin, Plan};
use etude_core::report::number;
use etude_models::Price;

/// Price of the model that stands for a tier; `None` if it is unknown.
pub type PriceOf<'a> = &'a dyn Fn(Tier) -> Option<Price>;

/// Facts about a run that are known before it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct DryRun {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Input of the run: a JSON object.
    pub input: Json,
    /// Every step in the order in which it runs; steps of a group or of another pipeline follow the step that holds them.
    pub steps: Vec<StepFacts>,
    /// Upper bounds of the cost of the run.
    pub worst_case: WorstCase,
}

/// Facts about one step that are known before the run.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFacts {
    /// Phase of the run in which the step runs.
    pub phase: Phase,
    /// Names of the steps that contain it, outermost first.
    pub inside: Vec<String>,
    /// Name of the step, unique in its pipeline.
    pub name: String,
    /// The kind of step, with the members of the kind.
    pub work: Work,
    /// The condition under which it runs.
    pub when: Option<When>,
    /// The condition that must hold before it starts.
    pub require: Option<When>,
    /// The array over whose elements it is repeated.
    pub for_each: Option<Repeat>,
    /// Maximum time for all its attempts, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// True if an earlier output may be reused.
    pub is_cached: bool,
    /// True if it changes the outside world.
    pub has_effects: bool,
    /// File and line of the step.
    pub origin: Origin,
    /// Upper bounds of the cost of the step, with all repetitions and retries. The steps inside it have their own.
    pub worst_case: WorstCase,
    /// Derivation of these bounds, if the step asks a model.
    pub bound: Option<Bound>,
}

/// Derivation of a step's worst case: elements × calls × tokens × price.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// Maximum number of executions of the step, for all elements of every `for_each` around it.
    pub elements: u64,
    /// Completions of a model for each execution, retries included.
    pub calls: u64,
    /// Maximum number of tokens of one completion.
    pub max_tokens: Option<u32>,
    /// Price of a million of these tokens, in US dollars.
    pub usd_per_million: Option<f64>,
    /// Facts that are unknown before the run, a sentence each.
    pub unknown: Vec<String>,
}

/// Condition in words, with its value if the input alone decides it.
#[derive(Debug, Clone, PartialEq)]
pub struct When {
    /// The condition in words.
    pub text: String,
    /// True if it holds, false if not; `None` if the input alone does not decide that.
    pub holds: Option<bool>,
}

/// Repetition of a step by `for_each`.
#[derive(Debug, Clone, PartialEq)]
pub struct Repeat {
    /// Reference to the array.
    pub items: String,
    /// Number of elements of the array; `None` if it is unknown.
    pub count: Option<u64>,
    /// Maximum number of elements. With more, the step fails before anything runs.
    pub max_items: u64,
    /// Maximum number of elements that run at once.
    pub max_parallel: u64,
}

/// The kind of a step, with its members rendered where values are known.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Runs a program.
    Code {
        /// The program or line of shell text.
        command: Command,
        /// Working directory, relative to the app's directory.
        dir: String,
        /// Additional variables, rendered with the known values.
        env: Vec<(String, String)>,
        /// The schema of its output.
        schema: Option<String>,
        /// Maximum number of retries after a failure or a rejected completion.
        retry: u32,
        /// The sandbox, with paths rendered with the known values.
        sandbox: Option<Box<Sandbox>>,
    },
    /// Asks a model.
    Llm(Box<Question>),
    /// Calls a tool.
    Tool {
        /// Name of the tool, as agents know it.
        tool: String,
        /// Arguments by name: JSON if the value is known, otherwise in written form.
        args: Vec<(String, String)>,
    },
    /// Runs a command of an application.
    Application {
        /// The slug of the application.
        application: String,
        /// The words of the command, such as `box list`.
        command: String,
        /// Arguments, rendered with the known values.
        args: Vec<String>,
    },
    /// Goes through the stages of a machine.
    Machine {
        /// The machine's id.
        machine: String,
        /// The capability level.
        tier: Tier,
        /// The ids of its stages, in the order of `machine.yaml`.
        stages: Vec<String>,
        /// Maximum number of executions of stages.
        max_executions: u32,
        /// True for a single stage.
        is_stage: bool,
    },
    /// Follows a skill with a model that calls tools.
    Skill {
        /// The skill's name.
        skill: String,
        /// The capability level.
        tier: Tier,
        /// Prompt of the agent, rendered with the known values.
        prompt: String,
        /// Tools that it may call; `None` permits all available tools.
        allowed: Option<Vec<String>>,
        /// The schema of the answer.
        schema: Option<String>,
        /// Maximum number of completions of the model.
        max_turns: u32,
    },
    /// Runs the steps that follow it at the same time.
    Parallel {
        /// Maximum number of steps at once; `None` for all.
        max_parallel: Option<u64>,
    },
    /// Runs the steps of another pipeline, which follow it.
    Pipeline {
        /// The name of the other pipeline.
        name: String,
        /// Input of the other pipeline: JSON if it is known, otherwise the reference.
        input: Vec<(String, String)>,
    },
    /// Waits for a person.
    Approval {
        /// Message to the person, rendered with the known values.
        message: String,
        /// The schema of a structured answer.
        schema: Option<String>,
        /// People who may answer; empty permits anyone.
        approvers: Vec<String>,
        /// Action when `timeout_ms` passes.
        on_timeout: OnTimeout,
    },
}

/// Question to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The capability level.
    pub tier: Tier,
    /// The system prompt, rendered with the known values.
    pub system: Option<String>,
    /// The prompt, rendered with the known values.
    pub prompt: String,
    /// Images, as paths relative to the pipeline's directory.
    pub images: Vec<String>,
    /// The schema of the answer.
    pub schema: Option<String>,
    /// The content validator: the path of a script, or a command.
    pub validate: Option<String>,
    /// Maximum number of retries after a rejected completion.
    pub retry: u32,
    /// Maximum number of tokens of a completion.
    pub max_tokens: Option<u32>,
}

/// Upper bounds of the cost of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorstCase {
    /// Number of completions of models. Retries of the transport do not count.
    pub model_calls: u64,
    /// Number of tokens that models write; `None` if a step that asks one has no `max_tokens`.
    pub max_output_tokens: Option<u64>,
    /// US dollars for those tokens; `None` if their number or a price is unknown. Tokens that models read cost extra: their
    /// number depends on earlier outputs.
    pub cost_usd: Option<f64>,
}

impl Default for WorstCase {
    /// No call, and so no token and no cost.
    fn default() -> Self {
        Self { model_calls: 0, max_output_tokens: Some(0), cost_usd: Some(0.0) }
    }
}

impl AddAssign for WorstCase {
    fn add_assign(&mut self, other: Self) {
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.max_output_tokens = self.max_output_tokens.zip(other.max_output_tokens).map(|(a, b)| a.saturating_add(b));
        self.cost_usd = self.cost_usd.zip(other.cost_usd).map(|(a, b)| a + b);
    }
}

/// Maximum size of the rendered texts of a dry run, in bytes. Further text is cut, and further values count as unknown.
const MAX_TEXT: usize = 16 << 20;

/// Facts about a run of `plan` with `input`, a JSON object that fits its pipeline.
pub fn of(plan: &Plan, input: &Json, prices: Option<PriceOf<'_>>) -> DryRun {
    let mut walk = walk::Walk { steps: Vec::new(), prices };
    let known = known::Known::all(input, &std::rc::Rc::new(std::cell::Cell::new(MAX_TEXT)));
    let phases = [
        (plan.before.as_ref(), Phase::Constructor),
        (Some(&plan.body), plan.phase),
        (plan.fallback.as_ref().map(|fallback| &fallback.sequence), Phase::Skill),
        (plan.after.as_ref(), Phase::Destructor),
    ];
    for (sequence, phase) in phases {
        if let Some(sequence) = sequence {
            walk.sequence(sequence, &known, &walk::Place { phase, inside: Vec::new(), times: 1, unknown: Vec::new() });
        }
    }
    let mut worst_case = WorstCase::default();
    walk.steps.iter().for_each(|step| worst_case += step.worst_case);
    DryRun { pipeline: plan.body.name.clone(), input: input.clone(), steps: walk.steps, worst_case }
}

impl WorstCase {
    /// Comparison of the worst case with the limits of the run, a sentence fragment for each limit.
    pub fn against(&self, limits: &Limits) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(most) = limits.max_tokens.filter(|_| self.model_calls > 0) {
            notes.push(match self.max_output_tokens {
                None => format!(
                    "cannot check the limit of {most} tokens: set `max_tokens` in every llm step"
                ),
                Some(written) if written > most => {
                    format!(
                        "the run may write {written} output tokens, more than the {most} of --max-tokens; it would stop there"
                    )
                }
                Some(written) => format!(
                    "at most {written} of the {most} tokens of --max-tokens are output; the rest is for input"
                ),
            });
        }
        if let Some(most) = limits.max_cost_usd.filter(|_| self.model_calls > 0) {
            notes.push(match self.cost_usd {
                None => format!("cannot check the limit of ${most}: the check requires `max_tokens` in every llm step, and known prices"),
                Some(cost) if cost > most => {
                    format!("output tokens may cost ${cost:.4}, more than the ${most} of --max-cost; the run would stop there")
                }
                Some(cost) => format!("output tokens cost at most ${cost:.4} of the ${most} of --max-cost; the rest is for input tokens"),
            });
        }
        notes
    }
}

impl Bound {
    /// Derivation in words: `51 elements × 4 calls × ≤ 2,000 output tokens × $15 per million`.
    pub fn text(&self) -> String {
        let count = |n: u64, word: &str| format!("{} {word}{}", number(n), if n == 1 { "" } else { "s" });
        let mut text = format!("{} × {}", count(self.elements, "element"), count(self.calls, "call"));
        if let Some(tokens) = self.max_tokens {
            text.push_str(&format!(" × ≤ {} output tokens", number(u64::from(tokens))));
        }
        if let Some(usd) = self.usd_per_million {
            text.push_str(&format!(" × ${usd} per million"));
        }
        text
    }
}

#[cfg(test)]
mod tests;

//! A pipeline file after reading: values with their places, before anything is resolved.

use etude_core::condition::Condition;
use etude_core::effect::{Command, Protocol, Worker};
use etude_core::model::Tier;
use etude_core::plan::{Binding, CodeRetry, OnFailure, OnTimeout, Requirement, SandboxRules};
use etude_core::template::{Reference, Template};

use crate::input::InputDecl;
use crate::source::Span;
use crate::yaml::{Node, Text};

/// Contents of a pipeline file.
pub(crate) struct Definition<'n> {
    pub(crate) description: String,
    pub(crate) triggers: Vec<String>,
    pub(crate) input: InputDecl,
    pub(crate) steps: Vec<StepDef<'n>>,
    pub(crate) output: Option<Text<'n>>,
    /// Span of the setting that a deviation leads to skill mode; `None` without it.
    pub(crate) fallback: Option<Span>,
}

/// A step as written: fields of its type in `body`, the common ones here.
pub(crate) struct StepDef<'n> {
    /// Name of the step; empty if it is missing.
    pub(crate) name: &'n str,
    /// Span of the name, or of the first key.
    pub(crate) at: Span,
    pub(crate) node: &'n Node<'n>,
    pub(crate) body: Body<'n>,
    pub(crate) when: Option<Condition>,
    pub(crate) require: Option<Requirement>,
    pub(crate) for_each: Option<ForEachDef>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) cache: Option<CacheDef>,
    pub(crate) effects: bool,
    pub(crate) schema: Option<SchemaDef<'n>>,
    pub(crate) validate: Option<ValidatorDef<'n>>,
    /// All templates of the step that have references, for the checks of names and paths.
    pub(crate) uses: Vec<TemplateUse<'n>>,
    /// All texts of the step that are templates, with or without references, by their fields.
    pub(crate) texts: Vec<(&'static str, &'n Node<'n>)>,
}

#[derive(Clone, Copy)]
pub(crate) enum SchemaDef<'n> {
    /// The path of a file.
    File(Text<'n>),
    /// The schema itself.
    Inline(&'n Node<'n>),
}

/// Validator of an answer's content.
pub(crate) enum ValidatorDef<'n> {
    /// The path of a script.
    Script(Text<'n>),
    /// A command; `None` if it is invalid, which is reported.
    Command { command: Option<Command>, node: &'n Node<'n> },
}

pub(crate) struct ForEachDef {
    pub(crate) items: Reference,
    pub(crate) max_parallel: usize,
    pub(crate) max_items: usize,
    pub(crate) collect: bool,
}

pub(crate) struct CacheDef {
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) key: Option<Template>,
}

/// The part of a step that depends on its type.
pub(crate) enum Body<'n> {
    Code(CodeDef<'n>),
    Llm(Box<LlmDef<'n>>),
    Parallel {
        steps: Vec<StepDef<'n>>,
        max_parallel: Option<usize>,
        on_failure: OnFailure,
    },
    Pipeline {
        pipeline: Option<Text<'n>>,
        input: Vec<BindingDef<'n>>,
    },
    Approval(Box<ApprovalDef>),
    Skill(Box<SkillDef<'n>>),
    Application {
        application: Option<Text<'n>>,
        command: Option<Text<'n>>,
        args: Vec<Template>,
    },
    Tool {
        tool: Option<Text<'n>>,
        args: Vec<BindingDef<'n>>,
    },
    /// A stage machine by its id, or a stage by its file.
    Machine {
        of: Option<Text<'n>>,
        is_stage: bool,
        input: Vec<BindingDef<'n>>,
    },
    /// The type is missing or unknown.
    Unknown,
}

pub(crate) struct CodeDef<'n> {
    pub(crate) command: Option<Command>,
    pub(crate) command_node: Option<&'n Node<'n>>,
    pub(crate) protocol: Protocol,
    pub(crate) env: Vec<(String, Template)>,
    pub(crate) env_from: Vec<(String, String)>,
    pub(crate) allow_exit: Vec<i32>,
    pub(crate) retry: Option<CodeRetry>,
    pub(crate) worker: Option<Worker>,
    pub(crate) sandbox: Option<SandboxRules>,
}

pub(crate) struct LlmDef<'n> {
    pub(crate) tier: Tier,
    pub(crate) system: Option<Template>,
    pub(crate) prompt: Option<Template>,
    pub(crate) retry: u32,
    pub(crate) temperature: Option<f64>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) cache_prompt: bool,
    pub(crate) images: Vec<(Template, Text<'n>)>,
    pub(crate) choose: Option<ChooseDef>,
}

/// A closed question: a choice from a list.
pub(crate) struct ChooseDef {
    pub(crate) from: Reference,
    pub(crate) by: Option<String>,
    pub(crate) many: bool,
    pub(crate) always: bool,
}

pub(crate) struct ApprovalDef {
    pub(crate) message: Option<Template>,
    pub(crate) approvers: Vec<String>,
    pub(crate) on_timeout: OnTimeout,
    pub(crate) continue_on_deny: bool,
}

pub(crate) struct SkillDef<'n> {
    pub(crate) skill: Option<Text<'n>>,
    pub(crate) tier: Tier,
    pub(crate) request: Option<Template>,
    pub(crate) allowed: Option<Vec<String>>,
    pub(crate) max_turns: u32,
}

/// An argument for another pipeline.
pub(crate) struct BindingDef<'n> {
    pub(crate) name: Text<'n>,
    pub(crate) value: Binding,
    pub(crate) at: Span,
}

/// A template with its node, to find its places in the file.
pub(crate) struct TemplateUse<'n> {
    pub(crate) field: &'static str,
    pub(crate) node: &'n Node<'n>,
    pub(crate) template: Template,
    /// True if the template is filled in once per element, by a `for_each` of the step itself as well.
    pub(crate) per_element: bool,
    /// True if a missing value is allowed (`exists`), so paths are not checked.
    pub(crate) may_be_missing: bool,
}

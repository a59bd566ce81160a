//! Failures of a run: facts, with one kind per cause. Each kind has its code and its exit status.

use crate::data::Json;
use crate::outcome::Stderr;
use crate::plan::Origin;

crate::words! {
    /// The class of a failure. The word is contract (`design: cli`, "`kind` words"). In the order of the codes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum FailureKind {
        /// A process failed.
        StepFailed = "step_failed",
        /// A process printed something that breaks its protocol, or output that breaks its schema.
        StepOutputInvalid = "step_output_invalid",
        /// A step took too long.
        StepTimeout = "step_timeout",
        /// A template or condition refers to a value that does not exist.
        TemplateUnresolved = "template_unresolved",
        /// A person denied an approval.
        ApprovalDenied = "approval_denied",
        /// A `require` does not hold.
        Deviated = "deviated",
        /// A model could not be reached, or sent an empty response.
        ModelError = "model_error",
        /// A model declined.
        ModelRefused = "model_refused",
        /// A model's responses were rejected until no retry was left.
        ValidationExhausted = "validation_exhausted",
        /// A model's response was cut off.
        ModelTruncated = "model_truncated",
        /// A content validator failed instead of judging.
        ValidatorBroken = "validator_broken",
        /// The input does not fit the pipeline.
        InputInvalid = "input_invalid",
        /// No pipeline fits the request.
        NoPipelineMatched = "no_pipeline_matched",
        /// Money, tokens or time ran out.
        BudgetExceeded = "budget_exceeded",
        /// The run was cancelled.
        Cancelled = "cancelled",
        /// The run stayed queued for too long and never began.
        QueueExpired = "queue_expired",
        /// A stage could not be executed; class and code of system B are in the details.
        StageError = "stage_error",
        /// The last stage of a machine failed.
        StageFailed = "stage_failed",
        /// A definition does not hold.
        DefinitionInvalid = "definition_invalid",
        /// The user's environment is at fault.
        Environment = "environment",
        /// A defect of `etude` itself.
        Internal = "internal",
    }
}

impl FailureKind {
    /// Error code, as `etude explain` knows it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::StepFailed => "R0101",
            Self::StepOutputInvalid => "R0102",
            Self::StepTimeout => "R0103",
            Self::TemplateUnresolved => "R0104",
            Self::ApprovalDenied => "R0105",
            Self::Deviated => "R0106",
            Self::ModelError => "R0201",
            Self::ModelRefused => "R0202",
            Self::ValidationExhausted => "R0203",
            Self::ModelTruncated => "R0204",
            Self::ValidatorBroken => "R0205",
            Self::InputInvalid => "R0301",
            Self::NoPipelineMatched => "R0302",
            Self::BudgetExceeded => "R0401",
            Self::Cancelled => "R0402",
            Self::QueueExpired => "R0403",
            Self::StageError => "R0501",
            Self::StageFailed => "R0502",
            Self::DefinitionInvalid => "P0000",
            Self::Environment => "E0101",
            Self::Internal => "B0001",
        }
    }
}

crate::words! {
    /// The part of a run in which an event happened.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Phase {
        /// While the steps of `_constructor` run.
        Constructor = "constructor",
        /// In the business pipeline.
        Business = "business",
        /// While the steps of `_destructor` run.
        Destructor = "destructor",
        /// While a request is routed.
        Routing = "routing",
        /// In skill mode.
        Skill = "skill",
    }
}

crate::words! {
    /// Reason why a run deviates from its pipeline (L-50).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Reason {
        /// A `require` does not hold.
        Require = "require",
        /// A `require` does not hold that reads the answer to a permission question.
        NotAllowed = "not_allowed",
        /// No element of a list was chosen.
        ChooseNone = "choose_none",
        /// The list to choose from is empty.
        ChooseEmpty = "choose_empty",
        /// Two elements of the list have the same label.
        ChooseAmbiguous = "choose_ambiguous",
        /// Every answer was outside the list, until no retry was left.
        ChooseExhausted = "choose_exhausted",
        /// A tool failed.
        ToolError = "tool_error",
        /// A call of a tool was denied.
        Denied = "denied",
        /// A template refers to a value that does not exist.
        FieldMissing = "field_missing",
        /// A value has another type than the step needs.
        FieldType = "field_type",
        /// A model did not confirm a write (L-64).
        NotConfirmed = "not_confirmed",
        /// The source of a value is not known: a `require` that reads the step `open_hole` does not hold (L-22).
        OpenHole = "open_hole",
    }
}

/// A reason why a run failed: an entry of `errors` in the result document.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The class, which decides the code and the exit status.
    pub kind: FailureKind,
    /// Part of the run; set by the scope that catches the failure.
    pub phase: Option<Phase>,
    /// The name of the step at fault; `None` if no step is.
    pub step: Option<String>,
    /// The event, as a sentence fragment that stands alone.
    pub message: String,
    /// Place of the step's definition.
    pub origin: Option<Origin>,
    /// Exit status of the process, if it had one.
    pub exit_status: Option<i32>,
    /// Name of the signal that killed the process.
    pub signal: Option<String>,
    /// Output of the process on stderr.
    pub stderr: Option<Stderr>,
    /// Every attempt of the step, in order.
    pub attempts: Vec<Attempt>,
    /// Duration of the failed effect, in milliseconds.
    pub elapsed_ms: Option<u64>,
    /// Further facts for programs: a JSON object.
    pub details: Option<Json>,
    /// Index of the element of a `for_each` that failed, the outermost of several. Published as `details.item`.
    pub item: Option<usize>,
    /// Reason why the run deviates here, if its pipeline says `fallback: skill` (L-67).
    pub reason: Option<Reason>,
    /// Failures of siblings that a group with `on_failure: wait` allowed to end, in the order of the plan. The result
    /// of a run lists them after this one.
    pub siblings: Vec<Self>,
}

impl Failure {
    /// A failure without phase, step and process; the callers that know them add them.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            phase: None,
            step: None,
            message: message.into(),
            origin: None,
            exit_status: None,
            signal: None,
            stderr: None,
            attempts: Vec::new(),
            elapsed_ms: None,
            details: None,
            item: None,
            reason: None,
            siblings: Vec::new(),
        }
    }

    /// This failure, then the failures of its siblings, each on its own and in the same phase.
    pub(crate) fn with_siblings(mut self) -> Vec<Self> {
        let phase = self.phase;
        let siblings = std::mem::take(&mut self.siblings).into_iter().flat_map(Self::with_siblings);
        let siblings: Vec<Self> = siblings.map(|sibling| Self { phase, ..sibling }).collect();
        std::iter::once(self).chain(siblings).collect()
    }

    /// The same failure as a reason to deviate.
    #[must_use]
    pub fn because(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }
}

/// One rejected or failed attempt of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The schema, validator or transport that rejected the attempt.
    pub rejected_by: RejectedBy,
    /// Reasons for the rejection, one entry per fault.
    pub errors: Vec<String>,
    /// Duration of the attempt, in milliseconds.
    pub elapsed_ms: u64,
    /// Tokens read and written.
    pub tokens: u64,
}

crate::words! {
    /// The check that rejected an attempt, or the transport that failed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RejectedBy {
        /// The JSON Schema.
        Schema = "schema",
        /// The content validator.
        Validate = "validate",
        /// The connection to the provider, or the process itself.
        Transport = "transport",
    }
}

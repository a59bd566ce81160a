//! Faults of system B as failures of a run: class, code word, stage and context (`b-stages` §18).

use serde_json::{Map, Value, json};

use crate::data::Json;
use crate::failure::{Failure, Kind};

/// A phase of a stage execution (`b-stages` §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Setup,
    Init,
    CheckGate,
    Act,
    Assert,
    Exit,
    Next,
}

impl Phase {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Setup => "Setup",
            Self::Init => "Init",
            Self::CheckGate => "CheckGate",
            Self::Act => "Act",
            Self::Assert => "Assert",
            Self::Exit => "Exit",
            Self::Next => "Next",
        }
    }
}

/// The class of faults in what was given.
pub(super) const VALIDATION: &str = "Validation";
/// The class of faults of a machine's own code and of the runner.
pub(super) const HOST: &str = "ExtensionHost";

/// A failure with the words of system B.
pub(super) fn fault(class: &str, code: &str, stage: &str, message: &str, context: Value) -> Failure {
    let mut failure = Failure::new(Kind::StageError, message);
    let stage = Some(stage).filter(|stage| !stage.is_empty());
    failure.details = Some(Json::of(&json!({"class": class, "code": code, "stage": stage, "context": context})));
    failure
}

/// A phase that crashed (B-5, `ExtensionHost/LifecycleFailure`).
pub(super) fn lifecycle(phase: Phase, stage: &str, message: &str, more: Map<String, Value>) -> Failure {
    let mut context = json!({"phase": phase.word(), "stageId": stage});
    if let Some(context) = context.as_object_mut() {
        context.extend(more);
    }
    fault(HOST, "LifecycleFailure", stage, message, context)
}

/// Class and code of a failure, as a cause is told.
pub(super) fn cause(failure: &Failure) -> Value {
    let details = failure.details.as_ref().and_then(|details| details.value().ok()).unwrap_or_default();
    if let (Some(class), Some(code)) = (details.get("class"), details.get("code")) {
        return json!({"class": class, "code": code});
    }
    let (class, code) = match failure.kind {
        Kind::Cancelled => ("Cancellation", "StageCancelled"),
        Kind::ModelError | Kind::ModelTruncated | Kind::ModelRefused => ("ProviderTransient", "RequestFailed"),
        Kind::Environment => ("ProviderCapability", "Unavailable"),
        Kind::BudgetExceeded => ("Session", "BudgetExceeded"),
        _ => (HOST, "LifecycleFailure"),
    };
    json!({"class": class, "code": code})
}

/// A cancellation as a machine reports it (B-K3).
pub(super) fn turn_cancelled(mut failure: Failure, stage: &str) -> Failure {
    if failure.kind == Kind::Cancelled && failure.details.is_none() {
        let stage = Some(stage).filter(|stage| !stage.is_empty());
        let details = json!({"class": "Cancellation", "code": "TurnCancelled", "stage": stage, "context": {}});
        failure.details = Some(Json::of(&details));
    }
    failure
}

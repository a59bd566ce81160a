//! Faults of system B as failures of a run: class, code word, stage and context (`b-stages` §18).

use serde_json::{Map, Value, json};

use crate::data::{Json, overlaid};
use crate::failure::{Failure, FailureKind};

crate::words! {
    /// A phase of a stage execution (`b-stages` §5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Phase {
        Setup = "Setup",
        Init = "Init",
        CheckGate = "CheckGate",
        Act = "Act",
        Assert = "Assert",
        Exit = "Exit",
        Next = "Next",
    }
}

/// The class of faults in input.
pub(super) const VALIDATION: &str = "Validation";
/// The class of faults of a machine's own code and of the runner.
pub(super) const HOST: &str = "ExtensionHost";

/// The class of faults in data that is kept between processes.
const SESSION: &str = "Session";

/// A failure with the words of system B.
pub(super) fn fault(class: &str, code: &str, stage: &str, message: &str, context: Value) -> Failure {
    let mut failure = Failure::new(FailureKind::StageError, message);
    let stage = Some(stage).filter(|stage| !stage.is_empty());
    failure.details = Some(Json::of(&json!({"class": class, "code": code, "stage": stage, "context": context})));
    failure
}

/// The failure of a phase that crashed (B-5, `ExtensionHost/LifecycleFailure`).
pub(super) fn lifecycle(phase: Phase, stage: &str, message: &str, more: Map<String, Value>) -> Failure {
    let context = json!({"phase": phase.word(), "stageId": stage});
    fault(HOST, "LifecycleFailure", stage, message, overlaid(context, Value::Object(more)))
}

/// The failure for a secret in a model's input that the user has not typed (B-IS2): nothing is sent.
pub(super) fn leak(stage: &str, part: &str, secret: &str) -> Failure {
    let what = match part {
        "systemPrompt" => "the prompt",
        "toolManifest" => "a tool's description",
        _ => "the conversation",
    };
    let message = format!("{what} of stage `{stage}` contains the value of `{secret}`, which models must not receive");
    fault(VALIDATION, "LLMContextLeak", stage, &message, json!({"secret": secret, "part": part}))
}

/// The failure for a slot of another version than the machine's, if the machine rejects drift (B-ST3).
pub(crate) fn drift_rejected(machine: &str, stored: &str, now: &str) -> Failure {
    let message = format!(
        "machine `{machine}` has a state slot of version {now}; the run keeps one of version {stored}, and `drift` is `reject`: put the slot back to {stored}, or set `drift` to `warn` or `migrate`"
    );
    let context = json!({"extId": machine, "storedVersion": stored, "currentVersion": now});
    fault(SESSION, "SlotDriftRejected", "", &message, context)
}

/// The failure for a slot that could not be migrated to the machine's version (B-ST3).
pub(super) fn migration_failed(machine: &str, why: &str, more: Value) -> Failure {
    let message = format!("cannot migrate the state slot of machine `{machine}`: {why}");
    let context = overlaid(json!({"extId": machine}), more);
    fault(SESSION, "SlotMigrationFailed", "", &message, context)
}

/// The failure for a model without a capability that a machine needs (B-CN4).
pub(super) fn incapable(machine: &str, model: &str, capability: &str, claim: &str) -> Failure {
    let message = match (capability, claim) {
        ("toolCalling", "probed") => format!(
            "machine `{machine}` needs a model that calls tools; `{model}` was asked to call one and did not: choose another model, or set `capabilities.toolCalling: hard` if it can"
        ),
        ("toolCalling", _) => format!(
            "machine `{machine}` needs a model that guarantees tool calls, and `{model}` does not: its `toolCalling` is `{claim}`"
        ),
        _ => format!("machine `{machine}` needs a model with the capability `{capability}`, and `{model}` claims none"),
    };
    let context = json!({"name": capability, "capability": capability, "claim": claim, "model": model});
    fault("ProviderCapability", "MissingCapability", "", &message, context)
}

/// Class and code of a failure, for the `cause` of an event.
pub(super) fn cause(failure: &Failure) -> Value {
    let details = failure.details.as_ref().and_then(|details| details.value().ok()).unwrap_or_default();
    if let (Some(class), Some(code)) = (details.get("class"), details.get("code")) {
        return json!({"class": class, "code": code});
    }
    let (class, code) = match failure.kind {
        FailureKind::Cancelled => ("Cancellation", "StageCancelled"),
        FailureKind::ModelError | FailureKind::ModelTruncated | FailureKind::ModelRefused => {
            ("ProviderTransient", "RequestFailed")
        }
        FailureKind::Environment => ("ProviderCapability", "Unavailable"),
        FailureKind::BudgetExceeded => ("Session", "BudgetExceeded"),
        _ => (HOST, "LifecycleFailure"),
    };
    json!({"class": class, "code": code})
}

/// Adds the class and code of a cancelled turn to a cancellation (B-K3).
pub(super) fn turn_cancelled(mut failure: Failure, stage: &str) -> Failure {
    if failure.kind == FailureKind::Cancelled && failure.details.is_none() {
        let stage = Some(stage).filter(|stage| !stage.is_empty());
        let details = json!({"class": "Cancellation", "code": "TurnCancelled", "stage": stage, "context": {}});
        failure.details = Some(Json::of(&details));
    }
    failure
}

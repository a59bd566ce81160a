//! Failed runs that can be gone on with: what they failed for never happened, so that nothing is done twice (ADR 0027).

use etude_core::failure::Kind;
use etude_core::outcome::{Exit, Outcome};
use etude_core::plan::Plan;
use etude_core::tool::ToolReply;
use etude_runtime::blob::BlobStore;
use etude_runtime::engine::{Record, RunView, State};
use etude_runtime::record;
use serde_json::Value;

use crate::document::Document;

/// Whether a run that is over can be gone on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Again {
    /// It can, without these of its records: what they tell of is done again.
    GoesOn(Vec<usize>),
    /// It could, had its destructor not taken away what the steps before have made.
    CleanedUp,
    /// It is over.
    Over,
}

/// Whether the failed run `view` of `plan` can be gone on with.
pub fn again(view: &RunView, blobs: &dyn BlobStore, plan: &Plan) -> Again {
    if view.row.state != State::Failed || !lacked_something(view, blobs) {
        return Again::Over;
    }
    // Reopened once before, and nothing has happened since.
    if view.records.last().is_some_and(|last| last.key == record::REOPENED) {
        return Again::GoesOn(Vec::new());
    }
    let of_effects = || record::counting(&view.records).filter(|(_, record)| !record.key.starts_with('!'));
    // One whose value is gone has begun; a replay says what is wrong with it.
    let outcomes: Vec<(usize, &Record, Outcome)> = of_effects()
        .filter_map(|(at, record)| Some((at, record, record::to_outcome(record, blobs).ok()?.outcome)))
        .collect();
    let Some(first) = outcomes.iter().find(|(_, record, outcome)| is_not_begun(&record.key, outcome)).map(|o| o.0)
    else {
        return Again::Over;
    };
    let of_destructor = plan.after.as_ref().map(|after| format!("{}/", after.name));
    if of_destructor.is_some_and(|prefix| of_effects().any(|(_, record)| record.key.starts_with(&prefix))) {
        return Again::CleanedUp;
    }
    // What was given up because of it has come to no end of its own.
    let is_without = |at: usize, record: &Record, outcome: &Outcome| {
        is_not_begun(&record.key, outcome) || at > first && matches!(outcome, Outcome::Abandoned | Outcome::Stopped(_))
    };
    let without = outcomes.iter().filter(|(at, record, outcome)| is_without(*at, record, outcome));
    Again::GoesOn(without.map(|(at, ..)| *at).collect())
}

/// Whether the run's first failure is that something was not there.
pub fn lacked_something(view: &RunView, blobs: &dyn BlobStore) -> bool {
    let document = view.result.as_deref().and_then(|text| Document::from_journal(text, blobs).ok());
    let error = document.as_ref().and_then(|document| document.members.get("errors")?.get(0));
    error.is_some_and(lacks_something)
}

/// Whether the failure of an entry of `errors` can be that something was not there: a model that could not be asked or gave no
/// answer, a program that could not be started, a package that nobody has approved.
pub fn lacks_something(error: &Value) -> bool {
    match error["kind"].as_str().and_then(Kind::from_word) {
        Some(Kind::Environment | Kind::ModelError) => true,
        // A process that was started has an exit status, or a signal that ended it.
        Some(Kind::StepFailed) => {
            let is_process = error.get("stderr_tail").is_some();
            is_process && error.get("exit_status").is_none() && error.get("signal").is_none()
        }
        _ => false,
    }
}

/// True if the effect never began. What a tool of an agent refuses is told to its model, which has gone on from there.
fn is_not_begun(key: &str, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Process(end) => matches!(end.exit, Exit::NotStarted(_)),
        Outcome::CallFailed(_) => true,
        Outcome::Tool(reply) => match &**reply {
            ToolReply::Done(result) => {
                let is_of_agent = key.split('/').any(|part| part.starts_with("turn"));
                !is_of_agent && result.error.as_ref().is_some_and(|error| error.code == "NotTrusted")
            }
            ToolReply::Held { .. } => false,
        },
        _ => false,
    }
}

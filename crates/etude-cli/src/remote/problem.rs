//! What a server refuses, as the command line refuses it here.

use etude_core::failure::{Failure, FailureKind};
use etude_core::plan::Origin;
use serde_json::Value;

use super::address::Address;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::harmless;

/// The problem in a response that is no success.
pub(super) fn of(address: &Address, status: u16, document: &Value) -> Problem {
    let text = |name: &str| document[name].as_str().map(harmless);
    let detail = text("detail").or_else(|| text("title")).unwrap_or_else(|| format!("{address} answers {status}"));
    let problem = match document["code"].as_str().unwrap_or_default() {
        "input_invalid" | "unknown_member" => invalid(document, &detail),
        "malformed" | "not_found" | "run_is_over" | "already_decided" | "other_question" | "not_an_approver"
        | "key_reused" | "too_large" => Problem::usage(detail),
        "no_pipeline_matched" => Problem::new(Exit::Failed, FailureKind::NoPipelineMatched, detail),
        "definition_invalid" => definition(document, &detail),
        "definition_changed" => changed(document, &detail),
        "budget_spent" => Problem::new(Exit::Failed, FailureKind::BudgetExceeded, detail),
        "run_is_busy" => Problem::environment(detail).hint(match document["run_id"].as_str() {
            Some(run) => format!("wait for it, or stop it: etude runs cancel {}", harmless(run)),
            None => "wait for it".to_owned(),
        }),
        "bug" => Problem::new(Exit::Bug, FailureKind::Internal, format!("{address} has a defect: {detail}")),
        "unauthenticated" => Problem::environment(format!("{address} refuses the token: {detail}"))
            .hint("make another where the server is: etude token new NAME --scope read,run"),
        "forbidden_scope" => Problem::environment(format!("{address} refuses the token: {detail}"))
            .hint("make one with that scope where the server is: etude token new NAME --scope read,run,approve"),
        "forbidden_host" => Problem::environment(format!("{address} refuses: {detail}"))
            .hint("let it serve that name: etude serve --host NAME"),
        // The server is about to stop, has too much to do, or something before it answers.
        _ => Problem::environment(format!("{address} refuses: {detail}")),
    };
    match text("hint") {
        Some(hint) if problem.hints.is_empty() => problem.hint(hint),
        _ => problem,
    }
}

/// One failure for each fault.
fn invalid(document: &Value, detail: &str) -> Problem {
    let faults = document["errors"].as_array().into_iter().flatten();
    let messages: Vec<String> = faults.filter_map(|fault| fault["detail"].as_str().map(harmless)).collect();
    let failures = messages.into_iter().map(|message| Failure::new(FailureKind::InputInvalid, message)).collect();
    match failures {
        none if Vec::is_empty(&none) => Problem::usage(detail),
        failures => Problem { failures, ..Problem::usage(detail) },
    }
}

/// One failure for each error of the definition.
fn definition(document: &Value, detail: &str) -> Problem {
    let whole = Problem::new(Exit::Definition, FailureKind::DefinitionInvalid, detail);
    let diagnostics = document["diagnostics"].as_array().into_iter().flatten();
    let errors = diagnostics.filter(|diagnostic| diagnostic["severity"] == "error");
    let failures: Vec<Failure> = errors.filter_map(fault).collect();
    if failures.is_empty() { whole } else { Problem { failures, ..whole } }
}

fn fault(diagnostic: &Value) -> Option<Failure> {
    let mut failure = Failure::new(FailureKind::DefinitionInvalid, harmless(diagnostic["message"].as_str()?));
    let number = |name: &str| diagnostic[name].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
    let file = harmless(diagnostic["file"].as_str().unwrap_or_default());
    failure.origin = Some(Origin { file, line: number("line"), column: number("column") });
    let details = serde_json::json!({"code": diagnostic["code"], "hint": diagnostic["hint"]});
    failure.details = Some(etude_core::data::Json::of(&details));
    Some(failure)
}

fn changed(document: &Value, detail: &str) -> Problem {
    let mut message = detail.to_owned();
    for change in document["changes"].as_array().into_iter().flatten() {
        let text = |name: &str| harmless(change[name].as_str().unwrap_or_default());
        message.push_str(&format!("\n{} {}", text("what"), text("path")));
        for line in text("diff").lines().skip(2) {
            message.push_str(&format!("\n  {line}"));
        }
    }
    Problem::new(Exit::Definition, FailureKind::DefinitionInvalid, message)
        .hint("put the files back as they were, and resume")
        .hint("or take them as they are now: etude runs resume RUN --accept-changes")
}

//! Conversion of a server's refusals to problems of the command line.

use std::fmt::Display;

use etude_core::data::Json;
use etude_core::failure::{Failure, FailureKind, Phase};
use etude_core::plan::Origin;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::harmless;

/// Problem in an unsuccessful response.
pub(super) fn from_response(address: &impl Display, status: u16, document: &Value) -> Problem {
    let text = |name: &str| document[name].as_str().map(harmless);
    let Some(code) = document["code"].as_str() else { return foreign(address, status) };
    let detail = text("detail").or_else(|| text("title")).unwrap_or_else(|| harmless(code));
    let problem = match code {
        "input_invalid" | "unknown_member" => invalid(document, &detail),
        "already_decided" => decided(document, &detail),
        "malformed" | "not_found" | "run_is_over" | "other_question" | "not_an_approver" | "key_reused"
        | "too_large" => Problem::usage(detail),
        "no_pipeline_matched" => {
            let mut failure = Failure::new(FailureKind::NoPipelineMatched, detail);
            failure.phase = Some(Phase::Routing);
            let problem = Problem::of(Exit::Failed, failure)
                .hint("list the candidates: etude route REQUEST; run one by name: etude run --pipeline NAME");
            text("hint").into_iter().fold(problem, Problem::hint)
        }
        "definition_invalid" => definition(document, &detail),
        "definition_changed" => changed(document, &detail),
        "budget_spent" => Problem::new(Exit::Failed, FailureKind::BudgetExceeded, detail),
        "run_is_busy" => Problem::environment(detail).hint(match document["run_id"].as_str() {
            Some(run) => format!("wait for it, or stop it: etude runs cancel {}", harmless(run)),
            None => "wait for it".to_owned(),
        }),
        "bug" => {
            Problem::new(Exit::Bug, FailureKind::Internal, format!("{address} reports an internal error: {detail}"))
        }
        "unauthenticated" => Problem::environment(format!("{address} refuses the token: {detail}"))
            .hint("create another one on the server's machine: etude token new NAME --scope read,run"),
        "forbidden_scope" => Problem::environment(format!("{address} refuses the token: {detail}"))
            .hint("create one with that scope on the server's machine: etude token new NAME --scope read,run,approve"),
        "forbidden_host" => Problem::environment(format!("{address} refuses: {detail}"))
            .hint("allow that host name: etude serve --host NAME"),
        // The server is stopping or overloaded.
        _ => Problem::environment(format!("{address} refuses: {detail}")),
    };
    match text("hint") {
        Some(hint) if problem.hints.is_empty() => problem.hint(hint),
        _ => problem,
    }
}

/// Problem of a response without a problem document: another program responded, such as a proxy.
fn foreign(address: &impl Display, status: u16) -> Problem {
    let way = match status {
        300..=399 => "redirects are not followed: name the address to which the server redirects",
        502..=504 => "a proxy responds in place of the server: check that the server runs",
        _ => {
            "the address may belong to another program, or lack its base path; `etude serve` prints the address of the server"
        }
    };
    Problem::environment(format!("{address} responds with status {status}, but not as an etude server")).hint(way)
}

/// Hint for a server that cannot be reached for this cause. A server that responds, but in another protocol, is running.
pub(super) fn way_out(cause: &str) -> &'static str {
    let is = |part: &str| cause.contains(part);
    if is("UnknownIssuer") {
        "trust its certificate: name a file with all issuers to trust in `SSL_CERT_FILE`"
    } else if is("peer certificate") {
        "use the host name of its certificate, and check that the certificate has not expired"
    } else if is("corrupt message") || is("handshake") || is("fatal alert") || is("peer is incompatible") {
        "it may serve without TLS there: use http:// and its port"
    } else if is("invalid HTTP") {
        "it may serve with TLS there: use https://"
    } else {
        "start a server: etude serve"
    }
}

/// Problem of a second decision. The first one counts and is part of the error (K-38).
fn decided(document: &Value, detail: &str) -> Problem {
    let mut problem = Problem::usage(detail);
    let decision = json!({"approved": document["approved"], "by": document["by"], "at": document["decided_at"]});
    if let Some(failure) = problem.failures.first_mut() {
        failure.details = Some(Json::of(&json!({ "decision": decision })));
    }
    let word = if document["approved"] == true { "approved" } else { "denied" };
    let text = |name: &str| harmless(document[name].as_str().unwrap_or_default());
    problem.hint(format!("{} {word} it at {}", text("by"), text("decided_at")))
}

/// One failure for each fault.
fn invalid(document: &Value, detail: &str) -> Problem {
    let faults = document["errors"].as_array().into_iter().flatten();
    let messages: Vec<String> = faults.filter_map(|fault| fault["detail"].as_str().map(harmless)).collect();
    let failures = messages.into_iter().map(|message| Failure::new(FailureKind::InputInvalid, message)).collect();
    match failures {
        none if Vec::is_empty(&none) => Problem::usage(detail),
        failures => Problem::of_failures(failures),
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
    let details = json!({"code": diagnostic["code"], "hint": diagnostic["hint"]});
    failure.details = Some(Json::of(&details));
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
    let run = harmless(document["run_id"].as_str().unwrap_or("RUN"));
    Problem::new(Exit::Definition, FailureKind::DefinitionInvalid, message)
        .hint("restore the files, then resume the run")
        .hint(format!("or accept the changes: etude runs resume {run} --accept-changes"))
}

#[cfg(test)]
mod tests {
    use etude_core::report::error_json;

    use super::*;

    fn refused(document: &Value) -> Problem {
        from_response(&"http://127.0.0.1:1", 409, document)
    }

    /// If TLS fails, the hint does not suggest to start a server.
    #[test]
    fn a_fault_of_tls_has_its_own_way_out() {
        for (cause, part) in [
            ("Connection refused (os error 111)", "etude serve"),
            ("invalid peer certificate: UnknownIssuer", "`SSL_CERT_FILE`"),
            ("invalid peer certificate: certificate not valid for name \"a\"", "the host name"),
            ("received corrupt message of type InvalidContentType", "http://"),
            ("tls handshake eof", "http://"),
            ("invalid HTTP version parsed", "https://"),
        ] {
            assert!(way_out(cause).contains(part), "{cause}");
        }
    }

    /// A response of another program is reported as one, with a way out that its status suggests.
    #[test]
    fn a_response_of_another_program_is_reported_as_one() {
        for (status, way) in [(302, "redirects"), (404, "another program"), (405, "base path"), (502, "a proxy")] {
            let problem = from_response(&"the server at `http://127.0.0.1:1`", status, &Value::Null);
            let message =
                format!("the server at `http://127.0.0.1:1` responds with status {status}, but not as an etude server");
            assert_eq!((problem.exit, problem.message()), (Exit::Environment, message));
            assert!(problem.hints[0].contains(way), "{:?}", problem.hints);
        }
    }

    /// A failed routing on a server has the same phase as a local one.
    #[test]
    fn a_failed_routing_has_its_phase() {
        let problem = refused(&json!({"code": "no_pipeline_matched", "detail": "no pipeline fits the request"}));
        let error = error_json(&problem.failures[0]);
        assert_eq!((&error["phase"], &error["kind"]), (&json!("routing"), &json!("no_pipeline_matched")));
    }

    /// The hint names the run, as it does for a local run.
    #[test]
    fn a_changed_definition_names_the_run() {
        let problem =
            refused(&json!({"code": "definition_changed", "detail": "it has changed", "run_id": "r1", "changes": []}));
        assert!(
            problem.hints.iter().any(|hint| hint.ends_with("etude runs resume r1 --accept-changes")),
            "{:?}",
            problem.hints
        );
    }

    /// K-38: a late answer gets the decision that counts, from a server as from the local journal.
    #[test]
    fn a_second_decision_is_given_the_first() {
        let document = json!({
            "code": "already_decided", "detail": "`p/s0` has already been answered", "by": "ann", "approved": true,
            "decided_at": "2026-01-01T00:00:00.000Z",
        });
        let problem = refused(&document);
        let error = error_json(&problem.failures[0]);
        let decision = json!({"approved": true, "by": "ann", "at": "2026-01-01T00:00:00.000Z"});
        assert_eq!((problem.exit, &error["decision"]), (Exit::Usage, &decision));
        assert_eq!(problem.hints, ["ann approved it at 2026-01-01T00:00:00.000Z"]);
    }
}

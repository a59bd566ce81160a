//! The header `Idempotency-Key` of a request, and the run of the first request with the same key.

use etude_core::machine::ABI;
use etude_runtime::engine::{Enqueued, Error, NewRun, Placement, Submission, UniqueKey};
use http::HeaderMap;
use serde_json::json;

use crate::context::Context;
use crate::problem::{Code, Problem, engine_failed, no_run};
use crate::token::Caller;

/// The validated header `Idempotency-Key`; `None` if the request has none.
pub(crate) fn parse(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let fault = |detail| {
        Problem::new(Code::InputInvalid, detail).error(json!({"parameter": "Idempotency-Key", "detail": detail}))
    };
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(fault("`Idempotency-Key` must not be repeated"));
    }
    let text = value
        .to_str()
        .ok()
        .filter(|text| (1..=255).contains(&text.len()) && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    match text {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(fault("`Idempotency-Key` must have 1 to 255 printable ASCII characters")),
    }
}

/// The problem of a key with another body.
pub(crate) fn reused() -> Problem {
    Problem::new(Code::KeyReused, "the idempotency key belongs to another request")
}

/// The run that was accepted with this key. It is looked up before everything that may have changed since: the definition, the
/// limits, or the run that is repeated.
pub(crate) async fn run_of(context: &Context, caller: &Caller, key: &UniqueKey) -> Result<Option<String>, Problem> {
    // The queue accepts no run, so that only the run of the key can be found.
    let nothing = Submission {
        run: NewRun {
            id: String::new(),
            app: String::new(),
            target: String::new(),
            abi: ABI,
            created_at_ms: context.clock().now_ms(),
            header: String::new(),
            placement: Placement::default(),
        },
        keys: vec![key.clone()],
        max_queued: Some(0),
        needs_room: false,
    };
    match context.engine().enqueue(&nothing).await.map_err(|error| engine_failed(&error))? {
        Enqueued::Repeated { run_id, is_same, .. } => repeated(context, caller, run_id, is_same).map(Some),
        _ => Ok(None),
    }
}

/// The run whose key was sent again, if the request is the same and its caller may see the run.
pub(crate) fn repeated(context: &Context, caller: &Caller, run_id: String, is_same: bool) -> Result<String, Problem> {
    if !is_same {
        return Err(reused().with("run_id", run_id));
    }
    match context.engine().row(&run_id) {
        // The key outlives its run: it lives for at least a day.
        Err(Error::Unknown(_)) => {
            let problem = Problem::not_found("the run with this idempotency key was removed");
            Err(problem.with("run_id", run_id).hint("use another key to start another run"))
        }
        Err(error) => Err(engine_failed(&error)),
        Ok(row) if context.shows(caller, &row) => Ok(run_id),
        Ok(_) => Err(no_run()),
    }
}

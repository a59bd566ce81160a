//! Audit log of actions: the ledger has each action of a token under the token's name (section 4).
//!
//! Runs and decisions are not noted a second time: a run has the name of the token that started it, a decision that of its
//! decider.

use std::sync::Arc;

use axum::response::Response;
use etude_runs::listing::ACTIONS;
use etude_runtime::engine::{Entry, Expected, Write};
use serde_json::{Map, json};

use crate::blocking::blocking;
use crate::ledger::book;
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::route::{Needs, Route};
use crate::server::Server;
use crate::token::Scope;
use crate::work::Sending;

/// An action that a request asks for.
pub(crate) struct Action {
    server: Arc<Server>,
    body: String,
    /// The affected run, if there is one.
    run_id: Option<String>,
}

impl Action {
    /// The action of a call; `None` if the call changes nothing, or is noted elsewhere.
    pub(crate) fn of(route: &Route, call: &Call) -> Option<Self> {
        let acts = matches!(route.needs, Needs::Scope(Scope::Run | Scope::Admin)) && route.method != "GET";
        let starts = matches!(route.path, "/v1/runs" | "/v1/runs/{id}/again");
        // A form of a page makes a request of the interface.
        if !acts || starts || !route.path.starts_with("/v1/") {
            return None;
        }
        let about: Map<_, _> = call.params.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let action = match route.method {
            "DELETE" => "delete",
            _ => route.path.rsplit('/').find(|segment| !segment.starts_with('{')).unwrap_or_default(),
        };
        let body = json!({"by": call.caller.as_ref()?.name, "action": action, "about": about});
        let run_id = route.path.starts_with("/v1/runs/{id}").then(|| call.param("id").to_owned());
        Some(Self { server: Arc::clone(&call.server), body: body.to_string(), run_id })
    }

    /// Handles the action and notes that it was accepted, as one task: a client that disconnects meanwhile ends neither.
    pub(crate) async fn done(self, handled: impl Future<Output = Respond> + Send + 'static) -> Respond {
        // The server waits for this task before it stops.
        let sending = Sending::new(self.server.works());
        let task = tokio::spawn(async move {
            let _sending = sending;
            let response = handled.await;
            if is_done(&response) {
                // The action has happened, even if a failing journal cannot note it now.
                let _ = blocking(move || self.write()).await;
            }
            response
        });
        task.await.unwrap_or_else(|_| Err(Problem::new(Code::Bug, "internal error: a handler panicked")))
    }

    fn write(self) -> Result<(), Problem> {
        let entry = Entry {
            book: ACTIONS.to_owned(),
            key: etude_runtime::run_id::new(),
            at_ms: self.server.clock().now_ms(),
            state: book::DONE.to_owned(),
            body: self.body,
            run_id: self.run_id,
            ..Entry::default()
        };
        let write = Write { entry, expected: Expected::Nothing, submission: None, is_alone: false };
        self.server.ledger().write(&write).map(drop)
    }
}

/// True if the response reports a new action: a success that is not a replay.
fn is_done(response: &Respond) -> bool {
    let is_new = |response: &Response| !response.headers().contains_key("idempotency-replayed");
    response.as_ref().is_ok_and(|response| response.status().is_success() && is_new(response))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use etude_runtime::engine::EntryQuery;
    use futures_util::FutureExt as _;
    use http::StatusCode;

    use super::*;
    use crate::response::text_response;
    use crate::server::tests::server;

    /// Section 4: an action whose client disconnects is still done, and noted.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_action_whose_client_leaves_is_noted() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = server(dir.path());
        let body = json!({"by": "ci", "action": "cancel"}).to_string();
        let action = Action { server: Arc::clone(&server), body, run_id: None };
        let (go, gone) = mpsc::channel::<()>();
        let handled = async move {
            blocking(move || gone.recv().map_err(|_| Problem::new(Code::Bug, "the test has ended"))).await?;
            Ok(text_response(StatusCode::ACCEPTED, "{}".to_owned()))
        };
        let mut doing = Box::pin(action.done(handled));
        assert!((&mut doing).now_or_never().is_none());
        drop(doing);
        go.send(()).expect("the handler goes on");
        // A server that stops waits for the action.
        let ended = crate::work::drain(server.works(), std::time::Duration::from_secs(60));
        ended.await;
        let query = EntryQuery { book: ACTIONS.to_owned(), ..EntryQuery::default() };
        let entries = server.ledger().entries(&query).expect("entries");
        assert_eq!(entries.len(), 1);
    }
}

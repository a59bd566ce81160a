//! Tests of counts that include sleeping runs, and of runs that another process has queued.

use axum::body::Body;
use etude_runtime::conformance::new_run;
use etude_runtime::engine::{Cause, RunState, Submission};
use futures_util::FutureExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::listen::Peer;
use crate::local::{Entered, local};
use crate::reading::Readings;
use crate::route;
use crate::server::Server;
use crate::settings::ServedApp;
use crate::token::Caller;
use crate::work::tests::serving;

/// The document at a path, read as the owner.
async fn get(server: &std::sync::Arc<Server>, path: &str) -> Value {
    let entered = Entered {
        server: server.clone(),
        router: route::router(),
        caller: Some(Caller::owner()),
        peer: Peer::Socket,
        cause: Cause::Api,
        readings: Readings::default(),
    };
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let response = local(entered, request).await.expect("a document");
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    serde_json::from_slice(&bytes).expect("JSON")
}

/// S-62: the counts are the seven integers; sleeping runs, which `status=sleeping` lists, are counted beside them.
#[tokio::test]
async fn counts_are_the_seven_integers_and_those_that_sleep() {
    let run = new_run("r-1", 1);
    let (_dir, server) = serving(false, vec![ServedApp { slug: "demo".to_owned(), dir: run.app.clone().into() }]);
    let seven = json!({
        "queued": 0, "running": 0, "waiting": 0, "interrupted": 0, "succeeded": 0, "failed": 0, "cancelled": 0,
    });
    assert_eq!(get(&server, "/v1/runs/counts").await, seven);
    let session = server.engine().create(&run).await.expect("create");
    session.set_state(RunState::Sleeping, None).await.expect("set_state");
    let mut eight = seven.clone();
    eight["sleeping"] = json!(1);
    assert_eq!(get(&server, "/v1/runs/counts").await, eight);
    assert_eq!(get(&server, "/v1/runs?status=sleeping").await["runs"][0]["run_id"], "r-1");
    assert_eq!(get(&server, "/v1/runs/counts?status=waiting").await, seven);
}

/// ADR 0188: a run whose result is lost is listed with the reason, and keeps no other run out of the list.
#[tokio::test]
async fn a_run_with_a_lost_result_is_listed_with_the_reason() {
    let run = new_run("r-1", 1);
    let (dir, server) = serving(false, vec![ServedApp { slug: "demo".to_owned(), dir: run.app.clone().into() }]);
    let (lost, other) = ("x".repeat(300_000), "{}".to_owned());
    for (run, state, result) in [
        (run, RunState::Succeeded, &lost),
        (new_run("r-2", 2), RunState::Succeeded, &other),
        (new_run("r-0", 0), RunState::Waiting, &lost),
    ] {
        let session = server.engine().create(&run).await.expect("create");
        session.set_state(state, Some(result)).await.expect("set_state");
    }
    std::fs::remove_dir_all(dir.path().join("blobs")).expect("the result is lost");
    let list = get(&server, "/v1/runs").await;
    let row = |at: usize| (&list["runs"][at]["run_id"], list["runs"][at]["reason"].as_str());
    assert_eq!(row(0), (&json!("r-2"), None));
    let (id, reason) = row(1);
    assert_eq!(id, "r-1");
    assert!(reason.expect("a reason").starts_with("its result cannot be read: "), "{list:#}");
    assert_eq!(get(&server, "/v1/decisions").await["decisions"], json!([]));
    let engine = server.engine();
    let listed = etude_runs::listing::listed(&**engine, engine.row("r-1").expect("a row"), 0).expect("listed");
    assert_eq!(listed.reason.as_deref(), reason);
}

/// Section 9: when another process, such as `etude mcp`, asks for a run that it has queued, the server looks for queued runs at
/// once.
#[tokio::test]
async fn a_queued_run_that_is_asked_for_begins_at_once() {
    let run = new_run("r-1", 1);
    let (_dir, server) = serving(false, vec![ServedApp { slug: "demo".to_owned(), dir: run.app.clone().into() }]);
    let submission = Submission { run, keys: Vec::new(), max_queued: None, needs_room: false };
    server.engine().enqueue(&submission).await.expect("queued");
    for path in ["/v1/runs/r-1?brief=true", "/v1/runs/r-1"] {
        assert!(server.works().wake.notified().now_or_never().is_none(), "nothing has been asked for");
        assert_eq!(get(&server, path).await["status"], "queued");
        assert!(server.works().wake.notified().now_or_never().is_some(), "{path} does not wake");
    }
}

//! The contract's own suite.

use std::sync::atomic::{AtomicU32, Ordering};

use etude_postgres::{Postgres, Settings};
use etude_runtime::conformance;
use etude_runtime::engine::Engine;

use crate::server::Server;

fn check(connections: usize) {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let next = AtomicU32::new(0);
    conformance::all(&|| {
        let schema = format!("case{}", next.fetch_add(1, Ordering::Relaxed));
        drop(crate::open(&server, &schema, dir.path()));
        server.sql(&format!("insert into {schema}.queues (queue) values ('batch')"));
        let settings = Settings { connections, ..crate::settings(&server, &schema, dir.path()) };
        let engine: Box<dyn Engine> = Box::new(Postgres::open(settings).expect("the engine can be opened"));
        // K-54: what its runs were created with may be anyone's word.
        assert!(engine.is_shared());
        engine
    });
}

/// K-1.
#[test]
fn the_contract_is_kept_with_one_connection() {
    check(1);
}

/// K-1.
#[test]
fn the_contract_is_kept_with_many_connections() {
    check(6);
}

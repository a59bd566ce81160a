//! The conformance suite of the engine contract on this engine.

use std::sync::atomic::{AtomicU32, Ordering};

use etude_postgres::{Address, Postgres, Settings};
use etude_runtime::conformance;
use etude_runtime::engine::Engine;

use crate::pooler::Pooler;
use crate::server::Server;

fn check(connections: usize) {
    let Some(server) = Server::start() else { return };
    check_at(&server, connections, &|schema| server.url(schema));
}

/// Runs the suite on schemas of a server at these URLs.
fn check_at(server: &Server, connections: usize, url: &dyn Fn(&str) -> String) {
    let dir = tempfile::tempdir().expect("a directory");
    let next = AtomicU32::new(0);
    conformance::all(&|| {
        let schema = format!("case{}", next.fetch_add(1, Ordering::Relaxed));
        drop(crate::open(server, &schema, dir.path()));
        server.sql(&format!("insert into {schema}.queues (queue) values ('batch')"));
        let address = Address::parse(&url(&schema)).expect("an address");
        let settings = Settings { address, connections, ..crate::settings(server, &schema, dir.path()) };
        let engine: Box<dyn Engine> = Box::new(Postgres::open(settings).expect("the engine can be opened"));
        // K-54: anyone may have written the headers of its runs.
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

/// K-1, behind a pooler that gives each transaction another session, of any schema.
#[test]
fn the_contract_is_kept_behind_a_pooler_without_sessions() {
    let Some(server) = Server::start() else { return };
    let Some(pooler) = Pooler::start(&server, "transaction") else { return };
    check_at(&server, 6, &|schema| pooler.url(schema));
}

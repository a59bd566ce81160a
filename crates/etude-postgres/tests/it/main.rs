//! Tests of the engine on a real PostgreSQL server, which each test starts for itself.

#![expect(clippy::disallowed_methods, reason = "tests start a server and programs to look at the engine from outside")]

use std::path::Path;
use std::time::Duration;

use etude_postgres::{Address, Credentials, Postgres, Settings, Times};

use server::Server;

#[cfg(target_os = "linux")]
mod certificate;
mod checks;
mod claims;
mod conformance;
mod crash;
mod exhaustive;
mod fencing;
mod full_tenants;
mod interleavings;
mod limits;
#[allow(dead_code, reason = "the tests of the program use more of it")]
mod moto;
mod pooler;
mod replies;
mod scale;
mod searches;
#[allow(dead_code, reason = "the tests of the program use more of it")]
mod server;
mod shares;
mod tenants;
#[cfg(target_os = "linux")]
mod tls;
mod transfer;
mod values;

/// Settings for an engine on a schema of the server.
fn settings(server: &Server, schema: &str, cache: &Path) -> Settings {
    Settings {
        address: Address::parse(&server.url(schema)).expect("an address"),
        cache: cache.to_owned(),
        cache_limit: 1 << 30,
        credentials: Credentials::default(),
        // Only tests that shorten the leases wait for the end of one.
        times: Times { lease: Duration::from_secs(120), grace: Duration::from_secs(30), ..Times::default() },
        connections: 6,
        connect_timeout: Duration::from_secs(60),
        patience: Duration::from_secs(60),
        is_blind: false,
        has_callers_clock: true,
        has_no_bell: false,
    }
}

/// An engine on a schema, which is created if it is missing.
fn open(server: &Server, schema: &str, cache: &Path) -> Postgres {
    let settings = settings(server, schema, cache);
    Postgres::migrate(settings.address.clone(), settings.connect_timeout).expect("a schema can be created");
    Postgres::open(settings).expect("the engine can be opened")
}

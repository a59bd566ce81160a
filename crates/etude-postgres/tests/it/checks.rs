//! Results of `etude engine check` on badly configured servers.

use std::time::{Duration, Instant, SystemTime};

use etude_postgres::{Address, Check, Credentials, Grant, Postgres, RoleKind, Status};
use etude_runtime::conformance::{block_on, new_run};
use etude_runtime::engine::{Engine as _, Error};

use crate::open;
use crate::pooler::Pooler;
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);

fn check(url: &str, id: &str) -> Check {
    check_at(url, id, &SystemTime::now)
}

/// A check from a machine with this clock.
fn check_at(url: &str, id: &str, now: &(dyn Fn() -> SystemTime + Sync)) -> Check {
    let address = Address::parse(url).expect(url);
    let report = Postgres::check(address, PATIENCE, &Credentials::default(), now).expect("a report");
    report.checks.into_iter().find(|check| check.id == id).expect("a check")
}

/// Asserts that the check has this status and state, and names the cost and the next step.
fn assert_found(check: &Check, status: Status, found: &str, cost: &str) {
    assert_eq!((check.status, check.found.as_str()), (status, found), "{check:?}");
    assert!(check.cost.contains(cost) && !check.hint.is_empty(), "{check:?}");
}

fn assert_fine(check: &Check, found: &str) {
    assert_eq!((check.status, check.found.as_str()), (Status::Ok, found), "{check:?}");
    assert!(check.cost.is_empty() && check.hint.is_empty(), "{check:?}");
}

/// K-66: a server that does not keep acknowledged commits is found, with the cost.
#[test]
fn a_server_that_may_lose_commits_is_found() {
    let Some(lossy) = Server::start_with(&["fsync=off", "synchronous_commit=off"], &[]) else { return };
    let url = lossy.url("etude");
    assert_found(&check(&url, "fsync"), Status::Error, "off", "loses or damages runs");
    assert_found(&check(&url, "synchronous_commit"), Status::Error, "off", "loses acknowledged records");
    let Some(safe) = Server::start_with(&["fsync=on"], &[]) else { return };
    assert_fine(&check(&safe.url("etude"), "fsync"), "on");
    assert_fine(&check(&safe.url("etude"), "synchronous_commit"), "on");
    assert_fine(&check(&safe.url("etude"), "sessions"), "kept");
    assert_eq!(check(&safe.url("etude"), "clock").status, Status::Ok);
}

/// K-66: a missing schema and missing rights are found. K-56: rights on the tables are not enough, because row security hides
/// every row from a role that is not granted as a worker. K-58: a member of such a role needs no other right.
#[test]
fn missing_rights_are_found() {
    let Some(server) = Server::start() else { return };
    let url = server.url("etude");
    assert_found(&check(&url, "schema"), Status::Error, "none", "no command works");
    assert_eq!(check(&url, "rights").status, Status::Skipped);
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&server, "etude", dir.path()));
    assert_eq!(check(&url, "schema").status, Status::Ok);
    assert_fine(&check(&url, "rights"), "granted");
    server.sql("create role guest login; grant usage on schema etude to guest; grant select on all tables in schema etude to guest");
    let guest = url.replace("etude@", "guest@");
    assert_found(&check(&guest, "rights"), Status::Error, "missing", "commands fail when they write");
    server.sql("grant insert, update, delete on all tables in schema etude to guest");
    let hidden = check(&guest, "rights");
    assert_found(&hidden, Status::Error, "row security hides every run", "commands fail when they write");
    assert!(hidden.hint.contains("etude engine grant worker"), "{hidden:?}");
    server.sql("create role crew");
    let crew = Grant { role: "crew".to_owned(), kind: RoleKind::Worker, tenant: None };
    Postgres::grant(Address::parse(&url).expect("an address"), PATIENCE, &crew).expect("it is granted");
    server.sql("grant crew to guest");
    assert_fine(&check(&guest, "rights"), "granted");
}

/// K-66: a standby that may lack acknowledged commits is found; a synchronous standby is fine, and so is none.
#[test]
fn an_asynchronous_standby_is_found() {
    let Some(mut server) = Server::start() else { return };
    let url = server.url("etude");
    assert_fine(&check(&url, "standby"), "0 standbys, 0 asynchronous");
    let wait_until = |server: &Server, state: &str| {
        let since = Instant::now();
        while server.sql("select string_agg(sync_state, ',') from pg_stat_replication") != state {
            assert!(since.elapsed() < Duration::from_secs(60), "the standby is not there: {state}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // To the server, a program that receives its log is a standby.
    server.start_receiver("standby");
    wait_until(&server, "async");
    assert_found(
        &check(&url, "standby"),
        Status::Warning,
        "1 standbys, 1 asynchronous",
        "a failover loses the latest records",
    );
    server.sql("alter system set synchronous_standby_names = 'standby'");
    server.sql("select pg_reload_conf()");
    wait_until(&server, "sync");
    assert_fine(&check(&url, "standby"), "1 standbys, 0 asynchronous");
}

/// K-66: a pooler that shares sessions is found, and a pooler that keeps them is fine.
#[test]
fn a_pooler_without_sessions_is_found() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&server, "etude", dir.path()));
    let Some(pooler) = Pooler::start(&server, "transaction") else { return };
    let found = check(&pooler.url("etude"), "sessions");
    assert_found(&found, Status::Warning, "shared by a pooler", "after a lease of 15 s");
    drop(pooler);
    let Some(pooler) = Pooler::start(&server, "session") else { return };
    assert_fine(&check(&pooler.url("etude"), "sessions"), "kept");
}

/// K-66: a clock that differs from the database's by more than 5 s is found, in either direction.
#[test]
fn a_wrong_clock_is_found() {
    let Some(server) = Server::start() else { return };
    let hour = Duration::from_secs(3600);
    let (fast, slow) = (move || SystemTime::now() + hour, move || SystemTime::now() - hour);
    for now in [&fast as &(dyn Fn() -> SystemTime + Sync), &slow] {
        let found = check_at(&server.url("etude"), "clock", now);
        let ms: u64 = found.found.trim_end_matches(" ms apart").parse().expect("a number");
        assert!(ms > 3_000_000, "{found:?}");
        assert_found(&found, Status::Warning, &found.found, "times in logs of this machine");
    }
}

/// cluster §6: a database that takes no writes is named as such, with the way out.
#[test]
fn a_read_only_database_is_named() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&server, "etude", dir.path()));
    server.sql("alter role etude set default_transaction_read_only = on");
    let engine = Postgres::open(crate::settings(&server, "etude", dir.path())).expect("it can be read");
    let refused = block_on(engine.create(&new_run("r", 1))).map(drop).expect_err("it takes no writes").to_string();
    assert!(refused.contains("SQLSTATE 25006") && refused.contains("target_session_attrs=read-write"), "{refused}");
    let found = check(&server.url("etude"), "rights");
    assert!(found.status == Status::Error && found.found.contains("read-only: it is a standby"), "{found:?}");
    assert!(found.hint.contains("target_session_attrs=read-write"), "{found:?}");
}

/// cluster §6: a run may have any characters in its names and labels. A database whose encoding lacks some gets no schema.
#[test]
fn a_database_of_another_encoding_is_refused() {
    let Some(server) = Server::start() else { return };
    for (encoding, is_refused) in [("LATIN1", true), ("SQL_ASCII", false)] {
        let name = format!("of_{}", encoding.to_lowercase());
        server.sql(&format!(
            "create database {name} encoding '{encoding}' template template0 lc_collate 'C' lc_ctype 'C'"
        ));
        let url = server.url("etude").replace("/postgres?", &format!("/{name}?"));
        let migrated = Postgres::migrate(Address::parse(&url).expect("an address"), PATIENCE);
        assert_eq!(migrated.is_err(), is_refused, "{migrated:?}");
        if let Err(Error::Refused { why, hint }) = &migrated {
            assert!(why.contains("its encoding is LATIN1") && hint.contains("encoding 'UTF8'"), "{why}: {hint}");
        }
        assert_eq!(check(&url, "schema").status == Status::Ok, !is_refused);
    }
}

/// cluster §6: a database of such an encoding that an earlier version has migrated is refused at each start.
#[test]
fn a_migrated_database_of_another_encoding_is_refused() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&server, "etude", dir.path()));
    server.sql("update pg_database set encoding = pg_char_to_encoding('EUC_JP') where datname = current_database()");
    let refused = Postgres::open(crate::settings(&server, "etude", dir.path())).map(drop);
    let Err(Error::Refused { why, hint }) = &refused else { panic!("{refused:?}") };
    assert!(why.contains("its encoding is EUC_JP") && hint.contains("encoding 'UTF8'"), "{why}: {hint}");
    let migrated = Postgres::migrate(Address::parse(&server.url("etude")).expect("an address"), PATIENCE);
    assert!(matches!(migrated, Err(Error::Refused { .. })), "{migrated:?}");
    assert_eq!(check(&server.url("etude"), "schema").status, Status::Error);
}

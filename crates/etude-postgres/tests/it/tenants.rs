//! Roles of the database as tenants and workers (K-56): their commands, and raw SQL of each.

use std::path::Path;
use std::time::SystemTime;

use etude_core::digest::Digest;
use etude_postgres::{Address, Credentials, Grant, Postgres, RoleKind, Settings};
use etude_runtime::blob::put;
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{
    Engine as _, Enqueued, Entry, EntryQuery, Error, Expected, Fleet as _, Ledger as _, Placement, Profile, Query,
    RunState, Signal, Signalled, Submission, UniqueKey, Write, Written,
};

use crate::claims::{check_plan_of_claim, crowd, limits};
use crate::server::Server;
use crate::{open, settings};

/// A schema with two tenants and a worker.
fn fleet(server: &Server, dir: &Path) -> Postgres {
    let owner = open(server, "etude", dir);
    server.sql("create role acme login; create role globex login; create role carrier login");
    for (role, kind) in [("acme", RoleKind::Tenant), ("globex", RoleKind::Tenant), ("carrier", RoleKind::Worker)] {
        grant(server, role, kind).expect("a role is granted");
    }
    owner
}

fn grant(server: &Server, role: &str, kind: RoleKind) -> Result<(), Error> {
    let tenant = (kind == RoleKind::Tenant).then(|| role.to_owned());
    let address = Address::parse(&server.url("etude")).expect("an address");
    Postgres::grant(
        address,
        settings(server, "etude", Path::new("/")).connect_timeout,
        &Grant { role: role.to_owned(), kind, tenant },
    )
}

/// The engine as a role, with its own directory for copies of values.
fn login(server: &Server, role: &str, dir: &Path) -> Postgres {
    let url = server.url("etude").replace("etude@", &format!("{role}@"));
    let address = Address::parse(&url).expect("an address");
    Postgres::open(Settings { address, ..settings(server, "etude", &dir.join(role)) })
        .expect("the engine can be opened")
}

fn submission(id: &str, placement: Placement) -> Submission {
    let mut run = new_run(id, 1);
    run.placement = placement;
    let keys = vec![UniqueKey { key: "key k".to_owned(), digest: None }];
    Submission { run, keys, max_queued: None, needs_room: false }
}

fn submit(engine: &Postgres, id: &str, placement: Placement) -> Result<Enqueued, Error> {
    block_on(engine.enqueue(&submission(id, placement)))
}

fn ids(engine: &Postgres) -> Vec<String> {
    let mut ids: Vec<_> = engine.list(&Query::default()).expect("list").into_iter().map(|row| row.id).collect();
    ids.sort();
    ids
}

/// An app that a tenant has uploaded, as the placement of a run.
fn app(engine: &Postgres, bytes: &[u8]) -> Placement {
    let (bundle, _) = put(&*engine.blobs(), bytes).expect("an upload");
    Placement { bundle: Some(bundle), ..Placement::default() }
}

/// K-56, K-29: a tenant cannot see the runs of others. Both may use the same key, and a run belongs to its tenant,
/// regardless of its placement.
#[test]
fn a_tenant_sees_its_own_runs() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let owner = fleet(&server, dir.path());
    let (acme, globex) = (login(&server, "acme", dir.path()), login(&server, "globex", dir.path()));
    let posing = Placement { tenant: Some("globex".to_owned()), ..app(&acme, b"app") };
    assert_eq!(submit(&acme, "a-1", posing).expect("accepted"), Enqueued::Accepted);
    assert_eq!(submit(&globex, "g-1", app(&globex, b"app")).expect("accepted"), Enqueued::Accepted);
    assert_eq!(submit(&owner, "o-1", Placement::default()).expect("accepted"), Enqueued::Accepted);
    assert!(
        matches!(submit(&acme, "a-2", Placement::default()), Ok(Enqueued::Repeated { run_id, .. }) if run_id == "a-1")
    );
    assert_eq!((ids(&acme), ids(&globex)), (vec!["a-1".to_owned()], vec!["g-1".to_owned()]));
    assert_eq!(ids(&owner), ["a-1", "g-1", "o-1"]);
    assert_eq!((acme.tenant().as_deref(), owner.tenant()), (Some("acme"), None));
    let of_acme = Query { tenant: Some("acme".to_owned()), ..Query::default() };
    assert_eq!(owner.count(&of_acme).expect("count"), 1);
    let signal = Signal { key: "cancel".to_owned(), body: "{}".to_owned() };
    for id in ["g-1", "o-1", "none"] {
        assert!(matches!(acme.view(id), Err(Error::Unknown(_))), "{id}");
        assert!(matches!(acme.result(id), Err(Error::Unknown(_))), "{id}");
        assert!(matches!(acme.tail(id, 0, 9), Err(Error::Unknown(_))), "{id}");
        assert!(matches!(acme.signal(id, &signal), Err(Error::Unknown(_))), "{id}");
        assert!(matches!(acme.claim(id), Err(Error::Unknown(_))), "{id}");
        assert!(matches!(block_on(acme.requeue(id, 0)), Err(Error::Unknown(_))), "{id}");
    }
    assert_eq!(acme.changes(0, 9).expect("changes").len(), 1);
    assert_eq!(acme.signal("a-1", &signal).expect("a signal"), Signalled::Accepted);
}

/// K-56: two tenants each have an entry with the same key, and see no other one.
#[test]
fn a_tenant_has_a_ledger_of_its_own() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let owner = fleet(&server, dir.path());
    let engines = [login(&server, "acme", dir.path()), login(&server, "globex", dir.path()), owner];
    for (at_ms, engine) in (1..).zip(&engines) {
        let (book, key, state) = ("bundles".to_owned(), "one".to_owned(), "pushed".to_owned());
        let entry = Entry { book, key, at_ms, state, body: "{}".to_owned(), ..Entry::default() };
        let write = Write { entry, expected: Expected::Nothing, submission: None, is_alone: false };
        assert_eq!(block_on(engine.write(&write)).expect("a write"), Written::Done);
    }
    for (at_ms, engine) in (1..).zip(&engines) {
        let found =
            engine.entries(&EntryQuery { book: "bundles".to_owned(), ..EntryQuery::default() }).expect("entries");
        assert_eq!(
            found.iter().map(|entry| (entry.book.as_str(), entry.at_ms)).collect::<Vec<_>>(),
            [("bundles", at_ms)]
        );
    }
}

/// K-56: a worker drives the runs of all tenants. With the hash of another tenant's value a tenant can neither read it
/// nor make a worker read it.
#[test]
fn a_value_is_read_by_those_whose_it_is() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let owner = fleet(&server, dir.path());
    let (acme, globex) = (login(&server, "acme", dir.path()), login(&server, "globex", dir.path()));
    let placement = app(&acme, b"the app of acme");
    let bundle = placement.bundle.expect("a bundle");
    submit(&acme, "a-1", placement.clone()).expect("accepted");
    submit(&globex, "g-1", app(&globex, b"the app of globex")).expect("accepted");
    let carrier = login(&server, "carrier", dir.path());
    let queues = vec!["default".to_owned()];
    carrier
        .join(&Profile { version: "1".to_owned(), abi: 1, queues, places: 2, has_sandbox: true })
        .expect("a worker joins");
    assert!(carrier.blobs().open(bundle).is_ok());
    let (produced, _) = put(&*carrier.blobs(), &vec![b'x'; 300_000]).expect("a value");
    for id in ["a-1", "g-1"] {
        let session = carrier.next(&limits(), 0).expect("next").expect("a run");
        assert_eq!(session.run_id(), id);
        let blobs = if id == "a-1" { vec![produced] } else { Vec::new() };
        block_on(session.append(etude_runtime::engine::Record { blobs, ..record("main/a", "1") })).expect("append");
        block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("an end");
    }
    // The tenant reads the values that its run has made; copies of others are not used.
    assert!(acme.blobs().open(produced).is_ok() && acme.blobs().open(bundle).is_ok());
    assert_eq!(acme.view("a-1").expect("a view").records.len(), 1);
    for stranger in [bundle, produced, Digest::of(b"none")] {
        assert!(globex.blobs().open(stranger).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound));
        let taken = Placement { bundle: Some(stranger), ..Placement::default() };
        let mut wanted = submission("g-2", taken);
        wanted.keys.clear();
        block_on(globex.enqueue(&wanted)).expect_err("a bundle of another tenant");
        wanted.run.placement.bundle = None;
        // The second name spells the member in another way.
        for name in ["input_at", "\\u0069nput_at"] {
            wanted.run.header = format!(r#"{{"v":1,"{name}":["{stranger}",5]}}"#);
            block_on(globex.enqueue(&wanted)).expect_err("a value of another tenant");
        }
    }
    // The same bytes are a separate value.
    let (own, _) = put(&*globex.blobs(), b"the app of acme").expect("an upload");
    let mut wanted = submission("g-2", Placement { bundle: Some(own), ..Placement::default() });
    wanted.keys.clear();
    wanted.run.header = format!(r#"{{"v":1,"input":"\u0000","input_at":["{own}",5]}}"#);
    assert_eq!(block_on(globex.enqueue(&wanted)).expect("accepted"), Enqueued::Accepted);
    // Bytes under another hash hide no value.
    server
        .sql_as("globex", &format!("delete from etude.upload_chunks where hash = '\\x{own}'"))
        .expect_err("it may not");
    drop(owner);
}

/// K-56: row-level security holds for any SQL of a tenant.
#[test]
fn sql_of_a_tenant_reaches_nothing_of_others() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let owner = fleet(&server, dir.path());
    let (acme, globex) = (login(&server, "acme", dir.path()), login(&server, "globex", dir.path()));
    submit(&acme, "a-1", app(&acme, b"a")).expect("accepted");
    submit(&globex, "g-1", app(&globex, b"g")).expect("accepted");
    submit(&owner, "o-1", Placement::default()).expect("accepted");
    let as_acme = |sql: &str| server.sql_as("acme", &format!("set search_path = etude; {sql}"));
    let other = server.sql("select run from etude.runs where id = 'g-1'");
    for table in ["runs", "headers", "queue", "keys", "uploads", "roles"] {
        assert_eq!(as_acme(&format!("select count(*) from {table}")).as_deref(), Ok("1"), "{table}");
    }
    // A table with the name of one in the schema does not change the role's identity.
    let posing = "create temp table roles (role text, kind text, tenant text);
        insert into pg_temp.roles values ('acme', 'tenant', 'globex'); select string_agg(id, ' ') from runs";
    assert_eq!(as_acme(posing).as_deref(), Ok("a-1"));
    for nothing in [
        "update runs set state = 'cancelled' where id = 'g-1' returning id",
        "delete from runs where id = 'o-1' returning id",
        "select id from runs where id = 'g-1' for update",
    ] {
        assert_eq!(as_acme(nothing).as_deref(), Ok(""), "{nothing}");
    }
    // Its place in the queue keeps its tenant (K-34).
    let posing = "create temp table runs (run bigint, tenant text); insert into pg_temp.runs select run, 'globex' from etude.queue;
        update queue set tenant = 'globex' returning tenant";
    assert_eq!(as_acme(posing).as_deref(), Ok("acme"));
    for refused in [
        "update runs set tenant = 'globex'".to_owned(),
        "insert into roles values ('acme', 'worker', null)".to_owned(),
        "update server set beat_at = now()".to_owned(),
        "insert into queues (queue) values ('mine')".to_owned(),
        "insert into blobs values ('\\x00', 1, now())".to_owned(),
        format!("insert into blob_refs select hash, {other} from uploads"),
        "insert into blob_refs select '\\x00'::bytea, run from runs".to_owned(),
        format!("insert into signals (run, key, body, token, created_at_ms) values ({other}, 'cancel', '', 1, 1)"),
        format!("insert into queue (queue, rank, run, not_before_ms) values ('x', 1, {other}, 0)"),
        "insert into records (run, seq, session, key, request, body) select run, 1, 1, 'main/a', '', '' from runs"
            .to_owned(),
        format!("insert into records (run, seq, session, key, request, body) values ({other}, 1, 1, '!claim', '', '')"),
        format!("insert into results (run, body) values ({other}, '')"),
        "insert into keys (key, run, tenant) select 'x', run, 'globex' from runs".to_owned(),
        "insert into entries (book, key, at_ms, state, body) values ('bundles', 'x', 1, 'pushed', '')".to_owned(),
        "insert into uploads values ('globex', '\\x00', 1, now())".to_owned(),
        "select * from counted".to_owned(),
        "create table etude.mine (x integer)".to_owned(),
        "set role etude".to_owned(),
    ] {
        as_acme(&refused).expect_err(&refused);
    }
}

/// K-56, K-31: with row-level security, the plan of a worker is the owner's: a scan of an index, without a sort and
/// without a look at tenants.
#[test]
fn claims_of_a_worker_have_the_plan_of_the_owner() {
    let Some(server) = Server::start_with(&["autovacuum=off"], &[]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(fleet(&server, dir.path()));
    crowd(&server);
    check_plan_of_claim(&server, "carrier");
}

/// K-66, K-56: the check knows the rights of each kind of role. A migration grants them again, even if the format is
/// current.
#[test]
fn the_check_knows_the_rights_of_roles() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(fleet(&server, dir.path()));
    let check = |role: &str| {
        let url = server.url("etude").replace("etude@", &format!("{role}@"));
        let patience = settings(&server, "etude", dir.path()).connect_timeout;
        let report = Postgres::check(
            Address::parse(&url).expect("an address"),
            patience,
            &Credentials::default(),
            &SystemTime::now,
        )
        .expect("a report");
        report.checks.into_iter().find(|check| check.id == "rights").expect("a check").found
    };
    assert_eq!((check("acme"), check("carrier")), ("those of a tenant".to_owned(), "those of a worker".to_owned()));
    server.sql("revoke insert on etude.records from carrier; revoke insert on etude.uploads from acme");
    assert_eq!((check("acme"), check("carrier")), ("missing".to_owned(), "missing".to_owned()));
    drop(open(&server, "etude", dir.path()));
    assert_eq!((check("acme"), check("carrier")), ("those of a tenant".to_owned(), "those of a worker".to_owned()));
}

/// cluster §6: a role that may not drive runs is refused before it is a worker: a tenant, a role that lacks rights, and
/// a role to which row-level security shows no run.
#[test]
fn only_workers_may_drive_runs() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let owner = fleet(&server, dir.path());
    owner.check_work().expect("the owner may");
    login(&server, "carrier", dir.path()).check_work().expect("a worker may");
    let refused = |role: &str, word: &str| match login(&server, role, dir.path()).check_work() {
        Err(Error::Refused { why, hint }) => {
            assert!(
                why.contains(&format!("`{role}`")) && why.contains("cannot execute runs") == (role == "acme"),
                "{why}"
            );
            assert!(hint.contains(word), "{hint}");
        }
        other => panic!("{role}: {other:?}"),
    };
    refused("acme", "etude engine grant worker");
    server.sql("create role member login in role carrier");
    login(&server, "member", dir.path()).check_work().expect("it is a worker as well");
    server.sql("revoke insert on etude.records from carrier");
    refused("carrier", "etude engine migrate");
    server.sql(
        "create role guest login; grant usage on schema etude to guest;
         grant all on all tables in schema etude to guest; grant usage on all sequences in schema etude to guest",
    );
    refused("guest", "etude engine grant worker");
    server.sql("grant etude to guest");
    login(&server, "guest", dir.path()).check_work().expect("it is the owner as well");
}

/// K-56, K-58: a missing role, the owner and a superuser get no rights; the last grant of a role counts.
#[test]
fn a_role_is_what_it_was_granted_last() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let owner = fleet(&server, dir.path());
    submit(&owner, "o-1", Placement::default()).expect("accepted");
    let error = grant(&server, "none", RoleKind::Tenant).expect_err("no role").to_string();
    assert!(error.contains("create role \"none\" login"), "{error}");
    grant(&server, "etude", RoleKind::Tenant).expect_err("the owner");
    assert_eq!(ids(&login(&server, "carrier", dir.path())), ["o-1"]);
    grant(&server, "carrier", RoleKind::Tenant).expect("it is a tenant now");
    assert!(ids(&login(&server, "carrier", dir.path())).is_empty());
    server.sql_as("carrier", "insert into etude.blobs values ('\\x00', 1, now())").expect_err("it is a worker no more");
    grant(&server, "acme", RoleKind::Worker).expect("it is a worker now");
    assert_eq!(ids(&login(&server, "acme", dir.path())), ["o-1"]);
    server.sql("create role \"Odd; name\" login");
    grant(&server, "Odd; name", RoleKind::Tenant).expect("names are quoted");
}

//! PgBouncer in front of a test's server, and the engine's behaviour behind it.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use etude_postgres::{Address, Postgres, Settings};
use etude_runtime::conformance::{block_on, new_run};
use etude_runtime::engine::{Engine as _, Error, Fleet as _, Profile};
use tempfile::TempDir;

use crate::server::{Server, command, give_away, scratch};

/// A running pooler.
#[derive(Debug)]
pub(crate) struct Pooler {
    child: Child,
    dir: TempDir,
}

impl Pooler {
    /// Starts a pooler in a mode. `None` if this machine has no PgBouncer: the test is then skipped, unless `ETUDE_REQUIRE_PGBOUNCER` is set.
    pub(crate) fn start(server: &Server, mode: &str) -> Option<Self> {
        let Some(program) = program() else {
            assert!(std::env::var_os("ETUDE_REQUIRE_PGBOUNCER").is_none(), "PgBouncer is not installed");
            eprintln!("skipped: PgBouncer is not installed");
            return None;
        };
        let dir = scratch();
        let (own, socket) = (dir.path().display(), server.socket());
        let of_server = socket.parent().expect("a directory").display();
        let settings = format!(
            "[databases]\n* = host={of_server} port=5432\n[pgbouncer]\npool_mode = {mode}\nlisten_port = 5432\nunix_socket_dir = {own}\n\
             auth_type = trust\nauth_file = {own}/users\nlogfile = {own}/log\n"
        );
        for (name, text) in [("pooler.ini", settings.as_str()), ("users", "\"etude\" \"\"\n")] {
            fs::write(dir.path().join(name), text).expect("a file");
            give_away(&dir.path().join(name)).expect("it can be given away");
        }
        let mut pooler = command(program);
        pooler.arg("-q").arg(dir.path().join("pooler.ini")).stdout(Stdio::null()).stderr(Stdio::null());
        let pooler = Self { child: pooler.spawn().expect("PgBouncer can be started"), dir };
        let since = Instant::now();
        while UnixStream::connect(pooler.dir.path().join(".s.PGSQL.5432")).is_err() {
            let log = fs::read_to_string(pooler.dir.path().join("log")).unwrap_or_default();
            assert!(since.elapsed() < Duration::from_secs(60), "the pooler does not start: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(pooler)
    }

    /// The URL of a schema through the pooler.
    pub(crate) fn url(&self, schema: &str) -> String {
        let socket = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://etude@{socket}/postgres?schema={schema}")
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // It is not on the path of ordinary users.
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    dirs.map(|dir| dir.join("pgbouncer")).find(|program| program.is_file())
}

/// An engine on the schema `etude` whose connections go through a pooler.
fn behind(pooler: &Pooler, server: &Server, dir: &Path) -> Postgres {
    let address = Address::parse(&pooler.url("etude")).expect("an address");
    Postgres::open(Settings { address, ..crate::settings(server, "etude", dir) }).expect("the engine can be opened")
}

/// cluster §2: behind a pooler without sessions, only the lease counts. A lock would belong to the pooler.
#[test]
fn behind_a_pooler_without_sessions_only_the_lease_counts() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let other = crate::open(&server, "etude", dir.path());
    let Some(pooler) = Pooler::start(&server, "transaction") else { return };
    let worker = behind(&pooler, &server, dir.path());
    let profile = Profile { version: "1".to_owned(), abi: 1, queues: Vec::new(), places: 1, has_sandbox: false };
    worker.join(&profile).expect("join");
    let session = block_on(worker.create(&new_run("r", 1))).expect("create");
    // Its heartbeat shortens the leases of workers whose lock is gone to the grace period of 30 s.
    other.join(&profile).expect("join");
    assert!(matches!(other.claim("r"), Err(Error::Busy { .. })));
    let sql = "select count(*), bool_and(lease_until > now() + interval '60 s') from etude.workers";
    assert_eq!(server.sql(sql), "2|t");
    assert_eq!(server.sql("select count(*) from etude.workers where lock = 0"), "1");
    drop(session);
}

/// The engine sets nothing for a session that others get next, and leaves nothing in it.
#[test]
fn sessions_of_a_pooler_are_left_as_they_were() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(crate::open(&server, "etude", dir.path()));
    let Some(pooler) = Pooler::start(&server, "transaction") else { return };
    let engine = behind(&pooler, &server, dir.path());
    drop(block_on(engine.create(&new_run("r", 1))).expect("create"));
    assert_eq!(engine.view("r").expect("a view").row.id, "r");
    let url = pooler.url("etude").replace("?schema=etude", "");
    let look = "select current_setting('search_path'), current_setting('lock_timeout'), current_setting('enable_seqscan'), \
        (select count(*) from pg_prepared_statements), (select count(*) from pg_locks where locktype = 'advisory')";
    assert_eq!(server.sql_at(&url, look), "\"$user\", public|0|on|0|0");
}

/// K-33, K-48: limits and defaults that the role has apply neither to a connection with a session of its own nor to one without.
#[test]
fn settings_of_the_role_do_not_apply() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(crate::open(&server, "etude", dir.path()));
    for setting in [
        "statement_timeout = '1h'",
        "idle_session_timeout = '1h'",
        "default_transaction_isolation = 'serializable'",
        "search_path = 'nowhere'",
        "timezone = 'Asia/Kolkata'",
    ] {
        server.sql(&format!("alter role etude set {setting}"));
    }
    server.sql(
        "create table etude.seen (run bigint, value text);
        create function etude.see() returns trigger language plpgsql as $$ begin
            insert into etude.seen values (new.run, concat_ws(' ', current_setting('statement_timeout'),
                current_setting('idle_session_timeout'), current_setting('transaction_isolation')));
            return new; end $$;
        create trigger see before insert or update on etude.runs for each row execute function etude.see()",
    );
    let seen = || server.sql("select distinct value from etude.seen; delete from etude.seen");
    let session = block_on(crate::open(&server, "etude", dir.path()).create(&new_run("r-1", 1))).expect("create");
    assert_eq!(seen(), "0 0 read committed");
    drop(session);
    let Some(pooler) = Pooler::start(&server, "transaction") else { return };
    let session = block_on(behind(&pooler, &server, dir.path()).create(&new_run("r-2", 1))).expect("create");
    assert_eq!(seen(), "0 0 read committed");
    drop(session);
}

//! PgBouncer in front of the server of a test.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::server::{Server, command, give_away, scratch};

/// A running pooler.
#[derive(Debug)]
pub(crate) struct Pooler {
    child: Child,
    dir: TempDir,
}

impl Pooler {
    /// Starts a pooler in a mode. `None` if this machine has no PgBouncer: the test is then skipped.
    pub(crate) fn start(server: &Server, mode: &str) -> Option<Self> {
        let Some(program) = program() else {
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
    // Ordinary users do not have it on their path.
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    dirs.map(|dir| dir.join("pgbouncer")).find(|program| program.is_file())
}

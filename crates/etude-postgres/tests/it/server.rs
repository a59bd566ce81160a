//! A PostgreSQL server for one test: the programs of the system's package, on a socket in a directory of its own, as an
//! ordinary user.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// The user `nobody`: `initdb` and `postgres` refuse root.
const UNPRIVILEGED: u32 = 65_534;

/// A running server with a directory of its own; dropping the value ends both.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    bin: PathBuf,
    dir: TempDir,
    settings: Vec<String>,
    /// A program that receives the server's log.
    receiver: Option<Child>,
}

impl Server {
    /// Starts a server. `None` if this machine has no PostgreSQL: the test is then skipped, unless `ETUDE_REQUIRE_POSTGRES` is set.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[], &[])
    }

    /// Starts a server with settings (`NAME=VALUE`) and with files in its data directory, readable only by the server.
    pub(crate) fn start_with(settings: &[&str], files: &[(&str, &str)]) -> Option<Self> {
        let Some(bin) = programs() else {
            assert!(std::env::var_os("ETUDE_REQUIRE_POSTGRES").is_none(), "PostgreSQL is not installed");
            eprintln!("skipped: PostgreSQL is not installed");
            return None;
        };
        let template = template(&bin);
        let dir = scratch();
        let data = dir.path().join("data");
        copy(&template, &data).expect("the data directory can be copied");
        for (name, text) in files {
            fs::write(data.join(name), text).expect("a file can be written");
            fs::set_permissions(data.join(name), fs::Permissions::from_mode(0o600)).expect("it is ours");
            give_away(&data.join(name)).expect("it can be given away");
        }
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let child = launch(&bin, dir.path(), &settings);
        let server = Self { child, bin, dir, settings, receiver: None };
        server.wait_until_ready();
        Some(server)
    }

    /// The URL of a schema.
    pub(crate) fn url(&self, schema: &str) -> String {
        let socket = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://etude@{socket}/postgres?schema={schema}")
    }

    /// Runs SQL with `psql`.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.sql_as("etude", sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs SQL as a role. Returns the output, or the error of the server.
    pub(crate) fn sql_as(&self, role: &str, sql: &str) -> Result<String, String> {
        let output = Command::new(self.bin.join("psql"))
            .args(["-U", role, "-d", "postgres", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, "-h"])
            .arg(self.dir.path())
            .output()
            .expect("psql can be started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Runs SQL on the server at a URL.
    pub(crate) fn sql_at(&self, url: &str, sql: &str) -> String {
        let output = Command::new(self.bin.join("psql")).args(["-X", "-q", "-A", "-t", "-c", sql, url]).output();
        let output = output.expect("psql can be started");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The socket that the server listens on.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join(".s.PGSQL.5432")
    }

    /// Starts `psql`, which reads statements from its standard input.
    pub(crate) fn psql(&self) -> Child {
        Command::new(self.bin.join("psql"))
            .args(["-U", "etude", "-d", "postgres", "-X", "-A", "-t", "-q", "-h"])
            .arg(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql can be started")
    }

    /// The URL of a schema on the one of these servers that takes writes.
    pub(crate) fn url_of_primary(servers: [&Self; 2], schema: &str) -> String {
        let sockets = servers.map(|server| server.dir.path().display().to_string().replace('/', "%2F"));
        format!("postgres://etude@{}/postgres?schema={schema}&target_session_attrs=read-write", sockets.join(","))
    }

    /// Starts a server that follows this one. If it is synchronous, each commit waits until the standby has it.
    pub(crate) fn start_standby(&self, is_synchronous: bool) -> Self {
        let dir = scratch();
        let connection = format!("host={} user=etude application_name=standby", self.dir.path().display());
        let status = command(self.bin.join("pg_basebackup"))
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", &connection, "-D"])
            .arg(dir.path().join("data"))
            .status()
            .expect("pg_basebackup can be started");
        assert!(status.success(), "pg_basebackup fails");
        let child = launch(&self.bin, dir.path(), &self.settings);
        let standby = Self { child, bin: self.bin.clone(), dir, settings: self.settings.clone(), receiver: None };
        standby.wait_until_ready();
        if is_synchronous {
            self.sql("alter system set synchronous_standby_names = 'standby'");
            self.sql("select pg_reload_conf()");
        }
        let expected = if is_synchronous { "streaming sync" } else { "streaming async" };
        let since = Instant::now();
        loop {
            let state = self.sql("select state || ' ' || sync_state from pg_stat_replication");
            if state == expected {
                return standby;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "the standby does not follow: {state}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the replication to this standby.
    pub(crate) fn stop_following(&self) {
        self.sql("alter system set primary_conninfo = ''");
        self.sql("select pg_reload_conf()");
        let since = Instant::now();
        while self.sql("select count(*) from pg_stat_wal_receiver") != "0" {
            assert!(since.elapsed() < Duration::from_secs(60), "the standby goes on following");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes a standby the primary.
    pub(crate) fn promote(&self) {
        assert_eq!(self.sql("select pg_promote()"), "t", "the standby does not become the primary");
    }

    /// Kills all processes of the server, as a crash of the machine does, and restarts it.
    pub(crate) fn crash(&mut self) {
        self.kill();
        self.child = launch(&self.bin, self.dir.path(), &self.settings);
        self.wait_until_ready();
    }

    /// Kills all processes of the server, as the end of the machine does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("it is dead");
        let data = self.dir.path().join("data").canonicalize().expect("it is there");
        let since = Instant::now();
        loop {
            let left = processes_in(&data);
            if left.is_empty() {
                break;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "processes of the server are left");
            for pid in left {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = fs::remove_file(data.join("postmaster.pid"));
    }

    /// Starts a program that receives the log of the server under this name, as a standby does.
    pub(crate) fn start_receiver(&mut self, name: &str) {
        let dir = self.dir.path().join("received");
        fs::create_dir(&dir).expect("a directory");
        give_away(&dir).expect("it can be given away");
        let connection = format!("host={} user=etude application_name={name}", self.dir.path().display());
        let mut receiver = command(self.bin.join("pg_receivewal"));
        receiver.args(["--synchronous", "-d", &connection, "-D"]).arg(dir);
        receiver.stdout(Stdio::null()).stderr(Stdio::null());
        self.receiver = Some(receiver.spawn().expect("pg_receivewal can be started"));
    }

    /// Shuts the server down; connections are refused until [`Server::start_again`].
    pub(crate) fn stop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, Signal::INT).expect("it is there");
        self.child.wait().expect("it ends");
    }

    /// Starts the server after [`Server::stop`].
    pub(crate) fn start_again(&mut self) {
        self.child = launch(&self.bin, self.dir.path(), &self.settings);
        self.wait_until_ready();
    }

    /// Stops or continues all processes of the server: while stopped, it accepts connections and does not respond.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        let data = self.dir.path().join("data").canonicalize().expect("it is there");
        for pid in processes_in(&data) {
            // A process that has just ended needs no signal.
            let _ = kill_process(pid, if is_frozen { Signal::STOP } else { Signal::CONT });
        }
    }

    fn wait_until_ready(&self) {
        let since = Instant::now();
        let is_ready = || {
            Command::new(self.bin.join("pg_isready"))
                .args(["-q", "-h"])
                .arg(self.dir.path())
                .status()
                .is_ok_and(|status| status.success())
        };
        while !is_ready() {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(since.elapsed() < Duration::from_secs(60), "the server does not start: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut receiver) = self.receiver.take() {
            let _ = receiver.kill();
            let _ = receiver.wait();
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // An immediate shutdown leaves no process and no shared memory.
            let _ = kill_process(pid, Signal::QUIT);
        }
        let _ = self.child.wait();
    }
}

/// A loopback address for one server, unique among concurrent tests because every server uses the same port.
#[cfg(target_os = "linux")]
pub(crate) fn address() -> std::net::Ipv4Addr {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(next < 4, "a process has four addresses");
    // Process ids have at most 22 bits.
    let [_, a, b, c] = (std::process::id() * 4 + next).to_be_bytes();
    [127, a, b, c].into()
}

/// The directory of the newest installed programs.
fn programs() -> Option<PathBuf> {
    let debian =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_all = |dir: &PathBuf| ["initdb", "postgres", "psql"].iter().all(|name| dir.join(name).is_file());
    let mut debian: Vec<PathBuf> = debian.filter(has_all).collect();
    debian.sort();
    debian.pop().or_else(|| std::env::split_paths(&path).find(has_all))
}

/// A directory that the server's user may use.
pub(crate) fn scratch() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    if geteuid().is_root() {
        chown(dir.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("it can be given away");
    }
    dir
}

pub(crate) fn command(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).current_dir("/").env_clear().env("LC_ALL", "C.UTF-8").env("PATH", "/usr/bin:/bin");
    if geteuid().is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command
}

fn launch(bin: &Path, dir: &Path, settings: &[String]) -> Child {
    let log = File::create(dir.join("log")).expect("a log");
    // The last setting of a name counts.
    let defaults =
        ["listen_addresses=", "fsync=off", "shared_buffers=32MB", "max_connections=200", "log_min_messages=fatal"];
    command(bin.join("postgres"))
        .arg("-D")
        .arg(dir.join("data"))
        .arg("-k")
        .arg(dir)
        .args(defaults.into_iter().chain(settings.iter().map(String::as_str)).flat_map(|setting| ["-c", setting]))
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log)
        .spawn()
        .expect("the server can be started")
}

/// A data directory that each server copies, because `initdb` takes seconds. It is created once.
fn template(bin: &Path) -> PathBuf {
    let version = Command::new(bin.join("postgres")).arg("--version").output().expect("a version");
    let version: String = String::from_utf8_lossy(&version.stdout)
        .chars()
        .filter(|letter| letter.is_ascii_digit() || *letter == '.')
        .collect();
    let all = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let template = all.join(format!("postgres-{version}"));
    let lock = File::create(all.join("postgres.lock")).expect("a lock file");
    lock.lock().expect("a lock");
    if !template.is_dir() {
        let dir = scratch();
        let data = dir.path().join("data");
        let status = command(bin.join("initdb"))
            .args(["-U", "etude", "-A", "trust", "-E", "UTF8", "--no-sync", "--wal-segsize=1", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()
            .expect("initdb can be started");
        assert!(status.success(), "initdb fails");
        let unfinished = all.join("postgres-unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        copy(&data, &unfinished).expect("the data directory can be copied");
        fs::rename(&unfinished, &template).expect("it can be renamed");
    }
    template
}

/// Copies a directory, with its permissions, for the server's user.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to)?;
            give_away(&to)?;
        }
    }
    fs::set_permissions(to, fs::Permissions::from_mode(0o700))?;
    give_away(to)
}

pub(crate) fn give_away(path: &Path) -> io::Result<()> {
    if geteuid().is_root() { chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)) } else { Ok(()) }
}

/// The processes whose working directory is this one: those of its server.
fn processes_in(data: &Path) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_there = |entry: &fs::DirEntry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == data);
    let of = |entry: fs::DirEntry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?);
    entries.filter(is_there).filter_map(of).collect()
}

//! An open journal: the state that the engine and its sessions share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use etude_core::digest::Digest;
use etude_files::private;
use etude_runtime::blob::FileBlobs;
use etude_runtime::engine::{DamagedRuns, Error, NewRun, RunOwner, RunState, values_of_header};
use rusqlite::Connection;
use tokio::sync::Notify;

use crate::error::file_error;
use crate::follow::Watch;
use crate::group::{Group, MANY_RUNS};
use crate::lock_owner::{self, LockOwner};
use crate::pool::{Pool, lock};
use crate::rows::{self, Run};
use crate::session::{SqliteSession, Taken};
use crate::signal::News;
use crate::syncer::Syncer;
use crate::{Settings, Sync, migrate, unix};

/// Name of the database file in the journal's directory.
const FILE: &str = "journal.db";

/// Maximum wait for the lock of a dead process. A child of a killed process holds a copy of its lock between fork and exec, which
/// on a busy machine lasts long enough to be seen.
const GRACE_PERIOD: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 5 });

/// Interval of checks during that wait.
const PAUSE: Duration = Duration::from_micros(500);

/// The shared part of an open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) dir: PathBuf,
    pub(crate) locks: PathBuf,
    pub(crate) blobs: Arc<FileBlobs>,
    /// The identities of the journal and its log when the journal was opened.
    identity: [Option<(u64, u64)>; 2],
    // The group comes before the syncer: on drop, writing stops before syncing. Sessions that wait for either keep the journal
    // alive.
    pub(crate) group: Group,
    pub(crate) syncer: Syncer,
    pub(crate) pool: Arc<Pool>,
    /// Set since the first run of this journal.
    lock_owner: Mutex<Option<Arc<LockOwner>>>,
    /// The runs that this journal's sessions hold, by number.
    held: Mutex<BTreeMap<i64, Hold>>,
    /// The number of tokens given so far.
    tokens: AtomicU64,
    pub(crate) news: Mutex<News>,
    pub(crate) watch: Mutex<Watch>,
    /// The bell for writes, created when it is first requested.
    pub(crate) bell: OnceLock<Option<Arc<Notify>>>,
    /// True if the journal has the indexes and triggers for processes that accept or follow runs.
    pub(crate) is_served: AtomicBool,
    pub(crate) has_ledger: AtomicBool,
    /// The runs that lists have left out.
    pub(crate) damaged: DamagedRuns,
}

/// A session's hold on a run.
#[derive(Debug)]
struct Hold {
    /// The token of the session, unique in the journal.
    token: u64,
    /// The owner of the lock; for later runs, its file may have been removed and replaced.
    lock_owner: Arc<LockOwner>,
}

/// A run during its creation.
#[derive(Debug)]
pub(crate) struct PendingRun {
    journal: Arc<Journal>,
    lock_owner: Arc<LockOwner>,
    run: NewRun,
    token: u64,
    /// The number of the run, from the insertion of its row until a session takes over.
    number: Mutex<Option<i64>>,
}

impl PendingRun {
    /// Writes the row of the run. False if there is a run with that id.
    pub(crate) fn write(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let run = &self.run;
        let inserted = rows::insert(connection, run, RunState::Running, Some(self.lock_owner.name()))?;
        let Some(number) = inserted else { return Ok(false) };
        // Before any other process can see the row.
        self.journal.hold(number, self.token, &self.lock_owner);
        *lock(&self.number) = Some(number);
        Ok(true)
    }

    /// The session of the created run.
    fn session(&self, written: Result<bool, Error>) -> Result<SqliteSession, Error> {
        let number = if written? { lock(&self.number).take() } else { None };
        let number = number.ok_or_else(|| Error::Exists(self.run.id.clone()))?;
        let began_at_ms = self.run.created_at_ms;
        let taken = Taken { number, epoch: 1, token: self.token, next: 0, began_at_ms, was_queued: false };
        Ok(SqliteSession::new(Arc::clone(&self.journal), self.run.clone(), taken))
    }
}

impl Drop for PendingRun {
    /// Releases a run whose creation failed, or whose creator has stopped waiting.
    fn drop(&mut self) {
        let Some(number) = lock(&self.number).take() else { return };
        // Compare the id as well: SQLite gives the number of an undone row again.
        let _ = self.journal.pool.write(|connection| {
            connection
                .prepare_cached("update runs set holder = null where number = ?1 and id = ?2 and epoch = 1")?
                .execute((number, &self.run.id))
        });
        self.journal.release(number, self.token);
    }
}

impl Journal {
    /// Opens the journal in a directory; creates both if necessary.
    pub(crate) fn open(settings: Settings) -> Result<Self, Error> {
        Self::of_format(settings, migrate::STEPS)
    }

    /// The same, with the format at the end of these steps.
    pub(crate) fn of_format(settings: Settings, steps: &[&str]) -> Result<Self, Error> {
        let Settings { dir, sync } = settings;
        let strict = sync == Sync::Strict;
        let locks = dir.join("locks");
        if !locks.is_dir() {
            private::create_missing_dirs(&locks).map_err(|cause| file_error(&locks, &cause))?;
        }
        let pool = Arc::new(Pool::new(dir.join(FILE)));
        migrate::prepare(&pool, &locks, steps)?;
        let blobs = Arc::new(FileBlobs::new(dir.join("blobs"), strict));
        let syncer = Syncer::new(Arc::clone(&pool), Arc::clone(&blobs), strict);
        let group = Group::new(Arc::clone(&pool), syncer.handle());
        let identity = identities(&pool)?;
        let (lock_owner, held, tokens, news, watch, is_served, has_ledger, damaged) = Default::default();
        Ok(Self {
            dir,
            locks,
            blobs,
            identity,
            group,
            syncer,
            pool,
            lock_owner,
            held,
            tokens,
            news,
            watch,
            bell: OnceLock::new(),
            is_served,
            has_ledger,
            damaged,
        })
    }

    /// Checks that the journal and its log still have their names. SQLite continues to write to a deleted file, and a run would
    /// seem to be saved that can never be found again.
    ///
    /// # Errors
    /// One of the files was deleted or replaced.
    pub(crate) fn is_in_place(&self) -> Result<(), Error> {
        let found = identities(&self.pool)?;
        let is_same = |at: usize| found[at] == self.identity[at];
        // A journal has no log while its file system or a full disk keeps SQLite from creating one.
        let is_log_lost = self.identity[1].is_some() && !is_same(1);
        let (path, what) = match (found[0].is_none() || !is_same(0), is_log_lost) {
            (false, false) => return Ok(()),
            (true, _) => (self.pool.path().to_owned(), "it"),
            (false, true) => (self.pool.log(), "the log of the journal"),
        };
        let why = format!("{what} was deleted or moved during a write; restore it if possible, then resume the run");
        Err(Error::Store { path: path.display().to_string(), why })
    }

    /// Checks that the journal is in its place and accepts writes. Writes nothing.
    ///
    /// # Errors
    /// The reason why it cannot be written.
    pub(crate) fn check_writes(&self) -> Result<(), Error> {
        self.is_in_place()?;
        // The lock of a writer needs a writable file.
        self.pool.write(|connection| connection.execute_batch("begin immediate; rollback"))
    }

    /// Creates a run and a session for it. The run is not synced: the sync of the first record covers it. A large input is
    /// synced, because no record names it.
    pub(crate) async fn create(self: &Arc<Self>, run: &NewRun) -> Result<SqliteSession, Error> {
        let pending_run = Arc::new(self.pending_run(run)?);
        let input: Vec<Digest> = values_of_header(&run.header).collect();
        if self.has_many_runs() {
            let writing = Arc::clone(&pending_run);
            let written = self.group.write(input, move |connection| writing.write(connection)).await;
            return pending_run.session(written);
        }
        let session = pending_run.session(self.pool.transaction(|connection| pending_run.write(connection)))?;
        if !input.is_empty() {
            self.syncer.committed(&input)?;
        }
        Ok(session)
    }

    pub(crate) fn pending_run(self: &Arc<Self>, run: &NewRun) -> Result<PendingRun, Error> {
        let (journal, lock_owner) = (Arc::clone(self), self.lock_owner()?);
        Ok(PendingRun { journal, lock_owner, run: run.clone(), token: self.token(), number: Mutex::default() })
    }

    /// A session for an existing run.
    pub(crate) fn claim(self: &Arc<Self>, run_id: &str) -> Result<SqliteSession, Error> {
        let since = Instant::now();
        loop {
            let run = self.find_here(run_id)?;
            let lock_owner = self.lock_owner()?;
            match self.other_owner(&run, &lock_owner)? {
                None => {
                    if let Some((run, taken)) = self.take(&run, &lock_owner)? {
                        return Ok(SqliteSession::new(Arc::clone(self), run, taken));
                    }
                    // Another process has taken the run since it was read.
                }
                Some(name) => {
                    let pid = lock_owner::process_of(name);
                    if !pid.is_some_and(unix::is_gone) || since.elapsed() > GRACE_PERIOD {
                        return Err(Error::Busy { run: run_id.to_owned(), holder: pid.map(RunOwner::process) });
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// The refusal of a run that another owner has.
    pub(crate) fn busy(&self, run_id: &str, name: &str) -> Error {
        Error::Busy { run: run_id.to_owned(), holder: lock_owner::process_of(name).map(RunOwner::process) }
    }

    /// Current owner of the run; the lock of a dead process does not count, and its file is removed.
    pub(crate) fn other_owner<'r>(&self, run: &'r Run, own: &LockOwner) -> Result<Option<&'r str>, Error> {
        let Some(name) = run.lock_owner.as_deref() else { return Ok(None) };
        if self.has(run.number, name) {
            return Ok(Some(name));
        }
        let is_alive =
            || lock_owner::is_alive_or_remove(&self.locks, name).map_err(|cause| file_error(&self.locks, &cause));
        Ok((name != own.name() && is_alive()?).then_some(name))
    }

    /// Takes a run that was free when it was read; `None` if that has changed.
    fn take(&self, seen: &Run, lock_owner: &Arc<LockOwner>) -> Result<Option<(NewRun, Taken)>, Error> {
        self.take_if(seen, lock_owner, |_| Ok(true))
    }

    /// The same, if `and` then returns true in the same transaction, in which it may write further changes.
    pub(crate) fn take_if(
        &self,
        seen: &Run,
        lock_owner: &Arc<LockOwner>,
        and: impl FnOnce(&Connection) -> rusqlite::Result<bool>,
    ) -> Result<Option<(NewRun, Taken)>, Error> {
        let (number, token) = (seen.number, self.token());
        let taken = self.pool.transaction(|connection| {
            let Some(run) = Run::find(connection, &seen.id)? else { return Ok(None) };
            if !run.is_as(seen) || !and(connection)? {
                return Ok(None);
            }
            let epoch = run.epoch + 1;
            connection.prepare_cached("update runs set epoch = ?2, holder = ?3 where number = ?1")?.execute((
                number,
                epoch,
                lock_owner.name(),
            ))?;
            rows::remove_lost(connection, number, |blob| self.blobs.is_lost(blob))?;
            let next = rows::next_seq(connection, number)?;
            // A holder that releases a run clears its name: this one died.
            if seen.lock_owner.is_some() {
                let progress = rows::progress(connection, number)?;
                let deaths = rows::deaths(connection, number, progress)? + 1;
                connection
                    .prepare_cached("update runs set deaths = ?2, deaths_at = ?3 where number = ?1")?
                    .execute((number, deaths, progress))?;
            }
            let Some(run) = Run::find(connection, &seen.id)? else { return Ok(None) };
            let was_queued = run.state == RunState::Queued;
            let began_at_ms = run.started_at_ms.unwrap_or(run.created_at_ms);
            let run = run.created(connection)?;
            // Before any other process can see the row.
            self.hold(number, token, lock_owner);
            Ok(Some((run, Taken { number, epoch, token, next, began_at_ms, was_queued })))
        });
        taken.inspect_err(|_| self.release(number, token))
    }

    /// A new token, which distinguishes a session from all others of this journal.
    fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    /// The lock owner of this journal, created with its first run.
    pub(crate) fn lock_owner(&self) -> Result<Arc<LockOwner>, Error> {
        let mut lock_owner = lock(&self.lock_owner);
        if let Some(lock_owner) = lock_owner.as_ref().filter(|lock_owner| lock_owner.is_in_place()) {
            return Ok(Arc::clone(lock_owner));
        }
        let made = LockOwner::new(&self.locks).map_err(|cause| file_error(&self.locks, &cause))?;
        Ok(Arc::clone(lock_owner.insert(Arc::new(made))))
    }

    /// True if an owner has the run right now, or if that is unknown.
    pub(crate) fn is_held(&self, run: &Run) -> bool {
        let Some(name) = &run.lock_owner else { return false };
        self.has(run.number, name) || (!self.is_own(name) && lock_owner::is_alive(&self.locks, name).unwrap_or(true))
    }

    /// True if enough sessions are open here that they write together.
    pub(crate) fn has_many_runs(&self) -> bool {
        lock(&self.held).len() >= MANY_RUNS
    }

    /// True if no session is open here.
    pub(crate) fn has_no_run(&self) -> bool {
        lock(&self.held).is_empty()
    }

    fn hold(&self, number: i64, token: u64, lock_owner: &Arc<LockOwner>) {
        lock(&self.held).insert(number, Hold { token, lock_owner: Arc::clone(lock_owner) });
    }

    /// True if a session of this journal has the run, whose row names the holder `name`.
    fn has(&self, number: i64, name: &str) -> bool {
        lock(&self.held).get(&number).is_some_and(|hold| hold.lock_owner.name() == name)
    }

    /// True if `name` is this journal's name in rows.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        lock(&self.lock_owner).as_ref().is_some_and(|own| own.name() == name)
    }

    /// Releases the run of the session with this token.
    pub(crate) fn release(&self, number: i64, token: u64) {
        let mut held = lock(&self.held);
        // Another session may have the number by now: numbers of undone rows are given again.
        if held.get(&number).is_some_and(|hold| hold.token == token) {
            held.remove(&number);
        }
    }

    /// The number of a run in all tables; an error if no run has this id.
    pub(crate) fn number(&self, run_id: &str) -> Result<i64, Error> {
        self.find(run_id).map(|run| run.number)
    }

    /// The run with exactly this id, unless it was moved away.
    pub(crate) fn find_here(&self, run_id: &str) -> Result<Run, Error> {
        let run = self.find(run_id)?;
        if run.state == RunState::Moved { Err(Error::Moved(run_id.to_owned())) } else { Ok(run) }
    }

    /// The run with exactly this id.
    pub(crate) fn find(&self, run_id: &str) -> Result<Run, Error> {
        let run = self.pool.read(|connection| Run::find(connection, run_id))?;
        run.ok_or_else(|| Error::Unknown(run_id.to_owned()))
    }
}

/// The identities of the journal's file and its log, which distinguish them from others with the same names.
fn identities(pool: &Pool) -> Result<[Option<(u64, u64)>; 2], Error> {
    let identity = |path: PathBuf| unix::identity(&path).map_err(|cause| file_error(&path, &cause));
    Ok([identity(pool.path().to_owned())?, identity(pool.log())?])
}

//! An open journal: what the engine and its sessions share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use etude_files::private;
use etude_runtime::blob::FileBlobs;
use etude_runtime::engine::{Error, Holder, NewRun, RunState};
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
use crate::{Settings, Sync, migrate, platform};

/// Name of the database file in the journal's directory.
const FILE: &str = "journal.db";

/// A child of a process that was killed holds a copy of its lock between its fork and its exec. On a busy machine that is
/// long enough to meet; so long such a lock is waited for, if the process that took it is gone.
const GRACE_PERIOD: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 5 });

/// How often it is looked at meanwhile.
const PAUSE: Duration = Duration::from_micros(500);

/// The shared part of an open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) dir: PathBuf,
    pub(crate) locks: PathBuf,
    pub(crate) blobs: Arc<FileBlobs>,
    /// Which files the journal and its log were when it was opened.
    identity: [Option<(u64, u64)>; 2],
    // Before the syncer: what writes is asked to stop before what syncs. Anyone who waits for either has the journal.
    pub(crate) group: Group,
    pub(crate) syncer: Syncer,
    pub(crate) pool: Arc<Pool>,
    /// There since the first run that this journal had.
    lock_owner: Mutex<Option<Arc<LockOwner>>>,
    /// The runs that it has, by their numbers.
    held: Mutex<BTreeMap<i64, Hold>>,
    /// How many tokens were given so far.
    tokens: AtomicU64,
    pub(crate) news: Mutex<News>,
    pub(crate) watch: Mutex<Watch>,
    /// Rings after writes, since the first question whether it does.
    pub(crate) bell: OnceLock<Option<Arc<Notify>>>,
    /// The journal has what those need who accept runs or follow them.
    pub(crate) is_served: AtomicBool,
    pub(crate) has_ledger: AtomicBool,
}

/// A session's hold on a run.
#[derive(Debug)]
struct Hold {
    /// No other session of the journal has this.
    token: u64,
    /// Its file may have been removed and replaced for later ones.
    lock_owner: Arc<LockOwner>,
}

/// A run that is created.
#[derive(Debug)]
pub(crate) struct PendingRun {
    journal: Arc<Journal>,
    lock_owner: Arc<LockOwner>,
    run: NewRun,
    token: u64,
    /// There once its row is, until it has a session.
    number: Mutex<Option<i64>>,
}

impl PendingRun {
    /// False if there is a run of that id.
    pub(crate) fn write(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let run = &self.run;
        let inserted = rows::insert(connection, run, RunState::Running, Some(self.lock_owner.name()))?;
        let Some(number) = inserted else { return Ok(false) };
        // Before anybody else can see the row.
        self.journal.hold(number, self.token, &self.lock_owner);
        *lock(&self.number) = Some(number);
        Ok(true)
    }

    /// The session of what was born.
    fn session(&self, written: Result<bool, Error>) -> Result<SqliteSession, Error> {
        let number = if written? { lock(&self.number).take() } else { None };
        let number = number.ok_or_else(|| Error::Exists(self.run.id.clone()))?;
        let began_at_ms = self.run.created_at_ms;
        let taken = Taken { number, epoch: 1, token: self.token, next: 0, began_at_ms, was_queued: false };
        Ok(SqliteSession::new(Arc::clone(&self.journal), self.run.clone(), taken))
    }
}

impl Drop for PendingRun {
    /// What was not written, or is waited for by no one, is no one's.
    fn drop(&mut self) {
        let Some(number) = lock(&self.number).take() else { return };
        // By its id as well: the number of what was undone is given again.
        let _ = self.journal.pool.write(|connection| {
            connection
                .prepare_cached("update runs set holder = null where number = ?1 and id = ?2 and epoch = 1")?
                .execute((number, &self.run.id))
        });
        self.journal.release(number, self.token);
    }
}

impl Journal {
    /// Opens the journal in a directory; both are created if need be.
    pub(crate) fn open(settings: Settings) -> Result<Self, Error> {
        Self::of_format(settings, migrate::STEPS)
    }

    /// The same with the format that these steps end with.
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
        let (lock_owner, held, tokens, news, watch, is_served, has_ledger) = Default::default();
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
        })
    }

    /// Makes sure that what is written is still found under the names of the journal and its log. SQLite goes on writing to a
    /// file that was deleted, and a run would seem to be kept that no one can ever find again.
    ///
    /// # Errors
    /// One of the files was deleted or replaced.
    pub(crate) fn is_in_place(&self) -> Result<(), Error> {
        let found = identities(&self.pool)?;
        let is_same = |at: usize| found[at] == self.identity[at];
        // A journal has no log as long as its file system or a full disk keeps SQLite from making one.
        let is_log_lost = self.identity[1].is_some() && !is_same(1);
        let (path, what) = match (found[0].is_none() || !is_same(0), is_log_lost) {
            (false, false) => return Ok(()),
            (true, _) => (self.pool.path().to_owned(), "it"),
            (false, true) => (self.pool.log(), "the log of the journal"),
        };
        let why = format!(
            "{what} was deleted or moved while it was written to; put it back if you have it, then resume the run"
        );
        Err(Error::Store { path: path.display().to_string(), why })
    }

    /// Whether the journal is in its place and takes writes. Nothing is written.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) fn check_writes(&self) -> Result<(), Error> {
        self.is_in_place()?;
        // The lock of a writer needs a file that may be written.
        self.pool.write(|connection| connection.execute_batch("begin immediate; rollback"))
    }

    /// Creates a run and a session for it. It is not synced: the sync of the first record covers it.
    pub(crate) async fn create(self: &Arc<Self>, run: &NewRun) -> Result<SqliteSession, Error> {
        let pending_run = Arc::new(self.pending_run(run)?);
        let written = if self.has_many_runs() {
            let writing = Arc::clone(&pending_run);
            self.group.write(Vec::new(), move |connection| writing.write(connection)).await
        } else {
            self.pool.transaction(|connection| pending_run.write(connection))
        };
        pending_run.session(written)
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
                    // Somebody else has taken it since it was looked at.
                }
                Some(name) => {
                    let pid = lock_owner::process_of(name);
                    if !pid.is_some_and(platform::is_gone) || since.elapsed() > GRACE_PERIOD {
                        return Err(Error::Busy { run: run_id.to_owned(), holder: pid.map(Holder::process) });
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// The refusal of a run that somebody has.
    pub(crate) fn busy(&self, run_id: &str, name: &str) -> Error {
        Error::Busy { run: run_id.to_owned(), holder: lock_owner::process_of(name).map(Holder::process) }
    }

    /// Who has the run, without leftovers of a dead one.
    pub(crate) fn other_owner<'r>(&self, run: &'r Run, own: &LockOwner) -> Result<Option<&'r str>, Error> {
        let Some(name) = run.lock_owner.as_deref() else { return Ok(None) };
        if self.has(run.number, name) {
            return Ok(Some(name));
        }
        let is_alive =
            || lock_owner::is_alive_or_remove(&self.locks, name).map_err(|cause| file_error(&self.locks, &cause));
        Ok((name != own.name() && is_alive()?).then_some(name))
    }

    /// Takes a run that was free when it was looked at; `None` if that has changed.
    fn take(&self, seen: &Run, lock_owner: &Arc<LockOwner>) -> Result<Option<(NewRun, Taken)>, Error> {
        self.take_if(seen, lock_owner, |_| Ok(true))
    }

    /// The same, if `and` then says so, in the same transaction: it may write what else is true of the run from now on.
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
            // A holder that lets go of a run takes its name away: this one died.
            if seen.lock_owner.is_some() {
                let deaths = rows::deaths(connection, number, next)? + 1;
                connection
                    .prepare_cached("update runs set deaths = ?2, deaths_at = ?3 where number = ?1")?
                    .execute((number, deaths, next))?;
            }
            let Some(run) = Run::find(connection, &seen.id)? else { return Ok(None) };
            let was_queued = run.state == RunState::Queued;
            let began_at_ms = run.started_at_ms.unwrap_or(run.created_at_ms);
            let run = run.created(connection)?;
            // Before anybody else can see the row.
            self.hold(number, token, lock_owner);
            Ok(Some((run, Taken { number, epoch, token, next, began_at_ms, was_queued })))
        });
        taken.inspect_err(|_| self.release(number, token))
    }

    /// What tells a session from all others of this journal.
    fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    /// This journal as one that has runs.
    pub(crate) fn lock_owner(&self) -> Result<Arc<LockOwner>, Error> {
        let mut lock_owner = lock(&self.lock_owner);
        if let Some(lock_owner) = lock_owner.as_ref().filter(|lock_owner| lock_owner.is_in_place()) {
            return Ok(Arc::clone(lock_owner));
        }
        let made = LockOwner::new(&self.locks).map_err(|cause| file_error(&self.locks, &cause))?;
        Ok(Arc::clone(lock_owner.insert(Arc::new(made))))
    }

    /// True if somebody has the run right now, or if no one can tell.
    pub(crate) fn is_held(&self, run: &Run) -> bool {
        let Some(name) = &run.lock_owner else { return false };
        self.has(run.number, name) || (!self.is_own(name) && lock_owner::is_alive(&self.locks, name).unwrap_or(true))
    }

    /// Enough sessions are open here that each is better off if it does not write for itself.
    pub(crate) fn has_many_runs(&self) -> bool {
        lock(&self.held).len() >= MANY_RUNS
    }

    fn hold(&self, number: i64, token: u64, lock_owner: &Arc<LockOwner>) {
        lock(&self.held).insert(number, Hold { token, lock_owner: Arc::clone(lock_owner) });
    }

    /// Whether a session of this journal has the run, which its row says of the holder `name`.
    fn has(&self, number: i64, name: &str) -> bool {
        lock(&self.held).get(&number).is_some_and(|hold| hold.lock_owner.name() == name)
    }

    /// Whether rows call this journal so.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        lock(&self.lock_owner).as_ref().is_some_and(|own| own.name() == name)
    }

    /// The session of this token has the run no more.
    pub(crate) fn release(&self, number: i64, token: u64) {
        let mut held = lock(&self.held);
        // Another one may have it by now: numbers of what was undone are given again.
        if held.get(&number).is_some_and(|hold| hold.token == token) {
            held.remove(&number);
        }
    }

    /// The number by which all tables know a run; an error if there is none of this id.
    pub(crate) fn number(&self, run_id: &str) -> Result<i64, Error> {
        self.find(run_id).map(|run| run.number)
    }

    /// The run of exactly this id, if it was not moved away.
    pub(crate) fn find_here(&self, run_id: &str) -> Result<Run, Error> {
        let run = self.find(run_id)?;
        if run.state == RunState::Moved { Err(Error::Moved(run_id.to_owned())) } else { Ok(run) }
    }

    /// The run of exactly this id.
    pub(crate) fn find(&self, run_id: &str) -> Result<Run, Error> {
        let run = self.pool.read(|connection| Run::find(connection, run_id))?;
        run.ok_or_else(|| Error::Unknown(run_id.to_owned()))
    }
}

/// What tells the journal's file and its log from others of the same names.
fn identities(pool: &Pool) -> Result<[Option<(u64, u64)>; 2], Error> {
    let identity = |path: PathBuf| platform::identity(&path).map_err(|cause| file_error(&path, &cause));
    Ok([identity(pool.path().to_owned())?, identity(pool.log())?])
}

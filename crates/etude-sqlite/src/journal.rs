//! An open journal: what the engine and its sessions share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use etude_runtime::blob::FileBlobs;
use etude_runtime::engine::{Error, NewRun};
use rusqlite::{Connection, ErrorCode};

use crate::error::file_error;
use crate::group::{Group, MANY_RUNS};
use crate::holder::{self, Holder};
use crate::pool::{Pool, lock};
use crate::rows::{self, Run};
use crate::session::SqliteSession;
use crate::signal::News;
use crate::syncer::Syncer;
use crate::{Settings, Sync, migrate, platform};

/// Name of the database file in the journal's directory.
const FILE: &str = "journal.db";

/// A child of a process that was killed holds a copy of its lock between its fork and its exec. On a busy machine that is
/// long enough to meet; so long such a lock is waited for, if the process that took it is gone.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// How often it is looked at meanwhile.
const PAUSE: Duration = Duration::from_micros(500);

/// The shared part of an open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) dir: PathBuf,
    pub(crate) locks: PathBuf,
    pub(crate) blobs: Arc<FileBlobs>,
    /// Which file the journal was when it was opened.
    identity: Option<(u64, u64)>,
    // Before the pool: its thread uses connections.
    pub(crate) syncer: Syncer,
    pub(crate) group: Group,
    pub(crate) pool: Arc<Pool>,
    /// There since the first run that this journal had.
    holder: Mutex<Option<Arc<Holder>>>,
    /// The runs that it has, by their numbers, each with the epoch of its session.
    held: Mutex<BTreeMap<i64, i64>>,
    pub(crate) news: Mutex<News>,
}

/// What came of a look at who has a run.
enum Claimed {
    /// It is ours; its number, its epoch, and the number of its next record.
    Taken(NewRun, i64, i64, u32),
    /// Somebody has it: this holder.
    Held(String),
}

/// A run that is created.
struct Birth {
    journal: Arc<Journal>,
    holder: Arc<Holder>,
    run: NewRun,
    /// There once its row is.
    number: OnceLock<i64>,
}

impl Birth {
    /// False if there is a run of that id.
    fn write(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let run = &self.run;
        let inserted = connection
            .prepare_cached(
                "insert into runs (id, app, target, abi, state, epoch, created_at_ms, changed_at_ms, holder)
                 values (?1, ?2, ?3, ?4, 'running', 1, ?5, ?5, ?6)",
            )?
            .insert((&run.id, &run.app, &run.target, run.abi, run.created_at_ms, self.holder.name()));
        let number = match inserted {
            Err(cause) if cause.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => return Ok(false),
            inserted => inserted?,
        };
        connection.prepare_cached("insert into headers (run, body) values (?1, ?2)")?.execute((number, &run.header))?;
        // Before anybody else can see the row.
        lock(&self.journal.held).insert(number, 1);
        let _ = self.number.set(number);
        Ok(true)
    }

    /// The session of what was born. It is not synced by itself: the sync of the first record covers it.
    fn session(&self, born: Result<bool, Error>) -> Result<SqliteSession, Error> {
        let number = self.number.get().copied();
        if let (Err(_), Some(number)) = (&born, number) {
            self.journal.let_go(number, 1);
        }
        let number = number.filter(|_| matches!(born, Ok(true)));
        born?;
        let number = number.ok_or_else(|| Error::Exists(self.run.id.clone()))?;
        let (journal, holder) = (Arc::clone(&self.journal), Arc::clone(&self.holder));
        Ok(SqliteSession::new(journal, holder, self.run.clone(), number, 1, 0))
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
            platform::create_private_dir(&locks).map_err(|cause| file_error(&locks, &cause))?;
        }
        let pool = Arc::new(Pool::new(dir.join(FILE)));
        migrate::prepare(&pool, &locks, steps)?;
        let blobs = Arc::new(FileBlobs::new(dir.join("blobs"), strict));
        let syncer = Syncer::new(Arc::clone(&pool), Arc::clone(&blobs), strict);
        let group = Group::new(Arc::clone(&pool), syncer.handle());
        let identity = platform::identity(pool.path()).map_err(|cause| file_error(pool.path(), &cause))?;
        let (holder, held, news) = Default::default();
        Ok(Self { dir, locks, blobs, identity, syncer, group, pool, holder, held, news })
    }

    /// Makes sure that what is written is still found under the journal's name. SQLite goes on writing to a file that was
    /// deleted, and a run would seem to be kept that nobody can ever find again.
    pub(crate) fn is_in_place(&self) -> Result<(), Error> {
        let path = self.pool.path();
        let found = platform::identity(path).map_err(|cause| file_error(path, &cause))?;
        if found.is_some() && found == self.identity {
            return Ok(());
        }
        let why = "it was deleted or moved while it was written to; if you have it, put it back and resume the run";
        Err(Error::Store { path: path.display().to_string(), why: why.to_owned() })
    }

    /// Creates a run and a session for it.
    pub(crate) fn create(self: &Arc<Self>, run: &NewRun) -> Result<SqliteSession, Error> {
        let birth = self.birth(run)?;
        let born = self.pool.transaction(|connection| birth.write(connection));
        birth.session(born)
    }

    /// The same together with what others write.
    pub(crate) async fn create_with_others(self: &Arc<Self>, run: &NewRun) -> Result<SqliteSession, Error> {
        let birth = Arc::new(self.birth(run)?);
        let writing = Arc::clone(&birth);
        let born = self.group.write(Vec::new(), move |connection| writing.write(connection)).await;
        birth.session(born)
    }

    fn birth(self: &Arc<Self>, run: &NewRun) -> Result<Birth, Error> {
        let (journal, holder) = (Arc::clone(self), self.holder()?);
        Ok(Birth { journal, holder, run: run.clone(), number: OnceLock::new() })
    }

    /// A session for an existing run.
    pub(crate) fn claim(self: &Arc<Self>, run_id: &str) -> Result<SqliteSession, Error> {
        // Looked up first, so that no holder is made for a run that does not exist.
        self.number(run_id)?;
        let holder = self.holder()?;
        let since = Instant::now();
        loop {
            match self.try_claim(run_id, &holder)? {
                Claimed::Taken(run, number, epoch, next) => {
                    return Ok(SqliteSession::new(Arc::clone(self), holder, run, number, epoch, next));
                }
                Claimed::Held(name) => {
                    let pid = holder::process_of(&name);
                    if !pid.is_some_and(platform::is_gone) || since.elapsed() > LAST_BREATH {
                        return Err(Error::Busy { run: run_id.to_owned(), pid });
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    fn try_claim(&self, run_id: &str, holder: &Holder) -> Result<Claimed, Error> {
        let mut taken = None;
        let claimed = self.pool.transaction(|connection| {
            let Some(run) = Run::find(connection, run_id)? else {
                return Ok(None);
            };
            let (number, epoch) = (run.number, run.epoch + 1);
            if let Some(name) = &run.holder {
                let is_held = if name == holder.name() {
                    lock(&self.held).contains_key(&number)
                } else {
                    holder::is_there_still(&self.locks, name)
                };
                if is_held {
                    return Ok(Some(Claimed::Held(name.clone())));
                }
            }
            connection.prepare_cached("update runs set epoch = ?2, holder = ?3 where number = ?1")?.execute((
                number,
                epoch,
                holder.name(),
            ))?;
            rows::remove_lost(connection, number, |blob| self.blobs.is_lost(blob))?;
            let next = rows::next_seq(connection, number)?;
            let run = run.created(connection)?;
            lock(&self.held).insert(number, epoch);
            taken = Some((number, epoch));
            Ok(Some(Claimed::Taken(run, number, epoch, next)))
        });
        if let (Err(_), Some((number, epoch))) = (&claimed, taken) {
            self.let_go(number, epoch);
        }
        claimed?.ok_or_else(|| Error::Unknown(run_id.to_owned()))
    }

    /// This journal as one that has runs.
    fn holder(&self) -> Result<Arc<Holder>, Error> {
        let mut holder = lock(&self.holder);
        if let Some(holder) = &*holder {
            return Ok(Arc::clone(holder));
        }
        let made = Holder::new(&self.locks).map_err(|cause| file_error(&self.locks, &cause))?;
        Ok(Arc::clone(holder.insert(Arc::new(made))))
    }

    /// True if somebody has the run right now.
    pub(crate) fn is_held(&self, run: &Run) -> bool {
        let Some(name) = &run.holder else { return false };
        match &*lock(&self.holder) {
            Some(own) if own.name() == name => lock(&self.held).contains_key(&run.number),
            _ => holder::is_there(&self.locks, name),
        }
    }

    /// So many runs are at work here that each is better off if it does not write for itself.
    pub(crate) fn has_many_runs(&self) -> bool {
        lock(&self.held).len() >= MANY_RUNS
    }

    /// The session of this epoch has the run no more.
    pub(crate) fn let_go(&self, number: i64, epoch: i64) {
        let mut held = lock(&self.held);
        // Where locks do not work, somebody in this very process may have taken it over.
        if held.get(&number) == Some(&epoch) {
            held.remove(&number);
        }
    }

    /// The number of a run.
    pub(crate) fn number(&self, run_id: &str) -> Result<i64, Error> {
        let run = self.pool.read(|connection| Run::find(connection, run_id))?;
        run.map(|run| run.number).ok_or_else(|| Error::Unknown(run_id.to_owned()))
    }
}

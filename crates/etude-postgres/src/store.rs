//! The shared part of an open engine: state of the engine and its sessions, and claims and releases of runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use etude_runtime::clock;
use etude_runtime::engine::{DamagedRuns, Error, NewRun, RunOwner, RunState};
use tokio::sync::mpsc::UnboundedSender;

use crate::append::Pending;
use crate::bell::Bell;
use crate::blobs::{Blobs, Depot, Shelf};
use crate::claim::{DEAD, DEATHS};
use crate::copies::Copies;
use crate::error::Fault;
use crate::follow::Watch;
use crate::grant::{self, Access};
use crate::link::{Connection, Link, attempt, lock};
use crate::pulse::Pulse;
use crate::rows::{CLAIM, IS_LIVE, NO_PROGRESS, Run};
use crate::session::PostgresSession;
use crate::wake::{Released, release};
use crate::worker::{Enrolment, Times};
use crate::{lease, migrate, rows, rules, worker};

/// Pause between two looks at a run of a dead worker until its lease is over.
const PAUSE: Duration = Duration::from_millis(50);

/// Maximum wait for the database at the end of a session; after that the heartbeat releases the run.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// The shared part of an open engine.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) link: Arc<Link>,
    /// Kind and tenant of the logged-in role.
    pub(crate) access: Access,
    pub(crate) depot: Arc<Depot>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) times: Times,
    /// The name of this engine as a worker.
    pub(crate) worker: String,
    /// True once the worker is registered.
    pub(crate) registered: tokio::sync::Mutex<bool>,
    /// The runs with a session here: session number and signals by the number of the run.
    pub(crate) held: Mutex<BTreeMap<i64, Hold>>,
    /// Sessions with a claim in progress. The database may know their claim before this process does.
    claiming: Mutex<BTreeSet<i64>>,
    /// Runs that could not be released, each with its session.
    pub(crate) unreleased: Mutex<Vec<Released>>,
    /// Relation of this process to the database.
    pub(crate) pulse: Pulse,
    pub(crate) bell: Bell,
    /// Profile of this process as a worker, for others.
    pub(crate) profile: Mutex<Enrolment>,
    /// True if the times of the callers count, for tests.
    has_callers_clock: bool,
    /// The clock of the database: its time, in milliseconds since 1970, at a moment of this process.
    pub(crate) clock: Mutex<Option<(Instant, i64)>>,
    pub(crate) appends: UnboundedSender<Pending>,
    pub(crate) watch: Mutex<Watch>,
    /// The runs that lists have left out.
    pub(crate) damaged: DamagedRuns,
}

/// A session's hold on a run.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) session: i64,
    /// Number of the run's signals at the last count.
    pub(crate) signals: i64,
}

/// A claim in progress.
#[derive(Debug)]
pub(crate) struct Claiming<'s> {
    store: &'s Store,
    pub(crate) session: i64,
}

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        lock(&self.store.claiming).remove(&self.session);
    }
}

/// State with which a session begins.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) number: i64,
    pub(crate) session: i64,
    /// Position of the last record; 0: there is none.
    pub(crate) position: i32,
    pub(crate) began_at_ms: i64,
    pub(crate) was_queued: bool,
    /// The worker that died with the run.
    pub(crate) taken_from: Option<String>,
    /// Number of times this worker had lost all of its runs before.
    pub(crate) lapses: u64,
}

/// Effects of taking a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Time at which a queued run begins, in milliseconds since 1970; `None` to leave it queued.
    pub(crate) begins_at_ms: Option<i64>,
    /// True if the run counts against limits from now on.
    pub(crate) counts: bool,
}

impl Store {
    /// Connects and checks the schema.
    pub(crate) fn open(settings: crate::Settings) -> Result<Arc<Self>, Error> {
        let crate::Settings {
            address,
            cache,
            cache_limit,
            credentials,
            times,
            connections,
            connect_timeout,
            patience,
            is_blind,
            has_callers_clock,
            has_no_bell,
        } = settings;
        let link = Arc::new(Link::new(address, connections, patience)?);
        link.wait(migrate::check(&link, connect_timeout))?;
        let access = link.wait(grant::access(&link, connect_timeout))?;
        let tenant = access.is_tenant().then(|| access.tenant.clone());
        let depot = Arc::new(Depot::new(Copies::new(cache, cache_limit), Arc::clone(&link), credentials, tenant));
        link.wait(follow(&link, &depot, connect_timeout))?;
        let blobs = Arc::new(Blobs::new(&depot, Shelf::Values));
        let (appends, pending) = tokio::sync::mpsc::unbounded_channel();
        crate::append::start(&link, pending);
        let worker = worker::name();
        let (pulse, bell) = (Pulse::new(times, is_blind), Bell::new(has_no_bell));
        let (registered, held, claiming, unreleased, profile, clock, watch) = Default::default();
        Ok(Arc::new(Self {
            link,
            access,
            depot,
            blobs,
            times,
            worker,
            registered,
            held,
            claiming,
            unreleased,
            pulse,
            bell,
            profile,
            has_callers_clock,
            clock,
            appends,
            watch,
            damaged: DamagedRuns::default(),
        }))
    }

    /// Inserts a run and claims it for a new session.
    pub(crate) async fn create(self: Arc<Self>, run: NewRun) -> Result<PostgresSession, Error> {
        let run = self.owned(run);
        worker::register(&self).await?;
        let claiming = self.claiming();
        let session = claiming.session;
        let inserted = attempt!(self.link, |connection| {
            let (state, worker, at_ms) = (RunState::Running, Some(self.worker.as_str()), run.created_at_ms);
            rows::insert(
                connection,
                &run,
                rows::NewRow { state, session, worker, key: None, keys: &[], at_ms, queued_at_ms: at_ms },
            )
        });
        let number = inserted.ok_or_else(|| Error::Exists(run.id.clone()))?;
        let (began_at_ms, lapses) = (run.created_at_ms, self.pulse.lapses());
        let taken = Taken { number, session, position: 0, began_at_ms, was_queued: false, taken_from: None, lapses };
        Ok(PostgresSession::new(Arc::clone(&self), run, taken))
    }

    /// The run with the logged-in tenant as its owner, regardless of its own placement.
    pub(crate) fn owned(&self, mut run: NewRun) -> NewRun {
        if self.access.is_tenant() {
            run.placement.tenant = Some(self.access.tenant.clone());
        }
        run
    }

    /// Claims an existing run.
    pub(crate) async fn claim(self: &Arc<Self>, run_id: &str) -> Result<PostgresSession, Error> {
        let claiming = self.claiming();
        let session = claiming.session;
        loop {
            // The heartbeat comes first: after a restart of the server, leases are not compared until the first one.
            worker::register(self).await?;
            let run = self.find_here(run_id).await?;
            self.wait_until_free(&run).await?;
            let lapses = self.pulse.lapses();
            let taken = attempt!(self.link, |connection| self.take(connection, &run, session, Manner::default()));
            if let Some((run, taken)) = taken {
                let is_takeover = taken.taken_from.is_some();
                self.pulse.claimed(is_takeover.then(|| (run.placement.queue(), 1)), is_takeover);
                let taken = Taken { lapses, ..taken };
                return Ok(PostgresSession::new(Arc::clone(self), run, taken));
            }
            // Another session has taken the run since it was read.
        }
    }

    /// Returns once no session has the run.
    ///
    /// # Errors
    /// [`Error::Busy`] if its worker lives.
    pub(crate) async fn wait_until_free(&self, run: &Run) -> Result<(), Error> {
        let Some(name) = &run.worker else { return Ok(()) };
        let busy = || Error::Busy { run: run.row.id.clone(), holder: Some(RunOwner { pid: None, name: name.clone() }) };
        if *name == self.worker {
            return if self.has(run.row.number) { Err(busy()) } else { Ok(()) };
        }
        if !run.row.is_live {
            return Ok(());
        }
        // The connection of a killed process closes at once. A living process reconnects within the grace period.
        let until = Instant::now() + self.times.grace + self.times.beat;
        loop {
            match attempt!(self.link, |connection| lease::lease_of(connection, name, self.times.grace)) {
                lease::Lease::Over => return Ok(()),
                lease::Lease::Disconnected if Instant::now() < until => tokio::time::sleep(PAUSE).await,
                _ => return Err(busy()),
            }
        }
    }

    /// Takes a run that was free when it was read; `None` if that has changed. The mark of the claim is written with
    /// it: of this session and the previous one, one collides with a record of the other.
    ///
    /// A running run leaves the queue. A queued or waiting run leaves it when its driver sets it running.
    pub(crate) async fn take(
        &self,
        connection: &mut Connection,
        seen: &Run,
        session: i64,
        manner: Manner,
    ) -> Result<Option<(NewRun, Taken)>, Fault> {
        // A damaged run is refused before anything is written.
        let run = seen.created(connection).await?;
        let (number, is_queued) = (seen.row.number, seen.row.state == RunState::Queued);
        let begins = manner.begins_at_ms.filter(|_| is_queued);
        let sql = format!(
            "with last as (
                select coalesce(max(seq), 0) as seq, coalesce(max(seq) filter (where key not in {NO_PROGRESS}), 0) as proper
                from records where run = $1),
            taken as (
                update runs set epoch = epoch + 1, session = $4, worker = $5,
                    deaths = {DEATHS}, dead = {DEAD},
                    deaths_at = case when worker is null then deaths_at else last.proper end,
                    state = case when $6::bigint is null then state else 'running' end,
                    started_at_ms = coalesce(started_at_ms, $6), changed_at_ms = coalesce($6, changed_at_ms),
                    rank = case when $7 then coalesce(rank, created_at_ms) else rank end
                from last
                where run = $1 and epoch = $2 and session = $3
                    and (worker is null or worker = $5 or not {IS_LIVE})
                returning run, state),
            begun as (delete from queue using taken where queue.run = taken.run and taken.state = 'running'),
            mark as (
                insert into records (run, seq, session, key, request, body)
                select taken.run, last.seq + 1, $4, '{CLAIM}', $8, convert_to($5, 'UTF8') from taken, last where $2 > 0)
            select last.seq + ($2 > 0)::integer from taken, last"
        );
        let request = [0_u8; 32];
        let parameters: [crate::link::Parameter<'_>; 8] =
            [&number, &seen.epoch, &seen.session, &session, &self.worker, &begins, &manner.counts, &request.as_slice()];
        let position: i32 = match connection.query_opt(&sql, &parameters).await? {
            Some(row) => row.try_get(0)?,
            None => match self.already_taken(connection, number, session).await? {
                Some(position) => position,
                None => return Ok(None),
            },
        };
        let began_at_ms = seen.row.started_at_ms.or(begins).unwrap_or(seen.row.created_at_ms);
        let was_queued = is_queued && begins.is_none();
        let taken_from = seen.worker.clone().filter(|name| *name != self.worker);
        Ok(Some((run, Taken { number, session, position, began_at_ms, was_queued, taken_from, lapses: 0 })))
    }

    /// The position of the run if an earlier attempt of this session has taken it and its reply was lost.
    pub(crate) async fn already_taken(
        &self,
        connection: &mut Connection,
        number: i64,
        session: i64,
    ) -> Result<Option<i32>, Fault> {
        let sql = "select coalesce((select max(seq) from records where records.run = runs.run), 0) from runs
            where run = $1 and session = $2";
        let row = connection.query_opt(sql, &[&number, &session]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Releases the run of a session.
    pub(crate) async fn release(&self, of: Released) -> Result<(), Error> {
        let is_draining = self.is_draining();
        attempt!(self.link.attempts_for(RELEASE_PATIENCE); |connection| release(connection, of, is_draining));
        Ok(())
    }

    /// True if this process is a worker that can run steps in a sandbox.
    pub(crate) fn has_sandbox(&self) -> bool {
        lock(&self.profile).profile.as_ref().is_some_and(|profile| profile.has_sandbox)
    }

    /// True if a session here has the run.
    pub(crate) fn has(&self, number: i64) -> bool {
        lock(&self.held).contains_key(&number)
    }

    /// Begins a claim for a new session. Until its end, the heartbeat does not release the run of that session.
    pub(crate) fn claiming(&self) -> Claiming<'_> {
        let session = random();
        lock(&self.claiming).insert(session);
        Claiming { store: self, session }
    }

    /// Releases runs that this worker has in the database and nowhere else: the reply to their claim was lost, and the
    /// claim was not repeated (K-26).
    ///
    /// A claim in progress is noted before its statement is sent, so every run in this list is either known or an orphan.
    pub(crate) async fn release_orphans(&self, connection: &mut Connection) -> Result<(), Fault> {
        let rows = connection.query("select run, session from runs where worker = $1", &[&self.worker]).await?;
        for row in rows {
            let (number, session) = (row.try_get(0)?, row.try_get(1)?);
            // The order matters: a claim ends once the run is held.
            if !lock(&self.claiming).contains(&session) && !self.holds(number, session) {
                let of = Released { number, session, postponed: None };
                release(connection, of, self.is_draining()).await?;
            }
        }
        Ok(())
    }

    fn holds(&self, number: i64, session: i64) -> bool {
        lock(&self.held).get(&number).is_some_and(|hold| hold.session == session)
    }

    /// Notes that a session here has the run.
    pub(crate) fn hold(&self, number: i64, session: i64) {
        lock(&self.held).insert(number, Hold { session, signals: 0 });
    }

    /// Removes the note of [`Store::hold`].
    pub(crate) fn forget_hold(&self, number: i64, session: i64) {
        let mut held = lock(&self.held);
        if held.get(&number).is_some_and(|hold| hold.session == session) {
            held.remove(&number);
        }
    }

    /// The time by the clock of the database, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        let elapsed = |(at, ms): (Instant, i64)| ms.saturating_add_unsigned(at.elapsed().as_millis() as u64);
        lock(&self.clock).map_or_else(clock::now_ms, elapsed)
    }

    /// A caller's time, for statements that take the clock of the database if it is null. The clocks of machines
    /// differ, and none of them decides about the runs of others (K-25).
    pub(crate) fn given(&self, now_ms: i64) -> Option<i64> {
        self.has_callers_clock.then_some(now_ms)
    }

    /// The run with exactly this id, if it was not moved away.
    pub(crate) async fn find_here(&self, run_id: &str) -> Result<Run, Error> {
        let run = self.find(run_id).await?;
        if run.row.state == RunState::Moved { Err(Error::Moved(run_id.to_owned())) } else { Ok(run) }
    }

    /// The run with exactly this id.
    pub(crate) async fn find(&self, run_id: &str) -> Result<Run, Error> {
        let run = attempt!(self.link, |connection| Run::find(connection, run_id));
        run.ok_or_else(|| Error::Unknown(run_id.to_owned()))
    }
}

impl Drop for Store {
    /// Interrupts the store's runs now, instead of at the end of the lease.
    fn drop(&mut self) {
        worker::leave(self);
    }
}

/// Reads the storage of large values.
async fn follow(link: &Link, depot: &Depot, patience: Duration) -> Result<(), Error> {
    let url = attempt!(link.attempts_for(patience); |connection| rules::url(connection));
    depot.follow(url.as_deref());
    Ok(())
}

/// A random number for a session, unique in practice.
pub(crate) fn random() -> i64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    // Both halves have fixed bits of the version; the combination has none.
    i64::from_ne_bytes((high ^ low.rotate_left(32)).to_ne_bytes())
}

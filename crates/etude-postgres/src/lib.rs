//! The engine of a fleet: it keeps runs in one PostgreSQL database, for any number of processes on any number of machines.
//!
//! The position of a record is the fence: a session that lost its run cannot write, regardless of clocks, locks and
//! leases. Leases only decide when others may take a run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use etude_core::data::Json;
use etude_core::digest::Digest;
use etude_runtime::blob::BlobStore;
use etude_runtime::engine::{
    ArchivedRun, Boxed, CacheLabel, CacheQuery, CacheRow, Captured, Census, Counts, DamagedRun, Engine, Enqueued,
    Entry, EntryQuery, Error, Fleet, Health, Ledger, Limits, LinkEvent, NewRun, OldEntries, Positioned, Profile,
    Prunable, Query, QueuePlace, QueueRules, Record, Rules, RunRow, RunView, Session, Signal, Signalled, Stamp,
    Submission, TenantRules, Transfer, Write, Written,
};
use etude_runtime::record::usage_of;

mod address;
mod append;
mod bell;
mod blobs;
mod cache;
mod census;
mod check;
mod claim;
mod connection;
mod copies;
mod error;
mod follow;
mod grant;
mod lease;
mod ledger;
mod link;
mod listing;
mod migrate;
mod objects;
mod probe;
mod prune;
mod pulse;
mod queue;
mod quota;
mod rows;
mod rules;
mod servers;
mod session;
mod signal;
mod store;
mod submission;
mod tls;
mod transfer;
mod uploads;
mod value;
mod wake;
mod worker;

pub use crate::address::{Address, AddressError};
use crate::blobs::{Blobs, Shelf};
pub use crate::check::{Check, Report, Status};
pub use crate::grant::{Grant, RoleKind};
use crate::link::Link;
pub use crate::migrate::Migration;
pub use crate::objects::{Credentials, Location};
use crate::store::Store;
pub use crate::worker::Times;

/// The statement of a claim, for tests that read its plan (K-31).
#[doc(hidden)]
pub fn claim_statement() -> String {
    claim::statement(true)
}

/// The settings of each session, for tests that read plans (K-31).
#[doc(hidden)]
pub fn session_settings() -> &'static str {
    connection::SETTINGS
}

/// Settings of the engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The database.
    pub address: Address,
    /// Directory for copies of large values. It may be removed at any time.
    pub cache: PathBuf,
    /// Maximum size of these copies in bytes; the oldest ones are removed.
    pub cache_limit: u64,
    /// The keys to object storage.
    pub credentials: Credentials,
    /// Times of leases.
    pub times: Times,
    /// Number of connections for statements; the heartbeat has one more.
    pub connections: usize,
    /// Maximum wait for the database when the engine opens.
    pub connect_timeout: Duration,
    /// Maximum wait of later statements for a database that does not answer.
    pub patience: Duration,
    /// For tests: this process never checks its own lease and never stops itself (K-7).
    pub is_blind: bool,
    /// For tests: the times of the callers count, not the clock of the database (K-25).
    pub has_callers_clock: bool,
    /// For tests: this process neither rings the bell nor listens (K-36).
    pub has_no_bell: bool,
}

/// An open engine.
#[derive(Debug)]
pub struct Postgres {
    store: Arc<Store>,
}

impl Postgres {
    /// Connects to the database and looks at the schema, which must have the format of this version.
    ///
    /// # Errors
    /// [`Error::Store`] if the database does not answer or refuses the user; [`Error::Refused`] if it has no schema or an older
    /// format; [`Error::TooNew`].
    pub fn open(settings: Settings) -> Result<Self, Error> {
        Ok(Self { store: Store::open(settings)? })
    }

    /// Creates the schema, or brings it to the format of this version.
    ///
    /// # Errors
    /// As [`Postgres::open`]; nothing is changed then.
    pub fn migrate(address: Address, connect_timeout: Duration) -> Result<Migration, Error> {
        let link = Link::new(address, 1, connect_timeout)?;
        link.wait(migrate::migrate(&link, connect_timeout))
    }

    /// Makes a role of the database a worker or a tenant (K-56). The role must exist and must not own the schema.
    ///
    /// # Errors
    /// As [`Postgres::open`]; nothing is changed then.
    pub fn grant(address: Address, connect_timeout: Duration, grant: &Grant) -> Result<(), Error> {
        let link = Link::new(address, 1, connect_timeout)?;
        link.wait(grant::grant(&link, connect_timeout, grant))
    }

    /// Checks a database and its settings, with any schema or none, and its object storage. It writes only a probe to
    /// object storage. `now` is the clock of this machine.
    ///
    /// # Errors
    /// The database does not answer, or refuses the user.
    pub fn check(
        address: Address,
        connect_timeout: Duration,
        credentials: &Credentials,
        now: &(dyn Fn() -> SystemTime + Sync),
    ) -> Result<Report, Error> {
        let link = Link::new(address, 1, connect_timeout)?;
        link.wait(check::check(&link, connect_timeout, credentials, now))
    }

    /// Replaces the queues, the tenants or both. The default queue always exists.
    ///
    /// # Errors
    /// The store fails.
    pub fn apply(
        &self,
        queues: Option<&BTreeMap<String, QueueRules>>,
        tenants: Option<&BTreeMap<String, TenantRules>>,
    ) -> Result<(), Error> {
        self.store.link.wait(self.store.apply(queues, tenants))
    }

    /// Sets the storage of large values: the URL of object storage; `None`: the database.
    ///
    /// # Errors
    /// Values exist in another storage, or the store fails.
    pub fn apply_blobs(&self, url: Option<&str>) -> Result<(), Error> {
        self.store.link.wait(self.store.apply_blobs(url))
    }

    /// The plan of a list, for tests (K-59).
    ///
    /// # Errors
    /// The store fails.
    #[doc(hidden)]
    pub fn plan_of_list(&self, query: &Query) -> Result<String, Error> {
        self.store.link.wait(self.store.plan_of_list(query))
    }

    /// The name of this process as a worker.
    pub fn worker(&self) -> &str {
        &self.store.worker
    }
}

fn boxed(session: impl Session + 'static) -> Box<dyn Session> {
    Box::new(session)
}

impl Engine for Postgres {
    fn create<'e>(&'e self, run: &'e NewRun) -> Boxed<'e, Result<Box<dyn Session>, Error>> {
        let created = self.store.link.spawn(Arc::clone(&self.store).create(run.clone()));
        Box::pin(async move { created.await.map(boxed) })
    }

    fn claim(&self, run_id: &str) -> Result<Box<dyn Session>, Error> {
        self.store.link.wait(self.store.claim(run_id)).map(boxed)
    }

    fn list(&self, query: &Query) -> Result<Vec<RunRow>, Error> {
        self.store.link.wait(self.store.list(query))
    }

    fn damaged(&self) -> Vec<DamagedRun> {
        self.store.damaged.noted()
    }

    fn count(&self, query: &Query) -> Result<u64, Error> {
        self.store.link.wait(self.store.count(query))
    }

    fn counts(&self, query: &Query) -> Result<Counts, Error> {
        self.store.link.wait(self.store.counts(query))
    }

    fn result(&self, run_id: &str) -> Result<Option<String>, Error> {
        self.store.link.wait(self.store.result(run_id))
    }

    fn view(&self, run_id: &str) -> Result<RunView, Error> {
        self.store.link.wait(self.store.view(run_id))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn outline(&self, run_id: &str) -> Result<RunView, Error> {
        self.store.link.wait(self.store.outline(run_id))
    }

    fn records_of(&self, run_id: &str, key: &str) -> Result<Vec<Record>, Error> {
        self.store.link.wait(self.store.records_of(run_id, key))
    }

    fn tail(&self, run_id: &str, after: u64, limit: u32) -> Result<Vec<Positioned>, Error> {
        self.store.link.wait(self.store.tail(run_id, after, limit))
    }

    fn changes(&self, after: u64, limit: u32) -> Result<Vec<RunRow>, Error> {
        self.store.link.wait(self.store.changes(after, limit))
    }

    fn last_change(&self) -> Result<u64, Error> {
        self.store.link.wait(self.store.last_change())
    }

    fn may_be_past(&self, change: u64) -> Result<bool, Error> {
        self.store.link.wait(self.store.may_be_past(change))
    }

    fn version(&self) -> Result<u64, Error> {
        self.store.link.wait(self.store.version())
    }

    fn signal(&self, run_id: &str, signal: &Signal) -> Result<Signalled, Error> {
        self.store.link.wait(self.store.signal(run_id, signal))
    }

    fn prune(&self, query: &Query) -> Result<u64, Error> {
        self.store.link.wait(self.store.prune(query))
    }

    fn prunable(&self, query: &Query) -> Result<Prunable, Error> {
        self.store.link.wait(self.store.prunable(query))
    }

    fn recall(&self, key: Digest, ttl_ms: Option<u64>) -> Result<Option<Json>, Error> {
        self.store.recall(key, ttl_ms)
    }

    fn remember(&self, key: Digest, output: &Json, label: &CacheLabel) -> Result<(), Error> {
        self.store.remember(key, output, label)
    }

    fn cached(&self, query: &CacheQuery) -> Result<Vec<CacheRow>, Error> {
        self.store.link.wait(self.store.cached(query))
    }

    fn forget(&self, query: &CacheQuery) -> Result<u64, Error> {
        self.store.link.wait(self.store.forget(query))
    }

    fn blobs(&self) -> Arc<dyn BlobStore> {
        Arc::clone(&self.store.blobs) as Arc<dyn BlobStore>
    }

    fn bundles(&self) -> Arc<dyn BlobStore> {
        Arc::new(Blobs::new(&self.store.depot, Shelf::Bundles))
    }
}

impl Fleet for Postgres {
    fn worker(&self) -> Option<String> {
        Some(self.store.worker.clone())
    }

    fn tenant(&self) -> Option<String> {
        self.store.access.is_tenant().then(|| self.store.access.tenant.clone())
    }

    fn enqueue<'f>(&'f self, submission: &'f Submission) -> Boxed<'f, Result<Enqueued, Error>> {
        self.store.link.spawn(Arc::clone(&self.store).enqueue(submission.clone()))
    }

    fn next(&self, limits: &Limits, now_ms: i64) -> Result<Option<Box<dyn Session>>, Error> {
        Ok(self.next_few(limits, 1, now_ms)?.pop())
    }

    fn next_few(&self, limits: &Limits, count: usize, now_ms: i64) -> Result<Vec<Box<dyn Session>>, Error> {
        let taken = self.store.link.wait(self.store.next(limits, count, now_ms))?;
        Ok(taken.into_iter().map(boxed).collect())
    }

    fn take(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<Box<dyn Session>>, Error> {
        Ok(self.store.link.wait(self.store.take_within(run_id, limits, now_ms))?.map(boxed))
    }

    fn place(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<QueuePlace>, Error> {
        self.store.link.wait(self.store.place(run_id, limits, now_ms))
    }

    fn deaths(&self, run_id: &str) -> Result<u32, Error> {
        self.store.link.wait(self.store.deaths(run_id))
    }

    fn dead_workers(&self, run_id: &str) -> Result<Vec<String>, Error> {
        self.store.link.wait(self.store.dead_workers(run_id))
    }

    fn cost_since(&self, tenant: &str, since_ms: i64) -> Result<Option<f64>, Error> {
        let mut cost = self.store.link.wait(self.store.cost_since(tenant, since_ms))?;
        for id in self.store.link.wait(self.store.continued_since(tenant, since_ms))? {
            match self.view(&id) {
                Ok(view) => cost += usage_of(view.records.iter(), &*self.blobs()).cost_usd.unwrap_or(0.0),
                Err(Error::Unknown(_) | Error::Moved(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(cost))
    }

    fn requeue<'f>(&'f self, run_id: &'f str, now_ms: i64) -> Boxed<'f, Result<(), Error>> {
        Box::pin(self.store.requeue(run_id, now_ms))
    }

    fn check_values(&self) -> Result<(), Error> {
        self.store.link.wait(probe::values(&self.store))
    }

    fn check_work(&self) -> Result<(), Error> {
        self.store.link.wait(probe::work(&self.store))
    }

    fn join(&self, profile: &Profile) -> Result<(), Error> {
        self.store.link.wait(self.store.join(profile))
    }

    fn retire(&self) {
        self.store.retire();
    }

    fn health(&self) -> Health {
        self.store.pulse.health()
    }

    fn check_writes(&self) -> Result<(), Error> {
        self.store.link.wait(self.store.check_writes())
    }

    fn link_events(&self) -> Vec<LinkEvent> {
        self.store.pulse.events()
    }

    fn rung(&self) -> Boxed<'_, ()> {
        Box::pin(self.store.bell.rung())
    }

    fn is_waiting(&self, limits: &Limits, now_ms: i64) -> Result<bool, Error> {
        self.store.link.wait(self.store.is_waiting(limits, now_ms))
    }

    fn census(&self) -> Result<Census, Error> {
        self.store.link.wait(self.store.census())
    }

    fn rules(&self) -> Result<Rules, Error> {
        self.store.link.wait(self.store.rules())
    }

    fn expired(&self, now_ms: i64) -> Result<Vec<Box<dyn Session>>, Error> {
        Ok(self.store.link.wait(self.store.expired(now_ms))?.into_iter().map(boxed).collect())
    }
}

impl Ledger for Postgres {
    fn write<'l>(&'l self, write: &'l Write) -> Boxed<'l, Result<Written, Error>> {
        self.store.link.spawn(Arc::clone(&self.store).write_entry(write.clone()))
    }

    fn entries(&self, query: &EntryQuery) -> Result<Vec<Entry>, Error> {
        self.store.link.wait(self.store.entries(query))
    }

    fn remove_entries(&self, old: &OldEntries) -> Result<u64, Error> {
        self.store.link.wait(self.store.remove_entries(old))
    }
}

impl Transfer for Postgres {
    fn capture(&self, run_id: &str) -> Result<Captured, Error> {
        self.store.link.wait(self.store.capture(run_id))
    }

    fn move_away(&self, runs: &[Stamp]) -> Result<Vec<String>, Error> {
        self.store.link.wait(self.store.move_away(runs))
    }

    fn admit(&self, run: &ArchivedRun) -> Result<bool, Error> {
        self.store.link.wait(self.store.admit(run))
    }
}

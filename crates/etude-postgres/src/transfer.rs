//! Transfer of runs into and out of the database (K-64, K-65).

use std::collections::BTreeSet;
use std::sync::Arc;

use etude_core::digest::Digest;
use etude_runtime::engine::{ArchivedRun, Captured, Error, Record, RunState, Stamp, UniqueKey};

use crate::error::Fault;
use crate::link::{Connection, Parameter, attempt};
use crate::rows::{self, CLAIM, NewRow, Run};
use crate::store::{self, Store};
use crate::submission::shown_key;
use crate::wake::READY;

/// Number of records in one statement.
const GROUP: usize = 256;

impl Store {
    /// Everything about a run, as of one moment.
    pub(crate) async fn capture(&self, run_id: &str) -> Result<Captured, Error> {
        let captured = attempt!(self.link, |connection| capture(connection, run_id));
        captured.ok_or_else(|| Error::Unknown(run_id.to_owned()))
    }

    /// Marks runs as moved away. Returns the ids of the runs that have changed and stay.
    pub(crate) async fn move_away(&self, runs: &[Stamp]) -> Result<Vec<String>, Error> {
        let session = store::random();
        let gone = attempt!(self.link, |connection| move_away(connection, runs, session));
        Ok(runs.iter().map(|stamp| stamp.run_id.clone()).filter(|id| !gone.contains(id)).collect())
    }

    /// Adds a run. False if a run with that id exists.
    pub(crate) async fn admit(self: &Arc<Self>, run: &ArchivedRun) -> Result<bool, Error> {
        let session = store::random();
        let is_new = attempt!(self.link, |connection| admit(connection, run, session));
        if is_new && !run.state.is_final() {
            self.ring().await;
        }
        Ok(is_new)
    }
}

async fn capture(connection: &mut Connection, run_id: &str) -> Result<Option<Captured>, Fault> {
    connection.begin_as("begin transaction isolation level repeatable read read only");
    let captured = match Run::find(connection, run_id).await? {
        Some(run) => Some(captured(connection, &run).await?),
        None => None,
    };
    connection.roll_back().await?;
    Ok(captured)
}

async fn captured(connection: &mut Connection, row: &Run) -> Result<Captured, Fault> {
    let number = row.row.number;
    let run = ArchivedRun {
        run: row.created(connection).await?,
        state: row.row.state,
        started_at_ms: row.row.started_at_ms,
        changed_at_ms: row.row.changed_at_ms,
        keys: keys(connection, number).await?,
        records: rows::records(connection, number).await?,
        signals: rows::signals(connection, number).await?,
        result: rows::result(connection, number).await?,
        values: Vec::new(),
    };
    let stamp = Stamp {
        run_id: run.run.id.clone(),
        version: row.epoch,
        state: run.state,
        records: run.records.len() as u64,
        signals: run.signals.len() as u64,
    };
    Ok(Captured { run, stamp, is_live: row.row.is_live })
}

async fn keys(connection: &mut Connection, number: i64) -> Result<Vec<UniqueKey>, Fault> {
    let found = connection.query("select key, digest from keys where run = $1 order by key", &[&number]).await?;
    let key = |row: &tokio_postgres::Row| {
        let digest: Option<&[u8]> = row.try_get(1)?;
        Ok(UniqueKey { key: rows::text(row.try_get(0)?)?, digest: digest.map(rows::digest).transpose()? })
    };
    found.iter().map(key).collect()
}

/// Marks runs as moved away, in one transaction, and returns their ids, including those of an earlier attempt of this
/// session whose reply was lost.
///
/// The rows are locked first: a signal at this moment is seen by the following statement, or finds the run moved. The
/// mark of a claim keeps a worker that has unknowingly lost a run from writing another record.
async fn move_away(connection: &mut Connection, runs: &[Stamp], session: i64) -> Result<BTreeSet<String>, Fault> {
    let ids: Vec<&str> = runs.iter().map(|stamp| stamp.run_id.as_str()).filter(|id| !id.contains('\0')).collect();
    connection.begin();
    connection.query("select 1 from runs where id = any($1) order by run for update", &[&ids]).await?;
    let sql = format!(
        "with seen as (
            select * from unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[])
                as seen (id, version, state, records, signals)),
        gone as (
            update runs set state = 'moved', epoch = epoch + 1, session = $6, worker = null, changed_at_ms = now_ms()
            from seen where runs.id = seen.id and runs.epoch = seen.version and runs.state = seen.state
                and runs.state in ('queued', 'running', 'waiting', 'sleeping')
                and not exists (select 1 from workers where workers.worker = runs.worker and is_alive(workers.lease_until))
                and (select count(*) from records where records.run = runs.run and key <> '{CLAIM}') = seen.records
                and (select count(*) from signals where signals.run = runs.run) = seen.signals
            returning runs.run),
        dequeued as (delete from queue using gone where queue.run = gone.run),
        mark as (
            insert into records (run, seq, session, key, request, body)
            select run, coalesce((select max(seq) from records where records.run = gone.run), 0) + 1, $6, '{CLAIM}', $7, ''
            from gone)
        select count(*) from gone"
    );
    let stamps = || runs.iter().filter(|stamp| !stamp.run_id.contains('\0'));
    let versions: Vec<i64> = stamps().map(|stamp| stamp.version).collect();
    let states: Vec<&str> = stamps().map(|stamp| stamp.state.word()).collect();
    let records: Vec<i64> = stamps().map(|stamp| rows::from_length(stamp.records)).collect();
    let signals: Vec<i64> = stamps().map(|stamp| rows::from_length(stamp.signals)).collect();
    let request = [0_u8; 32];
    let parameters: [Parameter<'_>; 7] = [&ids, &versions, &states, &records, &signals, &session, &request.as_slice()];
    connection.query(&sql, &parameters).await?;
    let sql = "select id from runs where id = any($1) and state = 'moved' and session = $2";
    let found = connection.query(sql, &[&ids, &session]).await?;
    let gone = found.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<_, Fault>>()?;
    connection.commit().await?;
    Ok(gone)
}

/// Adds a run in one transaction. True also if an earlier attempt of this session added it and its reply was lost.
async fn admit(connection: &mut Connection, run: &ArchivedRun, session: i64) -> Result<bool, Fault> {
    let found = connection.query_opt("select session from runs where id = $1", &[&run.run.id]).await?;
    if let Some(row) = found {
        return Ok(row.try_get::<_, i64>(0)? == session);
    }
    connection.begin();
    let (state, at_ms, key) = (run.state, run.run.created_at_ms, shown_key(&run.keys));
    // The run may have been queued again.
    let queued_at_ms = run.changed_at_ms;
    let new = NewRow { state, session, worker: None, key, keys: &[], at_ms, queued_at_ms };
    let Some(number) = rows::insert(connection, &run.run, new).await? else {
        connection.roll_back().await?;
        return Ok(false);
    };
    // The first claim of a run writes no mark, and appended records must follow one if the run has records.
    let sql = "update runs set started_at_ms = $2, changed_at_ms = $3, epoch = case when $4 then 1 else epoch end where run = $1";
    let has_records = !run.records.is_empty();
    connection.execute(sql, &[&number, &run.started_at_ms, &run.changed_at_ms, &has_records]).await?;
    add_records(connection, number, session, &run.records).await?;
    for signal in &run.signals {
        let sql = "insert into signals (run, key, body, token, created_at_ms) values ($1, $2, $3, $4, now_ms())";
        connection.execute(sql, &[&number, &signal.key, &signal.body.as_bytes(), &session]).await?;
    }
    if let Some(result) = &run.result {
        let sql = "insert into results (run, body) values ($1, $2)";
        connection.execute(sql, &[&number, &result.as_bytes()]).await?;
    }
    for UniqueKey { key, digest } in &run.keys {
        let digest = digest.as_ref().map(|digest| &digest.as_bytes()[..]);
        let sql = "insert into keys (key, digest, run, tenant) select $1, $2, run, tenant from runs where run = $3 on conflict do nothing";
        connection.execute(sql, &[&key.as_bytes(), &digest, &number]).await?;
    }
    refer(connection, number, run).await?;
    // A worker that finds nothing to do suspends the run again, with the deadline in its records.
    if matches!(run.state, RunState::Running | RunState::Waiting | RunState::Sleeping) {
        connection.execute(READY, &[&number]).await?;
    }
    connection.commit().await?;
    Ok(true)
}

async fn add_records(connection: &mut Connection, run: i64, session: i64, records: &[Record]) -> Result<(), Fault> {
    for (at, group) in (0_i32..).step_by(GROUP).zip(records.chunks(GROUP)) {
        let positions: Vec<i32> = (at + 1..).take(group.len()).collect();
        let keys: Vec<&str> = group.iter().map(|record| record.key.as_str()).collect();
        let requests: Vec<&[u8]> = group.iter().map(|record| &record.request.as_bytes()[..]).collect();
        let bodies: Vec<&[u8]> = group.iter().map(|record| record.body.as_bytes()).collect();
        let joined: Vec<Option<Vec<u8>>> = group.iter().map(|record| rows::joined(&record.blobs)).collect();
        let sql = "insert into records (run, seq, session, key, request, body, blobs)
            select $1, new.seq, $2, new.key, new.request, new.body, new.blobs
            from unnest($3::integer[], $4::text[], $5::bytea[], $6::bytea[], $7::bytea[])
                as new (seq, key, request, body, blobs)";
        let parameters: [Parameter<'_>; 7] = [&run, &session, &positions, &keys, &requests, &bodies, &joined];
        connection.execute(sql, &parameters).await?;
    }
    Ok(())
}

/// Writes the references to the values that a run needs.
async fn refer(connection: &mut Connection, number: i64, run: &ArchivedRun) -> Result<(), Fault> {
    let needed: BTreeSet<&Digest> = run.records.iter().flat_map(|record| &record.blobs).chain(&run.values).collect();
    let needed: Vec<&[u8]> = needed.into_iter().map(|digest| &digest.as_bytes()[..]).collect();
    let sql = "insert into blob_refs (blob, run) select blob, $1 from unnest($2::bytea[]) as needed (blob)";
    connection.execute(sql, &[&number, &needed]).await?;
    Ok(())
}

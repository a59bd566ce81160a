//! Conversions between rows of the tables and the contract's types.

use etude_core::digest::Digest;
use etude_core::tree;
use etude_runtime::engine::{
    Cause, DEFAULT_QUEUE, DEFAULT_TENANT, DamagedRun, LimitGroup, NewRun, Placement, Positioned, Record, RunRow,
    RunState, Signal, UniqueKey,
};
use serde_json::{Value, json};
use tokio_postgres::Row;

use crate::error::Fault;
use crate::link::Connection;

/// Key of the records that claims write. Replay skips them.
pub(crate) const CLAIM: &str = "!claim";

/// SQL list of the keys whose records are not progress of a run: that of claims, and [`etude_runtime::record::TAKEN`].
pub(crate) const NO_PROGRESS: &str = "('!claim', '!clock', '!resumed')";

/// SQL condition: a worker with an unexpired lease has the run of the row `runs`.
pub(crate) const IS_LIVE: &str = "exists (select 1 from workers where workers.worker = runs.worker
    and is_alive(workers.lease_until))";

/// A row of `runs`.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) row: RunRow,
    pub(crate) abi: u32,
    pub(crate) epoch: i64,
    pub(crate) session: i64,
    /// The worker that has the run, or had it when it died.
    pub(crate) worker: Option<String>,
    /// True if the run counts against limits in its current state: a worker has it, or died with it.
    pub(crate) counts: bool,
}

/// The columns that [`Run::from_row`] reads.
pub(crate) fn columns() -> String {
    format!(
        "run, id, app, target, abi, state, epoch, session, worker, created_at_ms, changed_at_ms, started_at_ms, change, cause,
         submitter, labels, again_of, priority, not_before_ms, queue_timeout_ms, limit_group, limit_max, tenant, queue, bundle,
         worker is not null and rank is not null and state <> 'queued' as counts, {IS_LIVE} as is_live"
    )
}

impl Run {
    pub(crate) fn from_row(row: &Row) -> Result<Self, Fault> {
        let word: String = row.try_get("state")?;
        Ok(Self {
            row: RunRow {
                id: row.try_get("id")?,
                number: row.try_get("run")?,
                app: row.try_get("app")?,
                target: row.try_get("target")?,
                state: RunState::from_word(&word).ok_or_else(|| damaged(format!("`{word}` is not a run state")))?,
                is_live: row.try_get("is_live")?,
                worker: row.try_get("worker")?,
                created_at_ms: row.try_get("created_at_ms")?,
                started_at_ms: row.try_get("started_at_ms")?,
                changed_at_ms: row.try_get("changed_at_ms")?,
                change: length(row.try_get("change")?),
                placement: placement(row)?,
            },
            abi: number(row.try_get("abi")?),
            epoch: row.try_get("epoch")?,
            session: row.try_get("session")?,
            worker: row.try_get("worker")?,
            counts: row.try_get("counts")?,
        })
    }

    /// The run with exactly this id.
    pub(crate) async fn find(connection: &mut Connection, id: &str) -> Result<Option<Self>, Fault> {
        if id.contains('\0') {
            return Ok(None);
        }
        let sql = format!("select {} from runs where id = $1", columns());
        connection.query_opt(&sql, &[&id]).await?.as_ref().map(Self::from_row).transpose()
    }

    /// The run as it was created, with its header from the database.
    pub(crate) async fn created(&self, connection: &mut Connection) -> Result<NewRun, Fault> {
        let header = connection.query_opt("select body from headers where run = $1", &[&self.row.number]).await?;
        self.with_header(header.map(|row| row.try_get(0)).transpose()?)
    }

    /// The run as it was created, with this header.
    pub(crate) fn with_header(&self, header: Option<Vec<u8>>) -> Result<NewRun, Fault> {
        let id = &self.row.id;
        let header = header.ok_or_else(|| damaged(format!("the run `{id}` has no header")))?;
        let header =
            String::from_utf8(header).map_err(|why| damaged(format!("the header of the run `{id}`: {why}")))?;
        Ok(NewRun {
            id: self.row.id.clone(),
            app: self.row.app.clone(),
            target: self.row.target.clone(),
            abi: self.abi,
            created_at_ms: self.row.created_at_ms,
            header,
            placement: self.row.placement.clone(),
        })
    }
}

/// Reads rows of `runs`: those of damaged runs hold up no other.
///
/// # Errors
/// Not even the id of a run can be read.
pub(crate) fn readable(rows: &[Row], found: &mut Vec<RunRow>, damaged: &mut Vec<DamagedRun>) -> Result<(), Fault> {
    for row in rows {
        match Run::from_row(row) {
            Ok(run) => found.push(run.row),
            Err(fault) => damaged.push(DamagedRun { id: row.try_get("id")?, why: fault.why() }),
        }
    }
    Ok(())
}

fn placement(row: &Row) -> Result<Placement, Fault> {
    let cause: Option<String> = row.try_get("cause")?;
    let cause = cause.map(|word| Cause::from_word(&word).ok_or_else(|| damaged(format!("`{word}` is not a cause"))));
    let labels: Option<String> = row.try_get("labels")?;
    let labels = labels.map(|text| tree::parse(&text).map_err(|why| damaged(why.to_string()))).transpose()?;
    let labels = labels.iter().filter_map(Value::as_object).flatten();
    let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group: Option<Vec<u8>> = row.try_get("limit_group")?;
    let group = group.map(text).transpose()?;
    let max_runs: Option<i64> = row.try_get("limit_max")?;
    let bundle: Option<&[u8]> = row.try_get("bundle")?;
    let timeout: Option<i64> = row.try_get("queue_timeout_ms")?;
    Ok(Placement {
        cause: cause.transpose()?.unwrap_or_default(),
        by: row.try_get("submitter")?,
        labels: labels.map(|(key, value)| (key.clone(), text_of(value))).collect(),
        again_of: row.try_get("again_of")?,
        priority: row.try_get("priority")?,
        not_before_ms: row.try_get("not_before_ms")?,
        queue_timeout_ms: timeout.map(length),
        limit_group: group.zip(max_runs.map(number)).map(|(name, max_runs)| LimitGroup { name, max_runs }),
        tenant: named(row, "tenant")?,
        queue: named(row, "queue")?,
        bundle: bundle.map(digest).transpose()?,
    })
}

/// A name; `None` for the default one.
fn named(row: &Row, column: &str) -> Result<Option<String>, Fault> {
    let name: String = row.try_get(column)?;
    Ok(Some(name).filter(|name| name != DEFAULT_QUEUE))
}

/// Values of a new row for a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewRow<'m> {
    pub(crate) state: RunState,
    pub(crate) session: i64,
    pub(crate) worker: Option<&'m str>,
    /// The key under which the run was submitted.
    pub(crate) key: Option<&'m str>,
    /// The unique keys of the run.
    pub(crate) keys: &'m [UniqueKey],
    /// The time that decides the run's place in the queue, in milliseconds since 1970.
    pub(crate) at_ms: i64,
    /// The time from which the queue timeout counts, in milliseconds since 1970.
    pub(crate) queued_at_ms: i64,
}

/// The statement of [`insert`].
const INSERT: &str = "with inserted as (
        insert into runs (id, app, target, abi, state, epoch, session, worker, created_at_ms, changed_at_ms, cause, submitter,
            labels, again_of, priority, not_before_ms, queue_timeout_ms, limit_group, limit_max, tenant, queue, bundle,
            started_at_ms, rank, key)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)
        on conflict (id) do nothing returning run),
    header as (insert into headers (run, body) select run, $25 from inserted),
    labelled as (
        insert into labels (key, value, created_at_ms, run)
        select pair.key, pair.value, $9, run from inserted, unnest($26::bytea[], $27::bytea[]) as pair (key, value)),
    keyed as (
        insert into keys (key, digest, run, tenant)
        select one.key, one.digest, run, $19 from inserted, unnest($28::bytea[], $29::bytea[]) as one (key, digest)),
    lined_up as (
        insert into queue (queue, rank, run, not_before_ms, expires_at_ms, limit_group, limit_max, abi, is_bundled, is_asleep)
        select $20, $23, run, $30, $31, $17, $18, $4, $21::bytea is not null, $30 > now_ms() and $15::bigint is not null
        from inserted where $5 = 'queued' on conflict do nothing)
    select run from inserted";

/// Writes the row of a run, with its header, its labels, its keys, and its place in the queue if it is queued. `None`
/// if a run with that id exists, unless an earlier attempt of this session wrote it and its reply was lost.
pub(crate) async fn insert(connection: &mut Connection, run: &NewRun, new: NewRow<'_>) -> Result<Option<i64>, Fault> {
    let NewRow { state, session, worker, key, keys: unique, at_ms, queued_at_ms } = new;
    let placement = &run.placement;
    let is_queued = state == RunState::Queued;
    let cause = (placement.cause != Cause::Cli).then(|| placement.cause.word());
    let labels = (!placement.labels.is_empty()).then(|| json!(placement.labels).to_string());
    let group = placement.limit_group.as_ref();
    let keys: Vec<&[u8]> = placement.labels.keys().map(|key| key.as_bytes()).collect();
    let values: Vec<&[u8]> = placement.labels.values().map(|value| value.as_bytes()).collect();
    let inserted = connection
        .query_opt(
            INSERT,
            &[
                &run.id,
                &run.app,
                &run.target,
                &i64::from(run.abi),
                &state.word(),
                &i64::from(!is_queued),
                &session,
                &worker,
                &run.created_at_ms,
                &cause,
                &placement.by,
                &labels,
                &placement.again_of,
                &placement.priority,
                &placement.not_before_ms,
                &placement.queue_timeout_ms.map(from_length),
                &group.map(|group| group.name.as_bytes()),
                &group.map(|group| i64::from(group.max_runs)),
                &placement.tenant.as_deref().unwrap_or(DEFAULT_TENANT),
                &placement.queue(),
                &placement.bundle.as_ref().map(|bundle| &bundle.as_bytes()[..]),
                &(!is_queued).then_some(run.created_at_ms),
                &is_queued.then(|| placement.rank(at_ms)),
                &key,
                &run.header.as_bytes(),
                &keys,
                &values,
                &unique.iter().map(|one| one.key.as_bytes()).collect::<Vec<_>>(),
                &unique.iter().map(|one| one.digest.as_ref().map(|digest| &digest.as_bytes()[..])).collect::<Vec<_>>(),
                // A clock that is set back delays no run that waits for no time.
                &placement.not_before_ms.unwrap_or(0),
                &placement.expires_at_ms(queued_at_ms),
            ],
        )
        .await?;
    let found = match inserted {
        Some(row) => Some(row),
        None => {
            connection.query_opt("select run from runs where id = $1 and session = $2", &[&run.id, &session]).await?
        }
    };
    Ok(found.map(|row| row.try_get(0)).transpose()?)
}

/// True if this run is in the database already, with the submitted header.
pub(crate) async fn is_own(connection: &mut Connection, run: &NewRun) -> Result<bool, Fault> {
    let sql = "select 1 from runs join headers using (run) where id = $1 and created_at_ms = $2 and body = $3";
    Ok(connection.query_opt(sql, &[&run.id, &run.created_at_ms, &run.header.as_bytes()]).await?.is_some())
}

/// The records of a run after a position, in order, without the marks of claims.
pub(crate) async fn tail(
    connection: &mut Connection,
    run: i64,
    after: u64,
    limit: Option<u32>,
) -> Result<Vec<Positioned>, Fault> {
    let Ok(after) = i32::try_from(after) else { return Ok(Vec::new()) };
    let sql = "select seq, key, request, body, blobs from records where run = $1 and seq > $2 and key <> '!claim' order by seq limit $3";
    let rows = connection.query(sql, &[&run, &after, &limit.map(i64::from)]).await?;
    rows.iter().map(positioned).collect()
}

fn positioned(row: &Row) -> Result<Positioned, Fault> {
    let position: i32 = row.try_get(0)?;
    let blobs: Option<&[u8]> = row.try_get(4)?;
    let (request, body) = (digest(row.try_get(2)?)?, text(row.try_get(3)?)?);
    let record = Record { key: row.try_get(1)?, request, body, blobs: digests(blobs.unwrap_or_default())? };
    Ok(Positioned { position: length(position.into()), record })
}

/// The records of a run with this key, in order.
pub(crate) async fn records_of(connection: &mut Connection, run: i64, key: &str) -> Result<Vec<Record>, Fault> {
    let sql = "select seq, key, request, body, blobs from records where run = $1 and key = $2 and key <> '!claim' order by seq";
    let rows = connection.query(sql, &[&run, &key]).await?;
    rows.iter().map(|row| Ok(positioned(row)?.record)).collect()
}

/// The records of a run, in order, without the marks of claims.
pub(crate) async fn records(connection: &mut Connection, run: i64) -> Result<Vec<Record>, Fault> {
    let all = tail(connection, run, 0, None).await?;
    Ok(all.into_iter().map(|positioned| positioned.record).collect())
}

/// The signals for a run, in the order of their arrival.
pub(crate) async fn signals(connection: &mut Connection, run: i64) -> Result<Vec<Signal>, Fault> {
    let rows = connection.query("select key, body from signals where run = $1 order by id", &[&run]).await?;
    rows.iter().map(|row| Ok(Signal { key: row.try_get(0)?, body: text(row.try_get(1)?)? })).collect()
}

/// The result document of a run.
pub(crate) async fn result(connection: &mut Connection, run: i64) -> Result<Option<String>, Fault> {
    let row = connection.query_opt("select body from results where run = $1", &[&run]).await?;
    row.map(|row| text(row.try_get(0)?)).transpose()
}

/// Concatenates digests.
pub(crate) fn joined(digests: &[Digest]) -> Option<Vec<u8>> {
    (!digests.is_empty()).then(|| digests.iter().flat_map(Digest::as_bytes).copied().collect())
}

pub(crate) fn digest(bytes: &[u8]) -> Result<Digest, Fault> {
    let bytes = bytes.try_into().map_err(|_| damaged(format!("{} bytes are not a digest", bytes.len())))?;
    Ok(Digest::from_bytes(bytes))
}

fn digests(bytes: &[u8]) -> Result<Vec<Digest>, Fault> {
    let (digests, rest) = bytes.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(damaged(format!("{} bytes are not a list of digests", bytes.len())));
    }
    Ok(digests.iter().copied().map(Digest::from_bytes).collect())
}

pub(crate) fn text(bytes: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(bytes).map_err(|cause| damaged(cause.to_string()))
}

/// A count in PostgreSQL's type.
pub(crate) fn from_length(length: u64) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// A count from the database.
pub(crate) fn length(length: i64) -> u64 {
    u64::try_from(length).unwrap_or(0)
}

fn number(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Error for data that no version of this program writes.
pub(crate) fn damaged(why: String) -> Fault {
    Fault::Engine(etude_runtime::engine::Error::Damaged { path: "in PostgreSQL".to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K-35: the statements follow the list of the runtime.
    #[test]
    fn records_of_a_process_that_takes_a_run_are_not_progress() {
        let keys: Vec<String> =
            [CLAIM].iter().chain(&etude_runtime::record::TAKEN).map(|key| format!("'{key}'")).collect();
        assert_eq!(NO_PROGRESS, format!("({})", keys.join(", ")));
    }
}

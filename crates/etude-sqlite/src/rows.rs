//! Conversion between rows of the tables and types of the contract.

use std::collections::BTreeSet;

use etude_core::digest::Digest;
use etude_core::tree;
use etude_runtime::engine::{
    Cause, Cursor, DamagedRun, LimitGroup, NewRun, Placement, Positioned, Record, RunState, Signal, values_of_header,
};
use etude_runtime::record::TAKEN;
use rusqlite::types::{FromSqlError, Type, ValueRef};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Row};
use serde_json::{Value, json};

/// The columns that [`Run::from_row`] reads.
pub(crate) const RUN_COLUMNS: &str = "number, id, app, target, abi, state, epoch, created_at_ms, changed_at_ms, holder,
    started_at_ms, change, cause, submitter, labels, again_of, priority, not_before_ms, queue_timeout_ms, limit_group,
    limit_max, tenant, queue, bundle";

/// SQL condition of the rows that [`Run::from_row`] may refuse: all damaged ones and few others, so that a count need not read
/// the rest.
pub(crate) fn is_suspect() -> String {
    let words = |all: Vec<&str>| all.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ");
    let states = words(RunState::ALL.into_iter().map(RunState::word).collect());
    let causes = words(Cause::ALL.into_iter().map(Cause::word).collect());
    format!(
        "(state not in ({states}) or cause not in ({causes}) or (runs.labels is not null and not json_valid(runs.labels))
          or abi not between 0 and {max} or limit_max not between 0 and {max} or change < 0 or length(bundle) <> 32
          or priority not between {} and {})",
        i32::MIN,
        i32::MAX,
        max = u32::MAX,
    )
}

/// A row of `runs`.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) number: i64,
    pub(crate) id: String,
    pub(crate) app: String,
    pub(crate) target: String,
    pub(crate) abi: u32,
    pub(crate) state: RunState,
    pub(crate) epoch: i64,
    pub(crate) created_at_ms: i64,
    pub(crate) changed_at_ms: i64,
    /// The owner of the run, alive or dead.
    pub(crate) lock_owner: Option<String>,
    pub(crate) started_at_ms: Option<i64>,
    pub(crate) change: u64,
    pub(crate) placement: Placement,
}

/// A row of `runs` that cannot be read, with its place in lists.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) cursor: Cursor,
    /// The number of its last change.
    pub(crate) change: i64,
    /// The word of its state.
    pub(crate) state: String,
    pub(crate) run: DamagedRun,
}

/// True if the error is about the content of rows: SQLite itself works, and so does the file.
pub(crate) const fn is_of_row(cause: &rusqlite::Error) -> bool {
    matches!(
        cause,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::QueryReturnedNoRows
    )
}

/// The damage of a run's rows.
fn why(cause: rusqlite::Error) -> String {
    match cause {
        rusqlite::Error::FromSqlConversionFailure(_, _, cause) => cause.to_string(),
        rusqlite::Error::QueryReturnedNoRows => "it has no header".to_owned(),
        cause => cause.to_string(),
    }
}

impl Run {
    pub(crate) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let word: String = row.get(5)?;
        Ok(Self {
            number: row.get(0)?,
            id: row.get(1)?,
            app: row.get(2)?,
            target: row.get(3)?,
            abi: row.get(4)?,
            state: RunState::from_word(&word).ok_or_else(|| not(5, format!("`{word}` is not a run state")))?,
            epoch: row.get(6)?,
            created_at_ms: row.get(7)?,
            changed_at_ms: row.get(8)?,
            lock_owner: row.get(9)?,
            started_at_ms: row.get(10)?,
            change: length(row, 11)?,
            placement: placement(row)?,
        })
    }

    /// The same, apart from a run whose row is damaged: it holds up no other.
    pub(crate) fn readable(row: &Row<'_>) -> rusqlite::Result<Result<Self, Unreadable>> {
        match Self::from_row(row) {
            Ok(run) => Ok(Ok(run)),
            Err(cause) if is_of_row(&cause) => {
                let cursor = Cursor { number: row.get(0)?, created_at_ms: row.get(7)? };
                let run = DamagedRun { id: row.get(1)?, why: why(cause) };
                Ok(Err(Unreadable { cursor, change: row.get(11)?, state: row.get(5)?, run }))
            }
            Err(cause) => Err(cause),
        }
    }

    /// The run with exactly this id.
    pub(crate) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Self>> {
        connection
            .prepare_cached(&format!("select {RUN_COLUMNS} from runs where id = ?1"))?
            .query_row([id], Self::from_row)
            .optional()
    }

    /// The run with this number, which must exist.
    pub(crate) fn by_number(connection: &Connection, number: i64) -> rusqlite::Result<Self> {
        connection
            .prepare_cached(&format!("select {RUN_COLUMNS} from runs where number = ?1"))?
            .query_row([number], Self::from_row)
    }

    /// The run with this number, which must exist, unless its row or its header is damaged.
    pub(crate) fn whole(connection: &Connection, number: i64) -> rusqlite::Result<Result<Self, DamagedRun>> {
        let sql = "select id from runs where number = ?1";
        let id = |connection: &Connection| connection.prepare_cached(sql)?.query_row([number], |row| row.get(0));
        let run = Self::by_number(connection, number).and_then(|run| run.created(connection).map(|_| run));
        match run {
            Ok(run) => Ok(Ok(run)),
            Err(cause) if is_of_row(&cause) => Ok(Err(DamagedRun { id: id(connection)?, why: why(cause) })),
            Err(cause) => Err(cause),
        }
    }

    /// True if the run is unchanged since `before`, with the same owner.
    pub(crate) fn is_as(&self, before: &Self) -> bool {
        (self.number, self.epoch, self.state, &self.lock_owner)
            == (before.number, before.epoch, before.state, &before.lock_owner)
    }

    /// The run at its creation, with its header.
    pub(crate) fn created(&self, connection: &Connection) -> rusqlite::Result<NewRun> {
        let header = connection
            .prepare_cached("select body from headers where run = ?1")?
            .query_row([self.number], |row| row.get(0))?;
        Ok(NewRun {
            id: self.id.clone(),
            app: self.app.clone(),
            target: self.target.clone(),
            abi: self.abi,
            created_at_ms: self.created_at_ms,
            header,
            placement: self.placement.clone(),
        })
    }
}

/// The placement of a run, from column 12 on.
fn placement(row: &Row<'_>) -> rusqlite::Result<Placement> {
    let cause: Option<String> = row.get(12)?;
    let cause = cause.map(|word| Cause::from_word(&word).ok_or_else(|| not(12, format!("`{word}` is not a cause"))));
    let labels: Option<String> = row.get(14)?;
    let labels = labels.map(|text| tree::parse(&text).map_err(|why| not(14, why.to_string()))).transpose()?;
    let group: Option<String> = row.get(19)?;
    let max_runs: Option<u32> = row.get(20)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = labels.iter().filter_map(Value::as_object).flatten();
    Ok(Placement {
        cause: cause.transpose()?.unwrap_or_default(),
        by: row.get(13)?,
        labels: labels.map(|(key, value)| (key.clone(), text(value))).collect(),
        again_of: row.get(15)?,
        priority: row.get(16)?,
        not_before_ms: row.get(17)?,
        queue_timeout_ms: row.get::<_, Option<i64>>(18)?.map(|ms| u64::try_from(ms).unwrap_or(0)),
        limit_group: group.zip(max_runs).map(|(name, max_runs)| LimitGroup { name, max_runs }),
        tenant: row.get(21)?,
        queue: row.get(22)?,
        bundle: (row.get_ref(23)? != ValueRef::Null).then(|| digest(row, 23)).transpose()?,
    })
}

/// Writes the row of a run, with its header and labels. Returns its number, or `None` if there is a run with that id.
pub(crate) fn insert(
    connection: &Connection,
    run: &NewRun,
    state: RunState,
    holder: Option<&str>,
) -> rusqlite::Result<Option<i64>> {
    let placement = &run.placement;
    let is_queued = state == RunState::Queued;
    let cause = (placement.cause != Cause::Cli).then(|| placement.cause.word());
    let labels = (!placement.labels.is_empty()).then(|| json!(placement.labels).to_string());
    let group = placement.limit_group.as_ref();
    let mut statement = connection.prepare_cached(
        "insert into runs (id, app, target, abi, state, epoch, created_at_ms, changed_at_ms, holder, cause, submitter, labels,
            again_of, priority, not_before_ms, queue_timeout_ms, limit_group, limit_max, tenant, queue, bundle, started_at_ms, rank)
         values (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)",
    )?;
    let inserted = statement.insert(rusqlite::params![
        run.id,
        run.app,
        run.target,
        run.abi,
        state.word(),
        run.created_at_ms,
        holder,
        cause,
        placement.by,
        labels,
        placement.again_of,
        placement.priority,
        placement.not_before_ms,
        placement.queue_timeout_ms.map(from_length),
        group.map(|group| &group.name),
        group.map(|group| group.max_runs),
        placement.tenant,
        placement.queue,
        placement.bundle.as_ref().map(|bundle| &bundle.as_bytes()[..]),
        (!is_queued).then_some(run.created_at_ms),
        is_queued.then(|| placement.rank(run.created_at_ms)),
    ]);
    let number = match inserted {
        Err(cause) if cause.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => return Ok(None),
        inserted => inserted?,
    };
    connection.prepare_cached("insert into headers (run, body) values (?1, ?2)")?.execute((number, &run.header))?;
    for (key, value) in &placement.labels {
        connection
            .prepare_cached("insert into labels (key, value, created_at_ms, run) values (?1, ?2, ?3, ?4)")?
            .execute((key, value, run.created_at_ms, number))?;
    }
    Ok(Some(number))
}

/// The digest in column `index`.
pub(crate) fn digest(row: &Row<'_>, index: usize) -> rusqlite::Result<Digest> {
    let bytes = row.get_ref(index)?.as_blob().map_err(|cause| mismatch(index, cause))?;
    let bytes = bytes.try_into().map_err(|_| not(index, format!("{} bytes are not a digest", bytes.len())))?;
    Ok(Digest::from_bytes(bytes))
}

/// The concatenated digests in column `index`.
fn digests(row: &Row<'_>, index: usize) -> rusqlite::Result<Vec<Digest>> {
    let bytes = row.get_ref(index)?.as_blob_or_null().map_err(|cause| mismatch(index, cause))?.unwrap_or_default();
    let (digests, rest) = bytes.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(not(index, format!("{} bytes are not a list of digests", bytes.len())));
    }
    Ok(digests.iter().copied().map(Digest::from_bytes).collect())
}

/// The number of bytes in column `index`.
pub(crate) fn length(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    let length: i64 = row.get(index)?;
    u64::try_from(length).map_err(|_| not(index, format!("{length} is not a number of bytes")))
}

/// A number of bytes in SQLite's integer type, capped at its maximum.
pub(crate) fn from_length(length: u64) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// The records of a run after a position, in order.
pub(crate) fn tail(connection: &Connection, run: i64, after: u64, limit: u32) -> rusqlite::Result<Vec<Positioned>> {
    let mut statement = connection.prepare_cached(
        "select seq, key, request, body, blobs from records where id between ?1 and ?2 order by id limit ?3",
    )?;
    // A position is one more than the number of its record.
    let Ok(first) = u32::try_from(after) else { return Ok(Vec::new()) };
    let rows = statement.query_map((record_id(run, first), record_id(run, u32::MAX), limit), |row| {
        let record = Record { key: row.get(1)?, request: digest(row, 2)?, body: row.get(3)?, blobs: digests(row, 4)? };
        Ok(Positioned { position: length(row, 0)? + 1, record })
    })?;
    rows.collect()
}

/// The records of a run, in order.
pub(crate) fn records(connection: &Connection, run: i64) -> rusqlite::Result<Vec<Record>> {
    let mut statement = connection
        .prepare_cached("select key, request, body, blobs from records where id between ?1 and ?2 order by id")?;
    let rows = statement.query_map([record_id(run, 0), record_id(run, u32::MAX)], |row| {
        Ok(Record { key: row.get(0)?, request: digest(row, 1)?, body: row.get(2)?, blobs: digests(row, 3)? })
    })?;
    rows.collect()
}

/// The records of a run with this key, in order.
pub(crate) fn records_of(connection: &Connection, run: i64, key: &str) -> rusqlite::Result<Vec<Record>> {
    let mut statement = connection.prepare_cached(
        "select key, request, body, blobs from records where id between ?1 and ?2 and key = ?3 order by id",
    )?;
    let rows = statement.query_map((record_id(run, 0), record_id(run, u32::MAX), key), |row| {
        Ok(Record { key: row.get(0)?, request: digest(row, 1)?, body: row.get(2)?, blobs: digests(row, 3)? })
    })?;
    rows.collect()
}

/// Removes the records of a run from the first one on that refers to a lost blob. After a loss of power, the log may be on the
/// disk without the values that its records refer to; the rest is then the run as it was before. Returns the number of removed
/// records.
pub(crate) fn remove_lost(
    connection: &Connection,
    run: i64,
    is_lost: impl Fn(Digest) -> bool,
) -> rusqlite::Result<usize> {
    let (first, last) = (record_id(run, 0), record_id(run, u32::MAX));
    let mut referring = connection
        .prepare_cached("select id, blobs from records where id between ?1 and ?2 and blobs is not null order by id")?;
    let mut rows = referring.query([first, last])?;
    while let Some(row) = rows.next()? {
        if digests(row, 1)?.into_iter().any(&is_lost) {
            let from: i64 = row.get(0)?;
            return connection.prepare_cached("delete from records where id between ?1 and ?2")?.execute([from, last]);
        }
    }
    Ok(0)
}

/// Appends a record to a run if the run still has this epoch; otherwise returns false.
pub(crate) fn append(
    connection: &Connection,
    run: i64,
    epoch: i64,
    seq: u32,
    record: &Record,
) -> rusqlite::Result<bool> {
    let blobs = (!record.blobs.is_empty()).then(|| record.blobs.iter().flat_map(Digest::as_bytes).copied());
    let blobs = blobs.map(Iterator::collect::<Vec<u8>>);
    let rows = connection
        .prepare_cached(
            "insert into records (id, key, request, body, blobs)
             select ?1, ?2, ?3, ?4, ?5 from runs where number = ?6 and epoch = ?7",
        )?
        .execute((record_id(run, seq), &record.key, &record.request.as_bytes()[..], &record.body, blobs, run, epoch))?;
    if rows == 1 {
        refer(connection, run, &record.blobs)?;
    }
    Ok(rows == 1)
}

/// The values that runs need by their headers alone.
pub(crate) fn of_headers(connection: &Connection) -> rusqlite::Result<BTreeSet<Digest>> {
    let sql = r#"select body from headers where instr(body, '"input_at":["') > 0"#;
    let mut found = BTreeSet::new();
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        found.extend(values_of_header(row.get_ref(0)?.as_str()?));
    }
    Ok(found)
}

/// Notes that a run needs blobs.
pub(crate) fn refer(connection: &Connection, run: i64, blobs: &[Digest]) -> rusqlite::Result<()> {
    for blob in blobs {
        connection
            .prepare_cached("insert or ignore into blob_refs (blob, run) values (?1, ?2)")?
            .execute((&blob.as_bytes()[..], run))?;
    }
    Ok(())
}

/// The number of the next record of a run, after the last one; records in between may never have been written.
pub(crate) fn next_seq(connection: &Connection, run: i64) -> rusqlite::Result<u32> {
    let last: Option<u32> = connection
        .prepare_cached("select max(id) & 0xffffffff from records where id between ?1 and ?2")?
        .query_row([record_id(run, 0), record_id(run, u32::MAX)], |row| row.get(0))?;
    Ok(last.map_or(0, |last| last + 1))
}

/// The number after that of the last record that is progress of the run.
pub(crate) fn progress(connection: &Connection, run: i64) -> rusqlite::Result<u32> {
    let taken = TAKEN.map(|key| format!("'{key}'")).join(", ");
    let last: Option<u32> = connection
        .prepare_cached(&format!(
            "select id & 0xffffffff from records where id between ?1 and ?2 and key not in ({taken})
             order by id desc limit 1"
        ))?
        .query_row([record_id(run, 0), record_id(run, u32::MAX)], |row| row.get(0))
        .optional()?;
    Ok(last.map_or(0, |last| last + 1))
}

/// The number of noticed deaths of processes with the run since its last progress.
pub(crate) fn deaths(connection: &Connection, run: i64, progress: u32) -> rusqlite::Result<u32> {
    connection
        .prepare_cached("select case when deaths_at = ?2 then deaths else 0 end from runs where number = ?1")?
        .query_row((run, progress), |row| row.get(0))
}

/// The key of a record in its table.
pub(crate) fn record_id(run: i64, seq: u32) -> i64 {
    (run << 32) | i64::from(seq)
}

/// The signals for a run, in the order of their arrival.
pub(crate) fn signals(connection: &Connection, run: i64) -> rusqlite::Result<Vec<Signal>> {
    let mut statement = connection.prepare_cached("select key, body from signals where run = ?1 order by id")?;
    let rows = statement.query_map([run], |row| Ok(Signal { key: row.get(0)?, body: row.get(1)? }))?;
    rows.collect()
}

fn not(index: usize, why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Blob, why.into())
}

fn mismatch(index: usize, cause: FromSqlError) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Blob, cause.into())
}

//! Submissions: transactions that accept a run once, even if replies are lost.

use etude_core::digest::Digest;
use etude_runtime::engine::{
    DEFAULT_TENANT, Enqueued, Error, KEY_LIFE_MS, KEYS, LimitGroup, RunState, Submission, UniqueKey,
};

use crate::error::Fault;
use crate::grant::book_of;
use crate::link::Connection;
use crate::quota::Terms;
use crate::{rows, store};

/// Session and count of the attempts of one submission.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempted {
    session: i64,
    count: u32,
}

impl Default for Attempted {
    fn default() -> Self {
        Self { session: store::random(), count: 0 }
    }
}

impl Attempted {
    /// The next attempt.
    pub(crate) fn next(&mut self) -> Self {
        self.count += 1;
        *self
    }

    /// True if the reply of an earlier attempt may be lost. Its run may have a worker by now, and that worker's session.
    fn is_repeated(self) -> bool {
        self.count > 1
    }
}

/// Accepts a run in a transaction of its own.
pub(crate) async fn transact(
    connection: &mut Connection,
    submission: &Submission,
    at_ms: Option<i64>,
    attempted: Attempted,
) -> Result<Enqueued, Fault> {
    connection.begin();
    let enqueued = accept(connection, submission, at_ms, (attempted, End::Here)).await?;
    if enqueued != Enqueued::Accepted {
        connection.roll_back().await?;
    }
    Ok(enqueued)
}

/// End of a transaction that accepts a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The transaction ends with the statement that writes the run.
    Here,
    /// The transaction ends after a later statement.
    Later,
}

/// The given time, or the time of the database, in milliseconds since 1970.
pub(crate) async fn time(connection: &mut Connection, given: Option<i64>) -> Result<i64, Fault> {
    if let Some(now_ms) = given {
        return Ok(now_ms);
    }
    let row = connection.query_opt("select now_ms()", &[]).await?;
    row.map_or(Ok(0), |row| Ok(row.try_get(0)?))
}

/// Accepts a run inside a transaction. The time `at_ms`, or now, decides its place in the queue.
pub(crate) async fn accept(
    connection: &mut Connection,
    submission: &Submission,
    at_ms: Option<i64>,
    (attempted, end): (Attempted, End),
) -> Result<Enqueued, Fault> {
    let Submission { run, keys, max_queued, needs_room } = submission;
    if attempted.is_repeated() && rows::is_own(connection, run).await? {
        if end == End::Here {
            connection.roll_back().await?;
        }
        return Ok(Enqueued::Accepted);
    }
    let tenant = run.placement.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
    if let Some(found) = repeated(connection, keys, tenant).await? {
        return Ok(found);
    }
    let placement = &run.placement;
    let terms = Terms::read(connection, placement, max_queued.map(rows::from_length)).await?;
    if let Some(refusal) = terms.refusal(connection, placement).await? {
        return Ok(Enqueued::Refused(refusal));
    }
    if terms.is_full(connection, placement).await? {
        return Ok(Enqueued::Full);
    }
    if let Some(group) = placement.limit_group.as_ref().filter(|_| *needs_room)
        && let Some(run_id) = holder(connection, group).await?
    {
        return Ok(Enqueued::Held { run_id });
    }
    let key = shown_key(keys);
    let at_ms = at_ms.unwrap_or(terms.now_ms);
    // Fails if another run takes a key at this moment; the next attempt finds that run.
    let (state, session) = (RunState::Queued, attempted.session);
    let new = rows::NewRow { state, session, worker: None, key, keys, at_ms, queued_at_ms: at_ms };
    if end == End::Here {
        connection.commit_with_next();
    }
    if rows::insert(connection, run, new).await?.is_some() {
        return Ok(Enqueued::Accepted);
    }
    // The commit of an earlier attempt may have arrived late.
    let is_own = attempted.is_repeated() && rows::is_own(connection, run).await?;
    if is_own { Ok(Enqueued::Accepted) } else { Err(Error::Exists(run.id.clone()).into()) }
}

/// The key under which a run was submitted, without the word for its kind.
pub(crate) fn shown_key(keys: &[UniqueKey]) -> Option<&str> {
    let key = keys.first().map(|unique| unique.key.split_once(' ').map_or(unique.key.as_str(), |(_, key)| key));
    key.filter(|key| !key.contains('\0'))
}

/// The oldest run of a group that has no room for another one. Submissions of one group are checked one after the other.
async fn holder(connection: &mut Connection, group: &LimitGroup) -> Result<Option<String>, Fault> {
    let (name, max_runs) = (group.name.as_bytes(), i64::from(group.max_runs));
    let lock = "select pg_advisory_xact_lock(1702131049, hashtext(encode($1::bytea, 'hex')))";
    connection.query(lock, &[&name]).await?;
    let sql = "select id from runs where limit_group = $1 and state in ('queued', 'running') order by run limit $2";
    let holders = connection.query(sql, &[&name, &max_runs]).await?;
    let oldest = holders.first().filter(|_| holders.len() >= group.max_runs as usize);
    Ok(oldest.map(|row| row.try_get(0)).transpose()?)
}

/// The run of the tenant that has one of the keys (K-29).
async fn repeated(connection: &mut Connection, keys: &[UniqueKey], tenant: &str) -> Result<Option<Enqueued>, Fault> {
    for UniqueKey { key, digest } in keys {
        let sql = "select id, digest from keys join runs using (run) where keys.key = $1 and keys.tenant = $2";
        let Some(row) = connection.query_opt(sql, &[&key.as_bytes(), &tenant]).await? else { continue };
        let (run_id, of): (String, Option<Vec<u8>>) = (row.try_get(0)?, row.try_get(1)?);
        let is_same = of.as_deref() == digest.as_ref().map(|digest: &Digest| &digest.as_bytes()[..]);
        return Ok(Some(Enqueued::Repeated { run_id, key: key.clone(), is_same }));
    }
    for UniqueKey { key, digest } in keys {
        let sql = "select run, convert_from(body, 'UTF8') from entries
            where book = $1 and key = encode($2, 'hex') and at_ms >= now_ms() - $3";
        let found = connection.query_opt(sql, &[&book_of(tenant, KEYS), &key.as_bytes(), &KEY_LIFE_MS]).await?;
        let Some(row) = found else { continue };
        let (run_id, of): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let is_same = of == digest.as_ref().map_or_else(|| "null".to_owned(), |digest| format!("\"{digest}\""));
        return Ok(Some(Enqueued::Repeated { run_id, key: key.clone(), is_same }));
    }
    Ok(None)
}

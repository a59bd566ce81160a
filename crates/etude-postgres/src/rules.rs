//! The rules of a fleet: `etude engine apply` writes them, and claims follow them.

use std::collections::BTreeMap;

use etude_runtime::blob::INLINE_LIMIT;
use etude_runtime::engine::{Allow, DEFAULT_QUEUE, Error, QueueRules, Rules, TenantRules};
use tokio_postgres::Row;

use crate::error::Fault;
use crate::link::{Connection, Parameter, attempt};
use crate::rows::{self, from_length, length};
use crate::store::Store;

/// SQL: locks and reads the room of the queue `$1` for `wanted` runs, as the row that [`OPEN`] reads.
pub(crate) fn closed(wanted: &str) -> String {
    format!("closed as materialized (select * from room_of_queue($1, {wanted}))")
}

/// SQL condition: the limits of tenants, apps and labels allow a claim of the run of the row `runs` (K-33). With
/// `offset 0` only the labels of that run are looked up, and not those of all runs.
pub(crate) const OPEN: &str = "runs.tenant <> all ((select full_tenants from closed)::text[])
    and runs.app <> all ((select full_apps from closed)::text[])
    and (cardinality((select full_labels from closed)) = 0 or not exists (
        select 1 from labels where labels.run = runs.run
            and labels.key || '\\x3d'::bytea || labels.value = any ((select full_labels from closed)::bytea[]) offset 0))";

/// SQL condition: the limits of tenants allow a claim of the run of the row `queue`, without a look at the run (K-34).
pub(crate) const OPEN_TENANT: &str = "queue.tenant <> all ((select full_tenants from closed)::text[])";

/// SQL condition: the queue itself has room, and the sandbox of its steps is available; if not, no row of the queue is
/// read (K-55).
pub(crate) fn has_room(has_sandbox: &str) -> String {
    format!("(select room from closed) > 0 and ({has_sandbox} or not (select is_sandboxed from closed))")
}

impl Store {
    /// Replaces the queues, the tenants or both; the default queue always exists. If an unfinished run names a queue
    /// that would be removed, nothing is written.
    pub(crate) async fn apply(
        &self,
        queues: Option<&BTreeMap<String, QueueRules>>,
        tenants: Option<&BTreeMap<String, TenantRules>>,
    ) -> Result<(), Error> {
        let needed = attempt!(self.link, |connection| apply(connection, self.link.address().schema(), queues, tenants));
        if needed.is_empty() {
            return Ok(());
        }
        let runs = |count| format!("{count} {}", if count == 1 { "run" } else { "runs" });
        let named = needed.iter().map(|(queue, count)| format!("`{queue}` ({})", runs(*count)));
        let why = format!(
            "unfinished runs use queues that would be removed: {}; keep these queues until the runs end, or cancel the runs",
            named.collect::<Vec<_>>().join(", ")
        );
        Err(Error::Store { path: self.link.address().to_string(), why })
    }

    /// Sets the storage of large values.
    pub(crate) async fn apply_blobs(&self, url: Option<&str>) -> Result<(), Error> {
        if attempt!(self.link, |connection| apply_url(connection, self.link.address().schema(), url)) {
            self.depot.follow(url);
            return Ok(());
        }
        let why = "runs need large values or bundles outside the storage in `engine.blobs`; \
            set `engine.blobs` to that storage, or remove the runs and bundles first";
        Err(Error::Store { path: self.link.address().to_string(), why: why.to_owned() })
    }

    /// The rules, as last applied.
    pub(crate) async fn rules(&self) -> Result<Rules, Error> {
        Ok(attempt!(self.link, |connection| rules(connection)))
    }
}

/// Writes the rules. Returns the queues that cannot be removed, with the number of their runs.
async fn apply(
    connection: &mut Connection,
    schema: &str,
    queues: Option<&BTreeMap<String, QueueRules>>,
    tenants: Option<&BTreeMap<String, TenantRules>>,
) -> Result<Vec<(String, i64)>, Fault> {
    connection.begin();
    connection.query("select pg_advisory_xact_lock(1702131052, hashtext($1))", &[&schema]).await?;
    if let Some(queues) = queues {
        let needed = needed(connection, queues).await?;
        if !needed.is_empty() {
            connection.roll_back().await?;
            return Ok(needed);
        }
        connection.execute("delete from queues", &[]).await?;
        let default = QueueRules::default();
        let is_given = queues.contains_key(DEFAULT_QUEUE);
        let rest = (!is_given).then_some((DEFAULT_QUEUE, &default));
        for (name, rules) in queues.iter().map(|(name, rules)| (name.as_str(), rules)).chain(rest) {
            write_queue(connection, name, rules).await?;
        }
    }
    if let Some(tenants) = tenants {
        connection.execute("delete from tenants", &[]).await?;
        for (name, rules) in tenants {
            write_tenant(connection, name, rules).await?;
        }
    }
    connection.commit().await?;
    Ok(Vec::new())
}

/// The queues that are missing in the new ones although unfinished runs name them, with the number of these runs.
async fn needed(
    connection: &mut Connection,
    queues: &BTreeMap<String, QueueRules>,
) -> Result<Vec<(String, i64)>, Fault> {
    let kept: Vec<&str> = queues.keys().map(String::as_str).chain([DEFAULT_QUEUE]).collect();
    let sql = "select queue, count(*) from runs
        where state in ('queued', 'running', 'waiting', 'sleeping')
            and queue in (select queues.queue from queues where queues.queue <> all($1))
        group by queue order by queue";
    let rows = connection.query(sql, &[&kept]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

async fn write_queue(connection: &mut Connection, name: &str, rules: &QueueRules) -> Result<(), Fault> {
    let QueueRules { priority, limit, per_tenant, per_app, per_label, allow, is_untrusted } = rules;
    let Allow { network, unsandboxed, yolo, folders } = allow;
    let sql = "insert into queues (queue, priority, max_live, max_per_tenant, max_per_app, is_untrusted, allow_network,
            allow_unsandboxed, allow_yolo, allow_folders)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let parameters: [Parameter<'_>; 10] = [
        &name,
        priority,
        &limit.map(i64::from),
        &per_tenant.map(i64::from),
        &per_app.map(i64::from),
        is_untrusted,
        network,
        unsandboxed,
        yolo,
        folders,
    ];
    connection.execute(sql, &parameters).await?;
    for ((key, value), limit) in per_label {
        let sql = "insert into queue_labels (queue, key, value, max_live) values ($1, $2, $3, $4)";
        connection.execute(sql, &[&name, &key.as_bytes(), &value.as_bytes(), &i64::from(*limit)]).await?;
    }
    Ok(())
}

async fn write_tenant(connection: &mut Connection, name: &str, rules: &TenantRules) -> Result<(), Fault> {
    let TenantRules { live, queued, records_per_day, bytes, cost_usd_per_day } = rules;
    let sql = "insert into tenants (tenant, max_live, max_queued, max_records_per_day, max_bytes, max_usd_per_day)
        values ($1, $2, $3, $4, $5, $6)";
    let parameters: [Parameter<'_>; 6] = [
        &name,
        &live.map(i64::from),
        &queued.map(from_length),
        &records_per_day.map(from_length),
        &bytes.map(from_length),
        cost_usd_per_day,
    ];
    connection.execute(sql, &parameters).await?;
    Ok(())
}

async fn rules(connection: &mut Connection) -> Result<Rules, Fault> {
    let sql = "select queue, priority, max_live, max_per_tenant, max_per_app, is_untrusted, allow_network, allow_unsandboxed,
            allow_yolo, allow_folders, array(select key from queue_labels as one where one.queue = queues.queue order by key, value),
            array(select value from queue_labels as one where one.queue = queues.queue order by key, value),
            array(select one.max_live from queue_labels as one where one.queue = queues.queue order by key, value)
        from queues";
    let queues = connection.query(sql, &[]).await?.iter().map(queue_of).collect::<Result<_, _>>()?;
    let sql = "select tenant, max_live, max_queued, max_records_per_day, max_bytes, max_usd_per_day from tenants";
    let tenants = connection.query(sql, &[]).await?.iter().map(tenant_of).collect::<Result<_, _>>()?;
    Ok(Rules { queues, tenants, blobs: url(connection).await? })
}

/// The storage of large values: the URL of object storage; `None`: the database.
pub(crate) async fn url(connection: &mut Connection) -> Result<Option<String>, Fault> {
    let row = connection.query_opt("select url from storage", &[]).await?;
    Ok(row.map_or(Ok(None), |row| row.try_get(0))?)
}

/// Sets the storage. False if values exist in another one. No value is announced until the end of the transaction.
async fn apply_url(connection: &mut Connection, schema: &str, new: Option<&str>) -> Result<bool, Fault> {
    connection.begin();
    connection.query("select pg_advisory_xact_lock(1702131052, hashtext($1))", &[&schema]).await?;
    connection.batch("lock table blobs in share mode").await?;
    let is_same = url(connection).await?.as_deref() == new;
    let sql = "select 1 from blobs where place is not null or length > $1 limit 1";
    let may = is_same || connection.query_opt(sql, &[&rows::from_length(INLINE_LIMIT as u64)]).await?.is_none();
    if may {
        connection.execute("update storage set url = $1", &[&new]).await?;
    }
    match may {
        true => connection.commit().await?,
        false => connection.roll_back().await?,
    }
    Ok(may)
}

fn queue_of(row: &Row) -> Result<(String, QueueRules), Fault> {
    let (keys, values): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (row.try_get(10)?, row.try_get(11)?);
    let counts: Vec<i64> = row.try_get(12)?;
    let one = |((key, value), count)| Ok::<_, Fault>(((rows::text(key)?, rows::text(value)?), small(count)));
    let rules = QueueRules {
        priority: row.try_get(1)?,
        limit: row.try_get::<_, Option<i64>>(2)?.map(small),
        per_tenant: row.try_get::<_, Option<i64>>(3)?.map(small),
        per_app: row.try_get::<_, Option<i64>>(4)?.map(small),
        per_label: keys.into_iter().zip(values).zip(counts).map(one).collect::<Result<_, _>>()?,
        is_untrusted: row.try_get(5)?,
        allow: Allow {
            network: row.try_get(6)?,
            unsandboxed: row.try_get(7)?,
            yolo: row.try_get(8)?,
            folders: row.try_get(9)?,
        },
    };
    Ok((row.try_get(0)?, rules))
}

fn tenant_of(row: &Row) -> Result<(String, TenantRules), Fault> {
    let large = |at: usize| Ok::<_, Fault>(row.try_get::<_, Option<i64>>(at)?.map(length));
    let rules = TenantRules {
        live: row.try_get::<_, Option<i64>>(1)?.map(small),
        queued: large(2)?,
        records_per_day: large(3)?,
        bytes: large(4)?,
        cost_usd_per_day: row.try_get(5)?,
    };
    Ok((row.try_get(0)?, rules))
}

fn small(count: i64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

//! Refusals of a submission: an unknown queue, and the quotas of tenants (K-57).

use etude_runtime::engine::{DEFAULT_QUEUE, DEFAULT_TENANT, Placement, Refusal};

use crate::error::Fault;
use crate::link::{Connection, Parameter};

/// Queue and limits of a submission, read once.
#[derive(Debug)]
pub(crate) struct Terms {
    /// The time of the database, in milliseconds since 1970.
    pub(crate) now_ms: i64,
    has_queue: bool,
    /// The limits of the tenant, in the order of [`QUOTAS`].
    limits: [Option<i64>; 3],
    /// Maximum number of waiting runs in the queue; `None` if the queue is far from it.
    max_queued: Option<i64>,
}

impl Terms {
    /// Reads the terms for a run of this placement, in a queue that takes at most `max_queued` waiting runs.
    ///
    /// Counts hold until the end of the transaction: a submission and a count must not pass each other. Far from the
    /// limit they may, and share the lock: each of them has a connection, so the number of uncounted runs is at most
    /// the number of connections. The distance often follows without a count, from the numbers of the waiting runs.
    pub(crate) async fn read(
        connection: &mut Connection,
        placement: &Placement,
        max_queued: Option<i64>,
    ) -> Result<Self, Fault> {
        let sql = format!(
            "with near as materialized (
                select coalesce((select max(run) from queue) - (select min(run) from queue), 0) + 1 + reserve > $3
                    and {} + reserve > $3 as is_near
                from (select current_setting('max_connections')::bigint as reserve) as one where $3::bigint is not null)
            select now_ms(), exists (select 1 from queues where queue = $1), max_queued, max_records_per_day, max_bytes,
                coalesce((select is_near from near), false),
                (select case when is_near then pg_advisory_xact_lock(1702131047, hashtext($1))
                    else pg_advisory_xact_lock_shared(1702131047, hashtext($1)) end from near)
            from (values (1)) as one left join tenants on tenant = $2",
            waiting("$3")
        );
        let row = connection.query_opt(&sql, &[&placement.queue(), &tenant(placement), &max_queued]).await?;
        let Some(row) = row else { return Err(Fault::Silence) };
        let limits = [row.try_get(2)?, row.try_get(3)?, row.try_get(4)?];
        let max_queued = max_queued.filter(|_| row.get(5));
        Ok(Self { now_ms: row.try_get(0)?, has_queue: row.try_get(1)?, limits, max_queued })
    }

    /// True if the queue takes no other run.
    pub(crate) async fn is_full(&self, connection: &mut Connection, placement: &Placement) -> Result<bool, Fault> {
        let Some(max) = self.max_queued else { return Ok(false) };
        let sql = format!("select {} >= $2", waiting("$2"));
        Ok(connection.query_opt(&sql, &[&placement.queue(), &max]).await?.is_some_and(|row| row.get(0)))
    }

    /// Reason why a run of this placement is refused, if there is one. Counts hold until the end of the transaction.
    pub(crate) async fn refusal(
        &self,
        connection: &mut Connection,
        placement: &Placement,
    ) -> Result<Option<Refusal>, Fault> {
        let queue = placement.queue();
        if queue != DEFAULT_QUEUE && !self.has_queue {
            return Ok(Some(Refusal::UnknownQueue(queue.to_owned())));
        }
        if self.limits.iter().all(Option::is_none) {
            return Ok(None);
        }
        let tenant = tenant(placement);
        // Two submissions of a tenant do not pass each other.
        connection.query("select pg_advisory_xact_lock(1702131053, hashtext($1))", &[&tenant]).await?;
        for (quota, limit) in QUOTAS.iter().zip(self.limits) {
            let Some(limit) = limit else { continue };
            let found = quota.count(connection, tenant, limit).await?;
            if found >= limit {
                let unit = quota.units[usize::from(found != 1)];
                let (found, limit) = (format!("{found} {unit}"), limit.to_string());
                return Ok(Some(Refusal::Quota { tenant: tenant.to_owned(), quota: quota.name, found, limit }));
            }
        }
        Ok(None)
    }
}

/// SQL expression: number of waiting runs in the queue `$1`; counting stops at `most`.
fn waiting(most: &str) -> String {
    format!("(select count(*) from (select 1 from queue where queue = $1 limit {most}) as waiting)")
}

fn tenant(placement: &Placement) -> &str {
    placement.tenant.as_deref().unwrap_or(DEFAULT_TENANT)
}

/// A quota of a tenant, with its query.
struct Quota {
    /// Name of the quota in the configuration.
    name: &'static str,
    /// Unit of the count in singular and plural, for messages.
    units: [&'static str; 2],
    /// SQL query: the count for the tenant `$1`; counting may stop at `$2`.
    sql: &'static str,
}

/// The quotas, in the order of the columns of the limits.
const QUOTAS: [Quota; 3] = [
    Quota {
        name: "queued",
        units: ["queued run", "queued runs"],
        sql: "select count(*) from (select 1 from runs where tenant = $1 and state = 'queued' limit $2) as found",
    },
    Quota {
        name: "records_per_day",
        units: ["record of runs of the last 24 hours", "records of runs of the last 24 hours"],
        sql: "select count(*) from (select 1 from runs join records using (run)
            where tenant = $1 and created_at_ms > now_ms() - 86400000 and records.key <> '!claim' limit $2) as found",
    },
    Quota {
        name: "bytes",
        units: ["byte in the database", "bytes in the database"],
        sql: "with own as materialized (select run from runs where tenant = $1)
            select (coalesce((select sum(octet_length(body)) from headers join own using (run)), 0)
                + coalesce((select sum(octet_length(body)) from results join own using (run)), 0)
                + coalesce((select sum(octet_length(body)) from records join own using (run)), 0)
                + coalesce((select sum(length) from blobs where hash in (select blob from blob_refs join own using (run))), 0)
                + coalesce((select sum(length) from uploads where tenant = $1), 0))::bigint where $2::bigint is not null",
    },
];

impl Quota {
    async fn count(&self, connection: &mut Connection, tenant: &str, limit: i64) -> Result<i64, Fault> {
        let parameters: [Parameter<'_>; 2] = [&tenant, &limit];
        Ok(connection.query_opt(self.sql, &parameters).await?.map_or(Ok(0), |row| row.try_get(0))?)
    }
}

//! What refuses a submission: an unknown queue, and the quotas of tenants (K-57).

use etude_runtime::engine::{DEFAULT_QUEUE, DEFAULT_TENANT, Placement, Refusal};

use crate::error::Fault;
use crate::link::{Connection, Parameter};

/// Why no run of this placement is taken. What is counted holds until the end of the transaction.
pub(crate) async fn refusal(connection: &mut Connection, placement: &Placement) -> Result<Option<Refusal>, Fault> {
    let queue = placement.queue();
    let is_there = "select 1 from queues where queue = $1";
    if queue != DEFAULT_QUEUE && connection.query_opt(is_there, &[&queue]).await?.is_none() {
        return Ok(Some(Refusal::UnknownQueue(queue.to_owned())));
    }
    let tenant = placement.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
    let sql = "select max_queued, max_records_per_day, max_bytes from tenants
        where tenant = $1 and (max_queued is not null or max_records_per_day is not null or max_bytes is not null)";
    let Some(limits) = connection.query_opt(sql, &[&tenant]).await? else { return Ok(None) };
    // Two submissions of a tenant do not pass each other.
    connection.query("select pg_advisory_xact_lock(1702131053, hashtext($1))", &[&tenant]).await?;
    for (at, quota) in QUOTAS.iter().enumerate() {
        let Some(limit) = limits.try_get::<_, Option<i64>>(at)? else { continue };
        let found = quota.count(connection, tenant, limit).await?;
        if found >= limit {
            let (found, limit) = (format!("{found} {}", quota.unit), limit.to_string());
            return Ok(Some(Refusal::Quota { tenant: tenant.to_owned(), quota: quota.name, found, limit }));
        }
    }
    Ok(None)
}

/// A quota.
struct Quota {
    /// The member of the configuration.
    name: &'static str,
    /// What is counted.
    unit: &'static str,
    /// The number for the tenant `$1`; counting may stop at `$2`.
    sql: &'static str,
}

/// In the order of the columns of the limits.
const QUOTAS: [Quota; 3] = [
    Quota {
        name: "queued",
        unit: "queued runs",
        sql: "select count(*) from (select 1 from runs where tenant = $1 and state = 'queued' limit $2) as found",
    },
    Quota {
        name: "records_per_day",
        unit: "records of runs of the last 24 hours",
        sql: "select count(*) from (select 1 from runs join records using (run)
            where tenant = $1 and created_at_ms > now_ms() - 86400000 and records.key <> '!claim' limit $2) as found",
    },
    Quota {
        name: "bytes",
        unit: "bytes in the database",
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

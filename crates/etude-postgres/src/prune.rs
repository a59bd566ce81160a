//! Removal of finished runs with all data that only they needed.

use etude_runtime::engine::{COSTS, Error, KEY_LIFE_MS, KEYS, OF_RUN, Prunable, Query, cost_entry};

use crate::blobs::Depot;
use crate::error::Fault;
use crate::grant::book_of;
use crate::link::{Connection, attempt};
use crate::store::Store;
use crate::{blobs, listing, rows, rules};

/// Number of objects that are removed in one transaction.
const BATCH: i64 = 32;

/// SQL condition: a value without references that is old enough. Younger ones stay: a driver uploads a value first and
/// appends the record that refers to it afterwards.
const UNNEEDED: &str = "uploaded_at < clock_timestamp() - interval '1 day'
    and not exists (select 1 from blob_refs where blob_refs.blob = blobs.hash)
    and not exists (select 1 from cache where cache.blob = blobs.hash)
    and not exists (select 1 from runs where runs.bundle = blobs.hash)
    and not exists (select 1 from entries where book = 'bundles' and key = encode(blobs.hash, 'hex'))
    and not exists (select 1 from inputs where inputs.hash = blobs.hash)";

/// The same condition for uploads of tenants.
const UNNEEDED_UPLOADS: &str = "uploaded_at < clock_timestamp() - interval '1 day'
    and not exists (select 1 from runs where runs.bundle = uploads.hash)
    and not exists (select 1 from entries where entries.tenant = uploads.tenant
        and book in ('bundles', uploads.tenant || chr(31) || 'bundles') and key = encode(uploads.hash, 'hex'))
    and not exists (select 1 from inputs where inputs.hash = uploads.hash)";

/// The large inputs of runs: only their headers refer to them, and no record does. The condition is that of an index.
const INPUTS: &str = r#"inputs as (
    select decode(found[1], 'hex') as hash
    from headers, regexp_matches(convert_from(body, 'UTF8'), '"input_at":\["([0-9a-f]{64})"', 'g') as found
    where position('"input_at":["'::bytea in body) > 0)"#;

/// The tables with rows of runs.
const TABLES: [&str; 8] = ["keys", "labels", "queue", "signals", "results", "headers", "records", "blob_refs"];

impl Store {
    /// Removes the finished runs that match `query`; runs with a driver stay.
    pub(crate) async fn prune(&self, query: &Query) -> Result<u64, Error> {
        let runs = attempt!(self.link, |connection| listing::finished(connection, query));
        let mut removed = 0;
        for run in runs {
            removed += u64::from(attempt!(self.link, |connection| remove(connection, run.number, run.change)));
        }
        if let Some(before) = query.cache_before_ms() {
            let sql = "delete from cache where created_at_ms < $1";
            attempt!(self.link, |connection| connection.execute(sql, &[&before]));
        }
        let sql = "delete from entries where book in ($1, tenant || chr(31) || $1) and at_ms < now_ms() - $2";
        for book in [KEYS, COSTS] {
            attempt!(self.link, |connection| connection.execute(sql, &[&book, &KEY_LIFE_MS]));
        }
        // A tenant cannot see the references of others to a value.
        if !self.access.is_tenant() {
            attempt!(self.link, |connection| remove_values(connection));
            while attempt!(self.link, |connection| remove_objects(connection, &self.depot)) {}
            let url = attempt!(self.link, |connection| rules::url(connection));
            // If the storage is away, a later prune cleans it.
            let _ = url.map(|url| self.depot.objects(Some(&url)).and_then(|objects| objects.clean()));
        }
        Ok(removed)
    }

    /// The runs that [`Store::prune`] would remove, and their size in bytes.
    pub(crate) async fn prunable(&self, query: &Query) -> Result<Prunable, Error> {
        let runs = attempt!(self.link, |connection| listing::finished(connection, query));
        let numbers: Vec<i64> = runs.iter().map(|run| run.number).collect();
        let bytes = attempt!(self.link, |connection| weigh(connection, &numbers));
        Ok(Prunable { runs, bytes })
    }
}

/// Removes a run with all its rows, unless it has changed since it was listed. True if it was removed.
async fn remove(connection: &mut Connection, number: i64, change: u64) -> Result<bool, Fault> {
    connection.begin();
    let sql = "select id, created_at_ms, tenant from runs where run = $1 and change = $2 and worker is null for update";
    let removed = connection.query_opt(sql, &[&number, &rows::from_length(change)]).await?;
    if let Some(row) = &removed {
        let (id, created_at_ms, tenant): (String, i64, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        // The run's keys live on until they are old enough.
        let sql = "insert into entries (book, key, at_ms, state, run, body, tenant)
            select $1, encode(key, 'hex'), $2, 'removed', $3,
                convert_to(coalesce('\"' || encode(digest, 'hex') || '\"', 'null'), 'UTF8'), tenant
            from keys where run = $4 and $2 >= now_ms() - $5
            on conflict (book, key) do update set (at_ms, run, body) = (excluded.at_ms, excluded.run, excluded.body)";
        let kept = book_of(&tenant, KEYS);
        connection.execute(sql, &[&kept, &created_at_ms, &id, &number, &KEY_LIFE_MS]).await?;
        keep_cost(connection, number, &tenant).await?;
        let sql = "delete from entries where run = $1 and starts_with(book, $2)";
        connection.execute(sql, &[&id, &book_of(&tenant, OF_RUN)]).await?;
        for table in TABLES {
            connection.execute(&format!("delete from {table} where run = $1"), &[&number]).await?;
        }
        // The run goes last: a tenant sees the rows of a run while it sees the run.
        connection.execute("delete from runs where run = $1", &[&number]).await?;
    }
    connection.commit().await?;
    Ok(removed.is_some())
}

/// Keeps the cost of a run that is about to be removed, unless it is older than a day.
async fn keep_cost(connection: &mut Connection, number: i64, tenant: &str) -> Result<(), Fault> {
    let sql = "select id, app, created_at_ms, results.body from runs join results using (run)
        where run = $1 and created_at_ms >= now_ms() - $2";
    let Some(row) = connection.query_opt(sql, &[&number, &KEY_LIFE_MS]).await? else { return Ok(()) };
    let (id, app, created_at_ms): (String, String, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let Some(cost) = cost_entry(&id, &app, created_at_ms, &rows::text(row.try_get(3)?)?) else { return Ok(()) };
    let sql = "insert into entries (book, key, at_ms, state, run, body, tenant) values ($1, $2, $3, $4, $2, $5, $6)
        on conflict (book, key) do update set (at_ms, run, body) = (excluded.at_ms, excluded.run, excluded.body)";
    let book = book_of(tenant, COSTS);
    connection.execute(sql, &[&book, &id, &created_at_ms, &cost.state, &cost.body.as_bytes(), &tenant]).await?;
    Ok(())
}

async fn remove_values(connection: &mut Connection) -> Result<(), Fault> {
    let sql = format!(
        "with {INPUTS},
         gone as (delete from blobs where place is null and {UNNEEDED} returning hash)
         delete from chunks using gone where chunks.hash = gone.hash"
    );
    connection.execute(&sql, &[]).await?;
    let sql = format!("with {INPUTS} delete from uploads where {UNNEEDED_UPLOADS}");
    connection.execute(&sql, &[]).await?;
    // From now on, a process that needs such a value again does not rely on its object.
    let sql = format!(
        "with {INPUTS} update blobs set is_going = true where place is not null and not is_going and {UNNEEDED}"
    );
    connection.execute(&sql, &[]).await?;
    Ok(())
}

/// Removes some of the marked objects, and their rows. False if there are none. A process that needs one of these
/// values waits until it is gone: while the row is locked, a removal may be on its way.
async fn remove_objects(connection: &mut Connection, depot: &Depot) -> Result<bool, Fault> {
    connection.begin_as("begin isolation level read committed; set local idle_in_transaction_session_timeout = 0");
    let sql = "select hash, place, (select url from storage) from blobs where is_going and place is not null
        order by hash limit $1 for update of blobs skip locked";
    let rows = connection.query(sql, &[&BATCH]).await?;
    for row in &rows {
        let (hash, place): (Vec<u8>, String) = (row.try_get(0)?, row.try_get(1)?);
        let url: Option<String> = row.try_get(2)?;
        let failed = |cause: std::io::Error| Error::ValuesAway(cause.to_string());
        let objects = depot.objects(url.as_deref()).map_err(failed)?;
        objects.delete(&blobs::name(&place, rows::digest(&hash)?)).await.map_err(failed)?;
    }
    let gone: Vec<Vec<u8>> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    connection.execute("delete from blobs where hash = any($1)", &[&gone]).await?;
    connection.commit().await?;
    Ok(!rows.is_empty())
}

async fn weigh(connection: &mut Connection, numbers: &Vec<i64>) -> Result<u64, Fault> {
    let sql =
        "select (coalesce((select sum(octet_length(key) + octet_length(body)) from records where run = any($1)), 0)
        + coalesce((select sum(octet_length(body)) from headers where run = any($1)), 0)
        + coalesce((select sum(octet_length(body)) from results where run = any($1)), 0)
        + coalesce((select sum(length) from blobs where exists
                (select 1 from blob_refs where blob = hash and run = any($1))
            and not exists (select 1 from blob_refs where blob = hash and run <> all($1))
            and not exists (select 1 from cache where cache.blob = hash)), 0))::bigint";
    let row = connection.query_opt(sql, &[numbers]).await?;
    Ok(rows::length(row.map_or(Ok(0), |row| row.try_get(0))?))
}

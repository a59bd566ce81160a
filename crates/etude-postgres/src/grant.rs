//! Roles of the database as workers and tenants (K-56).

use etude_runtime::engine::{DEFAULT_TENANT, Error};

use crate::error::Fault;
use crate::link::{Connection, Link, attempt};
use crate::migrate;

etude_core::words! {
    /// Kind of a database role in a fleet.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RoleKind {
        /// A worker drives runs of all tenants.
        Worker = "worker",
        /// A tenant submits runs and sees its own.
        Tenant = "tenant",
    }
}

/// Grant of a kind to a database role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The name of the PostgreSQL role.
    pub role: String,
    /// Kind of the role in the fleet.
    pub kind: RoleKind,
    /// The tenant of the role; `None` for a worker.
    pub tenant: Option<String>,
}

/// Kind and tenant of the logged-in role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    /// `None`: the owner of the schema, or a role that was given rights by hand.
    pub(crate) kind: Option<RoleKind>,
    /// The tenant that owns the role's submissions.
    pub(crate) tenant: String,
}

impl Access {
    pub(crate) fn is_tenant(&self) -> bool {
        self.kind == Some(RoleKind::Tenant)
    }

    /// The name of a ledger book in the database.
    pub(crate) fn book(&self, book: &str) -> String {
        book_of(&self.tenant, book)
    }
}

/// The database name of a tenant's ledger book.
pub(crate) fn book_of(tenant: &str, book: &str) -> String {
    if tenant == DEFAULT_TENANT { book.to_owned() } else { format!("{tenant}{SEPARATOR}{book}") }
}

/// Separator between a tenant and its book. No tenant's name contains it.
pub(crate) const SEPARATOR: char = '\u{1f}';

/// Tables in which a worker changes all rows.
const DATA: &str = "workers, server, runs, headers, results, records, signals, queue, keys, labels, entries, cache, blobs, chunks, \
    blob_refs, uploads, upload_chunks";

/// Tables that every role reads.
const READ: &str = "format, roles, workers, server, queues, queue_labels, tenants, runs, headers, results, records, signals, queue, \
    keys, labels, entries, cache, blobs, chunks, blob_refs, uploads, upload_chunks, storage";

/// Rights of a tenant to add, change and remove its own rows.
const OF_TENANTS: [&str; 4] = [
    "insert on workers, runs, headers, results, records, signals, queue, keys, labels, entries, uploads, upload_chunks",
    "update on workers, results, queue, entries, uploads",
    "update (state, epoch, session, worker, deaths, dead, deaths_at, started_at_ms, changed_at_ms, rank) on runs",
    "delete on workers, runs, headers, results, records, signals, queue, keys, labels, entries, cache, blob_refs",
];

/// Kind and tenant of the logged-in role.
pub(crate) async fn access(link: &Link, patience: std::time::Duration) -> Result<Access, Error> {
    Ok(attempt!(link.attempts_for(patience); |connection| access_of(connection)))
}

/// Kind and tenant of the logged-in role, on a connection to a schema of this format.
pub(crate) async fn access_of(connection: &mut Connection) -> Result<Access, Fault> {
    let found = connection.query_opt("select kind, tenant from roles where role = session_user", &[]).await?;
    let none = Access { kind: None, tenant: DEFAULT_TENANT.to_owned() };
    let Some(row) = found else { return Ok(none) };
    let (kind, tenant): (String, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Access { kind: RoleKind::from_word(&kind), tenant: tenant.unwrap_or(none.tenant) })
}

/// Makes a role a worker or a tenant, replacing its earlier kind.
pub(crate) async fn grant(link: &Link, patience: std::time::Duration, grant: &Grant) -> Result<(), Error> {
    migrate::check(link, patience).await?;
    attempt!(link.attempts_for(patience); |connection| transact(connection, link, grant));
    Ok(())
}

async fn transact(connection: &mut Connection, link: &Link, grant: &Grant) -> Result<(), Fault> {
    connection.begin();
    let schema = link.address().schema();
    connection.query("select pg_advisory_xact_lock(1702131045, hashtext($1))", &[&schema]).await?;
    let refused = |why: String| Fault::Engine(Error::Store { path: link.address().to_string(), why });
    let sql = "select rolname, quote_ident(rolname), rolsuper, pg_has_role(rolname, (select nspowner from pg_namespace
            where nspname = $2), 'usage') from pg_roles where rolname = $1";
    let Some(row) = connection.query_opt(sql, &[&grant.role, &schema]).await? else {
        return Err(refused(format!(
            "the role `{0}` does not exist; create it: create role \"{0}\" login",
            grant.role
        )));
    };
    let (role, is_super, is_owner): (String, bool, bool) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    if is_super || is_owner {
        return Err(refused(format!(
            "the role `{}` owns the schema or is a superuser, so it sees all runs",
            grant.role
        )));
    }
    let sql = "insert into roles (role, kind, tenant) values ($1, $2, $3)
        on conflict (role) do update set kind = excluded.kind, tenant = excluded.tenant";
    connection.execute(sql, &[&grant.role, &grant.kind.word(), &grant.tenant]).await?;
    connection.batch(&statements(schema, &role, grant.kind)).await?;
    admit_workers(connection, schema).await?;
    connection.commit().await
}

/// Grants the rights of all roles of a schema again, inside a transaction: a new format may have more tables than the
/// one before.
pub(crate) async fn renew(connection: &mut Connection, schema: &str) -> Result<(), Fault> {
    let sql = "select quote_ident(role), kind from roles join pg_roles on rolname = role order by role";
    for row in connection.query(sql, &[]).await? {
        let (role, kind): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        if let Some(kind) = RoleKind::from_word(&kind) {
            connection.batch(&statements(schema, &role, kind)).await?;
        }
    }
    admit_workers(connection, schema).await
}

/// Names the owner and the workers in the policies of roles that see every row.
async fn admit_workers(connection: &mut Connection, schema: &str) -> Result<(), Fault> {
    let sql = "select string_agg(quote_ident(role), ', ' order by role) from roles join pg_roles on rolname = role where kind = 'worker'";
    let workers: Option<String> = connection.query_opt(sql, &[]).await?.map_or(Ok(None), |row| row.try_get(0))?;
    let sql = "select quote_ident(tablename) from pg_policies where schemaname = $1 and policyname = 'workers'";
    for row in connection.query(sql, &[&schema]).await? {
        let table: String = row.try_get(0)?;
        let others = workers.as_ref().map_or(String::new(), |workers| format!(", {workers}"));
        connection.batch(&format!("alter policy workers on {table} to current_user{others}")).await?;
    }
    Ok(())
}

/// True if a role has the rights of its kind, by the tables that it reads and adds to.
pub(crate) async fn has_rights(connection: &mut Connection, kind: RoleKind) -> Result<bool, Fault> {
    let added = match kind {
        RoleKind::Worker => DATA,
        RoleKind::Tenant => OF_TENANTS[0].trim_start_matches("insert on "),
    };
    let sql = "select bool_and(has_table_privilege(name, word)) from (
        select unnest(string_to_array($1, ', ')) as name, 'select' as word
        union all select unnest(string_to_array($2, ', ')), 'insert') as wanted";
    let row = connection.query_opt(sql, &[&READ, &added]).await?;
    Ok(row.map_or(Ok(None), |row| row.try_get::<_, Option<bool>>(0))?.unwrap_or(false))
}

/// Name of the logged-in role, and true if it may drive runs: it has the rights of a worker, and row-level security
/// hides no run from it.
pub(crate) async fn may_work(
    connection: &mut Connection,
    schema: &str,
    access: &Access,
) -> Result<(String, bool), Fault> {
    // A role that was given rights by hand sees the same as the roles it is a member of.
    let sql =
        "select session_user::text, not row_security_active('runs') or pg_has_role(session_user, nspowner, 'usage')
            or exists (select 1 from roles join pg_roles on rolname = role
                where kind = 'worker' and pg_has_role(session_user, pg_roles.oid, 'usage'))
        from pg_namespace where nspname = $1";
    let row = connection.query_opt(sql, &[&schema]).await?;
    let (role, sees_all): (String, bool) =
        row.map_or(Ok(Default::default()), |row| Ok::<_, Fault>((row.try_get(0)?, row.try_get(1)?)))?;
    let may = match access.kind {
        Some(RoleKind::Tenant) => false,
        Some(RoleKind::Worker) => has_rights(connection, RoleKind::Worker).await?,
        None => sees_all && has_rights(connection, RoleKind::Worker).await?,
    };
    Ok((role, may))
}

/// The statements that grant the rights of a role, whose name is quoted.
fn statements(schema: &str, role: &str, kind: RoleKind) -> String {
    let mut sql = format!(
        "revoke all on all tables in schema {schema} from {role};
         revoke all on all sequences in schema {schema} from {role};
         grant usage on schema {schema} to {role};
         grant select on {READ} to {role};
         grant usage, select on changes, writes to {role};"
    );
    match kind {
        RoleKind::Worker => sql
            .push_str(&format!("grant insert, update, delete on {DATA} to {role}; grant select on counted to {role};")),
        RoleKind::Tenant => {
            for right in OF_TENANTS {
                sql.push_str(&format!("grant {right} to {role};"));
            }
        }
    }
    sql
}

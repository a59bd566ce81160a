//! Checks of a database: the needs of a fleet, and the cost of each lack.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etude_runtime::engine::Error;

use crate::error::Fault;
use crate::grant;
use crate::link::{Connection, Link, attempt};
use crate::migrate::{self, FORMAT};
use crate::objects::Credentials;
use crate::probe;
use crate::queue::is_read_only;
use crate::tls::Mode;

/// Oldest supported version, in the form of `server_version_num`.
const OLDEST: i32 = 140_000;

/// Largest difference of clocks without a warning.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(5);

etude_core::words! {
    /// Result of a check.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Status {
        /// The database has the property.
        Ok = "ok",
        /// The engine works, at a cost.
        Warning = "warning",
        /// The engine cannot be used, or loses acknowledged records.
        Error = "error",
        /// The check was not made.
        Skipped = "skipped",
    }
}

/// Reads the clock of this machine.
pub(crate) type Now<'n> = &'n (dyn Fn() -> SystemTime + Sync);

/// A property that the fleet needs or profits from, and its state in a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Name of the check in reports.
    pub id: &'static str,
    /// Result of the check.
    pub status: Status,
    /// The state that was found, in a word or two.
    pub found: String,
    /// The requirement, as a sentence fragment.
    pub message: &'static str,
    /// Cost of the lack; empty if there is none.
    pub cost: &'static str,
    /// The next step; empty if there is none.
    pub hint: &'static str,
}

/// A database and its checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The server's version.
    pub version: String,
    /// The name of the PostgreSQL schema that holds the tables.
    pub schema: String,
    /// Format of the schema; 0: there is none.
    pub format: u32,
    /// The checks, in a fixed order.
    pub checks: Vec<Check>,
}

/// Checks a database. Writes nothing to it.
pub(crate) async fn check(
    link: &Link,
    patience: Duration,
    credentials: &Credentials,
    now: Now<'_>,
) -> Result<Report, Error> {
    Ok(attempt!(link.attempts_for(patience); |connection| report(connection, link, credentials, now)))
}

async fn report(
    connection: &mut Connection,
    link: &Link,
    credentials: &Credentials,
    now: Now<'_>,
) -> Result<Report, Fault> {
    let schema = link.address().schema();
    let format = migrate::format_of(connection, link.address()).await?;
    let encoding = setting(connection, "server_encoding").await?;
    let is_encoded = migrate::can_store(&encoding);
    let version = setting(connection, "server_version").await?;
    let number = setting(connection, "server_version_num").await?.parse().unwrap_or(0);
    let checks = vec![
        one("version", number >= OLDEST, &version, "14 or later is needed", "", "use a newer server"),
        one(
            "fsync",
            setting(connection, "fsync").await? == "on",
            &setting(connection, "fsync").await?,
            "acknowledged writes must be on disk",
            "a crash of the machine loses or damages runs",
            "set `fsync = on`",
        ),
        one(
            "synchronous_commit",
            setting(connection, "synchronous_commit").await? != "off",
            &setting(connection, "synchronous_commit").await?,
            "acknowledged commits must be on disk",
            "a crash of the server loses acknowledged records",
            "set `synchronous_commit = on`",
        ),
        one(
            "schema",
            format == FORMAT && is_encoded,
            &match format {
                _ if !is_encoded => format!("encoding {encoding}"),
                0 => "none".to_owned(),
                format => format!("format {format}"),
            },
            match is_encoded {
                true => "the schema must have the format of this version",
                false => "the encoding of the database must be UTF8",
            },
            "no command works on this database",
            match format > FORMAT {
                _ if !is_encoded => migrate::NEW_DATABASE,
                true => "use the version of etude that ran `etude engine migrate`, or a later one",
                false => "run `etude engine migrate`",
            },
        ),
        rights(connection, schema, format).await?,
        probe::blobs(connection, format, credentials).await?,
        tls(connection, link),
        sessions(connection),
        standby(connection).await?,
        clock(connection, now).await?,
    ];
    Ok(Report { version, schema: schema.to_owned(), format, checks })
}

/// A check that is an error unless `is_ok`.
fn one(
    id: &'static str,
    is_ok: bool,
    found: &str,
    message: &'static str,
    cost: &'static str,
    hint: &'static str,
) -> Check {
    let found = found.to_owned();
    match is_ok {
        true => Check { id, status: Status::Ok, found, message, cost: "", hint: "" },
        false => Check { id, status: Status::Error, found, message, cost, hint },
    }
}

async fn setting(connection: &mut Connection, name: &str) -> Result<String, Fault> {
    let row = connection.query_opt("select current_setting($1)", &[&name]).await?;
    Ok(row.map_or(Ok(String::new()), |row| row.try_get(0))?)
}

async fn rights(connection: &mut Connection, schema: &str, format: u32) -> Result<Check, Fault> {
    let (message, cost) = ("the user must read and write the tables of the schema", "commands fail when they write");
    if format == 0 {
        let found = "no schema".to_owned();
        return Ok(Check { id: "rights", status: Status::Skipped, found, message, cost: "", hint: "" });
    }
    if is_read_only(connection).await? {
        let found = "the database is read-only: it is a standby, or `default_transaction_read_only` is on";
        let hint = "name the primary in the URL, or all servers with `target_session_attrs=read-write`";
        return Ok(one("rights", false, found, message, cost, hint));
    }
    if format == FORMAT
        && let Some(kind) = grant::access_of(connection).await?.kind
    {
        let has_rights = grant::has_rights(connection, kind).await?;
        let found = if has_rights { format!("those of a {}", kind.word()) } else { "missing".to_owned() };
        return Ok(one(
            "rights",
            has_rights,
            &found,
            message,
            cost,
            "run `etude engine migrate` as the owner of the schema",
        ));
    }
    // With a list of rights, the function is true if the role has any one of them.
    let sql = "select bool_and(has_table_privilege(c.oid, word))
        from pg_class c join pg_namespace n on n.oid = c.relnamespace, unnest('{select,insert,update,delete}'::text[]) as word
        where n.nspname = $1 and c.relkind = 'r'";
    let row = connection.query_opt(sql, &[&schema]).await?;
    let may: Option<bool> = row.map_or(Ok(None), |row| row.try_get(0))?;
    let may = may.unwrap_or(false);
    if may && is_narrowed(connection).await? {
        let hint = "run `etude engine grant worker ROLE` as the owner of the schema";
        return Ok(one("rights", false, "row security hides every run", message, cost, hint));
    }
    let found = if may { "granted" } else { "missing" };
    Ok(one("rights", may, found, message, cost, "grant the rights, or log in as the user that migrated"))
}

/// True if the policies of the tables apply to the user, and it is not one of the roles that see every row.
async fn is_narrowed(connection: &mut Connection) -> Result<bool, Fault> {
    let sql = "select row_security_active('runs') and not exists (
        select 1 from pg_policy, unnest(polroles) as role
        where polrelid = 'runs'::regclass and polname = 'workers' and role <> 0 and pg_has_role(role, 'usage'))";
    let row = connection.query_opt(sql, &[]).await?;
    Ok(row.map_or(Ok(false), |row| row.try_get(0))?)
}

/// K-58: between machines, traffic must be encrypted, and the server must prove its identity.
fn tls(connection: &Connection, link: &Link) -> Check {
    let check = |status, found: &str, cost, hint| Check {
        id: "tls",
        status,
        found: found.to_owned(),
        message: "connections to another machine must be encrypted, and its certificate checked",
        cost,
        hint,
    };
    match connection.encryption() {
        None if link.address().is_local() => check(Status::Skipped, "this machine", "", ""),
        None => check(
            Status::Error,
            "none",
            "passwords and runs cross the network unencrypted",
            "set `ssl = on` for the server, and remove `sslmode` from the URL",
        ),
        Some(version) if link.address().is_local() || link.address().tls().mode() >= Mode::VerifyCa => {
            check(Status::Ok, version, "", "")
        }
        Some(version) => check(
            Status::Warning,
            &format!("{version}, certificate not checked"),
            "anyone on the network path can impersonate the database",
            "remove `sslmode` from the URL",
        ),
    }
}

/// Behind a pooler that shares sessions, session state is sent with each transaction, and there is no lock whose end
/// shows the death of a worker.
fn sessions(connection: &Connection) -> Check {
    let is_kept = connection.keeps_session();
    Check {
        id: "sessions",
        status: if is_kept { Status::Ok } else { Status::Warning },
        found: if is_kept { "kept" } else { "shared by a pooler" }.to_owned(),
        message: "each connection should keep its session",
        cost: if is_kept {
            ""
        } else {
            "each statement is planned again; workers detect deaths only after a lease of 15 s, and new runs only when they poll"
        },
        hint: if is_kept { "" } else { "connect workers to the server, or let the pooler pool sessions" },
    }
}

async fn standby(connection: &mut Connection) -> Result<Check, Fault> {
    let sql = "select count(*) filter (where sync_state = 'async'), count(*) from pg_stat_replication";
    let row = connection.query_opt(sql, &[]).await?;
    let (asynchronous, all): (i64, i64) =
        row.map_or(Ok((0, 0)), |row| Ok::<_, Fault>((row.try_get(0)?, row.try_get(1)?)))?;
    let is_lossy = asynchronous > 0 && asynchronous == all;
    Ok(Check {
        id: "standby",
        status: if is_lossy { Status::Warning } else { Status::Ok },
        found: format!("{all} standbys, {asynchronous} asynchronous"),
        message: "a standby should have every acknowledged commit before a failover",
        cost: if is_lossy { "a failover loses the latest records" } else { "" },
        hint: if is_lossy { "set `synchronous_standby_names`" } else { "" },
    })
}

async fn clock(connection: &mut Connection, now: Now<'_>) -> Result<Check, Fault> {
    let sql = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";
    let row = connection.query_opt(sql, &[]).await?;
    let there: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
    let here = now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let difference = i128::from(there).abs_diff(i128::try_from(here).unwrap_or(i128::MAX));
    let is_ok = difference <= MAX_CLOCK_DIFFERENCE.as_millis();
    Ok(Check {
        id: "clock",
        status: if is_ok { Status::Ok } else { Status::Warning },
        found: format!("{difference} ms apart"),
        message: "the clocks of this machine and the database should agree",
        cost: if is_ok { "" } else { "times in logs of this machine differ from those of runs" },
        hint: if is_ok { "" } else { "synchronize the clocks" },
    })
}

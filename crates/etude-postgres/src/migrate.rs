//! Format of the schema, and migrations to it.

use etude_runtime::engine::Error;

use crate::address::Address;
use crate::error::Fault;
use crate::grant;
use crate::link::{Connection, Link, attempt};

/// The migrations from one format to the next.
const STEPS: &[&str] = &[
    include_str!("../migrations/0001.sql"),
    include_str!("../migrations/0002.sql"),
    include_str!("../migrations/0003.sql"),
    include_str!("../migrations/0004.sql"),
    include_str!("../migrations/0005.sql"),
    include_str!("../migrations/0006.sql"),
    include_str!("../migrations/0007.sql"),
    include_str!("../migrations/0008.sql"),
    include_str!("../migrations/0009.sql"),
    include_str!("../migrations/0010.sql"),
];

/// The newest format.
pub(crate) const FORMAT: u32 = STEPS.len() as u32;

/// Result of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The name of the PostgreSQL schema that was migrated.
    pub schema: String,
    /// The format before; 0: there was no schema.
    pub from: u32,
    /// The format now.
    pub to: u32,
}

/// Refuses a schema that is missing or of another format, and a database of another encoding, in which an earlier version may
/// have made the schema. Writes nothing.
pub(crate) async fn check(link: &Link, patience: std::time::Duration) -> Result<(), Error> {
    let found = attempt!(link.attempts_for(patience); |connection| usable_format(connection, link.address()));
    match found {
        FORMAT => Ok(()),
        0 => Err(unmigrated(link, &format!("it has no schema `{}`", link.address().schema()))),
        found if found < FORMAT => {
            Err(unmigrated(link, &format!("its format is {found}, this version needs {FORMAT}")))
        }
        found => Err(Error::TooNew { path: link.address().to_string(), found, known: FORMAT }),
    }
}

/// Creates the schema, or brings it to the newest format, in one transaction. Of two at once, one waits.
pub(crate) async fn migrate(link: &Link, patience: std::time::Duration) -> Result<Migration, Error> {
    Ok(attempt!(link.attempts_for(patience); |connection| apply(connection, link.address())))
}

async fn apply(connection: &mut Connection, address: &Address) -> Result<Migration, Fault> {
    let schema = address.schema();
    connection.begin_as("begin isolation level read committed; set local lock_timeout = 0");
    connection.query("select pg_advisory_xact_lock(1702131045, hashtext($1))", &[&schema]).await?;
    let from = format_of(connection, address).await?;
    if from > FORMAT {
        connection.roll_back().await?;
        return Err(Error::TooNew { path: address.to_string(), found: from, known: FORMAT }.into());
    }
    if let Some(refused) = refused_encoding(connection, address).await? {
        connection.roll_back().await?;
        return Err(refused.into());
    }
    if from == 0 {
        connection.batch(&format!("create schema if not exists {schema}")).await?;
    }
    for step in &STEPS[from as usize..] {
        connection.batch(step).await?;
    }
    if is_owner(connection, schema).await? {
        grant::renew(connection, schema).await?;
    }
    connection.commit().await?;
    Ok(Migration { schema: schema.to_owned(), from, to: FORMAT })
}

/// The format of the schema in a database that can store every run.
async fn usable_format(connection: &mut Connection, address: &Address) -> Result<u32, Fault> {
    match refused_encoding(connection, address).await? {
        Some(refused) => Err(refused.into()),
        None => format_of(connection, address).await,
    }
}

/// The refusal of a database that cannot store every name and label. One without an encoding stores all bytes.
async fn refused_encoding(connection: &mut Connection, address: &Address) -> Result<Option<Error>, Fault> {
    let row = connection.query_opt("select current_setting('server_encoding')", &[]).await?;
    let encoding: String = row.map_or(Ok(String::new()), |row| row.try_get(0))?;
    if can_store(&encoding) {
        return Ok(None);
    }
    let why =
        format!("the journal {address} cannot be used: its encoding is {encoding}, which lacks characters of runs");
    Ok(Some(Error::Refused { why, hint: NEW_DATABASE.to_owned() }))
}

/// True if a database with this encoding can store every name and label.
pub(crate) fn can_store(encoding: &str) -> bool {
    ["UTF8", "SQL_ASCII"].contains(&encoding)
}

/// The next step for a user whose database has another encoding.
pub(crate) const NEW_DATABASE: &str =
    "create another database: `create database NAME encoding 'UTF8' template template0`";

/// True if the logged-in role may grant rights on the schema; other roles may check for a pending migration.
async fn is_owner(connection: &mut Connection, schema: &str) -> Result<bool, Fault> {
    let sql = "select pg_has_role(tableowner, 'usage') from pg_tables where schemaname = $1 and tablename = 'runs'";
    Ok(connection.query_opt(sql, &[&schema]).await?.map_or(Ok(false), |row| row.try_get(0))?)
}

/// The format of the schema; 0: there is no schema.
pub(crate) async fn format_of(connection: &mut Connection, address: &Address) -> Result<u32, Fault> {
    let schema = address.schema();
    let table = connection.query("select to_regclass($1 || '.format') is not null", &[&schema]).await?;
    if !table.first().is_some_and(|row| row.get(0)) {
        return Ok(0);
    }
    let found = connection.query(&format!("select version from {schema}.format"), &[]).await?;
    let version: i32 = found.first().map_or(0, |row| row.get(0));
    Ok(u32::try_from(version).unwrap_or(0))
}

fn unmigrated(link: &Link, why: &str) -> Error {
    let why = format!("the journal {} cannot be used: {why}", link.address());
    Error::Refused { why, hint: "run `etude engine migrate`".to_owned() }
}

//! What can go wrong with a database, in the contract's words.

use std::io;

use etude_runtime::engine::Error;
use tokio_postgres::error::SqlState;

use crate::address::Address;

/// Why a statement has no result.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The database or the connection to it.
    Database(tokio_postgres::Error),
    /// Something that the caller of the engine must know.
    Engine(Error),
    /// There is no answer. The same statement may succeed on another connection.
    Silence,
}

impl From<tokio_postgres::Error> for Fault {
    fn from(cause: tokio_postgres::Error) -> Self {
        Self::Database(cause)
    }
}

impl From<Error> for Fault {
    fn from(cause: Error) -> Self {
        Self::Engine(cause)
    }
}

/// Whether the same statement may succeed later: the connection broke, the server is not there, or others were in the way.
pub(crate) fn is_passing(cause: &tokio_postgres::Error) -> bool {
    let Some(code) = cause.code() else {
        // An error without a code is not the server's. What it sent may be no value that was expected; all else is the connection.
        let text = cause.to_string();
        let is_ours = ["error deserializing", "invalid configuration", "authentication error"];
        return cause.is_closed() || !is_ours.iter().any(|ours| text.starts_with(ours));
    };
    let of_server = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    let of_others = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::UNIQUE_VIOLATION,
    ];
    of_server.contains(code) || of_others.contains(code) || code.code().starts_with("08")
}

/// Whether the answer to an attempt to connect says that the database is down. Anything else proves nothing.
pub(crate) fn is_refusal(cause: &tokio_postgres::Error) -> bool {
    if let Some(code) = cause.code() {
        return [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code);
    }
    let source = std::error::Error::source(cause).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| matches!(source.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
}

/// The error of a store.
pub(crate) fn store_error(address: &Address, cause: &tokio_postgres::Error) -> Error {
    let path = address.to_string();
    let Some(database) = cause.as_db_error() else {
        let why = std::error::Error::source(cause).map_or_else(|| cause.to_string(), ToString::to_string);
        return Error::Store { path, why: format!("{why}; check that PostgreSQL runs there") };
    };
    let (code, message) = (database.code(), database.message());
    let next = match code.code() {
        "28000" | "28P01" => "; set `PGPASSWORD`, or give the user the right to log in",
        "3D000" => "; create the database, or name another one",
        "42501" => "; give the user rights to the schema",
        "42P01" | "3F000" => "; run `etude engine migrate`",
        "53100" => "; the disk of the database is full",
        _ => "",
    };
    Error::Store { path, why: format!("{message} (SQLSTATE {}){next}", code.code()) }
}

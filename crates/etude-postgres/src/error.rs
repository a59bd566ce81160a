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
        if is_of_encryption(cause) {
            return false;
        }
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

/// Whether the two sides cannot agree on encryption. A connection that breaks during the handshake says nothing of it.
pub(crate) fn is_of_encryption(cause: &tokio_postgres::Error) -> bool {
    is_of_handshake(cause) && (tls_error(cause).is_some() || io_error(cause).is_none())
}

/// The client library gives the kind of an error in words alone.
fn is_of_handshake(cause: &tokio_postgres::Error) -> bool {
    cause.to_string().starts_with("error performing TLS handshake")
}

fn io_error(cause: &tokio_postgres::Error) -> Option<&io::Error> {
    std::error::Error::source(cause)?.downcast_ref()
}

fn tls_error(cause: &tokio_postgres::Error) -> Option<&rustls::Error> {
    io_error(cause)?.get_ref()?.downcast_ref()
}

/// What is wrong with the encryption, and the next step.
fn why_unencrypted(cause: &tokio_postgres::Error) -> String {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    match tls_error(cause) {
        Some(rustls::Error::InvalidCertificate(UnknownIssuer)) => {
            "no authority that is trusted here has signed its certificate; name the file with the authority's certificate with \
             `sslrootcert=FILE`"
                .to_owned()
        }
        Some(rustls::Error::InvalidCertificate(why @ (NotValidForName | NotValidForNameContext { .. }))) => {
            format!("its certificate is for another name ({why}); use a name of the certificate in the URL")
        }
        Some(rustls::Error::InvalidCertificate(why)) => format!("its certificate is refused: {why}"),
        Some(why) => format!("TLS fails: {why}"),
        None => match std::error::Error::source(cause) {
            Some(why) if why.to_string() == NO_TLS => {
                "it does not offer TLS; set `ssl = on` there, or allow an unencrypted connection with `sslmode=disable`".to_owned()
            }
            why => format!("TLS fails: {}", why.map_or_else(|| cause.to_string(), ToString::to_string)),
        },
    }
}

/// How the client library says that a server has no TLS.
const NO_TLS: &str = "server does not support TLS";

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
    if is_of_encryption(cause) {
        return Error::Store { path, why: why_unencrypted(cause) };
    }
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
        "26000" | "42P05" => "; a pooler between has begun to share sessions: start this program again",
        "53100" => "; the disk of the database is full",
        _ => "",
    };
    Error::Store { path, why: format!("{message} (SQLSTATE {}){next}", code.code()) }
}

//! Errors of a database, mapped to the errors of the engine's contract.

use std::io;

use etude_runtime::engine::Error;
use tokio_postgres::error::SqlState;

use crate::address::Address;

/// Reason why a statement has no result.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Error of the database or of the connection to it.
    Database(tokio_postgres::Error),
    /// Error that the caller of the engine receives.
    Engine(Error),
    /// The database does not answer. The same statement may succeed on another connection.
    Silence,
}

impl Fault {
    /// The reason as text, of a row that cannot be read.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Engine(Error::Damaged { why, .. }) => why.clone(),
            Self::Engine(error) => error.to_string(),
            Self::Database(cause) => cause.to_string(),
            Self::Silence => "the database does not answer".to_owned(),
        }
    }
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

/// True if the same statement may succeed later: the connection broke, the server is away, or other transactions blocked it.
pub(crate) fn is_passing(cause: &tokio_postgres::Error) -> bool {
    let Some(code) = cause.code() else {
        if is_of_encryption(cause) {
            return false;
        }
        // An error without a code comes from this side: the value from the server may have an unexpected type; any
        // other error is the connection's.
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
    is_of_another_session(cause)
        || of_server.contains(code)
        || of_others.contains(code)
        || code.code().starts_with("08")
}

/// True if a statement was prepared in another session than the current one.
pub(crate) fn is_of_another_session(cause: &tokio_postgres::Error) -> bool {
    let codes = [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT];
    cause.code().is_some_and(|code| codes.contains(code))
}

/// True if the two sides cannot agree on encryption. A connection that breaks during the handshake does not count.
pub(crate) fn is_of_encryption(cause: &tokio_postgres::Error) -> bool {
    is_of_handshake(cause) && (tls_error(cause).is_some() || io_error(cause).is_none())
}

/// The client library gives the kind of an error only as text.
fn is_of_handshake(cause: &tokio_postgres::Error) -> bool {
    cause.to_string().starts_with("error performing TLS handshake")
}

fn io_error(cause: &tokio_postgres::Error) -> Option<&io::Error> {
    std::error::Error::source(cause)?.downcast_ref()
}

fn tls_error(cause: &tokio_postgres::Error) -> Option<&rustls::Error> {
    io_error(cause)?.get_ref()?.downcast_ref()
}

/// Reason why the connection cannot be encrypted, and the next step.
fn why_unencrypted(cause: &tokio_postgres::Error) -> String {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    match tls_error(cause) {
        Some(rustls::Error::InvalidCertificate(UnknownIssuer)) => {
            "its certificate is not signed by a trusted authority; name the file with the authority's certificate with \
             `sslrootcert=FILE`"
                .to_owned()
        }
        Some(rustls::Error::InvalidCertificate(why @ (NotValidForName | NotValidForNameContext { .. }))) => {
            format!("its certificate is for another name ({why}); use a name of the certificate in the URL")
        }
        Some(rustls::Error::InvalidCertificate(why)) => format!("its certificate is not valid: {why}"),
        Some(why) => format!("TLS fails: {why}"),
        None => match std::error::Error::source(cause) {
            Some(why) if why.to_string() == NO_TLS => {
                "it does not support TLS; set `ssl = on` there, or allow an unencrypted connection with `sslmode=disable`".to_owned()
            }
            why => format!("TLS fails: {}", why.map_or_else(|| cause.to_string(), ToString::to_string)),
        },
    }
}

/// Text of the client library for a server without TLS.
const NO_TLS: &str = "server does not support TLS";

/// Conclusion about the database from the end of an attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The database is down.
    Down,
    /// Inconclusive: the connection was made and closed at once, as by a server that is shutting down.
    Broken,
    /// No reply: the database may be there for others.
    Silence,
}

/// Conclusion from the error of an attempt to connect.
pub(crate) fn answer(fault: &Fault) -> Answer {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    let Fault::Database(cause) = fault else { return Answer::Silence };
    if let Some(code) = cause.code() {
        let is_down = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code);
        return if is_down { Answer::Down } else { Answer::Silence };
    }
    match io_error(cause).map(io::Error::kind) {
        Some(ConnectionRefused | NotFound) => Answer::Down,
        Some(ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof) => Answer::Broken,
        None if cause.is_closed() => Answer::Broken,
        _ => Answer::Silence,
    }
}

/// Routine of the server that checks that a role exists and may log in. The server's message is in its own language.
const NO_ROLE: &str = "InitializeSessionUserId";

/// Text of the client library for a server that asks for a password, when none is known.
const NO_PASSWORD: &str = "password missing";

/// Error of the store for an error of the database.
pub(crate) fn store_error(address: &Address, cause: &tokio_postgres::Error) -> Error {
    let path = address.to_string();
    if is_of_encryption(cause) {
        return Error::Store { path, why: why_unencrypted(cause) };
    }
    let Some(database) = cause.as_db_error() else {
        let why = std::error::Error::source(cause).map_or_else(|| cause.to_string(), ToString::to_string);
        let next = match why.as_str() {
            NO_PASSWORD => "the database wants a password: set `PGPASSWORD`, or write it to `~/.pgpass`",
            _ => "check that PostgreSQL runs there",
        };
        return Error::Store { path, why: format!("{why}; {next}") };
    };
    let (code, message) = (database.code(), database.message());
    let next = match code.code() {
        "28000" if database.routine() == Some(NO_ROLE) => {
            "; create the role and let it log in, or name another one in the URL"
        }
        "25006" => {
            "; it is a standby, or `default_transaction_read_only` is on: name the primary in the URL, or all servers with `target_session_attrs=read-write`"
        }
        "28000" | "28P01" => "; set `PGPASSWORD`, or permit the user to log in",
        "3D000" => "; create the database, or name another one",
        "42501" => "; the owner of the schema grants rights with `etude engine grant`",
        "42P01" | "3F000" => "; run `etude engine migrate`",
        "26000" | "42P05" => "; the connection pooler now shares sessions: restart this program",
        "53100" => "; the disk of the database is full",
        _ => "",
    };
    Error::Store { path, why: format!("{message} (SQLSTATE {}){next}", code.code()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    /// Result of an attempt to connect to a listener that serves like this.
    fn answered(listener: TcpListener, serve: impl FnOnce(TcpStream) + Send + 'static) -> Answer {
        let url = format!("postgres://etude@127.0.0.1:{}/x", listener.local_addr().expect("an address").port());
        let server = std::thread::spawn(move || serve(listener.accept().expect("a connection").0));
        let answered = attempt(&url);
        server.join().expect("the listener ends");
        answered
    }

    fn attempt(url: &str) -> Answer {
        let link = crate::link::Link::new(Address::parse(url).expect(url), 1, std::time::Duration::ZERO).expect(url);
        answer(&link.wait(link.connect()).expect_err(url))
    }

    /// A server that asks for a password runs: the hint says where to put the password.
    #[test]
    fn a_missing_password_is_no_missing_server() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut startup = [0; 4];
            stream.read_exact(&mut startup).expect("the length of the startup message");
            let rest = usize::try_from(u32::from_be_bytes(startup)).expect("it is short") - startup.len();
            stream.read_exact(&mut vec![0; rest]).expect("the startup message");
            // AuthenticationCleartextPassword.
            stream.write_all(b"R\0\0\0\x08\0\0\0\x03").expect("the client reads");
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let address = Address::parse(&format!("postgres://etude@127.0.0.1:{port}/x?sslmode=disable")).expect("a URL");
        let link = crate::link::Link::new(address.clone(), 1, std::time::Duration::ZERO).expect("a link");
        let Err(Fault::Database(cause)) = link.wait(link.connect()) else { panic!("no password was given") };
        server.join().expect("the client closes the connection");
        let text = store_error(&address, &cause).to_string();
        assert!(text.contains("password missing") && text.contains("`PGPASSWORD`"), "{text}");
        assert!(!text.contains("runs there"), "{text}");
    }

    /// K-23: a server that shuts down accepts a connection and closes it. That proves nothing about the database for others.
    #[test]
    fn a_connection_that_is_closed_at_once_is_neither_refusal_nor_silence() {
        let listener = || TcpListener::bind("127.0.0.1:0").expect("a port");
        // The byte is not read, so that the other side sees a reset.
        let reset = |stream: TcpStream| while stream.peek(&mut [0]).expect("a byte") == 0 {};
        assert_eq!(answered(listener(), reset), Answer::Broken);
        let close = |mut stream: TcpStream| {
            stream.shutdown(Shutdown::Write).expect("it is open");
            let _ = stream.read_to_end(&mut Vec::new());
        };
        assert_eq!(answered(listener(), close), Answer::Broken);
        let port = listener().local_addr().expect("an address").port();
        assert_eq!(attempt(&format!("postgres://etude@127.0.0.1:{port}/x")), Answer::Down);
        assert_eq!(answer(&Fault::Silence), Answer::Silence);
    }
}

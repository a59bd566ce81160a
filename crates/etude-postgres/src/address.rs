//! The address of a database: a URL as libpq reads it, with the parameters that this crate adds.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::servers::Servers;
use crate::tls::{Mode, Protection, Wanted};

/// The schema of a URL that names none.
const DEFAULT_SCHEMA: &str = "etude";

/// The port of a URL that names none.
pub(crate) const DEFAULT_PORT: u16 = 5432;

/// Maximum length of a name in bytes; PostgreSQL cuts longer ones.
const MAX_NAME_BYTES: usize = 63;

/// The words of PostgreSQL's grammar that cannot be the name of a schema without quotes.
const RESERVED: [&str; 100] = [
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "authorization", "binary", "both",
    "case", "cast", "check", "collate", "collation", "column", "concurrently", "constraint", "create", "cross",
    "current_catalog", "current_date", "current_role", "current_schema", "current_time", "current_timestamp",
    "current_user", "default", "deferrable", "desc", "distinct", "do", "else", "end", "except", "false", "fetch",
    "for", "foreign", "freeze", "from", "full", "grant", "group", "having", "ilike", "in", "initially", "inner",
    "intersect", "into", "is", "isnull", "join", "lateral", "leading", "left", "like", "limit", "localtime",
    "localtimestamp", "natural", "not", "notnull", "null", "offset", "on", "only", "or", "order", "outer", "overlaps",
    "placing", "primary", "references", "returning", "right", "select", "session_user", "similar", "some", "symmetric",
    "system_user", "table", "tablesample", "then", "to", "trailing", "true", "union", "unique", "user", "using",
    "variadic", "verbose", "when", "where", "window",
];

/// Address of a database, and the schema in it.
#[derive(Clone)]
pub struct Address {
    config: Config,
    schema: String,
    tls: Wanted,
}

/// Reason why a URL is not a usable address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The URL has another scheme.
    #[error("the engine's URL begins with neither `postgres://` nor `postgresql://`")]
    Scheme,
    /// The client library refuses the URL.
    #[error("the engine's URL cannot be read: {0}")]
    Syntax(String),
    /// The name of a schema cannot be quoted safely.
    #[error(
        "`{0}` is not a schema name: use at most 63 lower-case letters, digits and `_`, without a leading digit or `pg_`"
    )]
    Schema(String),
    /// The name of a schema has a meaning in SQL.
    #[error("`{0}` cannot be the name of the schema: it is a reserved word of PostgreSQL")]
    Reserved(String),
    /// A word is not a mode of encryption.
    #[error("`sslmode={0}` is not a mode: {modes}", modes = Mode::ALL.map(Mode::word).join(", "))]
    Mode(String),
    /// `sslrootcert=system` needs full verification: public authorities sign a certificate for anyone who has a name.
    #[error("`sslrootcert=system` needs `sslmode=verify-full`, not `{0}`")]
    WeakMode(&'static str),
    /// One half of a client identity is missing.
    #[error("`sslcert` and `sslkey` must be set together")]
    Identity,
}

impl AddressError {
    /// The next step for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Scheme => "write `postgres://USER@HOST/DATABASE`",
            Self::Syntax(_) => "the form is `postgres://USER@HOST:PORT/DATABASE?PARAMETER=VALUE`",
            Self::Schema(_) | Self::Reserved(_) => "give another `schema=NAME`",
            Self::Mode(_) => "another machine needs no `sslmode`: `verify-full` is the default",
            Self::WeakMode(_) => "remove `sslmode`, or name the file with your authority's certificate",
            Self::Identity => "name the file with the certificate and the one with its key",
        }
    }
}

impl Address {
    /// Reads a URL. K-58: the connection to another machine is encrypted and its certificate checked, unless the URL
    /// disables that.
    ///
    /// # Errors
    /// The URL is not well-formed.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        Self::parse_with(url, &|_| None)
    }

    /// Like [`Address::parse`], with `variable` for parts that the URL leaves open: `PGHOST`, `PGPORT`, `PGUSER`,
    /// `PGDATABASE`, `PGPASSWORD`, `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT` and `PGSSLKEY`.
    ///
    /// # Errors
    /// As [`Address::parse`].
    pub fn parse_with(url: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, AddressError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(AddressError::Scheme);
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut servers, base) = Servers::take(base)?;
        let (mut schema, mut protection, mut rest) = (DEFAULT_SCHEMA, Protection::read(variable), Vec::new());
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("schema", name)) => schema = name,
                Some((name, value)) if protection.takes(name, value) || servers.takes(name, value) => {}
                Some(("target_session_attrs", word)) => rest.push(session(word)),
                _ => rest.push(parameter.to_owned()),
            }
        }
        let is_plain = |name: &str| {
            let mut letters = name.bytes();
            letters.next().is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
                && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_')
        };
        if !is_plain(schema) || schema.len() > MAX_NAME_BYTES || schema.starts_with("pg_") {
            return Err(AddressError::Schema(schema.to_owned()));
        }
        if RESERVED.contains(&schema) {
            return Err(AddressError::Reserved(schema.to_owned()));
        }
        let without_ours = match rest.is_empty() {
            true => base,
            false => format!("{base}?{}", rest.join("&")),
        };
        let syntax = |cause: tokio_postgres::Error| {
            let cause = std::error::Error::source(&cause).map_or_else(|| cause.to_string(), ToString::to_string);
            AddressError::Syntax(cause)
        };
        let mut config: Config = without_ours.parse().map_err(syntax)?;
        servers.set(&mut config, variable)?;
        fill(&mut config, variable);
        let tls = protection.of_hosts(&config)?;
        config.application_name("etude");
        // Half-open connections end within this time plus one beat.
        config
            .keepalives_idle(Duration::from_secs(3))
            .keepalives_interval(Duration::from_secs(2))
            .keepalives_retries(2);
        config.tcp_user_timeout(Duration::from_secs(7));
        config.connect_timeout(Duration::from_secs(5));
        Ok(Self { config, schema: schema.to_owned(), tls })
    }

    /// The password, unless it is not UTF-8.
    pub fn password(&self) -> Option<String> {
        String::from_utf8(self.config.get_password()?.to_vec()).ok()
    }

    /// True if the URL has a password.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Takes the password from the text of a password file in libpq's form, unless there is one already: from the first
    /// matching line `HOST:PORT:DATABASE:USER:PASSWORD`, where `*` matches everything.
    pub fn or_password_of(&mut self, file: &str) {
        if self.has_password() {
            return;
        }
        let (user, database) = (self.config.get_user(), self.config.get_dbname().or(self.config.get_user()));
        let port = self.config.get_ports().first().copied().unwrap_or(DEFAULT_PORT).to_string();
        let hosts: Vec<String> = self.config.get_hosts().iter().map(passfile_name).collect();
        let fits = |line: &str| {
            let [host, at, name, of, password] = &fields(line)[..] else { return None };
            let is = |pattern: &str, value: Option<&str>| pattern == "*" || Some(pattern) == value;
            let is_host = host == "*" || hosts.contains(host);
            (is_host && is(at, Some(&port)) && is(name, database) && is(of, user)).then(|| password.clone())
        };
        if let Some(password) = file.lines().filter(|line| !line.starts_with('#')).find_map(fits) {
            self.config.password(password);
        }
    }

    /// The schema's name, which needs no quotes.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// True if the server runs on this machine.
    pub(crate) fn is_local(&self) -> bool {
        remote_of(&self.config).is_none()
    }

    /// Protection of the connections to this address.
    pub(crate) fn tls(&self) -> &Wanted {
        &self.tls
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }
}

/// The requested kind of session, as a word of the client library. Each session writes, so a primary must be writable;
/// a standby is not preferred where any server will do.
fn session(word: &str) -> String {
    let word = match word {
        "primary" => "read-write",
        "standby" => "read-only",
        "prefer-standby" => "any",
        word => word,
    };
    format!("target_session_attrs={word}")
}

/// Fills in the parts that the URL leaves open.
fn fill(config: &mut Config, variable: &dyn Fn(&str) -> Option<String>) {
    if config.get_user().is_none()
        && let Some(user) = variable("PGUSER")
    {
        config.user(user);
    }
    if config.get_dbname().is_none()
        && let Some(database) = variable("PGDATABASE")
    {
        config.dbname(database);
    }
    if config.get_password().is_none()
        && let Some(password) = variable("PGPASSWORD")
    {
        config.password(password);
    }
}

/// The fields of a line of a password file: `\\` and `\:` stand for themselves.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            // The password is the rest of the line.
            ':' if fields.len() < 5 => {
                fields.push(String::new());
                continue;
            }
            '\\' => letters.next().unwrap_or('\\'),
            letter => letter,
        };
        if let Some(last) = fields.last_mut() {
            last.push(letter);
        }
    }
    fields
}

/// Name of a host in password files: a socket is `localhost`.
fn passfile_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(_) => "localhost".to_owned(),
    }
}

/// True if the host is a directory with a socket.
pub(crate) fn is_socket(host: &Host) -> bool {
    match host {
        Host::Tcp(_) => false,
        Host::Unix(_) => true,
    }
}

/// Name of the first host that is another machine.
pub(crate) fn remote_of(config: &Config) -> Option<String> {
    let is_remote = |host: &&Host| match host {
        Host::Tcp(name) => !is_loopback(name),
        Host::Unix(_) => false,
    };
    let remote_name = config.get_hosts().iter().find(is_remote).map(name_of);
    let remote_address = config.get_hostaddrs().iter().find(|address| !address.is_loopback()).map(ToString::to_string);
    remote_address.or(remote_name)
}

fn is_loopback(name: &str) -> bool {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn name_of(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(dir) => dir.display().to_string(),
    }
}

/// Shows neither the password nor a default port.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.config.get_ports();
        // A single port applies to all hosts.
        let port = |at: usize| ports.get(at).or(ports.last()).filter(|port| **port != DEFAULT_PORT);
        let one = |(at, host): (usize, &Host)| {
            let name = name_of(host);
            let name = if name.parse::<Ipv6Addr>().is_ok() { format!("[{name}]") } else { name };
            port(at).map_or(name.clone(), |port| format!("{name}:{port}"))
        };
        let hosts: Vec<String> = self.config.get_hosts().iter().enumerate().map(one).collect();
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        write!(f, "postgres://{}/{database}", hosts.join(","))?;
        if self.schema == DEFAULT_SCHEMA { Ok(()) } else { write!(f, "?schema={}", self.schema) }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::TargetSessionAttrs;

    use super::*;

    fn refusal(url: &str) -> AddressError {
        Address::parse(url).expect_err(url)
    }

    #[test]
    fn an_address_shows_no_password() {
        let address = Address::parse("postgres://ada:s3cret@localhost:5433/runs?schema=fleet").expect("an address");
        assert!(address.has_password());
        assert_eq!(address.to_string(), "postgres://localhost:5433/runs?schema=fleet");
        assert_eq!(format!("{address:?}"), "postgres://localhost:5433/runs?schema=fleet");
        assert_eq!(
            (address.schema(), Address::parse("postgres://h1@localhost/x").expect("one").schema()),
            ("fleet", "etude")
        );
    }

    #[test]
    fn an_address_shows_ports_that_are_not_the_usual_one() {
        let shown = |url: &str| Address::parse(url).expect(url).to_string();
        assert_eq!(shown("postgres://localhost:5432/runs"), "postgres://localhost/runs");
        assert_eq!(shown("postgres://[::1]/runs"), "postgres://[::1]/runs");
        assert_eq!(shown("postgres://[::1]:5433/runs"), "postgres://[::1]:5433/runs");
        assert_eq!(shown("postgres://127.0.0.1:1,127.0.0.2/runs"), "postgres://127.0.0.1:1,127.0.0.2/runs");
        assert_eq!(shown("postgres://%2Frun%2Fdb:5433/runs"), "postgres:///run/db:5433/runs");
    }

    #[test]
    fn variables_fill_in_what_the_url_leaves_open() {
        let variable = |name: &str| {
            let value = match name {
                "PGHOST" => "localhost",
                "PGPORT" => "5433",
                "PGUSER" => "ada",
                "PGDATABASE" => "runs",
                "PGPASSWORD" => "s3cret",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let address = Address::parse_with("postgres://", &variable).expect("an address");
        let config = address.config();
        assert_eq!((config.get_user(), config.get_dbname()), (Some("ada"), Some("runs")));
        assert_eq!((config.get_ports(), config.get_password()), (&[5433][..], Some(&b"s3cret"[..])));
        let address = Address::parse_with("postgres://eve@127.0.0.1/other", &variable).expect("an address");
        assert_eq!(
            (address.config().get_user(), address.to_string().as_str()),
            (Some("eve"), "postgres://127.0.0.1:5433/other")
        );
        let elsewhere = |name: &str| (name == "PGHOST").then(|| "db.example.com".to_owned());
        let address = Address::parse_with("postgres://", &elsewhere).expect("an address");
        assert_eq!(address.tls().mode(), Mode::VerifyFull);
    }

    #[test]
    fn a_session_is_asked_for_in_the_words_of_libpq() {
        let asked = |word: &str| {
            let address = Address::parse(&format!("postgres://a,b/x?target_session_attrs={word}")).expect(word);
            address.config().get_target_session_attrs()
        };
        for (word, expected) in [
            ("read-write", TargetSessionAttrs::ReadWrite),
            ("primary", TargetSessionAttrs::ReadWrite),
            ("standby", TargetSessionAttrs::ReadOnly),
            ("prefer-standby", TargetSessionAttrs::Any),
        ] {
            assert_eq!(asked(word), expected, "{word}");
        }
        assert!(matches!(refusal("postgres://a/x?target_session_attrs=any-old"), AddressError::Syntax(_)));
    }

    #[test]
    fn a_password_file_has_the_password_of_the_first_line_that_fits() {
        let file =
            "# comment\nother:*:*:*:no\nlocalhost:5432:runs:bob:no\nlocalhost:5432:runs:ada:a\\:b:c\n*:*:*:*:no\n";
        let mut address = Address::parse("postgres://ada@localhost/runs").expect("an address");
        address.or_password_of(file);
        assert_eq!(address.config().get_password(), Some(&b"a:b:c"[..]));
        let mut address = Address::parse("postgres://ada:own@localhost/runs").expect("an address");
        address.or_password_of(file);
        assert_eq!(address.config().get_password(), Some(&b"own"[..]));
    }

    #[test]
    fn other_urls_and_names_are_refused() {
        assert_eq!(refusal("mysql://localhost/x"), AddressError::Scheme);
        assert!(matches!(refusal("postgres://localhost:x/y"), AddressError::Syntax(_)));
        for name in ["", "a;b", "1a", "A", "pg_x", "a%20b", &"a".repeat(64)] {
            assert_eq!(refusal(&format!("postgres:///x?schema={name}")), AddressError::Schema(name.to_owned()));
        }
        for name in ["user", "order", "left"] {
            assert_eq!(refusal(&format!("postgres:///x?schema={name}")), AddressError::Reserved(name.to_owned()));
        }
        let text = refusal("postgres:///x?schema=Etude").to_string();
        assert!(text.starts_with("`Etude` is not a schema name: use at most 63 lower-case letters"), "{text}");
    }
}

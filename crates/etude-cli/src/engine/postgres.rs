//! The engine on PostgreSQL.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use etude_postgres::{Address, AddressError, Credentials, Postgres, Settings, Times};
use etude_process::ENGINE_VARIABLE;
use etude_runtime::engine::Engine;

use super::{EMBEDDED, settings, url};
use crate::args::Global;
use crate::paths;
use crate::problem::Problem;
use crate::render::stopped::of_engine;

/// Maximum time in which commands wait for a connection to the database.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);

/// Timeout longer than any process lives.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Variable with comma-separated words that change the engine for tests.
const TEST_VARIABLE: &str = "ETUDE_ENGINE_TEST";

/// Variable that names the file of the test clock.
const TEST_CLOCK: &str = "ETUDE_TEST_CLOCK";

/// Number of connections for statements.
const CONNECTIONS: usize = 6;

/// Address of the database that the command line, the environment or the configuration names.
pub(crate) fn address(global: &Global) -> Result<Option<Address>, Problem> {
    let Some(url) = url(global)? else { return Ok(None) };
    let variable = |name: &str| {
        let said = std::env::var(name).ok().filter(|value| !value.is_empty());
        said.or_else(|| default_file(name)?.to_str().map(ToOwned::to_owned))
    };
    let refused = |error: AddressError| Problem::usage(error.to_string()).hint(error.hint());
    // Others can read the arguments of programs.
    let of_encryption = |name: &str| variable(name).filter(|_| name.starts_with("PGSSL"));
    let is_readable = |address: Address| address.has_password();
    if global.engine.is_some() && Address::parse_with(&url, &of_encryption).is_ok_and(is_readable) {
        let problem = Problem::usage("`--engine` contains a password, which process lists show");
        return Err(problem.hint(format!("put the URL into `{ENGINE_VARIABLE}`, or the password into `PGPASSWORD`")));
    }
    let mut address = Address::parse_with(&url, &variable).map_err(refused)?;
    let file = variable("PGPASSFILE").map(Into::into).or_else(|| Some(paths::home()?.join(".pgpass")));
    if let Some(text) = file.and_then(|file| std::fs::read_to_string(file).ok()) {
        address.or_password_of(&text);
    }
    Ok(Some(address))
}

/// Name of the engine for people and files: its address without a password, or `embedded`.
pub(crate) fn name(global: &Global) -> Result<String, Problem> {
    Ok(address(global)?.map_or_else(|| EMBEDDED.to_owned(), |address| address.to_string()))
}

/// File that libpq uses if a variable is not set, if it exists. A certificate without its key does not count.
fn default_file(variable: &str) -> Option<PathBuf> {
    let dir = paths::home()?.join(".postgresql");
    let is_there = |name: &str| dir.join(name).is_file();
    let name = match variable {
        "PGSSLROOTCERT" if is_there("root.crt") => "root.crt",
        "PGSSLCERT" if has_identity(&is_there) => "postgresql.crt",
        "PGSSLKEY" if has_identity(&is_there) => "postgresql.key",
        _ => return None,
    };
    Some(dir.join(name))
}

fn has_identity(is_there: &dyn Fn(&str) -> bool) -> bool {
    is_there("postgresql.crt") && is_there("postgresql.key") && std::env::var_os("PGSSLCERT").is_none()
}

/// Password of the database, from any source.
pub(super) fn password(global: &Global) -> Option<String> {
    // An unusable address is reported when the engine is opened.
    address(global).ok().flatten()?.password()
}

pub(super) fn open(global: &Global) -> Result<Arc<dyn Engine>, Problem> {
    opened(global, CONNECT)
}

/// Opens the engine of a worker, which waits for its database indefinitely (K-26). Faults that no retry repairs are reported: a
/// refused login, a missing right, another format.
pub(crate) fn open_patiently(global: &Global) -> Result<Arc<dyn Engine>, Problem> {
    opened(global, FOR_EVER)
}

fn opened(global: &Global, connect_timeout: Duration) -> Result<Arc<dyn Engine>, Problem> {
    Ok(Arc::new(opened_as_itself(global, connect_timeout)?))
}

/// Opens the engine with the operations that only a fleet has.
pub(crate) fn open_fleet(global: &Global) -> Result<Postgres, Problem> {
    opened_as_itself(global, CONNECT)
}

fn opened_as_itself(global: &Global, connect_timeout: Duration) -> Result<Postgres, Problem> {
    let Some(address) = address(global)? else { return Err(Problem::usage("no engine is configured")) };
    let given = settings(global)?;
    let ms = Duration::from_millis;
    let times = Times {
        lease: ms(given.lease_ms),
        beat: ms(given.beat_ms),
        grace: ms(given.grace_ms),
        poll: ms(given.poll_ms),
        patience: ms(given.patience_ms),
    };
    let settings = Settings {
        address,
        cache: paths::cache_dir().map_err(Problem::environment)?.join("fleet"),
        cache_limit: given.cache_bytes,
        credentials: credentials(),
        times,
        connections: CONNECTIONS,
        connect_timeout,
        patience: times.patience,
        is_blind: tested("blind"),
        has_callers_clock: std::env::var_os(TEST_CLOCK).is_some(),
        has_no_bell: tested("no-bell"),
    };
    Postgres::open(settings).map_err(|error| of_engine(&error))
}

/// Set once this process has seen that large values are in a bucket.
static HAS_BUCKET: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Keys to object storage.
pub(crate) fn credentials() -> Credentials {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| is_of_aws(name));
    let variables = names.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect();
    Credentials { variables, are_used: Arc::clone(&HAS_BUCKET) }
}

/// Environment variables that etude uses because large values are in a bucket, and the secrets among their values (K-53).
pub(super) fn of_bucket() -> (Vec<String>, Vec<String>) {
    if !HAS_BUCKET.load(Ordering::Relaxed) {
        return (Vec::new(), Vec::new());
    }
    let variables = credentials().variables;
    let is_secret = |name: &str| ["SECRET", "TOKEN"].iter().any(|word| name.contains(word));
    let secrets = variables.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.clone()).collect();
    (variables.into_iter().map(|(name, _)| name).collect(), secrets)
}

fn is_of_aws(name: &str) -> bool {
    name.starts_with("AWS_")
}

/// True if a test requests this behaviour. Prints a warning, so that it is not used in production.
fn tested(word: &str) -> bool {
    let is_wanted = std::env::var(TEST_VARIABLE).is_ok_and(|words| words.split(',').any(|one| one.trim() == word));
    if is_wanted {
        crate::render::say!("warning: {TEST_VARIABLE} has `{word}`, which is for tests only");
    }
    is_wanted
}

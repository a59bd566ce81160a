//! The engine on PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use etude_postgres::{Address, AddressError, Postgres, Settings, Times};
use etude_process::ENGINE_VARIABLE;
use etude_runtime::engine::Engine;

use super::url;
use crate::args::Global;
use crate::context::Problem;
use crate::paths;
use crate::render::stopped::of_engine;

/// Commands wait for a database that does not answer.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);

/// Statements of a run wait for a database that is down.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections for statements.
const CONNECTIONS: usize = 6;

/// The address of the database that the command line or the environment names.
pub(crate) fn address(global: &Global) -> Result<Option<Address>, Problem> {
    let Some(url) = url(global) else { return Ok(None) };
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let refused = |error: AddressError| {
        let problem = match error {
            AddressError::Tls(_) | AddressError::Remote(_) => Problem::environment(error.to_string()),
            _ => Problem::usage(error.to_string()),
        };
        problem.hint(error.hint())
    };
    // Others can read the arguments of programs.
    let mode = |name: &str| variable(name).filter(|_| name == "PGSSLMODE");
    if global.engine.is_some() && Address::parse_with(&url, &mode).is_ok_and(|address| address.has_password()) {
        let problem = Problem::usage("`--engine` has a password, and lists of processes show it");
        return Err(problem.hint(format!("put the URL into `{ENGINE_VARIABLE}`, or the password into `PGPASSWORD`")));
    }
    let mut address = Address::parse_with(&url, &variable).map_err(refused)?;
    let file = variable("PGPASSFILE").map(Into::into).or_else(|| Some(paths::home()?.join(".pgpass")));
    if let Some(text) = file.and_then(|file| std::fs::read_to_string(file).ok()) {
        address.or_password_of(&text);
    }
    Ok(Some(address))
}

pub(super) fn open(global: &Global) -> Result<Arc<dyn Engine>, Problem> {
    let Some(address) = address(global)? else { return Err(Problem::usage("no engine is named")) };
    let settings = Settings {
        address,
        cache: paths::cache_dir().map_err(Problem::environment)?.join("fleet"),
        times: Times::default(),
        connections: CONNECTIONS,
        connect_timeout: CONNECT,
        patience: PATIENCE,
    };
    let engine = Postgres::open(settings).map_err(|error| of_engine(&error))?;
    Ok(Arc::new(engine))
}

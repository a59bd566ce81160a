//! Which engine keeps the runs: the journal of this machine, or a PostgreSQL database that machines share.

use std::sync::Arc;

use etude_process::ENGINE_VARIABLE;
use etude_runtime::engine::Engine;

use crate::args::Global;
use crate::context::Problem;

#[cfg(feature = "postgres")]
mod postgres;

#[cfg(feature = "postgres")]
pub(crate) use postgres::{CONNECT, address};

/// The word for the journal of this machine, whatever else is set.
const EMBEDDED: &str = "embedded";

/// The URL of the engine that the command line or the environment names; `None` stands for the journal of this machine.
fn url(global: &Global) -> Option<String> {
    let named = global.engine.clone().or_else(|| std::env::var(ENGINE_VARIABLE).ok());
    named.filter(|text| !text.is_empty() && text != EMBEDDED)
}

/// Whether machines share the runs.
pub(crate) fn is_shared(global: &Global) -> bool {
    url(global).is_some()
}

/// The shared engine; `None` stands for the journal of this machine.
pub(crate) fn shared(global: &Global) -> Result<Option<Arc<dyn Engine>>, Problem> {
    if !is_shared(global) {
        return Ok(None);
    }
    #[cfg(feature = "postgres")]
    return postgres::open(global).map(Some);
    #[cfg(not(feature = "postgres"))]
    Err(Problem::environment("this build of etude has no engine on PostgreSQL")
        .hint("build it with the feature `postgres`, or use the journal of this machine: --engine embedded"))
}

/// The variables that no child inherits because of the engine: those with which libpq finds the database and its password.
pub(crate) fn withheld(global: &Global) -> Vec<String> {
    if !is_shared(global) {
        return Vec::new();
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names
        .filter(|name| name.strip_prefix("PG").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase())))
        .collect()
}

//! Choice of the engine that stores runs: the journal of this machine, or a PostgreSQL database that machines share.
//!
//! `--engine` comes first, then the environment, then `engine.url` of the user's configuration. An app cannot set it.

use std::sync::Arc;

use etude_process::{ENGINE_VARIABLE, TOKEN_VARIABLE};
use etude_runtime::engine::Engine;
use etude_spec::config::engine::EngineSettings;

use crate::args::Global;
use crate::problem::Problem;
use crate::settings::{self, Own};

#[cfg(feature = "otel")]
use etude_otel::{HEADERS, headers};

#[cfg(feature = "postgres")]
mod postgres;

#[cfg(feature = "postgres")]
use postgres::{of_bucket, password};

#[cfg(feature = "postgres")]
pub(crate) use postgres::{CONNECT, address, credentials, name, open_fleet, open_patiently};

/// Word for the journal of this machine, whatever else is set.
const EMBEDDED: &str = "embedded";

/// URL of the engine; `None` stands for the journal of this machine.
///
/// # Errors
/// The configuration that may name it is unusable.
fn url(global: &Global) -> Result<Option<String>, Problem> {
    let configured = || Ok(settings(global)?.url);
    of_command(global).map_or_else(configured, |_| Ok(None)).map(|configured| named(global, configured.as_deref()))
}

fn of_command(global: &Global) -> Option<String> {
    let given = global.engine.clone().or_else(|| std::env::var(ENGINE_VARIABLE).ok());
    given.filter(|text| !text.is_empty())
}

/// URL of the engine, given the one in the user's configuration.
fn named(global: &Global, configured: Option<&str>) -> Option<String> {
    let named = of_command(global).or_else(|| configured.map(settings::secrets_in));
    named.filter(|text| !text.is_empty() && text != EMBEDDED)
}

/// Engine settings of the user's configuration.
///
/// # Errors
/// The configuration is unusable.
pub(crate) fn settings(global: &Global) -> Result<EngineSettings, Problem> {
    Ok(settings::engine(global)?.unwrap_or_default())
}

/// True if machines share the runs.
pub(crate) fn is_shared(global: &Global) -> bool {
    // An unusable configuration is reported when the engine is opened.
    url(global).is_ok_and(|url| url.is_some())
}

/// Opens the shared engine; `None` stands for the journal of this machine.
pub(crate) fn shared(global: &Global) -> Result<Option<Arc<dyn Engine>>, Problem> {
    if url(global)?.is_none() {
        return Ok(None);
    }
    #[cfg(feature = "postgres")]
    return postgres::open(global).map(Some);
    #[cfg(not(feature = "postgres"))]
    Err(Problem::environment("this build of etude has no PostgreSQL engine")
        .hint("build it with the feature `postgres`, or use the journal of this machine: --engine embedded"))
}

/// Environment variables and secrets of etude itself. Every start needs them, so the configuration is read once.
pub(crate) fn own(global: &Global) -> Own {
    // An unusable configuration is reported when the engine is opened.
    let configured = settings(global).ok().and_then(|settings| settings.url);
    // Variables of the configured URL belong to etude even if another engine is used now.
    let of_url = configured.as_deref().map(settings::variables_in).unwrap_or_default();
    let is_shared = named(global, configured.as_deref()).is_some();
    let is_of_libpq =
        |name: &String| name.strip_prefix("PG").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let of_libpq = names.filter(|name| is_shared && is_of_libpq(name));
    let variable = |name: &str| std::env::var(name).ok();
    let password = if is_shared { password(global) } else { None };
    let headers = headers(&variable).into_iter().map(|(_, value)| value);
    let (of_bucket, keys) = of_bucket();
    let secrets = of_url.iter().filter_map(|name| variable(name)).chain(password).chain(headers).chain(keys).collect();
    let always = [ENGINE_VARIABLE, TOKEN_VARIABLE].into_iter().chain(HEADERS);
    Own { variables: always.map(str::to_owned).chain(of_libpq).chain(of_url).chain(of_bucket).collect(), secrets }
}

#[cfg(not(feature = "otel"))]
const HEADERS: [&str; 0] = [];

#[cfg(not(feature = "otel"))]
fn headers(_: &dyn Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    Vec::new()
}

#[cfg(not(feature = "postgres"))]
fn of_bucket() -> (Vec<String>, Vec<String>) {
    (Vec::new(), Vec::new())
}

#[cfg(not(feature = "postgres"))]
fn password(_: &Global) -> Option<String> {
    None
}

//! Resources of this machine for the programs of a run: sandboxes, a directory for sockets, variables.

use std::ffi::OsString;

use etude::agent::ApplicationAccess;
use etude_invoke::MiddlewareSettings;
use etude_process::sandbox::{self, SandboxSettings};

use crate::paths;
use crate::problem::Problem;

/// Sandbox settings for the steps `wanted`. Refuses before anything runs if sandboxes cannot be enforced.
pub(crate) fn sandboxes(wanted: &[String]) -> Result<Option<SandboxSettings>, Problem> {
    let Some(first) = wanted.first() else { return Ok(None) };
    let others = match wanted.len() - 1 {
        0 => String::new(),
        1 => " and one more".to_owned(),
        more => format!(" and {more} more"),
    };
    sandbox::support().map_err(|why| {
        let message = format!("step `{first}`{others} must run in a sandbox, which this machine cannot enforce: {why}");
        Problem::environment(message)
            .hint("run it on a machine that can enforce sandboxes, or remove `sandbox` from the step")
    })?;
    let program =
        std::env::current_exe().map_err(|e| Problem::environment(format!("cannot find the sandbox program: {e}")))?;
    Ok(Some(SandboxSettings { program, scratch: std::env::temp_dir(), is_isolated: false }))
}

/// Settings for middleware and code tools: a directory for sockets, and a `PATH` on which they find this program.
pub(crate) fn middleware_settings() -> MiddlewareSettings {
    MiddlewareSettings { scratch: std::env::temp_dir(), extra_env: own_place().into_iter().collect() }
}

/// `PATH` with the directory of this program at its end, because scripts call `etude host`.
fn own_place() -> Option<(String, OsString)> {
    let own = std::env::current_exe().ok()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).chain(own.parent().map(std::path::Path::to_owned));
    Some(("PATH".to_owned(), std::env::join_paths(all).ok()?))
}

/// Variables that commands of packages get (C-1.13).
pub(crate) const INHERITED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Access with which agents and steps run commands of applications.
pub(crate) fn application_access() -> Result<ApplicationAccess, Problem> {
    let state_dir = paths::state_dir().map_err(Problem::environment)?;
    let inherited = INHERITED.into_iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    Ok(ApplicationAccess { state_dir, environment: inherited.collect() })
}

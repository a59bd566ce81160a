//! Where the user's files lie.

use std::path::PathBuf;

use etcetera::BaseStrategy;
use etcetera::base_strategy::Xdg;

/// The directory of the journal: `$XDG_STATE_HOME/etude`.
///
/// # Errors
/// There is no home directory.
pub(crate) fn state_dir() -> Result<PathBuf, String> {
    let xdg = Xdg::new().map_err(|_| "there is no home directory: set HOME or XDG_STATE_HOME".to_owned())?;
    Ok(xdg.state_dir().unwrap_or_else(|| xdg.data_dir()).join("etude"))
}

/// The directory of what can be made or got again: `$XDG_CACHE_HOME/etude`.
///
/// # Errors
/// There is no home directory.
pub(crate) fn cache_dir() -> Result<PathBuf, String> {
    let xdg = Xdg::new().map_err(|_| "there is no home directory: set HOME or XDG_CACHE_HOME".to_owned())?;
    Ok(xdg.cache_dir().join("etude"))
}

/// The user's configuration file, whether it is there or not: `$XDG_CONFIG_HOME/etude/config.yaml`.
pub(crate) fn user_config() -> Option<PathBuf> {
    Xdg::new().ok().map(|xdg| xdg.config_dir().join("etude").join("config.yaml"))
}

/// The user's home.
pub(crate) fn home() -> Option<PathBuf> {
    etcetera::home_dir().ok()
}

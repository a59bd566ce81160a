//! Where the user's files lie.

use std::path::PathBuf;

use etcetera::BaseStrategy;
use etcetera::base_strategy::Xdg;
use tempfile::TempDir;

/// The directory of the journal: `$XDG_STATE_HOME/etude`.
///
/// # Errors
/// There is no home directory.
pub(crate) fn state_dir() -> Result<PathBuf, String> {
    let xdg = Xdg::new().map_err(|_| "there is no home directory: set HOME or XDG_STATE_HOME".to_owned())?;
    Ok(xdg.state_dir().unwrap_or_else(|| xdg.data_dir()).join("etude"))
}

/// A new directory for temporary files that only this user may enter. Its name is not known before, so that no one else can have
/// put something there. It goes with the value.
///
/// # Errors
/// It cannot be made.
pub(crate) fn scratch(what: &str) -> Result<TempDir, String> {
    let made = tempfile::Builder::new().prefix(&format!("etude-{what}-")).tempdir();
    made.map_err(|error| format!("a temporary directory cannot be made: {error}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// SECURITY.md, "Another user of the machine": no one can have put something into a temporary directory before it is made.
    #[test]
    fn a_temporary_directory_is_new() {
        let [first, second] = [(); 2].map(|()| scratch("test").expect("a directory"));
        assert_ne!(first.path(), second.path());
        for dir in [first, second] {
            assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0);
            let path = dir.path().to_owned();
            drop(dir);
            assert!(!path.exists());
        }
    }
}

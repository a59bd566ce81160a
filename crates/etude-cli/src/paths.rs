//! Paths of the user's files.

use std::path::PathBuf;

use tempfile::TempDir;

/// Hint if the journal cannot be created.
pub(crate) const WRITABLE: &str = "set XDG_STATE_HOME to a writable directory";

/// Directory of the journal: `$XDG_STATE_HOME/etude`.
///
/// # Errors
/// There is no home directory.
pub(crate) fn state_dir() -> Result<PathBuf, String> {
    below("XDG_STATE_HOME", ".local/state")
}

/// Creates a directory for temporary files that only this user may enter. Its name is unpredictable, so that others cannot put
/// anything there first. Dropping the value removes it.
///
/// # Errors
/// It cannot be created.
pub(crate) fn scratch(what: &str) -> Result<TempDir, String> {
    let made = tempfile::Builder::new().prefix(&format!("etude-{what}-")).tempdir();
    made.map_err(|error| format!("cannot create a temporary directory: {error}"))
}

/// Directory of data that can be created or downloaded again: `$XDG_CACHE_HOME/etude`.
///
/// # Errors
/// There is no home directory.
pub(crate) fn cache_dir() -> Result<PathBuf, String> {
    below("XDG_CACHE_HOME", ".cache")
}

/// Path of the user's configuration file, which may be missing: `$XDG_CONFIG_HOME/etude/config.yaml`.
pub(crate) fn user_config() -> Option<PathBuf> {
    Some(below("XDG_CONFIG_HOME", ".config").ok()?.join("config.yaml"))
}

/// Home directory of the user.
pub(crate) fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| !home.as_os_str().is_empty())
}

/// `etude` below a base directory: that of `variable`, which counts only as an absolute path, or `default` in the home.
fn below(variable: &str, default: &str) -> Result<PathBuf, String> {
    let base = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| Some(home()?.join(default)));
    Ok(base.ok_or_else(|| format!("there is no home directory: set HOME or {variable}"))?.join("etude"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SECURITY.md, "Another user of the machine": no one can put a file into a temporary directory before it is created.
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

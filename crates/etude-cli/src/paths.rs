//! Paths of the user's files.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use etude_spec::did_you_mean;
use tempfile::TempDir;

use crate::problem::Problem;
use crate::render::text::visible;

/// Hint if the journal cannot be created.
pub(crate) const WRITABLE: &str = "set XDG_STATE_HOME to a writable directory";

/// Maximum number of entries of a directory that are compared with a path that does not exist.
const MAX_SIBLINGS: usize = 10_000;

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

/// Problem for a path on the command line that is not a directory.
pub(crate) fn no_directory(dir: &Path) -> Problem {
    let shown = dir.display();
    if let Err(cause) = dir.metadata()
        && !matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
    {
        return Problem::environment(format!("`{shown}` cannot be read: {cause}"));
    }
    match dir.exists() {
        true => Problem::usage(format!("`{shown}` is not a directory")).hint("name the directory, not a file in it"),
        false => absent(Problem::usage(format!("there is no directory `{shown}`")), dir),
    }
}

/// Adds the way out of a path that does not exist: the entry of its directory with a similar name, or the base of the path.
pub(crate) fn absent(problem: Problem, path: &Path) -> Problem {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_SIBLINGS);
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let here = || std::env::current_dir().map(|here| format!(", `{}`", here.display())).unwrap_or_default();
    problem.hint(match did_you_mean(name, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{}`?", path.with_file_name(near).display()),
        None if path.is_absolute() => "name an existing path".to_owned(),
        None => format!("a relative path begins at the current directory{}", here()),
    })
}

/// Home directory of the user. A relative path is none: its directory would change with the current one.
pub(crate) fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

/// `etude` below a base directory: that of `variable`, which counts only as an absolute path, or `default` in the home.
fn below(variable: &str, default: &str) -> Result<PathBuf, String> {
    let base = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| Some(home()?.join(default)));
    Ok(base.ok_or_else(|| homeless(variable, std::env::home_dir()))?.join("etude"))
}

/// Reason why there is no home directory.
fn homeless(variable: &str, home: Option<PathBuf>) -> String {
    match home.filter(|home| !home.as_os_str().is_empty()) {
        Some(home) => format!(
            "the home directory `{}` is a relative path: set HOME or {variable} to an absolute one",
            visible(&home.to_string_lossy())
        ),
        None => format!("there is no home directory: set HOME or {variable}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cli: a path that does not exist is reported with a way out.
    #[test]
    fn a_path_that_does_not_exist_has_a_way_out() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("demo-app")).expect("made");
        std::fs::write(dir.path().join("file"), "x").expect("written");
        let found = |name: &str| {
            let problem = no_directory(&dir.path().join(name));
            (problem.message().replace(&dir.path().display().to_string(), ""), problem.hints.concat())
        };
        let (message, hint) = found("demo-ap");
        assert_eq!(message, "there is no directory `/demo-ap`");
        assert_eq!(hint, format!("did you mean `{}`?", dir.path().join("demo-app").display()));
        assert_eq!(found("zzz").1, "name an existing path");
        assert_eq!(found("file").0, "`/file` is not a directory");
        let relative = no_directory(Path::new("no-such-directory-of-etude"));
        assert!(relative.hints[0].starts_with("a relative path begins at the current directory, `"));
    }

    /// cli: a directory that cannot be read is not reported as a missing one.
    #[test]
    fn a_directory_that_cannot_be_read_is_reported_as_such() {
        let dir = tempfile::tempdir().expect("a directory");
        // Tests may run as root, which may read every directory; a link to itself is refused to all.
        let path = dir.path().join("loop");
        std::os::unix::fs::symlink(&path, &path).expect("a link");
        let problem = no_directory(&path);
        let expected = format!("`{}` cannot be read: Too many levels", path.display());
        assert!(problem.message().starts_with(&expected), "{problem:?}");
    }

    /// cli: a relative home directory is none, and the error says so.
    #[test]
    fn a_relative_home_directory_is_refused() {
        assert_eq!(homeless("XDG_STATE_HOME", None), "there is no home directory: set HOME or XDG_STATE_HOME");
        assert_eq!(
            homeless("XDG_STATE_HOME", Some("rel/home".into())),
            "the home directory `rel/home` is a relative path: set HOME or XDG_STATE_HOME to an absolute one"
        );
    }

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

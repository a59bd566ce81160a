//! `cargo run -p xtask -- release VERSION`: updates all files that name the version. `-- changelog VERSION` prints the changes
//! of a release for users.

mod date;
mod edit;
mod version;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::tree::root;
use edit::Edit;
use version::Version;

/// Reason why a release cannot be prepared.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The version does not follow Semantic Versioning.
    #[error("`{0}` is no version such as `1.2.0` or `1.2.0-rc.1`")]
    Version(String),
    /// The version is older than that of the tree.
    #[error("version {asked} is older than {current}")]
    Older {
        /// Requested version.
        asked: String,
        /// Version in `Cargo.toml`.
        current: String,
    },
    /// A file lacks the expected text.
    #[error("`{path}` has no {wanted}")]
    Missing {
        /// Path of the file, from the repository's root.
        path: &'static str,
        /// Text that the file must have.
        wanted: String,
    },
    /// A file could not be read or written.
    #[error("`{path}`: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// Error of the file system.
        reason: String,
    },
}

/// Writes a version into the tree and prints the next commands.
pub fn run(version: &str) -> ExitCode {
    let today = date::today();
    report(prepare(&root(), version, &today).map(|changed| {
        let files: String = changed.iter().map(|path| format!("  {path}\n")).collect();
        format!(
            "version {version} is in\n{files}next: git commit --all --message 'release: {version}'\n      \
             git tag --sign v{version} --message 'etude {version}'\n      git push --follow-tags\n"
        )
    }))
}

/// Prints the section of `CHANGELOG.md` about a version.
pub fn changelog(version: &str) -> ExitCode {
    report(read(&root(), CHANGELOG).and_then(|text| section(&text, version).map(str::to_owned)))
}

fn report(result: Result<String, Error>) -> ExitCode {
    match result {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

const CHANGELOG: &str = "CHANGELOG.md";

/// Writes `version` into every file that names the version of the workspace, and returns their paths. Nothing is written if one
/// of them is not as expected.
fn prepare(root: &Path, version: &str, today: &str) -> Result<Vec<&'static str>, Error> {
    let asked = Version::parse(version)?;
    let manifest = read(root, "Cargo.toml")?;
    let current = edit::version(&manifest)?;
    if asked < Version::parse(&current)? {
        return Err(Error::Older { asked: version.to_owned(), current });
    }
    let edit = Edit { current, version: version.to_owned(), today: today.to_owned() };
    let mut changed: Vec<(&'static str, String)> = Vec::new();
    for (path, change) in edit::FILES {
        let before = read(root, path)?;
        let after = change(&edit, path, &before)?;
        if after != before {
            changed.push((path, after));
        }
    }
    for (path, text) in &changed {
        let failed = |error: std::io::Error| Error::File { path: (*path).to_owned(), reason: error.to_string() };
        fs::write(root.join(path), text).map_err(failed)?;
    }
    Ok(changed.into_iter().map(|(path, _)| path).collect())
}

fn read(root: &Path, path: &str) -> Result<String, Error> {
    fs::read_to_string(root.join(path))
        .map_err(|error| Error::File { path: path.to_owned(), reason: error.to_string() })
}

/// Lines below the heading of a version, without the blank lines at the top.
fn section<'t>(changelog: &'t str, version: &str) -> Result<&'t str, Error> {
    let heading = format!("## [{version}]");
    let missing = || Error::Missing { path: CHANGELOG, wanted: format!("heading `{heading}`") };
    let at = changelog.match_indices(&heading).find(|(at, _)| changelog[..*at].ends_with('\n')).ok_or_else(missing)?.0;
    let (_, rest) = changelog[at..].split_once('\n').ok_or_else(missing)?;
    let end = rest.find("\n## ").map_or(rest.len(), |end| end + 1);
    Ok(rest[..end].trim_start_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str =
        "# Changelog\n\n## [0.2.0] - unreleased\n\n### Added\n\n- New.\n\n## [0.1.0] - 2026-01-02\n\n- Old.\n";

    fn tree(version: &str, log: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: String| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (path, _) in edit::FILES {
            let original = fs::read_to_string(root().join(path)).unwrap();
            let own = edit::version(&fs::read_to_string(root().join("Cargo.toml")).unwrap()).unwrap();
            write(path, original.replace(&own, version));
        }
        write(CHANGELOG, log.to_owned());
        directory
    }

    #[test]
    fn one_command_writes_the_version_everywhere() {
        let tree = tree("0.2.0", LOG);
        let changed = prepare(tree.path(), "0.3.0-rc.1", "2026-02-03").unwrap();
        assert_eq!(changed, edit::FILES.map(|(path, _)| path));
        for path in &changed {
            let text = read(tree.path(), path).unwrap();
            assert!(text.contains("0.3.0-rc.1"), "{path}");
        }
        let log = read(tree.path(), CHANGELOG).unwrap();
        assert!(log.starts_with("# Changelog\n\n## [0.3.0-rc.1] - 2026-02-03\n\n### Added\n"), "{log}");
        let lock = read(tree.path(), "Cargo.lock").unwrap();
        assert!(lock.contains("name = \"etude-cli\"\nversion = \"0.3.0-rc.1\"\n"));
        assert!(lock.contains("name = \"serde\"\nversion = \"1."), "crates from elsewhere keep theirs");
    }

    #[test]
    fn the_version_of_the_tree_can_be_released_but_no_older_one() {
        let tree = tree("0.2.0", LOG);
        assert_eq!(prepare(tree.path(), "0.2.0", "2026-02-03").unwrap(), [CHANGELOG]);
        let error = prepare(tree.path(), "0.1.9", "2026-02-03").unwrap_err();
        assert_eq!(error.to_string(), "version 0.1.9 is older than 0.2.0");
        assert!(matches!(prepare(tree.path(), "0.2", "2026-02-03"), Err(Error::Version(_))));
    }

    #[test]
    fn nothing_is_written_without_something_to_release() {
        let tree = tree("0.2.0", &LOG.replace("unreleased", "2026-01-31"));
        let before = read(tree.path(), "Cargo.toml").unwrap();
        assert!(matches!(prepare(tree.path(), "0.3.0", "2026-02-03"), Err(Error::Missing { path: CHANGELOG, .. })));
        assert_eq!(read(tree.path(), "Cargo.toml").unwrap(), before);
    }

    #[test]
    fn the_excerpt_is_the_section_of_the_version() {
        assert_eq!(section(LOG, "0.2.0").unwrap(), "### Added\n\n- New.\n\n");
        assert_eq!(section(LOG, "0.1.0").unwrap(), "- Old.\n");
        assert!(section(LOG, "0.1").is_err());
    }

    #[test]
    fn the_version_of_this_tree_has_a_section() {
        let version = edit::version(&read(&root(), "Cargo.toml").unwrap()).unwrap();
        assert!(section(&read(&root(), CHANGELOG).unwrap(), &version).unwrap().contains("\n- "));
    }
}

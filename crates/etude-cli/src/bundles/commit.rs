//! The app at a commit of a git repository, for `etude push GIT@COMMIT`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use etude_process::{ChildEnvironment, standalone};
use tempfile::TempDir;

use super::name_of;
use crate::problem::Problem;

/// Environment variables that would point git at another repository.
const OF_REPOSITORIES: [&str; 4] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"];

/// A repository and a commit, as the user typed them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Commit<'a> {
    /// A directory in a work tree, a bare repository, or a URL.
    repository: &'a str,
    commit: &'a str,
}

/// The files of a commit in a temporary directory.
pub(crate) struct Checkout {
    _dir: TempDir,
    /// The directory of the app in the checkout.
    pub(crate) app: PathBuf,
    /// Name of the app's directory or repository.
    pub(crate) name: String,
}

impl<'a> Commit<'a> {
    /// Parses `GIT@COMMIT`. The last `@` separates, since URLs may contain others.
    pub(crate) fn parse(source: &'a Path) -> Option<Self> {
        let (repository, commit) = source.to_str()?.rsplit_once('@')?;
        let is_commit = !commit.is_empty() && !commit.starts_with('-') && !commit.contains(':');
        let is_there = is_url(repository) || Path::new(repository).is_dir();
        (is_commit && is_there).then_some(Self { repository, commit })
    }

    /// Writes the files of the commit into a directory. For a directory inside a work tree, only its own files are written.
    pub(crate) fn check_out(&self) -> Result<Checkout, Problem> {
        let failed = |error| Problem::environment(format!("cannot create a directory for the commit: {error}"));
        let dir = tempfile::tempdir().map_err(failed)?;
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).map_err(failed)?;
        let mut repository = PathBuf::from(self.repository);
        if is_url(self.repository) {
            repository = dir.path().join("repository");
            self.git(
                dir.path(),
                [
                    OsStr::new("clone"),
                    "--quiet".as_ref(),
                    "--bare".as_ref(),
                    "--".as_ref(),
                    self.repository.as_ref(),
                    repository.as_ref(),
                ],
            )?;
        }
        let below = self.git(&repository, ["rev-parse", "--show-prefix"])?;
        let store = PathBuf::from(self.git(&repository, ["rev-parse", "--absolute-git-dir"])?);
        let object = format!("{}^{{tree}}", self.commit);
        let object = self.git(&repository, ["rev-parse", "--verify", "--quiet", "--end-of-options", &object])?;
        let index = dir.path().join("index");
        let from_index = |words: &[&str]| {
            let mut all = vec![OsStr::new("--git-dir"), store.as_os_str(), "--work-tree".as_ref(), tree.as_os_str()];
            // The same bytes on every system (K-51).
            all.extend(["-c", "core.autocrlf=false"].iter().chain(words).map(OsStr::new));
            self.git_with(&tree, all, Some(&index))
        };
        from_index(&["read-tree", &object])?;
        from_index(&["checkout-index", "--all", "--quiet"])?;
        let named = if below.is_empty() { self.repository } else { &below };
        let name = named.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
        let name = match name.strip_suffix(".git").unwrap_or(name) {
            "" | "." | ".." => name_of(Path::new(self.repository)),
            name => name.to_owned(),
        };
        Ok(Checkout { app: tree.join(below), _dir: dir, name })
    }

    fn git<S: AsRef<OsStr>>(&self, dir: &Path, words: impl IntoIterator<Item = S>) -> Result<String, Problem> {
        self.git_with(dir, words, None)
    }

    /// Output of git, without the final line break.
    fn git_with<S: AsRef<OsStr>>(
        &self,
        dir: &Path,
        words: impl IntoIterator<Item = S>,
        index: Option<&Path>,
    ) -> Result<String, Problem> {
        let withheld = OF_REPOSITORIES.map(str::to_owned);
        let mut git = standalone("git", ChildEnvironment::without_keys(&withheld));
        git.current_dir(dir).args(words);
        if let Some(index) = index {
            git.env("GIT_INDEX_FILE", index);
        }
        let Self { repository, commit } = self;
        let output = git.output().map_err(|error| {
            Problem::environment(format!("cannot start git: {error}")).hint("install git, or push a directory")
        })?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.lines().last().unwrap_or("there is no such commit").trim_start_matches("fatal: ").to_owned();
            let problem = Problem::usage(format!("the commit `{commit}` of `{repository}` cannot be read: {why}"));
            return Err(problem.hint("give a repository and a commit, branch or tag of it: etude push .@main"));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches(['\n', '\r']).to_owned())
    }
}

/// True if git would treat the text as remote: `https://HOST/PATH`, or `USER@HOST:PATH`.
fn is_url(repository: &str) -> bool {
    let is_of_ssh = || repository.split_once(':').is_some_and(|(host, _)| host.contains('@') && !host.contains('/'));
    !repository.starts_with('-') && (repository.contains("://") || is_of_ssh())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cluster §6: the last `@` precedes the commit, also in a URL; a path without a repository before it is not a commit.
    #[test]
    fn a_commit_is_named_after_its_repository() {
        let parse = |text: &'static str| Commit::parse(Path::new(text)).map(|found| (found.repository, found.commit));
        assert_eq!(parse(".@v1.2"), Some((".", "v1.2")));
        assert_eq!(parse("https://me@example.com/x/y.git@main"), Some(("https://me@example.com/x/y.git", "main")));
        assert_eq!(parse("git@example.com:x/y.git@abc123"), Some(("git@example.com:x/y.git", "abc123")));
        for none in ["nowhere@main", ".@", ".@--output=x", "git@example.com:x/y.git", "--upload-pack=x://y@main"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }
}

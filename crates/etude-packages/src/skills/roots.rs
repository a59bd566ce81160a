//! Directories that contain skills (C-2.6, part 4).

use std::path::{Path, PathBuf};

use etude_spec::skill::ROOTS;

use super::{Compat, Places, Scope};

/// All directories to search, in order of precedence.
pub(super) fn roots(places: &Places<'_>) -> Vec<(Scope, PathBuf)> {
    let start = std::path::absolute(places.start).unwrap_or_else(|_| places.start.to_owned());
    let home = places.home.map(|home| std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned()));
    let is_home =
        |dir: &Path| home.as_deref().is_some_and(|home| std::fs::canonicalize(dir).is_ok_and(|dir| dir == home));
    let project = project_dirs(&start).into_iter().filter(|dir| !is_home(dir));
    let project: Vec<_> = project.flat_map(|dir| ROOTS.map(|below| (Scope::Project, dir.join(below)))).collect();
    let user = places.home.into_iter().flat_map(|home| ROOTS.map(|below| (Scope::User, home.join(below))));
    match places.compat {
        Compat::Spec => project.into_iter().chain(user).collect(),
        Compat::ClaudeCode => user.chain(project).collect(),
    }
}

/// `start` and its ancestors up to the root of the repository, nearest first; without a repository only `start`.
pub(crate) fn project_dirs(start: &Path) -> Vec<PathBuf> {
    let is_root = |dir: &Path| dir.join(".git").exists();
    match start.ancestors().position(is_root) {
        Some(root) => start.ancestors().take(root + 1).map(Path::to_owned).collect(),
        None => vec![start.to_owned()],
    }
}

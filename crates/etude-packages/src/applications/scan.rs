//! The bounded search of directories for packages (C-1.7).

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use etude_spec::Diagnostic;
use etude_spec::application::{APP_FILE, findings};

use super::{Package, Source};

/// Maximum depth of a package below its root.
const MAX_DEPTH: usize = 6;

/// Maximum number of searched directories per root.
const MAX_DIRECTORIES: usize = 2_000;

/// Directories that are not searched.
const SKIPPED: [&str; 4] = [".git", "node_modules", "target", ".venv"];

/// Searches one root after the other. A package that is reachable in several ways counts once.
pub(super) struct Scanner {
    /// The root of the user's packages, as named and without links. A package below it is the user's, however it was found.
    of_user: Option<(PathBuf, PathBuf)>,
    seen: BTreeSet<PathBuf>,
    found: Vec<Package>,
    diagnostics: Vec<Diagnostic>,
}

impl Scanner {
    /// A scanner that recognizes the user's packages below `of_user`.
    pub(super) fn new(of_user: Option<&Path>) -> Self {
        let of_user = of_user.and_then(|root| Some((root.to_owned(), fs::canonicalize(root).ok()?)));
        Self { of_user, seen: BTreeSet::new(), found: Vec::new(), diagnostics: Vec::new() }
    }

    /// Checks one directory, without its subdirectories.
    pub(super) fn look_at(&mut self, directory: &Path, source: Source) {
        if let Ok(real) = fs::canonicalize(directory) {
            self.package(&real, source, directory);
        }
    }

    /// Searches a directory and its subdirectories.
    pub(super) fn scan(&mut self, root: &Path, source: Source) {
        let Ok(real) = fs::canonicalize(root) else { return };
        let mut found = Vec::new();
        let mut queue = VecDeque::from([(real.clone(), 0)]);
        let mut looked_at = 0;
        while let Some((place, depth)) = queue.pop_front() {
            looked_at += 1;
            if looked_at > MAX_DIRECTORIES {
                self.diagnostics.push(findings::too_many(&root.display().to_string(), MAX_DIRECTORIES));
                break;
            }
            if is_package(&place) {
                found.push(place);
            } else if depth < MAX_DEPTH {
                queue.extend(self.children(&place, &real).into_iter().map(|child| (child, depth + 1)));
            }
        }
        found.sort_unstable();
        for place in found {
            self.package(&place, source, root);
        }
    }

    fn package(&mut self, place: &Path, source: Source, scope: &Path) {
        if is_package(place) && self.seen.insert(place.to_owned()) {
            let of_user =
                self.of_user.as_ref().filter(|(_, real)| source == Source::Project && place.starts_with(real));
            let (source, scope) = of_user.map_or((source, scope), |(root, _)| (Source::User, root.as_path()));
            self.found.push(Package::load(place, source, scope));
        }
    }

    /// Directories in `place`. Links count if they stay below the root.
    fn children(&mut self, place: &Path, root: &Path) -> Vec<PathBuf> {
        let mut children = Vec::new();
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let (name, Ok(kind)) = (entry.file_name(), entry.file_type()) else { continue };
            if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
                children.push(entry.path());
            } else if kind.is_symlink() {
                let inside = fs::canonicalize(entry.path()).ok();
                children
                    .extend(inside.filter(|real| real.is_dir() && real.starts_with(root) && !place.starts_with(real)));
            } else if name != APP_FILE && name.eq_ignore_ascii_case(APP_FILE) {
                self.diagnostics.push(findings::file_case(&entry.path().display().to_string()));
            }
        }
        children.sort_unstable();
        children
    }

    pub(super) fn finish(self) -> (Vec<Package>, Vec<Diagnostic>) {
        (self.found, self.diagnostics)
    }
}

fn is_package(place: &Path) -> bool {
    // The listed name counts, because some file systems do not distinguish `app.md` from `APP.md`.
    place.join(APP_FILE).is_file()
}

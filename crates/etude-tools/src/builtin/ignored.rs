//! Exclusions of a walk: `.gitignore`, `.ignore` and `.git/info/exclude`, as git reads them.
//!
//! The user's global ignore file is not read, because it would make runs differ between machines.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use etude_files::beneath::Dir;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::confine::ConfinedPath;

/// Maximum number of bytes that are read of a file with patterns. The rest is ignored.
const MAX_SIZE: u64 = 1 << 20;

/// Maximum number of folders above the roots that are searched for patterns.
const MAX_ABOVE: usize = 64;

/// The patterns that apply at the current folder of a walk.
pub(super) struct Ignored {
    is_on: bool,
    /// Patterns of each folder from the uppermost one to the current one.
    levels: Vec<Level>,
}

/// The patterns of one folder.
#[derive(Default)]
pub(super) struct Level {
    ignore: Option<Gitignore>,
    git: Option<Gitignore>,
    exclude: Option<Gitignore>,
    is_repository: bool,
}

impl Ignored {
    /// Excludes nothing.
    pub(super) fn nothing() -> Self {
        Self { is_on: false, levels: Vec::new() }
    }

    /// The patterns of the folders above `start`.
    pub(super) fn above(start: &ConfinedPath) -> Self {
        let mut levels = Vec::new();
        // These folders are above the root, where the tools cannot write.
        for above in start.root().real().ancestors().skip(1).take(MAX_ABOVE) {
            levels.extend(Dir::open(above).ok().map(|dir| Level::of_path(&dir, above)));
        }
        levels.reverse();
        let mut real = start.root().real().to_owned();
        let mut dir = start.root().dir().try_clone().ok();
        // The last folder is missing here, because the walk enters it.
        for name in start.real().strip_prefix(&real).unwrap_or(Path::new("")) {
            let Some(there) = dir else { break };
            levels.push(Level::of_path(&there, &real));
            real.push(name);
            dir = there.open_dir(name).ok();
        }
        Self { is_on: true, levels }
    }

    /// Adds the patterns of a folder that the walk enters.
    pub(super) fn enter(&mut self, level: impl FnOnce() -> Level) {
        self.levels.push(if self.is_on { level() } else { Level::default() });
    }

    /// Removes the patterns of the folder that the walk entered last.
    pub(super) fn leave(&mut self) {
        self.levels.pop();
    }

    /// True if the path `real` in the current folder is excluded.
    pub(super) fn excludes(&self, real: &Path, is_dir: bool) -> bool {
        if !self.is_on {
            return false;
        }
        let first = |kind: fn(&Level) -> Option<&Gitignore>, in_repository: bool| {
            for level in self.levels.iter().rev() {
                let found = kind(level).map_or(Match::None, |patterns| patterns.matched(real, is_dir));
                if !found.is_none() {
                    return Some(found.is_ignore());
                }
                if in_repository && level.is_repository {
                    return None;
                }
            }
            None
        };
        let kinds = [
            first(|level| level.ignore.as_ref(), false),
            first(|level| level.git.as_ref(), true),
            first(|level| level.exclude.as_ref(), true),
        ];
        kinds.into_iter().flatten().next().unwrap_or(false)
    }
}

impl Level {
    /// The patterns of the folder `dir`. `has` is true for names that exist in it.
    pub(super) fn read(dir: &Dir, real: &Path, has: impl Fn(&OsStr) -> bool) -> Self {
        let read = |name: &str| {
            let name = OsStr::new(name);
            has(name).then(|| patterns(real, &read_ignore_file(dir, name)?)).flatten()
        };
        let is_repository = has(OsStr::new(".git"));
        let exclude = || {
            let info = dir.open_dir(OsStr::new(".git")).and_then(|git| git.open_dir(OsStr::new("info"))).ok()?;
            patterns(real, &read_ignore_file(&info, OsStr::new("exclude"))?)
        };
        Self {
            ignore: read(".ignore"),
            git: read(".gitignore"),
            exclude: if is_repository { exclude() } else { None },
            is_repository,
        }
    }

    fn of_path(dir: &Dir, real: &Path) -> Self {
        Self::read(dir, real, |name| dir.status(name).is_ok())
    }
}

/// The text of a file with patterns: a regular one, up to the limit. As in git, links are not followed.
fn read_ignore_file(dir: &Dir, name: &OsStr) -> Option<String> {
    let file: File = dir.open_file(name).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_SIZE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The patterns of a text from the folder `real`. Invalid lines are skipped, as git does, and those beyond a limit of globs.
fn patterns(real: &Path, text: &str) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(real);
    for line in text.strip_prefix('\u{feff}').unwrap_or(text).lines() {
        if etude_spec::glob::limit(line).is_ok() {
            let _ = builder.add_line(None, line);
        }
    }
    builder.build().ok()
}

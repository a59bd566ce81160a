//! Finding an app, or a directory of skills.

use std::path::{Path, PathBuf};

use etude_files::shared::is_of_others;

/// True if `dir` is an app: it has `SKILL.md`, `pipelines/` or `machines/`.
pub fn is_app(dir: &Path) -> bool {
    dir.join("pipelines").is_dir() || dir.join("machines").is_dir() || dir.join("SKILL.md").is_file()
}

/// The nearest app at or above `dir`. Where other users of the machine can put files, such as in `/tmp`, there is none: no one has
/// named that directory, and running an app is trusting it.
pub fn find(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|above| is_app(above) && !is_of_others(above, dir)).map(Path::to_owned)
}

/// The nearest app at or above `dir` that [`find`] passes over.
pub fn of_others(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|above| is_app(above) && is_of_others(above, dir)).map(Path::to_owned)
}

/// True if skills lie in `dir` itself: files `*.skill.md`, or directories with a SKILL.md.
pub fn has_skills(dir: &Path) -> bool {
    let is_skill_file = |path: &Path| path.to_str().is_some_and(|path| path.ends_with(".skill.md"));
    entries(dir).any(|path| is_skill_file(&path) || path.join("SKILL.md").is_file())
}

/// The directories directly in `dir` that have a SKILL.md, sorted.
pub fn skill_folders(dir: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = entries(dir).filter(|path| path.join("SKILL.md").is_file()).collect();
    folders.sort_unstable();
    folders
}

/// What lies in `dir`; nothing if it cannot be read.
fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests;

//! Transfer of a command's changes from its copy of an approved package to the package (C-0.4, C-1.11).
//!
//! Only files below `app/` are transferred, and only they keep the approval: it then covers the approved content plus the
//! command's changes in its private copy. Changes of the package by others meanwhile are not covered.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::applications::Package;
use crate::trust::{Content, Reading, Snapshot, Store, mode};
use etude_files::beneath::{Dir, EntryKind};
use etude_files::{private, regular};
use etude_runtime::run_id;
use etude_spec::application::StatePaths;

/// Caches of interpreters, which can be rebuilt and contain the path of the copy.
const CACHES: [&str; 1] = ["__pycache__"];

/// Transfers a command's changes and extends the approval to them. Returns conflicting paths: those that were changed in the
/// package meanwhile and stay as they are there.
///
/// # Errors
/// The package, the copy or the approvals cannot be read or written.
pub(super) fn carry_over(
    copy: &Snapshot,
    package: &Package,
    approved: &Content,
    store: Option<&Store>,
    scratch: &Path,
) -> io::Result<Vec<PathBuf>> {
    let is_own =
        |path: &PathBuf| path.starts_with("app") && !path.iter().any(|part| CACHES.iter().any(|cache| part == *cache));
    let changed: Vec<PathBuf> = copy.changes()?.into_iter().filter(is_own).collect();
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    // Excludes other processes that transfer changes.
    let _lock = private::lock(&scratch.join("carry.lock"))?;
    let written = copy.now()?;
    let state = StatePaths::new(&package.contract.state_paths());
    let there = Reading { state: Some(&state), ..Reading::default() }.read(&package.root)?;
    // Another command may have transferred its own changes since this one began.
    let is_approved = |content: &Content| {
        let approval = store.and_then(|store| store.approvals().ok())?.of(&package.root)?.content.clone();
        (approval.as_ref() == Some(content)).then_some(())
    };
    let (mut after, before) = match is_approved(&there.content()) {
        Some(()) => (there.clone(), there.content()),
        None => (copy.manifest().clone(), approved.clone()),
    };
    let root = Dir::open(&package.root)?;
    let mut conflicts = Vec::new();
    // Removed paths come first and deepest first, so that a file can replace a directory.
    let gone = changed.iter().rev().filter(|path| fs::symlink_metadata(copy.root().join(path)).is_err());
    for path in gone.filter(|path| !copy.is_state(path)) {
        if there.item(path) == copy.manifest().item(path) {
            remove(&root, path)?;
            after.set(path, None);
        } else if there.item(path).is_some() {
            conflicts.push(path.clone());
        }
    }
    for path in changed.iter().filter(|path| fs::symlink_metadata(copy.root().join(path)).is_ok()) {
        if copy.is_state(path) {
            put(&root, copy.root(), path)?;
            continue;
        }
        let Some(item) = written.item(path) else { continue };
        if there.item(path) == copy.manifest().item(path) {
            put(&root, copy.root(), path)?;
            after.set(path, Some(item.clone()));
        } else if there.item(path) != Some(item) {
            conflicts.push(path.clone());
        }
    }
    if let Some(store) = store {
        store.rebase(&package.root, &before, &after.content()).map_err(io::Error::other)?;
    }
    Ok(conflicts)
}

/// The open parent directory of `path`, and the name in it. No directory on the way may be a link: a link that replaced a
/// directory would lead the transfer out of the package.
fn place<'p>(root: &Dir, path: &'p Path) -> io::Result<(Dir, &'p OsStr)> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it is the package itself"))?;
    let mut dir = root.try_clone()?;
    for part in path.parent().into_iter().flatten() {
        let why = |error| io::Error::other(format!("`{}` cannot be opened: {error}", part.display()));
        dir = dir.open_dir(part).map_err(why)?;
    }
    Ok((dir, name))
}

/// The kind of the entry `name`; `None` if it does not exist.
fn kind(dir: &Dir, name: &OsStr) -> io::Result<Option<EntryKind>> {
    match dir.status(name) {
        Ok(status) => Ok(Some(status.kind)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove(root: &Dir, path: &Path) -> io::Result<()> {
    let (dir, name) = place(root, path)?;
    match kind(&dir, name)? {
        None => Ok(()),
        Some(EntryKind::Dir) => dir.remove_dir(name),
        Some(_) => dir.remove(name),
    }
}

/// Puts the entry at `path` of the copy into the package, in one step.
fn put(root: &Dir, copy: &Path, path: &Path) -> io::Result<()> {
    let (from, (dir, name)) = (copy.join(path), place(root, path)?);
    let (meta, there) = (fs::symlink_metadata(&from)?, kind(&dir, name)?);
    if meta.is_dir() {
        if there.is_some_and(|kind| kind != EntryKind::Dir) {
            dir.remove(name)?;
        }
        return dir.make_dir(name)?.set_mode(mode(&meta));
    }
    let new = OsString::from(format!(".etude-{}", run_id::new()));
    let write = || {
        if meta.is_symlink() {
            dir.symlink(&fs::read_link(&from)?, &new)?;
        } else if meta.is_file() {
            let mut file = dir.create_new(&new, Some(mode(&meta)))?;
            io::copy(&mut regular::open(&from)?, &mut file)?;
        } else {
            return Ok(());
        }
        if there == Some(EntryKind::Dir) {
            dir.remove_dir(name)?;
        }
        dir.rename(&new, name)
    };
    write().inspect_err(|_| {
        // The failure itself is returned; the new file is useless.
        let _ = dir.remove(&new);
    })
}

#[cfg(test)]
mod tests;

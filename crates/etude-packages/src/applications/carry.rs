//! What a command wrote in its copy of an approved package, carried over to the package (C-0.4, C-1.11).
//!
//! Only files below `app/` are carried over, and only they keep the approval: it goes on for what was approved plus what the
//! command wrote in its private copy. What anybody else changed in the package meanwhile is in neither.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::applications::Package;
use crate::trust::{Content, Reading, Snapshot, Store, mode};
use etude_files::beneath::{Dir, Kind};
use etude_files::{private, regular};
use etude_runtime::run_id;
use etude_spec::application::StatePaths;

/// Files of interpreters that are made again at any time, and that name the place of the copy.
const CACHES: [&str; 1] = ["__pycache__"];

/// Carries over what a command wrote, and keeps the approval for it. Returns the paths that were changed in the package
/// meanwhile and therefore stay as they are there.
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
    // Holds off other processes that carry something over.
    let _lock = private::lock(&scratch.join("carry.lock"))?;
    let written = copy.now()?;
    let state = StatePaths::new(&package.contract.state_paths());
    let there = Reading { state: Some(&state), ..Reading::default() }.read(&package.root)?;
    // Another command may have kept its own writes since this one began.
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
    // What is gone goes first and from below, so that a file can take the place of a directory.
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

/// The open directory that `path` lies in, and its name in there. No directory on the way is a link: one that was swapped
/// for a directory would lead what a command wrote out of the package.
fn place<'p>(root: &Dir, path: &'p Path) -> io::Result<(Dir, &'p OsStr)> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it is the package itself"))?;
    let mut dir = root.try_clone()?;
    for part in path.parent().into_iter().flatten() {
        let why = |error| io::Error::other(format!("`{}` cannot be opened: {error}", part.display()));
        dir = dir.open_dir(part).map_err(why)?;
    }
    Ok((dir, name))
}

/// What `name` is; `None`: nothing.
fn kind(dir: &Dir, name: &OsStr) -> io::Result<Option<Kind>> {
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
        Some(Kind::Dir) => dir.remove_dir(name),
        Some(_) => dir.remove(name),
    }
}

/// Puts what the copy has at `path` into the package, in one step.
fn put(root: &Dir, copy: &Path, path: &Path) -> io::Result<()> {
    let (from, (dir, name)) = (copy.join(path), place(root, path)?);
    let (meta, there) = (fs::symlink_metadata(&from)?, kind(&dir, name)?);
    if meta.is_dir() {
        if there.is_some_and(|kind| kind != Kind::Dir) {
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
        if there == Some(Kind::Dir) {
            dir.remove_dir(name)?;
        }
        dir.rename(&new, name)
    };
    write().inspect_err(|_| {
        // What failed is reported; the new file is of no use.
        let _ = dir.remove(&new);
    })
}

#[cfg(test)]
mod tests;

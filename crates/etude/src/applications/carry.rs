//! What a command wrote in its copy of an approved package, carried over to the package (C-0.4, C-1.11).
//!
//! Only files below `app/` are carried over, and only they keep the approval: it goes on for what was approved plus what the
//! command wrote in its private copy. What anybody else changed in the package meanwhile is in neither.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::applications::Package;
use crate::private;
use crate::run_id;
use crate::trust::{Content, Reading, Snapshot, Store, symlink};
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
    let _lock = lock(scratch)?;
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
    let mut conflicts = Vec::new();
    // What is gone goes first and from below, so that a file can take the place of a directory.
    let gone = changed.iter().rev().filter(|path| fs::symlink_metadata(copy.root().join(path)).is_err());
    for path in gone.filter(|path| !copy.is_state(path)) {
        if there.item(path) == copy.manifest().item(path) {
            remove(&package.root, path)?;
            after.set(path, None);
        } else if there.item(path).is_some() {
            conflicts.push(path.clone());
        }
    }
    for path in changed.iter().filter(|path| fs::symlink_metadata(copy.root().join(path)).is_ok()) {
        if copy.is_state(path) {
            put(&package.root, copy.root(), path)?;
            continue;
        }
        let Some(item) = written.item(path) else { continue };
        if there.item(path) == copy.manifest().item(path) {
            put(&package.root, copy.root(), path)?;
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

/// Holds off other processes that carry something over.
fn lock(scratch: &Path) -> io::Result<File> {
    private::create_dir_all(scratch)?;
    let lock = private::open(&scratch.join("carry.lock"), File::options().create(true).append(true))?;
    lock.lock()?;
    Ok(lock)
}

/// The place of `path`, whose directories are no links.
fn place(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let place = root.join(path);
    let parent = place.parent().unwrap_or(root);
    match fs::canonicalize(parent)? == parent {
        true => Ok(place),
        false => Err(io::Error::other(format!("`{}` has been replaced by a link", parent.display()))),
    }
}

fn remove(root: &Path, path: &Path) -> io::Result<()> {
    let place = place(root, path)?;
    match fs::symlink_metadata(&place) {
        Ok(meta) if meta.is_dir() => fs::remove_dir(place),
        Ok(_) => fs::remove_file(place),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Puts what the copy has at `path` into the package, in one step.
fn put(root: &Path, copy: &Path, path: &Path) -> io::Result<()> {
    let (from, to) = (copy.join(path), place(root, path)?);
    let meta = fs::symlink_metadata(&from)?;
    let is_there = fs::symlink_metadata(&to).ok();
    if meta.is_dir() {
        if is_there.as_ref().is_some_and(|there| !there.is_dir()) {
            fs::remove_file(&to)?;
        }
        if !is_there.is_some_and(|there| there.is_dir()) {
            fs::create_dir(&to)?;
        }
        return fs::set_permissions(&to, meta.permissions());
    }
    let new = to.with_file_name(format!(".etude-{}", run_id::new()));
    let write = || {
        if meta.is_symlink() {
            symlink(&fs::read_link(&from)?, &new)?;
        } else if meta.is_file() {
            fs::copy(&from, &new)?;
        } else {
            return Ok(());
        }
        if is_there.is_some_and(|there| there.is_dir()) {
            fs::remove_dir(&to)?;
        }
        fs::rename(&new, &to)
    };
    write().inspect_err(|_| {
        // What failed is reported; the new file is of no use.
        let _ = fs::remove_file(&new);
    })
}

//! Copies of packages and apps, for trials that leave the user's state alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use etude_spec::application::StatePaths;

use super::{Catalog, Places};

/// Copies `from` to `to`, except for paths selected by `is_left_out`. `left` is the remaining limit, in bytes.
///
/// # Errors
/// A file cannot be read or written, or the limit is exceeded.
pub(super) fn copy_tree(from: &Path, to: &Path, left: &mut u64, is_left_out: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, place, target) = (entry.file_type()?, entry.path(), to.join(entry.file_name()));
        if entry.file_name() == ".git" || is_left_out(&place) {
            continue;
        }
        if kind.is_dir() {
            copy_tree(&place, &target, left, is_left_out)?;
        } else if fs::metadata(&place).is_ok_and(|meta| meta.is_file()) {
            let length = fs::metadata(&place)?.len();
            *left = left.checked_sub(length).ok_or_else(|| io::Error::other("the copy would exceed the size limit"))?;
            fs::copy(&place, target)?;
        }
    }
    Ok(())
}

/// Maximum size of a copied app, in bytes.
const MAX_APP_BYTES: u64 = 512 << 20;

/// Copies an app with packages to `to`, without their state: the copy starts with fresh state, and the user's state is left
/// alone. `None` if the app has no packages; then nothing is copied.
///
/// # Errors
/// A file cannot be read or written, or the limit is exceeded.
pub fn copy_without_state(app: &Path, to: &Path) -> io::Result<Option<PathBuf>> {
    let catalog = Catalog::discover(&Places { project: app, home: None, paths: &[] });
    let packages: Vec<(&Path, StatePaths)> = catalog
        .packages()
        .map(|package| (package.root.as_path(), StatePaths::new(&package.contract.state_paths())))
        .collect();
    if packages.is_empty() {
        return Ok(None);
    }
    let mut left = MAX_APP_BYTES;
    let is_state = |place: &Path| {
        let inside = |root: &Path| place.strip_prefix(root).ok()?.to_str().map(|path| path.replace('\\', "/"));
        packages.iter().any(|(root, state)| inside(root).is_some_and(|path| state.holds(&path)))
    };
    copy_tree(app, to, &mut left, &is_state)?;
    fs::canonicalize(to).map(Some)
}

//! Modes of Unix.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub(super) fn create_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    match is_open_to_others(&fs::metadata(path)?) {
        true => of_another_user_too(fs::set_permissions(path, Permissions::from_mode(0o700))),
        false => Ok(()),
    }
}

pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.mode(0o600).open(path)?;
    if is_open_to_others(&file.metadata()?) {
        of_another_user_too(file.set_permissions(Permissions::from_mode(0o600)))?;
    }
    Ok(file)
}

pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).open(path)?.sync_all()
}

fn is_open_to_others(meta: &Metadata) -> bool {
    (meta.is_dir() || meta.is_file()) && meta.permissions().mode() & 0o077 != 0
}

/// Only the owner can change a mode: what another user shares stays shared.
fn of_another_user_too(changed: io::Result<()>) -> io::Result<()> {
    changed.or_else(|error| if error.kind() == io::ErrorKind::PermissionDenied { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::super::create;
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    /// SECURITY.md: the user's files are the user's alone from the start, and those that were not become so.
    #[test]
    fn files_and_directories_are_for_their_owner() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("state/etude");
        create_dir_all(&dir).expect("created");
        assert_eq!((mode(&dir), mode(&root.path().join("state"))), (0o700, 0o700));
        drop(create(&dir.join("new")).expect("created"));
        assert_eq!(mode(&dir.join("new")), 0o600);
        let old = dir.join("old");
        fs::write(&old, "kept").expect("written");
        fs::set_permissions(&old, Permissions::from_mode(0o644)).expect("opened to all");
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).expect("opened to all");
        create_dir_all(&dir).expect("there");
        drop(open(&old, OpenOptions::new().append(true)).expect("opened"));
        assert_eq!((mode(&dir), mode(&old)), (0o700, 0o600));
        assert_eq!(fs::read_to_string(&old).expect("read"), "kept");
    }
}

//! File modes on Unix.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub(super) fn create_missing_dirs(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

pub(super) fn restrict_dir(path: &Path) -> io::Result<()> {
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

pub(super) fn restrict(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o600))
}

fn is_open_to_others(meta: &Metadata) -> bool {
    (meta.is_dir() || meta.is_file()) && meta.permissions().mode() & 0o077 != 0
}

/// Ignores the refusal to change a mode: only the owner can change it, and files that another user shares stay shared.
fn of_another_user_too(changed: io::Result<()>) -> io::Result<()> {
    changed.or_else(|error| if error.kind() == io::ErrorKind::PermissionDenied { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::symlink;

    use super::super::{append, create, create_dir_all, create_new, lock};
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
    }

    /// SECURITY.md: the user's files are private from the start, and existing files become private.
    #[test]
    fn files_and_directories_are_for_their_owner() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("state/etude");
        create_dir_all(&dir).expect("created");
        assert_eq!((mode(&dir), mode(&root.path().join("state"))), (0o700, 0o700));
        let ways: [fn(&Path) -> io::Result<File>; 4] = [create, create_new, append, lock];
        for (at, way) in ways.into_iter().enumerate() {
            let new = dir.join(format!("new-{at}"));
            drop(way(&new).expect("created"));
            assert_eq!(mode(&new), 0o600, "{at}");
        }
        let old = dir.join("old");
        fs::write(&old, "kept").expect("written");
        set_mode(&old, 0o644);
        set_mode(&dir, 0o755);
        create_dir_all(&dir).expect("there");
        drop(open(&old, OpenOptions::new().read(true)).expect("opened"));
        assert_eq!((mode(&dir), mode(&old)), (0o700, 0o600));
        assert_eq!(fs::read_to_string(&old).expect("read"), "kept");
    }

    #[test]
    fn a_directory_that_is_only_completed_keeps_its_mode() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("shared");
        fs::create_dir(&dir).expect("created");
        set_mode(&dir, 0o750);
        create_missing_dirs(&dir).expect("there");
        create_missing_dirs(&dir.join("own/inner")).expect("created");
        assert_eq!((mode(&dir), mode(&dir.join("own"))), (0o750, 0o700));
    }

    #[test]
    fn a_new_file_is_no_link_of_others() {
        let root = tempfile::tempdir().expect("a directory");
        let (link, target) = (root.path().join("link"), root.path().join("target"));
        symlink(&target, &link).expect("linked");
        let error = create_new(&link).expect_err("something is there");
        assert_eq!((error.kind(), target.exists()), (io::ErrorKind::AlreadyExists, false));
    }

    #[test]
    fn lines_are_appended_and_can_be_read() {
        let root = tempfile::tempdir().expect("a directory");
        let (log, mut text) = (root.path().join("log"), String::new());
        append(&log).expect("created").write_all(b"one\n").expect("written");
        append(&log).expect("opened").write_all(b"two\n").expect("written");
        append(&log).expect("opened").read_to_string(&mut text).expect("read");
        assert_eq!(text, "one\ntwo\n");
    }

    #[test]
    fn one_at_a_time_has_the_lock() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("state/turn.lock");
        let held = lock(&path).expect("locked");
        let other = append(&path).expect("opened");
        assert!(other.try_lock().is_err());
        drop(held);
        assert!(other.try_lock().is_ok());
    }
}

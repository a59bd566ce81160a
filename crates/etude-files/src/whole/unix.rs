//! Directories on disk, on Unix.

use std::fs::File;
use std::io;
use std::path::Path;

pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::{Access, Durability, replace};

    /// SECURITY.md: a replacement of a user's file is for the user alone, whatever the mode of the old file.
    #[test]
    fn a_private_file_is_private_from_the_start() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("tokens.json");
        fs::write(&place, "old").expect("written");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o644)).expect("opened to all");
        replace(&place, b"new", Access::Owner, Durability::Process).expect("replaced");
        assert_eq!(fs::metadata(&place).expect("there").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "of others").expect("written");
        symlink(&target, &link).expect("linked");
        replace(&link, b"own", Access::Mask, Durability::Process).expect("replaced");
        assert_eq!(fs::read_to_string(&target).expect("read"), "of others");
        assert!(fs::symlink_metadata(&link).expect("there").is_file());
    }
}

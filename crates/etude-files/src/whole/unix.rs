//! Directories on disk, on Unix.

use std::fs::File;
use std::io;
use std::path::Path;

pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Marks a part as one of a living process. Where files cannot be locked, no part counts as abandoned.
pub(super) fn mark(file: &File) {
    let _ = file.try_lock();
}

/// True if the process that marked the part is dead.
pub(super) fn is_abandoned(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::SystemTime;

    use super::super::{Access, Durability, Part, replace};

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

    /// A process that was killed leaves its unfinished file behind. The next one removes it, but none of a living process.
    #[test]
    fn the_parts_of_dead_processes_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("runs.tar");
        let make = |name: &str, at: SystemTime| {
            fs::File::create(dir.path().join(name)).and_then(|file| file.set_modified(at)).expect("a file");
        };
        let (long_ago, now) = (SystemTime::UNIX_EPOCH, SystemTime::now());
        make(".runs.tar.7-0.part", long_ago);
        let others = [
            ".runs.tar.7-1.part", ".runs.tar.2026-11", ".runs.tar.a-0.part", ".other.tar.7-0.part", "runs.tar.7-0.part",
        ];
        others.iter().for_each(|name| make(name, if name.ends_with("7-1.part") { now } else { long_ago }));
        let living = Part::create(&place, Access::Owner).expect("a part");
        living.file().set_modified(long_ago).expect("aged");
        replace(&place, b"new", Access::Owner, Durability::Process).expect("replaced");
        assert!(!dir.path().join(".runs.tar.7-0.part").exists());
        assert!(others.iter().all(|name| dir.path().join(name).exists()));
        living.put_in_place(Durability::Process).expect("it is there");
        assert_eq!(fs::read(&place).expect("read"), b"");
    }
}

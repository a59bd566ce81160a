use std::os::unix::fs::symlink;

use super::*;

/// C-1.11: a command's changes stay in the package when one of its directories has become a link.
#[test]
fn what_a_command_wrote_follows_no_link_out_of_the_package() {
    let dir = tempfile::tempdir().unwrap();
    for made in ["package/app/real", "copy/app/notes", "outside"] {
        fs::create_dir_all(dir.path().join(made)).unwrap();
    }
    let (package, copy) = (dir.path().join("package"), dir.path().join("copy"));
    fs::write(copy.join("app/notes/file"), "written").unwrap();
    symlink("../../outside", package.join("app/notes")).unwrap();
    let root = Dir::open(&package).unwrap();
    assert!(put(&root, &copy, Path::new("app/notes/file")).is_err());
    assert!(remove(&root, Path::new("app/notes/file")).is_err());
    assert_eq!(fs::read_dir(dir.path().join("outside")).unwrap().count(), 0);
    // The directory itself replaces the link.
    put(&root, &copy, Path::new("app/notes")).unwrap();
    put(&root, &copy, Path::new("app/notes/file")).unwrap();
    assert_eq!(fs::read_to_string(package.join("app/notes/file")).unwrap(), "written");
    remove(&root, Path::new("app/notes/file")).unwrap();
    remove(&root, Path::new("app/notes")).unwrap();
    assert!(!package.join("app/notes").exists());
}

/// C-1.11: the same holds while another process swaps the directory for a link again and again.
#[test]
fn what_a_command_wrote_stays_in_the_package_under_link_swaps() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    for made in ["package/app/notes", "copy/app/notes", "outside"] {
        fs::create_dir_all(dir.path().join(made)).unwrap();
    }
    let (package, copy) = (dir.path().join("package"), dir.path().join("copy"));
    fs::write(copy.join("app/notes/file"), "written").unwrap();
    symlink("../../outside", package.join("app/link")).unwrap();
    let (root, is_over) = (Dir::open(&package).unwrap(), AtomicBool::new(false));
    let written = std::thread::scope(|scope| {
        scope.spawn(|| {
            let app = package.join("app");
            while !is_over.load(Ordering::Relaxed) {
                for (from, to) in [("notes", "held"), ("link", "notes"), ("notes", "link"), ("held", "notes")] {
                    fs::rename(app.join(from), app.join(to)).unwrap();
                }
            }
        });
        let written = (0..2_000).filter(|_| put(&root, &copy, Path::new("app/notes/file")).is_ok()).count();
        is_over.store(true, Ordering::Relaxed);
        written
    });
    assert!(written > 0, "nothing was written at all");
    assert_eq!(fs::read_dir(dir.path().join("outside")).unwrap().count(), 0);
}

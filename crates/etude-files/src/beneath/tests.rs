use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// Three directories: `app` and `shared` are roots, `secret` is not.
struct Disk {
    _dir: tempfile::TempDir,
    real: PathBuf,
    roots: Vec<Root>,
}

impl Disk {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let real = dir.path().canonicalize().expect("real path");
        for made in ["app/a/b", "shared", "secret"] {
            fs::create_dir_all(real.join(made)).expect("made");
        }
        for file in ["app/a/b/file", "shared/file", "secret/key"] {
            fs::write(real.join(file), file).expect("written");
        }
        let roots = ["app", "shared"].map(|name| Root::open(&real.join(name)).expect("opened"));
        Self { _dir: dir, real, roots: roots.into() }
    }

    fn link(&self, target: impl AsRef<Path>, link: &str) {
        symlink(target, self.real.join(link)).expect("linked");
    }

    fn find(&self, path: &str) -> Result<String, String> {
        match resolve(&self.roots, &self.real.join(path)) {
            Ok(spot) => Ok(format!("{}:{} {:?}", spot.root(), spot.below().display(), spot.kind())),
            Err(Unresolved::Failed(error)) => Err(error.to_string()),
            Err(Unresolved::Outside(path)) => {
                Err(format!("outside: {}", path.strip_prefix(&self.real).unwrap_or(&path).display()))
            }
            Err(other) => Err(format!("{other:?}")),
        }
    }
}

fn ok(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

fn err(text: &str) -> Result<String, String> {
    Err(text.to_owned())
}

/// the result has no links, however the path was written.
#[test]
fn a_path_is_resolved_to_the_place_without_links() {
    let disk = Disk::new();
    disk.link("b", "app/a/link");
    disk.link("../..", "app/a/b/up");
    disk.link(disk.real.join("app/a"), "app/absolute");
    disk.link("../shared", "app/over");
    for (path, found) in [
        ("app", "0: Some(Dir)"),
        ("app/a/b/file", "0:a/b/file Some(File)"),
        ("app/a/link/file", "0:a/b/file Some(File)"),
        ("app/absolute/link/up/a/b", "0:a/b Some(Dir)"),
        ("app/a/link/../b/file", "0:a/b/file Some(File)"),
        ("app/over/file", "1:file Some(File)"),
        ("app/over/new", "1:new None"),
        ("app/../shared/file", "1:file Some(File)"),
        ("app/new/deep", "0:new/deep None"),
        ("app/new/../other", "0:other None"),
        ("app/a/link/new", "0:a/b/new None"),
    ] {
        assert_eq!(disk.find(path), ok(found), "{path}");
    }
}

/// a path that leads out of the roots, to nothing or in circles is refused with that reason.
#[test]
fn a_path_that_leaves_the_roots_is_refused() {
    let disk = Disk::new();
    disk.link("../secret", "app/out");
    disk.link("out", "app/twice");
    disk.link("../../../..", "app/a/b/far");
    disk.link("circle", "app/circle");
    disk.link("nothing", "app/dangling");
    disk.link("../shared/nothing", "app/dangling-over");
    for (path, why) in [
        ("secret/key", "outside: secret/key"),
        ("app/out/key", "outside: secret/key"),
        ("app/twice/new", "outside: secret/new"),
        ("app/circle", "Loop"),
        ("app/dangling", "Dangling"),
        ("app/dangling/x", "Dangling"),
        ("app/dangling-over", "Dangling"),
        ("app/a/b/file/x", "NotADirectory"),
        ("app/a/b/file/..", "NotADirectory"),
    ] {
        assert_eq!(disk.find(path), err(why), "{path}");
    }
    assert!(disk.find("app/a/b/far/etc").is_err_and(|why| why.starts_with("outside: ")));
}

/// a link that takes the place of a directory after the path was resolved leads nowhere.
#[test]
fn what_was_resolved_is_used_without_looking_up_a_name_of_a_directory_again() {
    let disk = Disk::new();
    let find = |path: &str| resolve(&disk.roots, &disk.real.join(path)).expect("inside");
    let (read, new) = (find("app/a/b/file"), find("app/a/b/new/file"));
    fs::rename(disk.real.join("app/a/b"), disk.real.join("app/moved")).expect("moved");
    disk.link("../../secret", "app/a/b");
    assert_eq!(io::read_to_string(read.open().expect("the same file")).expect("read"), "app/a/b/file");
    let (dir, name) = new.make_parent().expect("made");
    dir.create_new(name, None).expect("made");
    assert!(disk.real.join("app/moved/new/file").is_file() && !disk.real.join("secret/new").exists());
    let at_end = find("app/moved/file");
    fs::remove_file(disk.real.join("app/moved/file")).expect("removed");
    disk.link("../../secret/key", "app/moved/file");
    assert!(at_end.open().is_err());
}

/// a pipe does not block, and links do not count as files or directories.
#[cfg(target_os = "linux")]
#[test]
fn only_regular_files_and_real_directories_are_opened() {
    let disk = Disk::new();
    disk.link("a/b/file", "app/link");
    disk.link("a", "app/dirlink");
    rustix::fs::mkfifoat(rustix::fs::CWD, disk.real.join("app/pipe"), rustix::fs::Mode::RWXU).expect("made");
    let dir = disk.roots[0].dir();
    for name in ["link", "pipe", "a", "nothing"] {
        assert!(dir.open_file(OsStr::new(name)).is_err(), "{name}");
    }
    for name in ["dirlink", "pipe", "nothing"] {
        assert!(dir.open_dir(OsStr::new(name)).is_err(), "{name}");
    }
    let mut kinds = dir.entries(10).expect("read");
    kinds.sort();
    let kinds: Vec<_> = kinds.iter().map(|(name, kind)| (name.to_str().expect("text"), *kind)).collect();
    assert_eq!(
        kinds,
        [("a", EntryKind::Dir), ("dirlink", EntryKind::Link), ("link", EntryKind::Link), ("pipe", EntryKind::Other)]
    );
    assert_eq!(dir.entries(2).expect("read").len(), 2);
}

/// opening a file in one call finds the same file as resolving its path, and refuses every path with a link.
#[cfg(target_os = "linux")]
#[test]
fn a_file_is_opened_straight_only_without_links() {
    let disk = Disk::new();
    disk.link("a/b/file", "app/link");
    disk.link("a", "app/dirlink");
    disk.link("/dev/zero", "app/zero");
    rustix::fs::mkfifoat(rustix::fs::CWD, disk.real.join("app/pipe"), rustix::fs::Mode::RWXU).expect("made");
    let open = |below: &str| disk.roots[0].open_straight(Path::new(below));
    if cfg!(target_os = "linux") {
        let (file, metadata) = open("a/b/file").expect("opened");
        assert_eq!((std::io::read_to_string(file).expect("read").as_str(), metadata.len()), ("app/a/b/file", 12));
    }
    let absolute = disk.real.join("app/a/b/file");
    for below in ["link", "dirlink/b/file", "zero", "pipe", "a", "nothing", "../secret/key", "a/../a/b/file", ""] {
        assert!(open(below).is_none(), "{below}");
    }
    assert!(open(absolute.to_str().expect("text")).is_none());
    let status = |below: &str| disk.roots[0].status_straight(Path::new(below));
    if cfg!(target_os = "linux") {
        let kind = |below: &str| status(below).expect("it is known").map(|found| found.kind).ok();
        let kinds = ["a/b/file", "a", "pipe", "nothing", "a/nothing", "a/b/file/x"].map(kind);
        assert_eq!(kinds, [Some(EntryKind::File), Some(EntryKind::Dir), Some(EntryKind::Other), None, None, None]);
    }
    for below in ["link", "dirlink/b/file", "dirlink/nothing", "zero", "../secret/key", "a/../a/b/file", ""] {
        assert!(status(below).is_none(), "{below}");
    }
    assert!(status(absolute.to_str().expect("text")).is_none());
}

/// A killed process leaves its unfinished file behind. A later write in the directory removes it, but none of a living
/// process and no other file.
#[test]
fn unfinished_files_of_dead_processes_are_removed() {
    let disk = Disk::new();
    let dir = Dir::open(&disk.real.join("app/a")).expect("opened");
    let make = |name: &str, at: std::time::SystemTime| {
        let file = fs::File::create(disk.real.join("app/a").join(name)).expect("a file");
        file.set_modified(at).expect("aged");
        file
    };
    let (long_ago, now) = (std::time::SystemTime::UNIX_EPOCH, std::time::SystemTime::now());
    drop(make(".etude-7-0.tmp", long_ago));
    drop(make(".etude-7-1.tmp", now));
    let living = make(".etude-8-0.tmp", long_ago);
    living.try_lock().expect("locked");
    drop(make(".etude-notes.tmp", long_ago));
    dir.replace(OsStr::new("file"), b"new").expect("replaced");
    let mut names: Vec<_> = dir.entries(10).expect("read").into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, [".etude-7-1.tmp", ".etude-8-0.tmp", ".etude-notes.tmp", "b", "file"]);
    assert!(is_unfinished(OsStr::new(".etude-7-1.tmp")) && !is_unfinished(OsStr::new(".etude-notes.tmp")));
}

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn app() -> (tempfile::TempDir, Disk) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("app");
    fs::create_dir_all(root.join("pipelines/p")).unwrap();
    fs::write(root.join("pipelines/p/pipeline.yaml"), "name: p").unwrap();
    fs::write(dir.path().join("secret"), "s").unwrap();
    let disk = Disk::open(&root).unwrap();
    (dir, disk)
}

#[test]
fn files_inside_are_read_and_bounded() {
    let (_dir, disk) = app();
    assert_eq!(disk.read("pipelines/p/pipeline.yaml", 100).unwrap(), b"name: p");
    assert_eq!(disk.read("pipelines/p/pipeline.yaml", 3), Err(ReadFailure::TooLarge { len: 7 }));
    assert_eq!(disk.read("pipelines/q", 100), Err(ReadFailure::Missing));
    assert_eq!(disk.read("pipelines/p", 100), Err(ReadFailure::WrongKind));
}

/// a path that leaves the app directory is an error, also through links.
#[test]
fn links_that_lead_out_are_refused_and_links_inside_are_followed() {
    let (dir, disk) = app();
    let root = disk.root().to_owned();
    symlink(dir.path().join("secret"), root.join("absolute")).unwrap();
    symlink("../secret", root.join("climbing")).unwrap();
    symlink(dir.path(), root.join("folder")).unwrap();
    symlink("pipelines/p/pipeline.yaml", root.join("inside")).unwrap();
    symlink(root.join("pipelines/p/pipeline.yaml"), root.join("absolute-inside")).unwrap();
    for path in ["absolute", "climbing", "folder/secret", "../secret"] {
        assert_eq!(disk.read(path, 100), Err(ReadFailure::Outside), "{path}");
        assert!(matches!(disk.kind(path), Err(ReadFailure::Outside)), "{path}");
    }
    for path in ["inside", "absolute-inside"] {
        assert_eq!(disk.read(path, 100).unwrap(), b"name: p", "{path}");
    }
    assert_eq!(disk.list("folder"), Err(ReadFailure::Outside));
}

#[test]
fn kinds_report_files_directories_and_scripts_apart() {
    let (_dir, disk) = app();
    let script = disk.root().join("run.sh");
    fs::write(&script, "").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(disk.kind("run.sh"), Ok(FileKind::File { executable: true }));
    assert_eq!(disk.kind("pipelines/p/pipeline.yaml"), Ok(FileKind::File { executable: false }));
    assert_eq!(disk.kind("pipelines"), Ok(FileKind::Dir));
    assert_eq!(disk.kind("nothing"), Err(ReadFailure::Missing));
    let mut names: Vec<_> = disk.list("").unwrap().into_iter().map(|e| e.name).collect();
    names.sort();
    assert_eq!(names, ["pipelines", "run.sh"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_in_place_of_a_file_does_not_hang() {
    let (_dir, disk) = app();
    let pipe = disk.root().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    assert_eq!(disk.read("pipe", 100), Err(ReadFailure::WrongKind));
}

/// a link that replaces a directory during a read leads nowhere.
#[test]
#[cfg(target_os = "linux")]
fn nothing_outside_is_read_or_listed_under_link_swaps() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (dir, disk) = app();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("pipeline.yaml"), "CANARY").unwrap();
    fs::write(outside.join("canary"), "").unwrap();
    symlink(&outside, disk.root().join("pipelines/link")).unwrap();
    let names = ["p", "link"].map(|name| disk.root().join("pipelines").join(name));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &names[0], CWD, &names[1], RenameFlags::EXCHANGE).unwrap();
            }
        });
        let leaks = (0..5_000).filter(|_| {
            let read = disk.read("pipelines/p/pipeline.yaml", 100).is_ok_and(|bytes| bytes == b"CANARY");
            let listed = disk.list("pipelines/p").is_ok_and(|all| all.iter().any(|entry| entry.name == "canary"));
            read || listed
        });
        let leaks = leaks.count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(leaks, 0);
    });
}

/// a file, a link without a target or a link that leads out is distinguished from a missing directory.
#[test]
fn only_a_missing_directory_is_missing() {
    let (dir, disk) = app();
    let root = disk.root().to_owned();
    fs::write(root.join("file"), "x").unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink(dir.path(), root.join("out")).unwrap();
    assert_eq!(disk.list("nothing"), Err(ReadFailure::Missing));
    assert_eq!(disk.list("nothing/below"), Err(ReadFailure::Missing));
    assert_eq!(disk.list("file/below"), Err(ReadFailure::Missing));
    assert_eq!(disk.list("file"), Err(ReadFailure::WrongKind));
    assert_eq!(disk.list("out"), Err(ReadFailure::Outside));
    let no_target = "a symbolic link in its path has no target".to_owned();
    assert_eq!(disk.list("dangling"), Err(ReadFailure::Other(no_target)));
}

/// a pipeline behind a link that cannot be followed is a warning with its reason; other links are followed.
#[test]
fn a_broken_link_among_pipelines_is_named() {
    let (dir, disk) = app();
    let place = disk.root().join("pipelines");
    symlink("nowhere", place.join("dangling")).unwrap();
    symlink(dir.path(), place.join("out")).unwrap();
    symlink("p", place.join("same")).unwrap();
    symlink("nowhere", place.join("_parked")).unwrap();
    let found = etude_spec::discover::discover(&disk);
    assert_eq!(found.pipelines, ["p", "same"]);
    let mut messages: Vec<_> = found.diagnostics.iter().map(|diagnostic| diagnostic.message.as_str()).collect();
    messages.sort_unstable();
    let expected = [
        "`pipelines/dangling` is not read: its symbolic link has no target",
        "`pipelines/out` is not read: its symbolic link leads out of the app's directory",
    ];
    assert_eq!(messages, expected);
}

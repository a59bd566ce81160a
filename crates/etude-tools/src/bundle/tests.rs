use std::cell::RefCell;
use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

thread_local! {
    /// The files and directories that this thread has synced.
    pub(super) static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

fn app() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    let put = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
    };
    put("pipelines/p/pipeline.yaml", "name: p\n");
    put("pipelines/p/steps/s.sh", "echo\n");
    put("a-file", "a");
    put(".gitignore", "out/\n*.log\n");
    put("out/large", "x");
    put("deep/x.log", "x");
    put(".env", "KEY=canary\n");
    put("deep/.env", "KEY=canary\n");
    // A killed process has left it behind.
    put("pipelines/p/.etude-7-0.tmp", "name: canary\n");
    put(".git/config", "x");
    symlink("p", dir.path().join("pipelines/q")).expect("a link");
    fs::set_permissions(dir.path().join("pipelines/p/steps/s.sh"), fs::Permissions::from_mode(0o700)).expect("a mode");
    dir
}

fn refused(entries: &[(&str, EntryType, &str)]) -> String {
    let mut builder = Builder::new(Vec::new());
    for (path, kind, data) in entries {
        let mut header = Header::new_ustar();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        // Written directly, since the library refuses to write such names.
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        if *kind == EntryType::Symlink {
            header.as_mut_bytes()[157..157 + data.len()].copy_from_slice(data.as_bytes());
        }
        let data = if *kind == EntryType::Regular { data.as_bytes() } else { b"" };
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data).expect("an entry");
    }
    let bytes = builder.into_inner().expect("an archive");
    Bundle::read(bytes).expect_err("it is refused").to_string()
}

/// K-51, K-53: a bundle has the files that git would add, in order, and neither keys nor git's own files.
#[test]
fn a_bundle_has_the_files_of_the_app() {
    let app = app();
    let bundle = Bundle::pack(app.path()).expect("a bundle");
    let shown: Vec<(&str, u32)> = bundle.entries().iter().map(|entry| (&*entry.path, entry.mode)).collect();
    let expected = [
        (".gitignore", 0o644),
        ("a-file", 0o644),
        ("pipelines/p/pipeline.yaml", 0o644),
        ("pipelines/p/steps/s.sh", 0o755),
        ("pipelines/q", 0o644),
    ];
    assert_eq!(shown, expected);
    assert_eq!(bundle.entries()[4].content, Content::Link("p".to_owned()));
    assert!(!String::from_utf8_lossy(bundle.bytes()).contains("canary"));
}

/// K-51: the hash does not depend on times, umask and directory.
#[test]
fn the_same_files_have_the_same_hash() {
    let (one, other) = (app(), app());
    fs::set_permissions(other.path().join("a-file"), fs::Permissions::from_mode(0o600)).expect("a mode");
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    File::options().append(true).open(other.path().join("a-file")).and_then(|f| f.set_modified(old)).expect("a time");
    let digest = |app: &TempDir| Bundle::pack(app.path()).expect("a bundle").digest();
    assert_eq!(digest(&one), digest(&other));
    fs::write(other.path().join("a-file"), "b").expect("a file");
    assert_ne!(digest(&one), digest(&other));
}

/// K-50: an unpacked bundle equals the packed app.
#[test]
fn an_unpacked_bundle_is_the_app() {
    let app = app();
    let bundle = Bundle::pack(app.path()).expect("a bundle");
    let place = TempDir::new().expect("a directory");
    let dir = place.path().join("copy");
    Bundle::read(bundle.bytes().to_owned()).and_then(|bundle| bundle.unpack(&dir)).expect("it is unpacked");
    assert_eq!(Bundle::pack(&dir).expect("a bundle"), bundle);
    assert!(bundle.unpack(&dir).is_err(), "nothing is overwritten");
}

/// K-50: after a loss of power, an unpacked bundle has no empty files: each file and directory is on the disk.
#[test]
fn an_unpacked_bundle_is_on_the_disk() {
    let app = TempDir::new().expect("a directory");
    fs::create_dir_all(app.path().join("a/b")).expect("a directory");
    fs::write(app.path().join("a/b/file"), "x").expect("a file");
    fs::write(app.path().join("file"), "").expect("a file");
    let bundle = Bundle::pack(app.path()).expect("a bundle");
    let place = TempDir::new().expect("a directory");
    let dir = place.path().join("copy");
    bundle.unpack(&dir).expect("it is unpacked");
    let expected =
        ["a/b/file", "file", "", "a", "a/b"].map(|name| if name.is_empty() { dir.clone() } else { dir.join(name) });
    assert_eq!(SYNCED.take(), expected);
    let dir = place.path().join("other");
    bundle.unpack_for_now(&dir).expect("it is unpacked");
    assert_eq!((SYNCED.take(), Bundle::pack(&dir).expect("a bundle")), (Vec::new(), bundle));
}

/// K-52: an archive that would write elsewhere is refused before anything is written, and the entry is named.
#[test]
fn hostile_archives_are_refused() {
    use EntryType::{Block, Directory, Link, Regular, Symlink};
    for (name, entries) in [
        ("../x", vec![("../x", Regular, "")]),
        ("/etc/x", vec![("/etc/x", Regular, "")]),
        ("a/../x", vec![("a/../x", Regular, "")]),
        ("./x", vec![("./x", Regular, "")]),
        ("a\\x", vec![("a\\x", Regular, "")]),
        ("up", vec![("up", Symlink, "../x")]),
        ("a/up", vec![("a/up", Symlink, "../../x")]),
        ("root", vec![("root", Symlink, "/")]),
        // Each link stays inside by its names alone.
        ("x", vec![("deep/up", Symlink, ".."), ("x", Symlink, "deep/up/..")]),
        ("x", vec![("deep/up", Symlink, ".."), ("deep/y", Symlink, "up"), ("x", Symlink, "./deep//y/../x")]),
        ("in/x", vec![("in", Symlink, "a"), ("in/x", Regular, "")]),
        ("in/x", vec![("in", Regular, "a"), ("in/x", Regular, "")]),
        ("x", vec![("x", Regular, "1"), ("x", Regular, "2")]),
        ("hard", vec![("x", Regular, "1"), ("hard", Link, "")]),
        ("dev", vec![("dev", Block, "")]),
        ("dir", vec![("dir", Directory, "")]),
    ] {
        let why = refused(&entries);
        assert!(why.contains(&format!("`{name}`")), "{name}: {why}");
    }
    let mut cut = Bundle::pack(app().path()).expect("a bundle").bytes().to_owned();
    cut.truncate(700);
    assert!(Bundle::read(cut).is_err());
}

/// K-51: links that lead to each other lead nowhere, and are packed unchanged.
#[test]
fn links_that_lead_nowhere_are_packed() {
    let app = app();
    for (name, target) in [("one", "two"), ("two", "one"), ("three", "deep/missing/../x.log")] {
        symlink(target, app.path().join(name)).expect("a link");
    }
    let bundle = Bundle::pack(app.path()).expect("a bundle");
    let links = bundle.entries().iter().filter(|entry| matches!(entry.content, Content::Link(_)));
    assert_eq!(links.count(), 4);
}

/// A link that cannot be packed is named.
#[test]
fn a_link_out_of_the_app_is_reported() {
    let app = app();
    symlink("../../elsewhere", app.path().join("deep/up")).expect("a link");
    let why = Bundle::pack(app.path()).expect_err("it leads out").to_string();
    assert!(why.contains("`deep/up`") && why.contains(".gitignore"), "{why}");
}

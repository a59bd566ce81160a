//! Random edits of an approved package: any change outside its state ends the approval until it is undone (C-1.11).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use std::fs;

use super::manifest::symlink;
use super::*;
use crate::applications::{Package, Source};
use crate::approve::{Grants, approve};

/// Number of edits.
const EDITS: usize = 2_000;

/// Interval of edits after which a copy is made as well, and the undone edit is checked.
const COPIES: usize = 10;

/// A reproducible sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

/// One directory entry, read independently of the code under test.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Directory(u32),
    File(u32, Vec<u8>),
    Link(PathBuf),
    Other,
}

/// Everything below a directory, by a separate walk.
fn seen(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let (mut all, mut left) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(root.join(&path)).expect("a directory") {
            let path = path.join(entry.expect("an entry").file_name());
            let (place, meta) = (root.join(&path), fs::symlink_metadata(root.join(&path)).expect("it is there"));
            let mode = meta.mode() & 0o7777;
            let entry = match meta.file_type() {
                kind if kind.is_dir() => Seen::Directory(mode),
                kind if kind.is_symlink() => Seen::Link(fs::read_link(&place).expect("a link")),
                kind if kind.is_file() => Seen::File(mode, fs::read(&place).expect("a file")),
                _ => Seen::Other,
            };
            if matches!(entry, Seen::Directory(_)) {
                left.push(path.clone());
            }
            all.insert(path, entry);
        }
    }
    all
}

/// The entries that must not change: all but state and `.git`.
fn outside_state(all: &BTreeMap<PathBuf, Seen>) -> BTreeMap<PathBuf, Seen> {
    let is_free = |path: &Path| {
        ["app/state", "app/data", "app/cache"].iter().any(|state| path.starts_with(state))
            || path.iter().any(|part| part == ".git")
    };
    all.iter().filter(|(path, _)| !is_free(path)).map(|(path, seen)| (path.clone(), seen.clone())).collect()
}

fn restore(root: &Path, all: &BTreeMap<PathBuf, Seen>) {
    fs::remove_dir_all(root).expect("removed");
    fs::create_dir(root).expect("a directory");
    for (path, seen) in all {
        let place = root.join(path);
        let mode = match seen {
            Seen::Directory(mode) => {
                fs::create_dir(&place).expect("a directory");
                *mode
            }
            Seen::File(mode, bytes) => {
                fs::write(&place, bytes).expect("written");
                *mode
            }
            Seen::Link(target) => {
                symlink(target, &place).expect("a link");
                continue;
            }
            Seen::Other => continue,
        };
        fs::set_permissions(&place, fs::Permissions::from_mode(mode)).expect("a mode");
    }
}

/// Makes a random change; a failed one changes nothing.
fn edit(root: &Path, numbers: &mut Numbers) -> String {
    let all: Vec<PathBuf> = seen(root).into_keys().collect();
    let path = all[numbers.below(all.len())].clone();
    let place = root.join(&path);
    let names: [&[u8]; 9] =
        [b"new", b".hidden", b"odd\xff", b"odd\xfe", b".git", b"run", b"state", b"__pycache__", b"a b\n"];
    let name = OsString::from_vec(names[numbers.below(names.len())].to_vec());
    let parent = if place.is_dir() { place.clone() } else { place.parent().expect("a parent").to_owned() };
    let targets = ["run", "lib", "state", "..", "../APP.md", "/etc/hostname", "nowhere", "state/x", ".git/config"];
    let target = Path::new(targets[numbers.below(targets.len())]);
    let clear = |place: &Path| match fs::symlink_metadata(place) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(place),
        _ => fs::remove_file(place),
    };
    let kind = numbers.below(11);
    let done = match kind {
        0 => fs::write(parent.join(&name), "new"),
        1 => clear(&place),
        2 => fs::rename(&place, parent.join(&name)),
        3 => fs::set_permissions(&place, fs::Permissions::from_mode([0o755, 0o600, 0o644, 0o700][numbers.below(4)])),
        4 => fs::read(&place).and_then(|mut bytes| {
            // The length stays the same.
            let at = numbers.below(bytes.len().max(1));
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1;
            }
            fs::write(&place, bytes)
        }),
        5 => clear(&place).and_then(|()| symlink(target, &place)),
        6 => symlink(target, &parent.join(&name)),
        7 => fs::create_dir(parent.join(&name)),
        8 => fs::create_dir_all(parent.join(".git/hooks"))
            .and_then(|()| fs::write(parent.join(".git/hooks/post-checkout"), "evil")),
        9 => clear(&place).and_then(|()| fs::create_dir(&place)).and_then(|()| fs::write(place.join("in"), "x")),
        _ => clear(&place).and_then(|()| fs::write(&place, "x")),
    };
    format!("{kind} at {} and {name:?} ({})", path.display(), done.is_ok())
}

/// C-1.11: after any edit outside state nothing may run and no copy is made; after the edit is undone, both are possible again.
#[test]
fn random_edits_end_an_approval_until_they_are_undone() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = real(dir.path());
    let root = base.join("box");
    let mut given = BTreeMap::new();
    let file = |text: &str| Seen::File(0o644, text.into());
    let front = "---\nname: Box\ndescription: d\nversion: 1.0.0\nentry: {command: sh app/run}\ncommands: [go]\n\
                 skills: [use]\nmetadata: {statePaths: [app/cache/**]}\n---\n";
    for path in
        ["app", "app/dir", "app/dir/empty", "app/state", "app/cache", "skills", "skills/use", ".git", "app/.git"]
    {
        given.insert(PathBuf::from(path), Seen::Directory(0o755));
    }
    for (path, text) in [
        ("APP.md", front),
        ("README", "beside"),
        (".env", "hidden"),
        ("app/run", "echo"),
        ("app/lib", "lib"),
        ("app/dir/part", "part"),
        ("app/state/kept", "kept"),
        ("app/cache/kept", "kept"),
        (".git/index", "index"),
        ("app/.git/index", "index"),
        ("skills/use/SKILL.md", "---\nname: use\ndescription: d\n---\nUse.\n"),
    ] {
        given.insert(PathBuf::from(path), file(text));
    }
    given.insert(PathBuf::from("app").join(OsString::from_vec(b"odd\xff".to_vec())), file("odd"));
    given.insert(PathBuf::from("app/link"), Seen::Link("dir/part".into()));
    fs::create_dir(&root).expect("a directory");
    restore(&root, &given);
    let store = Store::new(&base.join("state"));
    approve(&store, &root, Grants { activation: true, execution: true }, "ada").expect("trusted");
    let approvals = store.approvals().expect("read");
    let content = approvals.of(&root).and_then(|approval| approval.content.clone()).expect("content");
    let paths = vec!["app/cache/**".to_owned()];
    let may_run = |what: &str, with_copy: bool| {
        let access = Package::load(&root, Source::Project, &root).access(&approvals);
        if !with_copy {
            return access.execution;
        }
        let copy = Snapshot::take(&root, &content, Some((&paths, StateIn::Place)), &base.join("scratch")).map(|copy| {
            assert!(!copy.root().join(".git").exists() && !copy.root().join("app/.git").exists(), "{what}");
        });
        assert_eq!(access.execution, copy.is_ok(), "{what}: {copy:?}");
        access.execution
    };
    let (mut numbers, mut changed) = (Numbers(7), 0);
    for n in 0..EDITS {
        let what = format!("edit {n}: {}", edit(&root, &mut numbers));
        let is_same = outside_state(&seen(&root)) == outside_state(&given);
        changed += usize::from(!is_same);
        let with_copy = n % COPIES == 0;
        assert_eq!(may_run(&what, with_copy), is_same, "{what}");
        restore(&root, &given);
        assert!(!with_copy || may_run("undone", true), "{what}, undone");
    }
    assert!(changed > EDITS / 3, "only {changed} of {EDITS} edits changed anything");
}

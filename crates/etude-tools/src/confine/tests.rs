use super::*;
use std::fs;
use std::os::unix::fs::symlink;

struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    /// An app where `app/` may be written, `shared/` read, and `secret/` neither.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        for name in ["app/sub", "shared", "secret"] {
            fs::create_dir_all(dir.path().join(name)).expect("made");
        }
        for name in ["app/a.txt", "app/sub/b.txt", "shared/s.txt", "secret/key"] {
            fs::write(dir.path().join(name), name).expect("written");
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn roots(&self) -> Roots {
        Roots::new(&self.path("app"), &[self.path("shared")], &[]).expect("roots")
    }

    fn link(&self, target: &str, link: &str) {
        symlink(target, self.path(link)).expect("linked");
    }

    fn secret(&self) -> String {
        fs::read_to_string(self.path("secret/key")).expect("read")
    }
}

fn content(place: &ConfinedPath) -> String {
    std::io::read_to_string(place.open().expect("opened")).expect("read")
}

/// files in the app's directory and in granted folders are found, by relative and absolute paths.
#[test]
fn files_below_the_roots_are_found() {
    let case = Case::new();
    let roots = case.roots();
    for (path, shown) in [("a.txt", "a.txt"), ("./sub/../sub/b.txt", "sub/b.txt"), ("sub/b.txt", "sub/b.txt")] {
        let place = roots.existing(path, Access::Read).expect(path);
        assert_eq!((place.to_string().as_str(), content(&place)), (shown, format!("app/{shown}")));
    }
    let absolute = case.path("shared/s.txt");
    let place = roots.existing(&absolute.to_string_lossy(), Access::Read).expect("granted");
    assert_eq!(content(&place), "shared/s.txt");
    assert_eq!(content(&roots.existing("../shared/s.txt", Access::Read).expect("granted")), "shared/s.txt");
}

/// nothing outside is found, by `..`, an absolute path or a name that only begins alike.
#[test]
fn paths_that_leave_the_roots_are_refused() {
    let case = Case::new();
    fs::create_dir(case.path("app2")).expect("made");
    fs::write(case.path("app2/x"), "x").expect("written");
    let roots = case.roots();
    let outside = [
        "../secret/key".to_owned(),
        "sub/../../secret/key".to_owned(),
        "/etc/passwd".to_owned(),
        case.path("secret/key").to_string_lossy().into_owned(),
        case.path("app2/x").to_string_lossy().into_owned(),
        format!("{}/../secret/key", case.path("app").display()),
    ];
    for path in outside {
        for access in [Access::Read, Access::Write] {
            assert!(matches!(roots.existing(&path, access), Err(Refusal::Outside { .. })), "{path}");
        }
        assert!(matches!(roots.target(&path), Err(Refusal::Outside { .. })), "{path}");
    }
    assert!(matches!(roots.existing("a\0b", Access::Read), Err(Refusal::Other { .. })));
    assert!(matches!(roots.existing("nothing", Access::Read), Err(Refusal::Missing { .. })));
}

#[test]
fn folders_granted_for_reading_are_not_written() {
    let case = Case::new();
    let roots = case.roots();
    assert!(matches!(roots.target("../shared/new"), Err(Refusal::Outside { verb: "write", .. })));
    assert!(matches!(roots.existing("../shared/s.txt", Access::Write), Err(Refusal::Outside { .. })));
    let only_read = Roots::read_only(&case.path("app")).expect("roots");
    assert!(only_read.target("a.txt").is_err() && only_read.existing("a.txt", Access::Read).is_ok());
}

/// symbolic links are followed while they stay inside.
#[test]
fn links_that_lead_out_are_refused_and_others_are_followed() {
    let case = Case::new();
    case.link("../secret", "app/out");
    case.link("../secret/key", "app/outfile");
    case.link("out", "app/twice");
    case.link("sub/b.txt", "app/in");
    let absolute = case.path("app/a.txt");
    symlink(&absolute, case.path("app/absolute")).expect("linked");
    let roots = case.roots();
    for path in ["out/key", "outfile", "twice/key"] {
        for refusal in [roots.existing(path, Access::Read).err(), roots.target(path).err()] {
            assert!(matches!(refusal, Some(Refusal::LeadsOut { .. })), "{path}: {refusal:?}");
        }
    }
    assert!(matches!(roots.target("out/new/file"), Err(Refusal::LeadsOut { .. })));
    assert_eq!(content(&roots.existing("in", Access::Read).expect("inside")), "app/sub/b.txt");
    assert_eq!(content(&roots.existing("absolute", Access::Read).expect("inside")), "app/a.txt");
}

/// a link that is put in the way after the check leads nowhere.
#[test]
fn a_link_that_appears_after_the_check_is_not_followed() {
    let case = Case::new();
    let roots = case.roots();
    let read = roots.existing("sub/b.txt", Access::Read).expect("there");
    let write = roots.target("sub/new/file").expect("free");
    fs::rename(case.path("app/sub"), case.path("app/moved")).expect("moved");
    case.link("../secret", "app/sub");
    fs::write(case.path("secret/b.txt"), "stolen").expect("written");
    // The resolved directory is used, wherever it was moved.
    assert_eq!(content(&read), "app/sub/b.txt");
    write.replace(b"x").expect("written");
    assert!(case.path("app/moved/new/file").is_file() && !case.path("secret/new").exists());
    let file = roots.existing("a.txt", Access::Read).expect("there");
    fs::remove_file(case.path("app/a.txt")).expect("removed");
    case.link("../secret/key", "app/a.txt");
    assert!(file.open().is_err());
}

#[test]
fn writing_replaces_a_whole_file_and_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let case = Case::new();
    let roots = case.roots();
    fs::set_permissions(case.path("app/a.txt"), fs::Permissions::from_mode(0o750)).expect("set");
    roots.target("a.txt").expect("there").replace(b"new").expect("replaced");
    assert_eq!(fs::read_to_string(case.path("app/a.txt")).expect("read"), "new");
    let mode = fs::metadata(case.path("app/a.txt")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
    roots.target("x/y/z.txt").expect("free").replace(b"deep").expect("made");
    assert_eq!(fs::read_to_string(case.path("app/x/y/z.txt")).expect("read"), "deep");
    let left: Vec<_> = fs::read_dir(case.path("app/x/y")).expect("read").collect();
    assert_eq!(left.len(), 1, "no temporary file is left behind");
    assert!(roots.target("sub").expect("there").replace(b"x").is_err(), "a directory is not replaced");
}

#[test]
fn writing_through_a_link_changes_the_file_it_leads_to() {
    let case = Case::new();
    case.link("sub/b.txt", "app/in");
    case.link("nowhere", "app/dangling");
    let roots = case.roots();
    roots.target("in").expect("inside").replace(b"new").expect("replaced");
    assert_eq!(fs::read_to_string(case.path("app/sub/b.txt")).expect("read"), "new");
    assert!(case.path("app/in").is_symlink());
    assert!(matches!(roots.target("dangling"), Err(Refusal::Other { .. })));
    assert_eq!(case.secret(), "secret/key");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test makes a pipe")]
fn pipes_and_devices_are_refused_without_waiting() {
    let case = Case::new();
    let made = std::process::Command::new("mkfifo").arg(case.path("app/pipe")).status();
    assert!(made.expect("mkfifo").success());
    let place = case.roots().existing("pipe", Access::Read).expect("there");
    assert!(place.open().is_err());
}

/// patterns match the target of a path, whatever its name.
#[test]
fn a_path_is_known_by_the_place_that_it_leads_to() {
    let case = Case::new();
    case.link("..", "app/sub/up");
    let roots = case.roots();
    let path = roots.resolve("sub/up/a.txt");
    assert_eq!((path.shown().as_str(), path.normal().as_str()), ("a.txt", "sub/up/a.txt"));
    assert!(path.is_elsewhere() && !roots.resolve("./sub/../a.txt").is_elsewhere());
    assert_eq!(roots.resolve("sub/up/new/file").shown(), "new/file");
    let granted = roots.resolve("../shared/s.txt");
    assert!(granted.names().contains(&case.path("shared/s.txt")) && !granted.is_elsewhere());
}

#[test]
fn paths_are_shown_and_matched_relative_to_the_app() {
    let case = Case::new();
    let roots = case.roots();
    assert_eq!(roots.normal("./sub/../a.txt"), "a.txt");
    assert_eq!(roots.normal(&case.path("app/sub").to_string_lossy()), "sub");
    assert_eq!(roots.normal("."), ".");
    assert!(roots.normal("../secret/key").starts_with('/'));
}

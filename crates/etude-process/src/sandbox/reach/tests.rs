use std::os::unix::fs::symlink;

use super::*;
use crate::program::Launch;

/// the libraries of programs become readable with them, and never the home that they lie in.
#[test]
fn programs_bring_their_installation_and_nothing_of_the_user() {
    let dir = tempfile::tempdir().expect("directory");
    let home = dir.path().join("home");
    for made in [
        ".pyenv/shims", ".pyenv/versions/3/bin", ".pyenv/versions/3/lib", ".local/bin", ".local/lib", ".cargo/bin",
        "bin",
    ] {
        fs::create_dir_all(home.join(made)).expect("made");
    }
    let of = |place: &str| -> Vec<String> {
        let found = installation(&home.join(place), Some(&home));
        found.iter().map(|path| path.strip_prefix(&home).expect("below").display().to_string()).collect()
    };
    assert_eq!(of(".pyenv/shims"), [".pyenv/shims", ".pyenv"]);
    assert_eq!(of(".pyenv/versions/3/bin"), [".pyenv/versions/3/bin", ".pyenv/versions/3"]);
    assert_eq!(of(".local/bin"), [".local/bin", ".local/lib"]);
    assert_eq!(of(".cargo/bin"), [".cargo/bin"], "keys of registries lie beside it");
    assert_eq!(of("bin"), ["bin"]);
    assert_eq!(installation(&home, Some(&home)), Vec::<PathBuf>::new());
    assert_eq!(installation(Path::new("/"), Some(&home)), Vec::<PathBuf>::new());
}

/// the same holds if the home lies behind a link, for each name of a directory.
#[test]
fn a_home_behind_a_link_is_kept_all_the_same() {
    let dir = tempfile::tempdir().expect("directory");
    let real = dir.path().canonicalize().expect("real path");
    for made in ["var/home/user/bin", "var/home/user/lib", "var/home/user/.local/bin", "var/home/user/.local/lib"] {
        fs::create_dir_all(real.join(made)).expect("made");
    }
    symlink(real.join("var/home"), real.join("home")).expect("a link");
    symlink(real.join("var/home/user/bin"), real.join("bin")).expect("a link");
    for home in ["home/user", "var/home/user"].map(|home| real.join(home)) {
        for user in ["home/user", "var/home/user"] {
            let of = |place: &str| -> Vec<String> {
                let found = installation(&real.join(user).join(place), Some(&home));
                found.iter().map(|path| path.strip_prefix(&real).expect("below").display().to_string()).collect()
            };
            assert_eq!(of("bin"), [format!("{user}/bin")], "{}", home.display());
            assert_eq!(of(".local/bin"), [format!("{user}/.local/bin"), format!("{user}/.local/lib")]);
            for holding in ["", "..", "bin/.."] {
                assert_eq!(of(holding), Vec::<String>::new(), "{user}/{holding}");
            }
        }
    }
}

/// K-55: an isolated step sees no list of processes, and gains no directory from a program in it.
#[test]
fn an_isolated_step_sees_neither_processes_nor_the_directory_of_its_program() {
    let shows_processes = |is_isolated| system(is_isolated).iter().any(|path| path.starts_with("/proc"));
    assert_eq!((shows_processes(false), shows_processes(true)), (true, false));
    assert!(!system(true).contains(&PathBuf::from("/sys")) && system(true).contains(&PathBuf::from("/usr")));
    let disk = Disk::new();
    let program = disk.root.join("outside/in/program");
    fs::write(&program, "#!/bin/sh\n").expect("a program");
    let launch = Launch { program, name: "program".to_owned(), args: Vec::new() };
    let app = Root::open(&disk.root.join("app")).expect("the app is there");
    let inmate = Inmate { launch: &launch, app: &app, dir: "pipelines/p", path: None, home: None };
    let opens = |is_isolated| {
        let places = programs(&inmate, is_isolated).unwrap_or_else(|_| panic!("the app can be opened"));
        places.iter().any(|place| place.real == disk.root.join("outside/in"))
    };
    assert_eq!((opens(false), opens(true)), (true, false));
}

/// An app at `app` with a pipeline, a directory `outside` and a link to it at `app/link`.
struct Disk {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl Disk {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path().canonicalize().expect("real path");
        for made in ["app/pipelines/p", "app/shared", "outside/in"] {
            fs::create_dir_all(root.join(made)).expect("made");
        }
        symlink(root.join("outside"), root.join("app/link")).expect("a link");
        symlink(root.join("app/shared"), root.join("app/inner")).expect("a link");
        Self { _dir: dir, root }
    }

    /// The real paths that a step of the pipeline may read or write.
    fn declared(&self, read: &[&str], write: &[&str]) -> Result<Vec<String>, String> {
        let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        let asked = Sandbox { network: false, read: owned(read), write: owned(write) };
        let launch = Launch { program: "/bin/sh".into(), name: "sh".to_owned(), args: Vec::new() };
        // The app's path may be a detour.
        let app = self.root.join("outside/../app");
        let app = Root::open(&app).expect("the app is there");
        let inmate = Inmate { launch: &launch, app: &app, dir: "pipelines/p", path: None, home: None };
        let found = declared(&asked, &inmate).map_err(|why| match why {
            Unstarted::Refused(why) | Unstarted::Short(why) => why,
        })?;
        let below = |place: &Place| place.real.strip_prefix(&self.root).expect("below").display().to_string();
        Ok(found.read.iter().chain(&found.write).map(below).collect())
    }
}

/// a path that begins in the app stays in the app, also where `..` leads up inside it.
#[test]
fn a_relative_path_does_not_leave_the_app_by_a_link() {
    let disk = Disk::new();
    for (path, found) in
        [("../../shared", "app/shared"), ("../../inner", "app/shared"), ("../../../outside/in", "outside/in")]
    {
        assert_eq!(disk.declared(&[], &[path]).as_deref(), Ok(&[found.to_owned()][..]), "{path}");
    }
    let outside = disk.root.join("outside");
    for path in ["../../link", "../../link/in", "../../shared/../link", "../../../app/link"] {
        let why = format!("`{path}` is a link that leads out of the app, to `{}", outside.display());
        for refused in [disk.declared(&[path], &[]), disk.declared(&[], &[path])] {
            assert!(refused.as_ref().is_err_and(|found| found.starts_with(&why)), "{refused:?}");
        }
    }
}

/// a missing directory that must be writable is created in the app, and never behind a link that leads out of it.
#[test]
fn nothing_is_made_outside_of_the_app() {
    let disk = Disk::new();
    for path in ["../../link/new", "../../link/new/deep", "unmade/../../../link/new"] {
        let refused = disk.declared(&[], &[path]);
        assert!(refused.as_ref().is_err_and(|why| why.contains("leads out of the app")), "{refused:?}");
    }
    assert!(!disk.root.join("outside/new").exists());
    assert!(!disk.root.join("app/pipelines/p/unmade").exists());
    assert_eq!(disk.declared(&[], &["../../inner/new"]), Ok(vec!["app/shared/new".to_owned()]));
    assert_eq!(disk.declared(&[], &["../../../outside/new"]), Ok(vec!["outside/new".to_owned()]));
}

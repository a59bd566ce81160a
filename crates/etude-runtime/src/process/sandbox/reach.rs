//! What a sandboxed process reaches: what programs need, and what was declared.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use etude_core::effect::Sandbox;

use super::Inmate;

/// What programs need of a system. Nothing of a user lies there, and nothing of what runs.
const SYSTEM: [&str; 15] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/proc",
    "/sys",
    "/run/current-system",
    "/run/systemd/resolve",
    "/run/resolvconf",
];

/// The settings of a system that programs read. Others lie beside them that only root may read: with root's rights there
/// is no other bar to them.
const SETTINGS: [&str; 44] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "crypto-policies",
    "debian_version",
    "default/locale",
    "fonts",
    "gai.conf",
    "gitconfig",
    "group",
    "host.conf",
    "hostname",
    "hosts",
    "inputrc",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "login.defs",
    "lsb-release",
    "machine-id",
    "magic",
    "mime.types",
    "netconfig",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "profile",
    "profile.d",
    "protocols",
    "resolv.conf",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

/// What was declared, as it lies on the disk.
pub(super) struct Declared {
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
}

/// The paths of `asked`. A directory that is to be written is made if it is missing.
pub(super) fn declared(asked: &Sandbox, inmate: &Inmate<'_>) -> Result<Declared, String> {
    let read = asked.read.iter().map(|path| place(path, inmate)).collect::<Result<_, _>>()?;
    let mut write = Vec::with_capacity(asked.write.len());
    for path in &asked.write {
        let made = given(path, inmate)?;
        if made.symlink_metadata().is_err() {
            fs::create_dir_all(&made).map_err(|error| format!("`{path}` cannot be made: {error}"))?;
        }
        write.push(place(path, inmate)?);
    }
    Ok(Declared { read, write })
}

fn given(path: &str, inmate: &Inmate<'_>) -> Result<PathBuf, String> {
    match (path.strip_prefix('~'), inmate.home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            Ok(home.join(rest.trim_start_matches('/')))
        }
        (Some(_), None) => Err(format!("`{path}` needs the variable HOME, which is not set")),
        _ => Ok(inmate.dir.join(path)),
    }
}

/// Where a declared path really leads. One that is written relative to the app stays in the app: a step that may write
/// there could else put a link in its place, and give the next step whatever it likes.
fn place(path: &str, inmate: &Inmate<'_>) -> Result<PathBuf, String> {
    let given = given(path, inmate)?;
    let real = given.canonicalize().map_err(|error| format!("`{path}` cannot be found: {error}"))?;
    let is_relative = !path.starts_with(['/', '~']) && Path::new(path).components().all(|c| c != Component::ParentDir);
    let app = inmate.app.canonicalize().map_err(|error| format!("the app's directory cannot be found: {error}"))?;
    if is_relative && !real.starts_with(&app) {
        return Err(format!(
            "`{path}` is a link that leads out of the app, to `{}`: declare that instead",
            real.display()
        ));
    }
    Ok(real)
}

/// What every program may read: the system, the app, and where programs are found.
pub(super) fn system(inmate: &Inmate<'_>) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    all.extend(SETTINGS.iter().map(|name| Path::new("/etc").join(name)));
    // Interpreters have their settings there, each under a name of its own.
    all.extend(fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| {
        path.file_name()
            .and_then(OsStr::to_str)
            .is_some_and(|name| name.starts_with("python") || name.starts_with("java"))
    }));
    all.push(inmate.app.to_owned());
    let mut places: Vec<PathBuf> = env::split_paths(inmate.path.unwrap_or_default()).collect();
    let program = inmate.launch.program.canonicalize().ok();
    places.extend(program.as_deref().and_then(Path::parent).map(Path::to_owned));
    for place in places.iter().filter(|place| place.is_absolute()) {
        all.extend(installation(place, inmate.home));
    }
    all.retain(|path| path.exists());
    all.sort();
    all.dedup();
    all
}

/// A directory with programs, and what they are installed with: the directory above it, if libraries lie there and
/// nothing of the user.
fn installation(place: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let holds_home = |dir: &Path| home.is_some_and(|home| home.starts_with(dir));
    if holds_home(place) {
        return Vec::new();
    }
    let mut all = vec![place.to_owned()];
    let is_programs = matches!(place.file_name().and_then(OsStr::to_str), Some("bin" | "sbin" | "shims"));
    if let Some(above) = place.parent().filter(|above| is_programs && !holds_home(above)) {
        if home.is_some_and(|home| above == home.join(".local")) {
            all.push(above.join("lib"));
        } else if ["lib", "libexec", "versions"].iter().any(|name| above.join(name).is_dir()) {
            all.push(above.to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// with programs come their libraries, and never the home that they lie in.
    #[test]
    fn programs_bring_their_installation_and_nothing_of_the_user() {
        let dir = tempfile::tempdir().expect("directory");
        let home = dir.path().join("home");
        for made in [
            ".pyenv/shims",
            ".pyenv/versions/3/bin",
            ".pyenv/versions/3/lib",
            ".local/bin",
            ".local/lib",
            ".cargo/bin",
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
}

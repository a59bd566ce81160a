//! What a sandboxed process reaches: what programs need, and what was declared.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::iter;
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
    let read = asked.read.iter().map(|path| Given::new(path, inmate)?.place()).collect::<Result<_, _>>()?;
    let mut write = Vec::with_capacity(asked.write.len());
    for path in &asked.write {
        let given = Given::new(path, inmate)?;
        given.make_if_missing()?;
        write.push(given.place()?);
    }
    Ok(Declared { read, write })
}

/// A declared path.
struct Given<'a> {
    /// As it was written.
    word: &'a str,
    /// What it names.
    path: PathBuf,
    /// Where it has to stay, without links.
    bound: Option<PathBuf>,
}

impl<'a> Given<'a> {
    fn new(word: &'a str, inmate: &Inmate<'_>) -> Result<Self, String> {
        let path = match (word.strip_prefix('~'), inmate.home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                return Ok(Self { word, path: home.join(rest.trim_start_matches('/')), bound: None });
            }
            (Some(_), None) => return Err(format!("`{word}` needs the variable HOME, which is not set")),
            _ => inmate.dir.join(word),
        };
        let bound = if word.starts_with('/') { None } else { bound(&path, inmate)? };
        Ok(Self { word, path, bound })
    }

    fn make_if_missing(&self) -> Result<(), String> {
        if self.path.symlink_metadata().is_ok() {
            return Ok(());
        }
        let mut path = self.path.clone();
        if self.bound.is_some() {
            // Nothing is made behind a link: neither behind one of those directories that are there, nor behind what
            // only a directory that is still to be made leads to.
            path = plain(&path);
            let there = path.ancestors().find_map(|above| above.canonicalize().ok());
            self.check(&there.unwrap_or_default())?;
        }
        fs::create_dir_all(&path).map_err(|error| format!("`{}` cannot be made: {error}", self.word))
    }

    /// Where it really leads.
    fn place(&self) -> Result<PathBuf, String> {
        let real = self.path.canonicalize().map_err(|error| format!("`{}` cannot be found: {error}", self.word))?;
        self.check(&real)?;
        Ok(real)
    }

    fn check(&self, real: &Path) -> Result<(), String> {
        match &self.bound {
            Some(bound) if !real.starts_with(bound) => Err(format!(
                "`{}` is a link that leads out of the app, to `{}`: declare that instead",
                self.word,
                real.display()
            )),
            _ => Ok(()),
        }
    }
}

/// Where a path has to stay that is written relative to the app: in the app, unless its own `..` lead out of it. A step
/// that may write there could else put a link in its place, and give the next step whatever it likes.
fn bound(path: &Path, inmate: &Inmate<'_>) -> Result<Option<PathBuf>, String> {
    let path = plain(path);
    let root = [inmate.app, inmate.dir].into_iter().find(|root| path.starts_with(plain(root)));
    let real = root.map(|root| {
        root.canonicalize().map_err(|error| format!("the directory `{}` cannot be found: {error}", root.display()))
    });
    real.transpose()
}

/// A path without `.` and `..`, as it reads.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// A path as it is named, and where it really leads: homes often lie behind a link.
pub(super) fn names(path: &Path) -> Vec<PathBuf> {
    iter::once(path.to_owned()).chain(path.canonicalize()).collect()
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
    let homes = home.map(names).unwrap_or_default();
    let holds_home = |dir: &Path| names(dir).iter().any(|dir| homes.iter().any(|home| home.starts_with(dir)));
    if holds_home(place) {
        return Vec::new();
    }
    let mut all = vec![place.to_owned()];
    let is_programs = matches!(place.file_name().and_then(OsStr::to_str), Some("bin" | "sbin" | "shims"));
    if let Some(above) = place.parent().filter(|above| is_programs && !holds_home(above)) {
        let local = home.map(|home| names(&home.join(".local"))).unwrap_or_default();
        if names(above).iter().any(|above| local.contains(above)) {
            all.push(above.join("lib"));
        } else if ["lib", "libexec", "versions"].iter().any(|name| above.join(name).is_dir()) {
            all.push(above.to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests;

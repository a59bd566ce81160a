//! Paths that a sandboxed process reaches: those that programs need, and the declared ones.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};

use etude_core::effect::Sandbox;

use super::{Inmate, unix};
use crate::Unstarted;
use crate::os::is_shortage;
use etude_files::beneath::{self, Handle, Root, Spot, Unresolved, lexical};

/// System directories that programs need. They contain no files of a user, and none of running programs.
const SYSTEM: [&str; 15] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store", "/proc",
    "/sys", "/run/current-system", "/run/systemd/resolve", "/run/resolvconf",
];

/// Directories in which a system shows all its processes, and the replacement for a step that must not see them (K-55).
const PROCESSES: [&str; 2] = ["/proc", "/sys"];
const DEVICES: &str = "/sys/devices/system";

/// System settings that programs read. `/etc` as a whole also has files that only root may read, and nothing else would keep a
/// step with root's rights from them.
const SETTINGS: [&str; 44] = [
    "alternatives", "bash.bashrc", "ca-certificates", "crypto-policies", "debian_version", "default/locale", "fonts",
    "gai.conf", "gitconfig", "group", "host.conf", "hostname", "hosts", "inputrc", "java", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "login.defs", "lsb-release", "machine-id", "magic",
    "mime.types", "netconfig", "nsswitch.conf", "os-release", "passwd", "perl", "pki/ca-trust/extracted",
    "pki/tls/certs", "pki/tls/openssl.cnf", "profile", "profile.d", "protocols", "resolv.conf", "services", "shells",
    "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
];

/// A path that a sandbox makes reachable, opened when it was checked.
#[derive(Debug)]
pub(super) struct Place {
    /// The path without symbolic links.
    pub(super) real: PathBuf,
    pub(super) fd: Handle,
}

impl Place {
    /// Opens a path that the user has named; links are followed.
    fn named(path: &Path) -> io::Result<Self> {
        Ok(Self { fd: unix::open(path)?, real: path.canonicalize()? })
    }

    fn of(root: &Root, spot: &Spot) -> io::Result<Self> {
        Ok(Self { real: root.real().join(spot.below()), fd: spot.open_any()? })
    }
}

/// The declared paths, opened.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) read: Vec<Place>,
    pub(super) write: Vec<Place>,
}

/// An I/O error as the reason why a process is not started.
pub(super) fn failed(what: &str, error: &io::Error) -> Unstarted {
    let why = format!("{what}: {error}");
    if is_shortage(error) { Unstarted::Short(why) } else { Unstarted::Refused(why) }
}

/// Opens the paths of `asked`. A missing directory that must be writable is created.
pub(super) fn declared(asked: &Sandbox, inmate: &Inmate<'_>) -> Result<Declared, Unstarted> {
    let own = own_root(inmate)?;
    let base = base(inmate, own.as_ref());
    let open = |word: &String, is_made| Given::new(word, inmate, own.as_ref(), &base)?.open(is_made);
    let read = asked.read.iter().map(|word| open(word, false)).collect::<Result<_, _>>()?;
    let write = asked.write.iter().map(|word| open(word, true)).collect::<Result<_, _>>()?;
    Ok(Declared { read, write })
}

/// Opens the working directory.
pub(super) fn working_dir(inmate: &Inmate<'_>) -> Result<Handle, Unstarted> {
    let own = own_root(inmate)?;
    let root = own.as_ref().unwrap_or(inmate.app);
    let word = if inmate.dir.is_empty() { "." } else { inmate.dir };
    let given = Given { word, path: base(inmate, own.as_ref()), root: Some(root) };
    Ok(given.open(false)?.fd)
}

/// The working directory as a root of its own, if its path does not lie in the app.
fn own_root(inmate: &Inmate<'_>) -> Result<Option<Root>, Unstarted> {
    let dir = lexical(&inmate.app.real().join(inmate.dir));
    if [inmate.app.real(), inmate.app.given()].iter().any(|app| dir.starts_with(app)) {
        return Ok(None);
    }
    let root = Root::open(&dir).map_err(|error| failed("the working directory cannot be opened", &error));
    root.map(Some)
}

/// Base directory of relative declared paths.
fn base(inmate: &Inmate<'_>, own: Option<&Root>) -> PathBuf {
    match own {
        Some(own) => own.real().to_owned(),
        None => inmate.app.real().join(inmate.dir),
    }
}

/// A declared path.
struct Given<'a> {
    /// The path as written.
    word: &'a str,
    /// The absolute path, with `~` and the working directory resolved.
    path: PathBuf,
    /// Directory that the path must not leave. A path that is written relative to the app stays in the app, unless its own
    /// `..` lead out of it. Else a step that may write there could put a link in its place and choose what the next step
    /// reaches.
    root: Option<&'a Root>,
}

impl<'a> Given<'a> {
    fn new(word: &'a str, inmate: &Inmate<'a>, own: Option<&'a Root>, base: &Path) -> Result<Self, Unstarted> {
        let path = match (word.strip_prefix('~'), inmate.home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                return Ok(Self { word, path: home.join(rest.trim_start_matches('/')), root: None });
            }
            (Some(_), None) => return Err(format!("`{word}` needs the variable HOME, which is not set").into()),
            _ => base.join(word),
        };
        if word.starts_with('/') {
            return Ok(Self { word, path, root: None });
        }
        let plain = lexical(&path);
        let lies_in = |root: &&Root| plain.starts_with(root.real()) || plain.starts_with(root.given());
        let root = [Some(inmate.app), own].into_iter().flatten().find(lies_in);
        // A path that leads out of the app is normalized without looking up the app's directories in it.
        Ok(Self { word, path: if root.is_some() { path } else { plain }, root })
    }

    /// Opens the path. With `is_made`, a missing directory is created first.
    fn open(&self, is_made: bool) -> Result<Place, Unstarted> {
        let Some(root) = self.root else {
            if is_made && self.path.symlink_metadata().is_err() {
                fs::create_dir_all(&self.path).map_err(|error| self.failed("made", &error))?;
            }
            return Place::named(&self.path).map_err(|error| self.failed("found", &error));
        };
        let mut spot = self.resolve(root)?;
        if spot.kind().is_none() && is_made {
            spot.make_dir().map_err(|error| self.failed("made", &error))?;
            spot = self.resolve(root)?;
        }
        Place::of(root, &spot).map_err(|error| self.failed("found", &error))
    }

    fn resolve(&self, root: &Root) -> Result<Spot, Unstarted> {
        let refused = |why: &str| Unstarted::Refused(format!("`{}` cannot be found: {why}", self.word));
        beneath::resolve(std::slice::from_ref(root), &self.path).map_err(|why| match why {
            Unresolved::Outside(target) => Unstarted::Refused(format!(
                "`{}` is a link that leads out of the app, to `{}`: declare the target instead",
                self.word,
                target.display()
            )),
            Unresolved::Failed(error) => self.failed("found", &error),
            Unresolved::Dangling => refused("a symbolic link in its path has no target"),
            Unresolved::NotADirectory => refused("a part of its path is not a directory"),
            Unresolved::Loop => refused("its path has too many symbolic links"),
        })
    }

    fn failed(&self, what: &str, error: &io::Error) -> Unstarted {
        failed(&format!("`{}` cannot be {what}", self.word), error)
    }
}

/// A path as given, and its real path: homes often lie behind a link.
pub(super) fn names(path: &Path) -> Vec<PathBuf> {
    iter::once(path.to_owned()).chain(path.canonicalize()).collect()
}

/// System paths that every program may read. An isolated program does not see the processes of the system.
pub(super) fn system(is_isolated: bool) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    if is_isolated {
        all.retain(|path| !PROCESSES.iter().any(|hidden| path == Path::new(hidden)));
        all.push(PathBuf::from(DEVICES));
    }
    all.extend(SETTINGS.iter().map(|name| Path::new("/etc").join(name)));
    // Interpreters have their settings there, each under its own name.
    all.extend(fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| {
        path.file_name()
            .and_then(OsStr::to_str)
            .is_some_and(|name| name.starts_with("python") || name.starts_with("java"))
    }));
    all.retain(|path| path.exists());
    all.sort();
    all
}

/// The app and the directories of programs, which every program may read besides the system. The directory of a program that
/// is named by its path is readable too, unless the step is isolated.
pub(super) fn programs(inmate: &Inmate<'_>, is_isolated: bool) -> Result<Vec<Place>, Unstarted> {
    let app = inmate.app.dir().try_clone().map_err(|error| failed("the app cannot be opened", &error))?;
    let mut places: Vec<PathBuf> = env::split_paths(inmate.path.unwrap_or_default()).collect();
    let program = inmate.launch.program.canonicalize().ok().filter(|_| !is_isolated);
    places.extend(program.as_deref().and_then(Path::parent).map(Path::to_owned));
    let absolute = places.iter().filter(|place| place.is_absolute());
    let mut names: Vec<PathBuf> = absolute.flat_map(|place| installation(place, inmate.home)).collect();
    // Paths below the system directories or the app are readable already.
    names.retain(|name| !SYSTEM.iter().any(|system| name.starts_with(system)) && !name.starts_with(inmate.app.real()));
    names.sort();
    names.dedup();
    let mut all = vec![Place { real: inmate.app.real().to_owned(), fd: app.into() }];
    for name in names {
        match Place::named(&name) {
            Ok(place) => all.push(place),
            Err(error) if is_shortage(&error) => {
                return Err(failed(&format!("`{}` cannot be opened", name.display()), &error));
            }
            // A missing directory needs no rule.
            Err(_) => {}
        }
    }
    Ok(all)
}

/// A directory with programs and their installation: the directory above it, if that holds libraries and not the user's home.
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

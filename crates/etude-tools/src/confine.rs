//! Confinement of tools to the files below the app's directory and granted folders.
//!
//! The path of a call is resolved once, beneath the open directories of the roots ([`etude_files::beneath`]). The result, a
//! [`PathArgument`], is what patterns are matched with, what a person approves, and what the tool opens. No name of a
//! directory is looked up a second time.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etude_files::beneath::{self, Dir, Root, Spot, Unresolved, lexical};

/// The folders that tools may read and write.
#[derive(Debug, Clone)]
pub struct Roots(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The roots; the first one is the base.
    roots: Vec<Root>,
    writable: Vec<bool>,
}

/// Purpose of an access to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading a file, or listing a directory.
    Read,
    /// Writing a file.
    Write,
}

/// A resolved path that a tool may touch.
#[derive(Debug, Clone)]
pub struct ConfinedPath {
    /// Absolute path without symbolic links.
    real: PathBuf,
    /// Path for messages: relative to the base if it lies below it, else absolute.
    shown: String,
    spot: Spot,
    roots: Roots,
}

/// The path in the arguments of a call, resolved once for all uses.
#[derive(Debug, Clone)]
pub struct PathArgument {
    written: String,
    roots: Roots,
    found: Result<ConfinedPath, Refusal>,
}

/// Reason why a path must not be touched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The path lies below no root.
    #[error("`{path}` lies outside the folders that tools may {verb}: {folders}")]
    Outside {
        /// The path as written.
        path: String,
        /// `read` or `write`.
        verb: &'static str,
        /// The folders that are allowed, for the message.
        folders: String,
    },
    /// A symbolic link leads out of the roots.
    #[error("`{path}` leads through a symbolic link to `{target}`, outside the folders that tools may {verb}")]
    LeadsOut {
        /// The path as written.
        path: String,
        /// The target outside of all roots.
        target: String,
        /// `read` or `write`.
        verb: &'static str,
    },
    /// Nothing exists at the path.
    #[error("`{path}` does not exist")]
    Missing {
        /// The path as written.
        path: String,
    },
    /// The file system refused the path for another reason.
    #[error("`{path}` cannot be used: {why}")]
    Other {
        /// The path as written.
        path: String,
        /// The error of the file system.
        why: String,
    },
}

impl Roots {
    /// Opens the roots. `base` is the app's directory, which may be read and written; relative paths start there. The folders
    /// `read` may be read, and the folders `write` may be read and written.
    ///
    /// # Errors
    /// One of the folders cannot be opened.
    pub fn new(base: &Path, read: &[PathBuf], write: &[PathBuf]) -> io::Result<Self> {
        let all = std::iter::once((base, true))
            .chain(write.iter().map(|path| (path.as_path(), true)))
            .chain(read.iter().map(|path| (path.as_path(), false)));
        Self::open(all)
    }

    /// Opens a base that may only be read.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn read_only(base: &Path) -> io::Result<Self> {
        Self::open(std::iter::once((base, false)))
    }

    fn open<'p>(all: impl Iterator<Item = (&'p Path, bool)>) -> io::Result<Self> {
        let (mut roots, mut writable) = (Vec::new(), Vec::new());
        for (path, may_write) in all {
            roots.push(Root::open(path)?);
            writable.push(may_write);
        }
        Ok(Self(Arc::new(Inner { roots, writable })))
    }

    /// The first root, at which relative paths start.
    pub fn base(&self) -> &Path {
        self.0.roots[0].given()
    }

    /// Resolves the path of a call.
    pub fn resolve(&self, path: &str) -> PathArgument {
        PathArgument { written: path.to_owned(), roots: self.clone(), found: self.find(path) }
    }

    /// Resolves the path of an existing file or directory.
    ///
    /// # Errors
    /// Nothing exists at the path, or it must not be touched.
    pub fn existing(&self, path: &str, access: Access) -> Result<ConfinedPath, Refusal> {
        self.resolve(path).existing(access)
    }

    /// Resolves the path of a file that will be written. The file and the directories above it need not exist.
    ///
    /// # Errors
    /// The path must not be written, or is a symbolic link to nothing.
    pub fn target(&self, path: &str) -> Result<ConfinedPath, Refusal> {
        self.resolve(path).target()
    }

    /// The form of a path in messages and results.
    pub fn shown(&self, path: &Path) -> String {
        let base = &self.0.roots[0];
        let below = path.strip_prefix(base.real()).or_else(|_| path.strip_prefix(base.given()));
        match below {
            Ok(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Ok(below) => below.to_string_lossy().into_owned(),
            Err(_) => path.to_string_lossy().into_owned(),
        }
    }

    /// The written path without `.` and `..`, relative to the base if it lies below it.
    pub fn normal(&self, path: &str) -> String {
        self.shown(&lexical(&self.base().join(path)))
    }

    fn find(&self, path: &str) -> Result<ConfinedPath, Refusal> {
        let asked = asked(path);
        let other = |why: String| Refusal::Other { path: asked.clone(), why };
        if path.contains('\0') {
            return Err(Refusal::Other { path: asked.replace('\0', "\\0"), why: "it has a NUL character".to_owned() });
        }
        let clean = lexical(&self.base().join(path));
        match beneath::resolve(&self.0.roots, &clean) {
            Ok(spot) => Ok(self.place(spot)),
            Err(Unresolved::Outside(target)) if target == clean => Err(self.outside(path, Access::Read)),
            Err(Unresolved::Outside(target)) => {
                Err(Refusal::LeadsOut { target: target.to_string_lossy().into_owned(), path: asked, verb: "touch" })
            }
            Err(Unresolved::Dangling) => Err(other("a symbolic link in the path has no target".to_owned())),
            Err(Unresolved::NotADirectory) => Err(other("a part of the path is not a directory".to_owned())),
            Err(Unresolved::Loop) => Err(other("the path has too many symbolic links".to_owned())),
            Err(Unresolved::Failed(error)) => Err(other(error.to_string())),
        }
    }

    fn place(&self, spot: Spot) -> ConfinedPath {
        let real = self.0.roots[spot.root()].real().join(spot.below());
        ConfinedPath { shown: self.shown(&real), real, spot, roots: self.clone() }
    }

    fn may(&self, access: Access, real: &Path) -> bool {
        self.allowed(access).any(|root| real.starts_with(root.real()))
    }

    fn allowed(&self, access: Access) -> impl Iterator<Item = &Root> {
        let both = self.0.roots.iter().zip(&self.0.writable);
        both.filter(move |(_, writable)| access == Access::Read || **writable).map(|(root, _)| root)
    }

    fn outside(&self, path: &str, access: Access) -> Refusal {
        let folders: Vec<String> = self.allowed(access).map(|root| format!("`{}`", root.given().display())).collect();
        let folders = if folders.is_empty() { "none".to_owned() } else { folders.join(", ") };
        Refusal::Outside { path: asked(path), verb: access.verb(), folders }
    }
}

/// The form of a path in quotes, at most 300 characters long.
fn asked(path: &str) -> String {
    path.chars().take(300).collect()
}

impl PathArgument {
    /// The path as written.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// The path without links, relative to the base if it lies below it. A path that cannot be resolved is shown as written:
    /// no tool touches it.
    pub fn shown(&self) -> String {
        match &self.found {
            Ok(place) => place.shown.clone(),
            Err(_) => self.normal(),
        }
    }

    /// The written path without `.` and `..`, relative to the base if it lies below it.
    pub fn normal(&self) -> String {
        self.roots.normal(&self.written)
    }

    /// True if symbolic links lead from the written path to another one.
    pub fn is_elsewhere(&self) -> bool {
        self.shown() != self.normal()
    }

    /// The names by which patterns may refer to the path, all without links below the roots: relative to the base, else
    /// absolute. An absolute one is repeated below the given name of its root.
    pub fn names(&self) -> Vec<PathBuf> {
        let mut names = vec![PathBuf::from(self.shown())];
        if let Ok(place) = &self.found
            && names[0].is_absolute()
        {
            let of = |root: &Root| place.real.strip_prefix(root.real()).map(|below| root.given().join(below));
            names.extend(self.roots.0.roots.iter().filter_map(|root| of(root).ok()));
        }
        names
    }

    /// Every name by which a denial may refer to the file `below` the path, or to the path itself if `below` is empty: as
    /// written, without links, and both also absolute.
    pub(crate) fn all_names(&self, below: &Path) -> Vec<PathBuf> {
        let whole = |path: &Path| if below.as_os_str().is_empty() { path.to_owned() } else { path.join(below) };
        let mut names = vec![whole(Path::new(&self.normal()))];
        if let Ok(place) = &self.found {
            let real = whole(&place.real);
            names.push(PathBuf::from(self.roots.shown(&real)));
            let given = |root: &Root| real.strip_prefix(root.real()).map(|below| root.given().join(below));
            names.extend(self.roots.0.roots.iter().filter_map(|root| given(root).ok()));
            names.push(real);
        }
        names
    }

    /// The absolute path without links; `None` if it could not be resolved.
    pub fn real(&self) -> Option<&Path> {
        self.found.as_ref().ok().map(|place| place.real.as_path())
    }

    /// The place of an existing file or directory.
    ///
    /// # Errors
    /// Nothing exists at the path, or it must not be touched.
    pub fn existing(&self, access: Access) -> Result<ConfinedPath, Refusal> {
        let place = self.allowed(access)?;
        match place.spot.kind() {
            Some(_) => Ok(place),
            None => Err(Refusal::Missing { path: asked(&self.written) }),
        }
    }

    /// The place of a file that will be written. The file and the directories above it need not exist.
    ///
    /// # Errors
    /// The path must not be written, or is a symbolic link to nothing.
    pub fn target(&self) -> Result<ConfinedPath, Refusal> {
        self.allowed(Access::Write)
    }

    fn allowed(&self, access: Access) -> Result<ConfinedPath, Refusal> {
        match &self.found {
            Ok(place) if self.roots.may(access, &place.real) => Ok(place.clone()),
            Ok(place) if self.is_elsewhere() => Err(Refusal::LeadsOut {
                path: asked(&self.written),
                target: place.real.to_string_lossy().into_owned(),
                verb: access.verb(),
            }),
            Ok(_) | Err(Refusal::Outside { .. }) => Err(self.roots.outside(&self.written, access)),
            Err(Refusal::LeadsOut { path, target, .. }) => {
                Err(Refusal::LeadsOut { path: path.clone(), target: target.clone(), verb: access.verb() })
            }
            Err(refusal) => Err(refusal.clone()),
        }
    }
}

impl Access {
    const fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl ConfinedPath {
    /// The absolute path without symbolic links.
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// Opens the file for reading. Pipes and devices are refused, so that a read cannot hang.
    ///
    /// # Errors
    /// The file cannot be opened, or is not a regular file.
    pub fn open(&self) -> io::Result<File> {
        self.spot.open()
    }

    /// The open directory; `None` if the place is not one.
    pub(crate) fn as_dir(&self) -> Option<&Arc<Dir>> {
        self.spot.as_dir()
    }

    /// The form in messages of the path `real`, which a walk from here has found.
    pub(crate) fn shown_below(&self, real: &Path) -> String {
        self.roots.shown(real)
    }

    /// The root that the place lies in.
    pub(crate) fn root(&self) -> &Root {
        &self.roots.0.roots[self.spot.root()]
    }

    /// True if something exists at the place.
    pub fn exists(&self) -> bool {
        self.spot.kind().is_some()
    }

    /// Replaces the file by `content`, atomically. Missing directories above it are created.
    ///
    /// # Errors
    /// The file cannot be written, or a directory is in its place.
    pub fn replace(&self, content: &[u8]) -> io::Result<()> {
        let (dir, name) = self.spot.make_parent()?;
        dir.replace(name, content)
    }
}

impl fmt::Display for ConfinedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests;

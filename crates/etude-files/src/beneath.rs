//! Paths resolved beneath open directories, name by name.
//!
//! A path is resolved once. The result is an open directory and the remaining names, and later calls use these as they
//! are: no name is looked up a second time between the check of a path and its use. Symbolic links are read and
//! followed here, never by the kernel. So the path without links is a by-product, and a link that leads out of the
//! roots is detected (ADR 0055).

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

mod unix;

#[cfg(not(unix))]
compile_error!("etude is for Linux and macOS; on Windows, it runs in WSL");

use unix::Step;
pub use unix::{Dir, EntryKind, Status};
pub use unix::{Handle, identity};

/// Maximum number of symbolic links on the way of one path, as in Linux.
const MAX_LINKS: usize = 40;

/// Minimum age of an unfinished file that may be abandoned. A younger one may not be locked yet by its living process.
const MIN_AGE: Duration = Duration::from_secs(60);

/// Maximum number of entries of a directory that are searched for abandoned files.
const MAX_SEARCHED: usize = 4096;

/// Maximum number of attempts to open a root while its name changes its target.
const RETRIES: u32 = 64;

/// True for the name of an unfinished file of [`Dir::replace`]. A killed process leaves it behind, and it belongs to no
/// definition.
pub fn is_unfinished(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix(".etude-")?.strip_suffix(".tmp"));
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'))
}

/// A root directory: paths are resolved beneath it.
#[derive(Debug)]
pub struct Root {
    given: PathBuf,
    real: PathBuf,
    dir: Arc<Dir>,
}

impl Root {
    /// Opens the directory `path` and follows links: the user has named it.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let describe = |error: io::Error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display()));
        let given = lexical(&std::path::absolute(path).map_err(describe)?);
        for _ in 0..RETRIES {
            let dir = Dir::open(&given).map_err(describe)?;
            let real = given.canonicalize().map_err(describe)?;
            let again = match Dir::open(&real) {
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    continue;
                }
                opened => opened.map_err(describe)?,
            };
            // The name and the descriptor must mean the same directory.
            if again.identity().map_err(describe)? == dir.identity().map_err(describe)? {
                return Ok(Self { given, real, dir: Arc::new(dir) });
            }
        }
        Err(describe(io::Error::other("it changes too often to read")))
    }

    /// The path as it was given, absolute.
    pub fn given(&self) -> &Path {
        &self.given
    }

    /// The path without symbolic links.
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// The open directory.
    pub fn dir(&self) -> &Arc<Dir> {
        &self.dir
    }

    /// Opens the regular file `below` for reading, with its metadata, if there is no symbolic link on the way. `None`
    /// only means that [`resolve`] must decide. Most files are opened like this: with one system call instead of three
    /// per name.
    pub fn open_straight(&self, below: &Path) -> Option<(File, Metadata)> {
        if is_plain(below) { self.dir.open_straight(below) } else { None }
    }

    /// Status of the file at `below`, in one or two system calls, or the error that it does not exist. `None` as for
    /// [`Self::open_straight`].
    pub fn status_straight(&self, below: &Path) -> Option<io::Result<Status>> {
        if is_plain(below) { self.dir.status_straight(below) } else { None }
    }

    /// The rest of `path` after the name of this root, and the number of components of that name.
    fn strip<'p>(&self, path: &'p Path) -> Option<(usize, &'p Path)> {
        let names = [&self.real, &self.given].into_iter();
        let found = names.filter_map(|name| Some((name.components().count(), path.strip_prefix(name).ok()?)));
        found.max_by_key(|(length, _)| *length)
    }
}

fn is_plain(below: &Path) -> bool {
    below.components().all(|component| matches!(component, Component::Normal(_)))
}

/// A resolved path: an open directory, and names below it that are not directories.
#[derive(Debug, Clone)]
pub struct Spot {
    root: usize,
    below: PathBuf,
    dir: Arc<Dir>,
    rest: Vec<OsString>,
    kind: Option<EntryKind>,
}

/// Reason why a path was not resolved.
#[derive(Debug)]
pub enum Unresolved {
    /// The path leads out of the roots, to this path.
    Outside(PathBuf),
    /// A symbolic link on the way leads to nothing.
    Dangling,
    /// A name on the way is not a directory.
    NotADirectory,
    /// The path leads through too many symbolic links.
    Loop,
    /// The file system refused the path for another reason.
    Failed(io::Error),
}

/// Resolves the absolute path `path` and follows its links, also from one root to another. Missing names at its end are
/// not an error.
///
/// # Errors
/// The path leads out of the roots, or cannot be resolved.
pub fn resolve(roots: &[Root], path: &Path) -> Result<Spot, Unresolved> {
    let (root, todo) = enter(roots, path, usize::MAX).ok_or_else(|| Unresolved::Outside(path.to_owned()))?;
    let mut walk = Walk { roots, root, stack: Vec::new(), rest: Vec::new(), leaf: None, todo, links: Vec::new() };
    while let Some(component) = walk.todo.pop_front() {
        walk.advance(component)?;
    }
    let Walk { stack, rest, leaf, root, .. } = walk;
    let mut below: PathBuf = stack.iter().map(|(name, _)| name).collect();
    below.extend(&rest);
    let dir = stack.last().map_or(&roots[root].dir, |(_, dir)| dir);
    let kind = if rest.is_empty() { Some(EntryKind::Dir) } else { leaf };
    Ok(Spot { root, below, dir: Arc::clone(dir), rest, kind })
}

/// Opens the regular file at the absolute path `path` for reading. Returns it with its path without links.
///
/// # Errors
/// The path leads out of the roots, cannot be resolved, or does not lead to a regular file.
pub fn open_file(roots: &[Root], path: &Path) -> Result<(File, PathBuf), Unresolved> {
    let spot = resolve(roots, path)?;
    let file = spot.open().map_err(Unresolved::Failed)?;
    Ok((file, roots[spot.root()].real().join(spot.below())))
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside(path) => write!(f, "it leads to `{}`", path.display()),
            Self::Dangling => f.write_str("a symbolic link in the path has no target"),
            Self::NotADirectory => f.write_str("a part of the path is not a directory"),
            Self::Loop => f.write_str("the path has too many symbolic links"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// A name of a path that is not resolved yet.
#[derive(Debug)]
struct Part {
    /// `None` means `..`.
    name: Option<OsString>,
    /// True if the name comes from the path itself, not from a link on its way.
    is_own: bool,
}

struct Walk<'r> {
    roots: &'r [Root],
    root: usize,
    stack: Vec<(OsString, Arc<Dir>)>,
    /// Names after the last directory: a single name that is not a directory, or missing names.
    rest: Vec<OsString>,
    leaf: Option<EntryKind>,
    todo: VecDeque<Part>,
    /// The followed links, each with its directory: a path may lead through the same link repeatedly.
    links: Vec<Link>,
}

struct Link {
    dir: Arc<Dir>,
    name: OsString,
    target: PathBuf,
}

impl Walk<'_> {
    fn advance(&mut self, part: Part) -> Result<(), Unresolved> {
        if self.leaf.is_some() {
            return Err(Unresolved::NotADirectory);
        }
        let Some(name) = part.name else {
            // A missing name has no links.
            if self.rest.pop().is_some() || self.stack.pop().is_some() {
                return Ok(());
            }
            let above = self.roots[self.root].real.parent().unwrap_or(Path::new("/")).to_owned();
            return self.leave(above);
        };
        if !self.rest.is_empty() {
            self.rest.push(name);
            return Ok(());
        }
        let dir = self.stack.last().map_or(&self.roots[self.root].dir, |(_, dir)| dir);
        if let Some(link) = self.links.iter().find(|link| link.name == name && Arc::ptr_eq(&link.dir, dir)) {
            let (dir, target) = (Arc::clone(dir), link.target.clone());
            return self.follow(dir, name, target);
        }
        match dir.step(&name).map_err(Unresolved::Failed)? {
            Step::Dir(dir) => self.stack.push((name, Arc::new(dir))),
            Step::Link(target) => {
                let dir = Arc::clone(dir);
                return self.follow(dir, name, target);
            }
            Step::Missing if part.is_own => self.rest.push(name),
            Step::Missing => return Err(Unresolved::Dangling),
            Step::Leaf(kind) => {
                self.leaf = Some(kind);
                self.rest.push(name);
            }
        }
        Ok(())
    }

    fn follow(&mut self, dir: Arc<Dir>, name: OsString, target: PathBuf) -> Result<(), Unresolved> {
        if self.links.len() == MAX_LINKS {
            return Err(Unresolved::Loop);
        }
        let end = if target.is_absolute() {
            self.leave(target.clone())
        } else {
            for part in parts(&target, 0).into_iter().rev() {
                self.todo.push_front(part);
            }
            Ok(())
        };
        self.links.push(Link { dir, name, target });
        end
    }

    /// Continues at the absolute path `path`, if that lies in a root.
    fn leave(&mut self, path: PathBuf) -> Result<(), Unresolved> {
        let own = self.todo.iter().filter(|part| part.is_own).count();
        let whole = self.todo.drain(..).fold(path, |path, part| path.join(part.name.unwrap_or_else(|| "..".into())));
        let found = enter(self.roots, &whole, own).or_else(|| enter(self.roots, &deepest_existing(&whole)?, own));
        let (root, todo) = found.ok_or_else(|| Unresolved::Outside(lexical(&whole)))?;
        (self.root, self.todo) = (root, todo);
        self.stack.clear();
        Ok(())
    }
}

/// The deepest root that `path` begins with, and the names after it.
fn enter(roots: &[Root], path: &Path, own: usize) -> Option<(usize, VecDeque<Part>)> {
    let found = roots.iter().enumerate().filter_map(|(at, root)| Some((at, root.strip(path)?)));
    // The first root wins if several have the same name.
    let (at, (_, rest)) = found.rev().max_by_key(|(_, (length, _))| *length)?;
    Some((at, parts(rest, own).into()))
}

/// The real path of a path outside of the roots, which may lead into a root through links in others' directories. It is
/// only a proposal: its names are resolved again from the root.
fn deepest_existing(path: &Path) -> Option<PathBuf> {
    let (there, real) = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)))?;
    Some(real.join(path.strip_prefix(there).ok()?))
}

/// The names of a path. The last `own` of them come from the requested path, the others from a link.
fn parts(path: &Path, own: usize) -> Vec<Part> {
    let name = |component| match component {
        Component::Normal(name) => Some(Some(OsStr::to_owned(name))),
        Component::ParentDir => Some(None),
        _ => None,
    };
    let names: Vec<_> = path.components().filter_map(name).collect();
    let linked = names.len().saturating_sub(own);
    names.into_iter().enumerate().map(|(at, name)| Part { name, is_own: at >= linked }).collect()
}

impl Spot {
    /// Index of the root that holds the path.
    pub fn root(&self) -> usize {
        self.root
    }

    /// The path below the root, without symbolic links.
    pub fn below(&self) -> &Path {
        &self.below
    }

    /// Type of the file; `None` if it does not exist.
    pub fn kind(&self) -> Option<EntryKind> {
        self.kind
    }

    /// The directory, if the path leads to one.
    pub fn as_dir(&self) -> Option<&Arc<Dir>> {
        self.rest.is_empty().then_some(&self.dir)
    }

    /// The parent directory and the name in it, if the parent exists.
    pub fn entry(&self) -> Option<(&Dir, &OsStr)> {
        match self.rest.as_slice() {
            [name] => Some((&self.dir, name)),
            _ => None,
        }
    }

    /// Opens the file for reading.
    ///
    /// # Errors
    /// The path does not lead to a regular file, or the file cannot be opened.
    pub fn open(&self) -> io::Result<File> {
        match self.entry() {
            Some((dir, name)) => dir.open_file(name),
            None if self.rest.is_empty() => Err(io::Error::other("it is a directory")),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Opens the entry, whatever its type, for rules about it.
    ///
    /// # Errors
    /// Nothing exists there, or it cannot be opened.
    pub fn open_any(&self) -> io::Result<Handle> {
        match self.entry() {
            Some((dir, name)) => dir.open_leaf(name),
            None if self.rest.is_empty() => Ok(self.dir.try_clone()?.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The parent directory and the name in it. Missing directories on the way are created.
    ///
    /// # Errors
    /// The path is a directory, or a directory above it cannot be created.
    pub fn make_parent(&self) -> io::Result<(Arc<Dir>, &OsStr)> {
        let (name, above) = self.rest.split_last().ok_or_else(|| io::Error::other("it is a directory"))?;
        Ok((self.make(above)?, name))
    }

    /// The directory, which is created if it is missing.
    ///
    /// # Errors
    /// Something else is there, or the directory cannot be created.
    pub fn make_dir(&self) -> io::Result<Arc<Dir>> {
        self.make(&self.rest)
    }

    fn make(&self, names: &[OsString]) -> io::Result<Arc<Dir>> {
        let mut dir = Arc::clone(&self.dir);
        for name in names {
            dir = Arc::new(dir.make_dir(name)?);
        }
        Ok(dir)
    }
}

/// Removes `.` and `..` from a path lexically, without looking at the file system.
pub fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests;

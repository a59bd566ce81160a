//! Which files tools may touch: everything below the app's directory or a granted folder, and nothing else.
//!
//! A path is resolved twice. First by name, in user space: `..` is taken away, symbolic links are followed, and what
//! comes out must lie below a root; this is where good messages come from. Then by the operating system, starting at
//! the open directory of that root, with symbolic links refused: what is put in the way in between leads nowhere.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as os;

#[cfg(not(unix))]
compile_error!("tools are confined on Unix only: a port is a `confine/windows.rs` with the items of `confine/unix.rs`");

/// The folders that tools may read and write.
#[derive(Debug, Clone)]
pub struct Roots {
    base: PathBuf,
    roots: Arc<Vec<Root>>,
}

#[derive(Debug)]
struct Root {
    /// As it was given, absolute.
    given: PathBuf,
    /// Without symbolic links.
    real: PathBuf,
    dir: os::Dir,
    writable: bool,
}

/// What a path is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To be read.
    Read,
    /// To be written.
    Write,
}

/// A path that may be touched.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where it really is.
    real: PathBuf,
    /// Relative to the base if it lies below it, else absolute, as messages show it.
    shown: String,
    root: usize,
    roots: Arc<Vec<Root>>,
}

/// Why a path may not be touched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It lies below no root.
    #[error("`{path}` lies outside the folders that tools may {verb}: {folders}")]
    Outside {
        /// The path as asked.
        path: String,
        /// `read` or `write`.
        verb: &'static str,
        /// The folders that are allowed.
        folders: String,
    },
    /// A symbolic link leads out of the roots.
    #[error("`{path}` leads through a symbolic link to `{target}`, outside the folders that tools may {verb}")]
    LeadsOut {
        /// The path as asked.
        path: String,
        /// Where it leads.
        target: String,
        /// `read` or `write`.
        verb: &'static str,
    },
    /// There is nothing.
    #[error("`{path}` does not exist")]
    Missing {
        /// The path as asked.
        path: String,
    },
    /// Anything else.
    #[error("`{path}` cannot be used: {why}")]
    Other {
        /// The path as asked.
        path: String,
        /// The reason.
        why: String,
    },
}

impl Roots {
    /// `base` is the app's directory: relative paths start there, and it may be read and written. `read` may be read,
    /// `write` may be read and written.
    ///
    /// # Errors
    /// One of the folders cannot be opened.
    pub fn new(base: &Path, read: &[PathBuf], write: &[PathBuf]) -> io::Result<Self> {
        let all = std::iter::once((base, true))
            .chain(write.iter().map(|path| (path.as_path(), true)))
            .chain(read.iter().map(|path| (path.as_path(), false)));
        let roots = all.map(|(path, writable)| Root::open(path, writable)).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { base: roots[0].given.clone(), roots: Arc::new(roots) })
    }

    /// The same without the right to write the base: for runs that may only look.
    ///
    /// # Errors
    /// One of the folders cannot be opened.
    pub fn read_only(base: &Path, read: &[PathBuf]) -> io::Result<Self> {
        let all = std::iter::once(base).chain(read.iter().map(PathBuf::as_path));
        let roots = all.map(|path| Root::open(path, false)).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { base: roots[0].given.clone(), roots: Arc::new(roots) })
    }

    /// Where relative paths start.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// A file or directory that exists.
    ///
    /// # Errors
    /// It does not exist, or may not be touched.
    pub fn existing(&self, path: &str, access: Access) -> Result<Place, Refusal> {
        let (clean, asked) = self.clean(path, access)?;
        match clean.canonicalize() {
            Ok(real) => self.place(real, &asked, access),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Refusal::Missing { path: asked }),
            Err(error) => Err(Refusal::Other { path: asked, why: error.to_string() }),
        }
    }

    /// A file that is to be written: it may exist or not, and so may the directories above it.
    ///
    /// # Errors
    /// It may not be written, or is a symbolic link to nothing.
    pub fn target(&self, path: &str) -> Result<Place, Refusal> {
        let (clean, asked) = self.clean(path, Access::Write)?;
        let mut missing = Vec::new();
        let mut there = clean.as_path();
        loop {
            match there.canonicalize() {
                Ok(real) => {
                    let real = missing.iter().rev().fold(real, |path, part| path.join(part));
                    return self.place(real, &asked, Access::Write);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if there.symlink_metadata().is_ok() {
                        let why = "a symbolic link on the way leads to nothing".to_owned();
                        return Err(Refusal::Other { path: asked, why });
                    }
                    let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else {
                        return Err(Refusal::Missing { path: asked });
                    };
                    missing.push(name.to_owned());
                    there = parent;
                }
                Err(error) => return Err(Refusal::Other { path: asked, why: error.to_string() }),
            }
        }
    }

    /// How messages and results show a path.
    pub fn shown(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.roots[0].real).or_else(|_| path.strip_prefix(&self.base));
        match below {
            Ok(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Ok(below) => below.to_string_lossy().into_owned(),
            Err(_) => path.to_string_lossy().into_owned(),
        }
    }

    /// A path as patterns of a policy see it: without `.` and `..`, relative to the base if it lies below it.
    pub fn normal(&self, path: &str) -> String {
        self.shown(&lexical(&self.base.join(path)))
    }

    /// The path without `.` and `..`, if by its name it lies below a root; and what messages call it.
    fn clean(&self, path: &str, access: Access) -> Result<(PathBuf, String), Refusal> {
        let asked: String = path.chars().take(300).collect();
        if path.contains('\0') {
            return Err(Refusal::Other { path: asked.replace('\0', "\\0"), why: "it has a NUL character".to_owned() });
        }
        let clean = lexical(&self.base.join(path));
        let allowed =
            self.allowed(access).any(|(_, root)| clean.starts_with(&root.given) || clean.starts_with(&root.real));
        if allowed { Ok((clean, asked)) } else { Err(self.outside(asked, access)) }
    }

    fn place(&self, real: PathBuf, asked: &str, access: Access) -> Result<Place, Refusal> {
        // The deepest root decides: a folder may be writable inside one that is not.
        let found = self.allowed(access).filter(|(_, root)| real.starts_with(&root.real));
        match found.max_by_key(|(_, root)| root.real.components().count()) {
            Some((root, _)) => Ok(Place { shown: self.shown(&real), real, root, roots: Arc::clone(&self.roots) }),
            None => Err(Refusal::LeadsOut {
                path: asked.to_owned(),
                target: real.to_string_lossy().into_owned(),
                verb: access.verb(),
            }),
        }
    }

    fn allowed(&self, access: Access) -> impl Iterator<Item = (usize, &Root)> {
        self.roots.iter().enumerate().filter(move |(_, root)| access == Access::Read || root.writable)
    }

    fn outside(&self, path: String, access: Access) -> Refusal {
        let folders: Vec<String> =
            self.allowed(access).map(|(_, root)| format!("`{}`", root.given.display())).collect();
        let folders = if folders.is_empty() { "none".to_owned() } else { folders.join(", ") };
        Refusal::Outside { path, verb: access.verb(), folders }
    }
}

impl Root {
    fn open(path: &Path, writable: bool) -> io::Result<Self> {
        let describe = |error: io::Error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display()));
        let given = lexical(&std::path::absolute(path).map_err(describe)?);
        let real = given.canonicalize().map_err(describe)?;
        let dir = os::Dir::open(&real).map_err(describe)?;
        Ok(Self { given, real, dir, writable })
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

impl Place {
    /// Where it really is, without symbolic links.
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// Opens it for reading. Pipes and devices are refused, so that a read cannot hang.
    ///
    /// # Errors
    /// It cannot be opened, or is not a regular file.
    pub fn open(&self) -> io::Result<File> {
        let file = self.root().dir.open_file(self.below()?)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
    }

    /// Opens another file below the root of this place, which a walk has found at `real`.
    ///
    /// # Errors
    /// It lies elsewhere, cannot be opened, or is not a regular file.
    pub fn open_below(&self, real: &Path) -> io::Result<File> {
        Self { real: real.to_owned(), ..self.clone() }.open()
    }

    /// Puts `content` in its place: all of it or nothing, whatever happens meanwhile. Directories above it are made.
    ///
    /// # Errors
    /// It cannot be written, or a directory is in its place.
    pub fn replace(&self, content: &[u8]) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let below = self.below()?;
        let name = below.file_name().ok_or_else(|| io::Error::other("it is a directory"))?;
        let dir = self.root().dir.make_all(below.parent().unwrap_or(Path::new("")))?;
        let mode = dir.mode_of(name)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".etude-{}-{number}.tmp", std::process::id());
        let written = dir.create_new(&temporary, mode).and_then(|mut file| {
            file.write_all(content)?;
            file.sync_data()
        });
        let result = written.and_then(|()| dir.rename(&temporary, name));
        if result.is_err() {
            // The first error counts; what is left behind is hidden and harmless.
            let _ = dir.remove(&temporary);
        }
        result
    }

    fn root(&self) -> &Root {
        &self.roots[self.root]
    }

    fn below(&self) -> io::Result<&Path> {
        self.real.strip_prefix(&self.root().real).map_err(|_| io::Error::other("it lies outside its folder"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// A path without `.` and `..`, by its name alone.
fn lexical(path: &Path) -> PathBuf {
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

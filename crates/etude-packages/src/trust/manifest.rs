//! Hashes of everything in a package or skill that can be run or read: names by their bytes, modes, links, contents (C-1.11).
//!
//! One walk hashes all bytes, keeps the requested texts, and writes a copy. All three use the same bytes, so the used content
//! is the hashed one, whatever happens to the original afterwards.

mod links;
mod unix;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use etude_spec::application::StatePaths;
use sha2::{Digest, Sha256};

use super::Content;
pub(crate) use unix::{mode, set_mode, stamp, symlink};

/// Directory of the version control system. It is neither hashed nor copied, so nothing can run from it.
const VERSION_CONTROL: &str = ".git";

/// Maximum number of files, directories and links.
const MAX_ENTRIES: usize = 50_000;

/// Maximum size of all files together, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Maximum size of a kept text, in bytes.
const MAX_KEPT: usize = 9 << 20;

/// Maximum number of links in a chain.
const MAX_LINKS: usize = 40;

/// The directory of a package that its own commands may change.
const PAYLOAD: &str = "app";

/// One file, directory or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Directory {
        /// Permission bits; 0 on systems without them.
        mode: u32,
    },
    /// A regular file.
    File {
        /// Permission bits; 0 on systems without them.
        mode: u32,
        /// Length of the content, in bytes.
        length: u64,
        /// SHA-256 of the content.
        hash: [u8; 32],
    },
    /// A symbolic link to another entry.
    Link {
        /// Target of the link as written, which may be relative.
        target: PathBuf,
    },
}

/// Everything below a directory except its state and `.git`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manifest {
    items: BTreeMap<PathBuf, Item>,
    kept: BTreeMap<PathBuf, Vec<u8>>,
    unfit: Option<String>,
}

/// Options of a walk, besides hashing.
#[derive(Default)]
pub(crate) struct Reading<'r> {
    /// State paths of a package; `None` for a skill, which has no state.
    pub(crate) state: Option<&'r StatePaths>,
    /// Selects the texts to keep.
    pub(crate) keep: Option<&'r dyn Fn(&Path) -> bool>,
    /// Target directory for a copy, which must be empty.
    pub(crate) copy: Option<&'r Path>,
}

impl Reading<'_> {
    /// Reads everything below `root`. An entry that cannot be hashed makes the manifest unfit for an approval.
    ///
    /// # Errors
    /// A file cannot be read or copied, or a limit is exceeded.
    pub(crate) fn read(self, root: &Path) -> io::Result<Manifest> {
        let mut walk =
            Walk { root, reading: self, found: Manifest::default(), left: MAX_BYTES, buffer: vec![0; 64 * 1024] };
        walk.directory(Path::new(""))?;
        let state = walk.reading.state;
        let mut found = walk.found;
        if let Some((path, _)) = state.and_then(|state| found.links().find(|(path, _)| found.is_in(state, path))) {
            let why = format!("`{}` is a symbolic link into the state, which may change", path.display());
            found.unfit.get_or_insert(why);
        }
        Ok(found)
    }

    pub(crate) fn is_state(&self, path: &Path) -> bool {
        self.state.is_some_and(|state| holds(state, path))
    }
}

/// True if `path` is state of the package. A name that is not text is state only if a directory above it is.
pub(crate) fn holds(state: &StatePaths, path: &Path) -> bool {
    path.to_str().is_some_and(|path| state.holds(&path.replace('\\', "/")))
}

/// True if a path leads through a directory of version control.
pub(crate) fn is_version_control(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == OsStr::new(VERSION_CONTROL))
}

impl Manifest {
    /// The hashes of the content.
    pub(crate) fn content(&self) -> Content {
        let (mut contract, mut payload) = (Sha256::new(), Sha256::new());
        for (path, item) in &self.items {
            let hasher = if path.starts_with(PAYLOAD) { &mut payload } else { &mut contract };
            let mut field = |tag: u8, bytes: &[u8]| {
                hasher.update([tag]);
                hasher.update((bytes.len() as u64).to_le_bytes());
                hasher.update(bytes);
            };
            field(b'p', path.as_os_str().as_encoded_bytes());
            match item {
                Item::Directory { mode } => field(b'd', &mode.to_le_bytes()),
                Item::File { mode, length, hash } => {
                    field(b'm', &mode.to_le_bytes());
                    field(b'n', &length.to_le_bytes());
                    field(b'f', hash);
                }
                Item::Link { target } => field(b'l', target.as_os_str().as_encoded_bytes()),
            }
        }
        Content { contract: hex(contract), payload: hex(payload) }
    }

    /// The hashes of the content, for an approval.
    ///
    /// # Errors
    /// The content contains an entry that cannot be hashed: a link to the outside, or a special file.
    pub(crate) fn approvable(&self) -> io::Result<Content> {
        match &self.unfit {
            Some(why) => Err(io::Error::new(io::ErrorKind::InvalidData, why.clone())),
            None => Ok(self.content()),
        }
    }

    pub(crate) fn item(&self, path: &Path) -> Option<&Item> {
        self.items.get(path)
    }

    /// Replaces or removes the entry at `path`.
    pub(crate) fn set(&mut self, path: &Path, item: Option<Item>) {
        match item {
            Some(item) => self.items.insert(path.to_owned(), item),
            None => self.items.remove(path),
        };
    }

    /// The kept text at `path`, through links; `None` if it was not kept.
    pub(crate) fn text(&self, path: &Path) -> Option<&[u8]> {
        self.kept.get(&self.resolve(path)?).map(Vec::as_slice)
    }

    fn links(&self) -> impl Iterator<Item = (&PathBuf, &Item)> {
        self.items.iter().filter(|(_, item)| matches!(item, Item::Link { .. }))
    }

    /// True if `path` leads to state, through any links.
    pub(crate) fn is_in(&self, state: &StatePaths, path: &Path) -> bool {
        self.resolve(path).is_some_and(|place| place.ancestors().any(|above| holds(state, above)))
    }

    /// The target of `path` through links, or the first path on the way that is not an entry. `None` if it leads to the outside
    /// or in a circle.
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let mut rest: Vec<PathBuf> = vec![path.to_owned()];
        let (mut place, mut followed) = (PathBuf::new(), 0);
        while let Some(next) = rest.pop() {
            let mut parts = next.components();
            let Some(part) = parts.next() else { continue };
            rest.push(parts.as_path().to_owned());
            match part {
                Component::Normal(name) => place.push(name),
                Component::ParentDir if place.pop() => continue,
                Component::CurDir => continue,
                _ => return None,
            }
            match self.items.get(&place) {
                None => return Some(place),
                Some(Item::Link { target }) => {
                    followed += 1;
                    if followed > MAX_LINKS {
                        return None;
                    }
                    place.pop();
                    rest.push(target.clone());
                }
                Some(Item::Directory { .. } | Item::File { .. }) => {}
            }
        }
        Some(place)
    }
}

struct Walk<'w> {
    root: &'w Path,
    reading: Reading<'w>,
    found: Manifest,
    left: u64,
    buffer: Vec<u8>,
}

impl Walk<'_> {
    fn directory(&mut self, path: &Path) -> io::Result<()> {
        // The system limits the length of paths, and so the depth.
        let mut names: Vec<_> = fs::read_dir(self.root.join(path))?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<_>>()?;
        names.sort_unstable();
        names.iter().filter(|name| *name != VERSION_CONTROL).try_for_each(|name| self.entry(&path.join(name)))
    }

    fn entry(&mut self, path: &Path) -> io::Result<()> {
        if self.reading.is_state(path) {
            return Ok(());
        }
        if self.found.items.len() >= MAX_ENTRIES {
            return Err(io::Error::other(format!("it has more than {MAX_ENTRIES} files and directories")));
        }
        let place = self.root.join(path);
        let meta = fs::symlink_metadata(&place)?;
        let copy = self.reading.copy.map(|copy| copy.join(path));
        let item = if meta.is_dir() {
            if let Some(copy) = &copy {
                fs::create_dir(copy)?;
            }
            self.directory(path)?;
            if let Some(copy) = &copy {
                set_mode(copy, unix::mode(&meta))?;
            }
            Item::Directory { mode: unix::mode(&meta) }
        } else if meta.is_symlink() {
            let target = fs::read_link(&place)?;
            if let Err(why) = links::check(path, &target) {
                self.unfit(path, &why);
            }
            if let Some(copy) = &copy {
                symlink(&target, copy)?;
            }
            Item::Link { target }
        } else if meta.is_file() {
            self.file(path, &place, copy.as_deref())?
        } else {
            self.unfit(path, "is a device, pipe or socket");
            return Ok(());
        };
        self.found.items.insert(path.to_owned(), item);
        Ok(())
    }

    fn unfit(&mut self, path: &Path, why: &str) {
        let why = format!("`{}` {why}", path.display());
        self.found.unfit.get_or_insert(why);
    }

    /// Hashes, keeps and copies the bytes of a file.
    fn file(&mut self, path: &Path, place: &Path, copy: Option<&Path>) -> io::Result<Item> {
        let mut file = unix::open(place)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other(format!("`{}` changed while it was read", path.display())));
        }
        let mut out = copy.map(File::create_new).transpose()?;
        let mut text = self.reading.keep.is_some_and(|keep| keep(path)).then(Vec::new);
        let (mut hasher, mut length) = (Sha256::new(), 0);
        loop {
            let got = file.read(&mut self.buffer)?;
            if got == 0 {
                break;
            }
            let bytes = &self.buffer[..got];
            length += got as u64;
            self.left = self.left.checked_sub(got as u64).ok_or_else(too_large)?;
            hasher.update(bytes);
            if let Some(text) = &mut text {
                text.extend_from_slice(&bytes[..bytes.len().min(MAX_KEPT.saturating_sub(text.len()))]);
            }
            if let Some(out) = &mut out {
                out.write_all(bytes)?;
            }
        }
        if let Some(out) = out {
            copy_attributes(&out, &meta)?;
        }
        if let Some(text) = text {
            self.found.kept.insert(path.to_owned(), text);
        }
        Ok(Item::File { mode: unix::mode(&meta), length, hash: hasher.finalize().into() })
    }
}

/// Sets the times and mode of the original on its copy: caches of interpreters compare times.
fn copy_attributes(copy: &File, original: &Metadata) -> io::Result<()> {
    if let Ok(modified) = original.modified() {
        copy.set_modified(modified)?;
    }
    unix::set_file_mode(copy, unix::mode(original))
}

fn too_large() -> io::Error {
    io::Error::other(format!("its files have more than {} MiB", MAX_BYTES >> 20))
}

fn hex(hasher: Sha256) -> String {
    format!("sha256:{}", etude_core::digest::hex(&hasher.finalize()))
}

#[cfg(test)]
mod tests;

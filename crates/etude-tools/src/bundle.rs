//! Bundles: an app as one archive, with the same bytes on every machine (K-50 to K-52).
//!
//! A bundle is an uncompressed POSIX tar of the regular files and links of an app, sorted by name. Times and owners are zero,
//! modes are 0755 or 0644. Files that `.gitignore` excludes, `.git` and `.env` are left out: keys never leave the machine in a
//! bundle (K-53). So are unfinished files of a killed process.

mod unix;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use etude_core::digest::Digest;
use etude_files::beneath::{EntryKind, is_unfinished};
use etude_files::whole;
use tar::{Archive, Builder, EntryType, Header};

use crate::builtin::{Stop, walk};
use crate::confine::{Access, Roots};

/// Maximum size of a bundle, in bytes.
pub const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// Maximum number of links in a bundle.
const MAX_LINKS: usize = 10_000;

/// Maximum number of links on one path, as in Linux; other systems allow fewer.
const MAX_FOLLOWED: usize = 40;

/// Maximum number of names on the way of a link, including those of other links.
const MAX_STEPS: usize = 1_000;

/// The file with the keys of an app.
const KEYS: &str = ".env";

/// A checked archive of an app.
#[derive(Clone, PartialEq, Eq)]
pub struct Bundle {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// A file or link of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path below the app, with `/`.
    pub path: String,
    /// File mode: 0755 or 0644.
    pub mode: u32,
    /// Size in bytes; 0 for a link.
    pub bytes: u64,
    /// The hash of a file, or the target of a link.
    pub content: Content,
}

/// Content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A file, by the hash of its bytes.
    File(Digest),
    /// A link, by its target.
    Link(String),
}

/// Reason why a bundle cannot be made, read or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file of the app cannot be packed.
    #[error("`{path}` cannot be packed: {why}")]
    Unreadable {
        /// Path below the app.
        path: String,
        /// The error of the file system, or the reason why the entry cannot be packed.
        why: String,
    },
    /// The archive has an entry that [`Bundle::pack`] does not make (K-52).
    #[error("the bundle is refused: `{entry}` {why}")]
    Refused {
        /// The name of the entry in the archive.
        entry: String,
        /// The fault, as the end of a sentence that begins with the name of the entry.
        why: String,
    },
    /// The app has more than [`MAX_BYTES`].
    #[error("the app has more than {} MiB; exclude what runs do not need with `.gitignore`", MAX_BYTES / 1024 / 1024)]
    TooLarge,
    /// A file or directory cannot be written while unpacking.
    #[error("the bundle cannot be unpacked to {}: {why}", path.display())]
    Write {
        /// The file or directory that cannot be written.
        path: PathBuf,
        /// The error of the file system.
        why: io::Error,
    },
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bundle").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl Bundle {
    /// Packs the app in the directory `app` (K-51).
    ///
    /// # Errors
    /// A file cannot be read, has a name that is not UTF-8, or is neither file nor link; a link leads out of the app; the bundle is too
    /// large.
    pub fn pack(app: &Path) -> Result<Self, BundleError> {
        let fault = |path: &Path, why: &dyn std::fmt::Display| BundleError::Unreadable {
            path: path.display().to_string(),
            why: why.to_string(),
        };
        let roots = Roots::read_only(app).map_err(|e| fault(app, &e))?;
        let start = roots.existing(".", Access::Read).map_err(|e| fault(app, &e))?;
        let (mut found, mut failed, mut total) = (BTreeMap::new(), None, 0_u64);
        walk::walk(&start, None, true, &Stop::unlimited(), |entry| {
            let is_left_out = |name: &OsStr| name == KEYS || is_unfinished(name);
            if entry.kind == EntryKind::Dir || entry.below.file_name().is_some_and(is_left_out) {
                return Ok(true);
            }
            match packed(entry, MAX_BYTES.saturating_sub(total)) {
                Ok((path, packed)) => {
                    total += packed.data.len() as u64;
                    found.insert(path, packed);
                    Ok(true)
                }
                Err(error) => {
                    failed = Some(error);
                    Ok(false)
                }
            }
        })
        .map_err(|e| fault(app, &e.message))?;
        match failed {
            Some(error) => Err(error),
            None => Self::read(archive(&found).map_err(|e| fault(app, &e))?),
        }
    }

    /// Checks and wraps an archive (K-52).
    ///
    /// # Errors
    /// The archive has an entry that [`Bundle::pack`] does not make, such as one with `..`, an absolute name, a link that
    /// leads out, a device, or a duplicate name.
    pub fn read(bytes: Vec<u8>) -> Result<Self, BundleError> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(BundleError::TooLarge);
        }
        let entries = entries(&bytes)?;
        Ok(Self { bytes, entries })
    }

    /// The archive, uncompressed; equal for equal files.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The hash of the archive, which identifies the bundle.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// Files and links, in the order of their names.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Writes the app into `dir`, which must not exist. Its files and their names are on the disk afterwards; the name of `dir`
    /// may not be.
    ///
    /// # Errors
    /// `dir` exists or cannot be written.
    pub fn unpack(&self, dir: &Path) -> Result<(), BundleError> {
        self.unpack_for_now(dir)?;
        self.sync(dir)
    }

    /// Writes the app into `dir`, which must not exist, for as long as this process needs it: nothing waits for the disk.
    ///
    /// # Errors
    /// `dir` exists or cannot be written.
    pub fn unpack_for_now(&self, dir: &Path) -> Result<(), BundleError> {
        let write = |path: &Path, why| BundleError::Write { path: path.to_owned(), why };
        fs::create_dir(dir).map_err(|e| write(dir, e))?;
        self.each_file(|entry, data| {
            let path = dir.join(&entry.path);
            let done = fs::create_dir_all(path.parent().unwrap_or(dir)).and_then(|()| {
                let mut file = File::options().write(true).create_new(true).open(&path)?;
                file.write_all(data)?;
                unix::set_mode(&file, entry.mode)
            });
            done.map_err(|e| write(&path, e))
        })?;
        // Links come last, so that nothing is written through one, even if the file system treats two names as one.
        for entry in &self.entries {
            let Content::Link(target) = &entry.content else { continue };
            let path = dir.join(&entry.path);
            let made = fs::create_dir_all(path.parent().unwrap_or(dir)).and_then(|()| unix::link(target, &path));
            made.map_err(|e| write(&path, e))?;
        }
        Ok(())
    }

    /// Writes the unpacked files to the disk, after all of them were written: most file systems then need one wait for all.
    fn sync(&self, dir: &Path) -> Result<(), BundleError> {
        let mut dirs = BTreeSet::from([dir.to_owned()]);
        for entry in &self.entries {
            let path = dir.join(&entry.path);
            dirs.extend(path.ancestors().skip(1).take_while(|above| *above != dir).map(Path::to_owned));
            if let Content::File(_) = entry.content {
                let synced = File::options().write(true).open(&path).and_then(|file| sync_file(&path, &file));
                synced.map_err(|why| BundleError::Write { path, why })?;
            }
        }
        for path in dirs {
            sync_dir(&path).map_err(|why| BundleError::Write { path, why })?;
        }
        Ok(())
    }

    /// The path of the first file whose content `is_wanted`.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn find(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Option<&str>, BundleError> {
        let mut found = None;
        self.each_file(|entry, data| {
            if found.is_none() && is_wanted(data) {
                found = Some(entry.path.as_str());
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Calls `visit` with each file and its bytes.
    fn each_file<'b>(
        &'b self,
        mut visit: impl FnMut(&'b Entry, &[u8]) -> Result<(), BundleError>,
    ) -> Result<(), BundleError> {
        let unreadable =
            |path: &str, why: io::Error| BundleError::Unreadable { path: path.to_owned(), why: why.to_string() };
        let mut archive = Archive::new(self.bytes.as_slice());
        let contents = archive.entries().map_err(|e| unreadable("the archive", e))?;
        for (entry, content) in self.entries.iter().zip(contents) {
            if let Content::File(_) = entry.content {
                let mut data = Vec::new();
                content.and_then(|mut c| c.read_to_end(&mut data)).map_err(|e| unreadable(&entry.path, e))?;
                visit(entry, &data)?;
            }
        }
        Ok(())
    }
}

fn sync_file(path: &Path, file: &File) -> io::Result<()> {
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(path.to_owned()));
    #[cfg(not(test))]
    let _ = path;
    file.sync_all()
}

fn sync_dir(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(path.to_owned()));
    whole::sync_dir(path)
}

/// A file or link in the form in which it is archived.
struct Packed {
    kind: EntryType,
    mode: u32,
    /// The bytes of a file, or the target of a link.
    data: Vec<u8>,
}

fn packed(entry: &walk::Entry<'_>, room: u64) -> Result<(String, Packed), BundleError> {
    let shown = entry.below.display().to_string();
    let fault = |why: &str| BundleError::Unreadable { path: shown.clone(), why: why.to_owned() };
    let not_text = || fault("its name is not UTF-8");
    let names: Option<Vec<&str>> = entry.below.iter().map(|name| name.to_str()).collect();
    let path = names.ok_or_else(not_text)?.join("/");
    let packed = match entry.kind {
        EntryKind::File => {
            let file = entry.open().map_err(|e| fault(&e.to_string()))?;
            let mode = if unix::is_executable(&file).map_err(|e| fault(&e.to_string()))? { 0o755 } else { 0o644 };
            let mut data = Vec::new();
            file.take(room + 1).read_to_end(&mut data).map_err(|e| fault(&e.to_string()))?;
            if data.len() as u64 > room {
                return Err(BundleError::TooLarge);
            }
            Packed { kind: EntryType::Regular, mode, data }
        }
        EntryKind::Link => {
            let target = entry.target().map_err(|e| fault(&e.to_string()))?;
            let target = target.to_str().ok_or_else(not_text)?;
            if !stays_inside(&path, target) {
                return Err(fault(
                    "the link leads out of the app, or to an absolute path; exclude it with `.gitignore`",
                ));
            }
            Packed { kind: EntryType::Symlink, mode: 0o644, data: target.as_bytes().to_owned() }
        }
        EntryKind::Dir | EntryKind::Other => {
            return Err(fault("it is neither a file nor a link; exclude it with `.gitignore`"));
        }
    };
    Ok((path, packed))
}

fn archive(found: &BTreeMap<String, Packed>) -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for (path, Packed { kind, mode, data }) in found {
        let mut header = Header::new_ustar();
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        if *kind == EntryType::Symlink {
            header.set_size(0);
            builder.append_link(&mut header, path, String::from_utf8_lossy(data).as_ref())?;
        } else {
            header.set_size(data.len() as u64);
            builder.append_data(&mut header, path, data.as_slice())?;
        }
    }
    builder.into_inner()
}

/// Checks an archive and lists its entries.
fn entries(bytes: &[u8]) -> Result<Vec<Entry>, BundleError> {
    let refused = |entry: &str, why: &str| BundleError::Refused { entry: entry.to_owned(), why: why.to_owned() };
    let broken = |error: io::Error| refused("the archive", &format!("cannot be read: {error}"));
    let (mut all, mut files, mut links) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
    let mut archive = Archive::new(bytes);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let name = entry.path_bytes().into_owned();
        let path = String::from_utf8(name)
            .map_err(|error| refused(&String::from_utf8_lossy(error.as_bytes()), "has a name that is not UTF-8"))?;
        let refuse = |why: &str| refused(&path, why);
        if !is_plain(&path) {
            return Err(refuse("is not a path inside the app"));
        }
        let (size, mode) = (entry.size(), entry.header().mode().map_err(broken)?);
        let content = match entry.header().entry_type() {
            EntryType::Regular => {
                let mut data = Vec::new();
                entry.read_to_end(&mut data).map_err(broken)?;
                if data.len() as u64 != size {
                    return Err(refuse("does not have its declared size"));
                }
                Content::File(Digest::of(&data))
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().map(|name| String::from_utf8(name.into_owned()));
                let target = target.and_then(Result::ok).ok_or_else(|| refuse("is a link without a target"))?;
                if !stays_inside(&path, &target) {
                    return Err(refuse("is a link that leads out of the app"));
                }
                links.insert(path.clone(), target.clone());
                Content::Link(target)
            }
            _ => return Err(refuse("is neither a file nor a link")),
        };
        if !files.insert(path.clone()) {
            return Err(refuse("occurs twice"));
        }
        let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
        all.push(Entry { path, mode, bytes: size, content });
    }
    // No entry may lie below a file or a link.
    let below = |path: &str| {
        Path::new(path).ancestors().skip(1).any(|above| above.to_str().is_some_and(|above| files.contains(above)))
    };
    if let Some(entry) = all.iter().find(|entry| below(&entry.path)) {
        return Err(refused(&entry.path, "is below a file or a link"));
    }
    if links.len() > MAX_LINKS {
        return Err(refused("the archive", &format!("has more than {MAX_LINKS} links")));
    }
    // With other links on the way, `a/b/..` is not `a`.
    match links.keys().find(|path| !leads_inside(path, &links)) {
        Some(path) => Err(refused(path, "is a link that leads out of the app by way of others")),
        None => Ok(all),
    }
}

/// True for a relative path of plain names, of which there is only one spelling.
fn is_plain(path: &str) -> bool {
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['\\', '\0', ':']);
    path.split('/').all(is_name)
}

/// True if the link at `path` leads below the app, or nowhere, with the links on its way followed as well.
fn leads_inside<'l>(path: &'l str, links: &'l BTreeMap<String, String>) -> bool {
    let mut place: Vec<&str> = path.split('/').collect();
    let mut todo: Vec<&str> = Vec::new();
    let (mut followed, mut steps) = (0, 0);
    loop {
        if let Some(target) = links.get(&place.join("/")) {
            followed += 1;
            place.pop();
            todo.extend(target.split('/').rev());
        }
        steps += 1;
        match todo.pop() {
            None => return true,
            // No system follows so long a chain to its end.
            Some(_) if followed > MAX_FOLLOWED => return true,
            Some(_) if steps > MAX_STEPS => return false,
            Some("" | ".") => {}
            Some("..") => {
                if place.pop().is_none() {
                    return false;
                }
            }
            Some(name) => place.push(name),
        }
    }
}

/// True if the target of the link at `path` stays below the app, judged by its names alone.
fn stays_inside(path: &str, target: &str) -> bool {
    let mut depth = path.split('/').count() - 1;
    if target.is_empty() || target.contains(['\\', '\0']) {
        return false;
    }
    for part in Path::new(target).components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests;

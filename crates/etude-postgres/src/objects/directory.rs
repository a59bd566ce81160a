//! Object storage in a directory that the machines share.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use etude_core::digest::Digest;

use super::{Existing, refused, unavailable};
use crate::link::lock;

/// Number of bytes that are copied at once.
const PIECE: usize = 64 * 1024;

/// Beginnings of the names of files that are not objects: unfinished ones, and those of a check.
const TEMPORARY: [&str; 2] = [".part-", ".probe-"];

/// Maximum age of such a file. Older ones belong to dead processes.
const TEMPORARY_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    /// The directories of objects whose names are on the disk.
    named: Mutex<BTreeSet<PathBuf>>,
    /// Gives a file a second name, which no file may have.
    link: fn(&Path, &Path) -> io::Result<()>,
}

impl Directory {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, named: Mutex::default(), link: |from, to| fs::hard_link(from, to) }
    }

    /// The path of an object. A missing root directory means a missing mount, which proves nothing about its contents.
    fn place(&self, name: &str) -> io::Result<PathBuf> {
        match fs::metadata(&self.root) {
            Ok(found) if found.is_dir() => Ok(self.root.join(name)),
            Ok(_) => Err(refused(format!("`{}` is not a directory", self.root.display()))),
            Err(error) => Err(failed(&self.root, &error)),
        }
    }

    pub(super) fn put(&self, name: &str, from: &mut File, len: u64, existing: Existing) -> io::Result<()> {
        let place = self.place(name)?;
        let failed = |error: io::Error| failed(&place, &error);
        let shelf = place.parent().unwrap_or(&self.root);
        match fs::create_dir(shelf) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let part = shelf.join(format!(".part-{:016x}", crate::store::random()));
        let written = (|| {
            let mut file = File::create_new(&part)?;
            from.seek(SeekFrom::Start(0))?;
            let copied = io::copy(&mut from.take(len), &mut file)?;
            if copied != len {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            file.sync_all()?;
            match (self.link)(&part, &place) {
                Err(_) if existing == Existing::Replaced => fs::rename(&part, &place)?,
                // An object of another length is damaged (K-46). Without an object, the file system may have no hard links.
                Err(_) if !fs::metadata(&place).is_ok_and(|found| found.len() == len) => fs::rename(&part, &place)?,
                _ => {}
            }
            self.sync_names(shelf)
        })();
        // A leftover file is not part of any object.
        let _ = fs::remove_file(&part);
        written.map_err(failed)
    }

    /// Writes the names of the objects in a directory to the disk, and the first time the name of that directory.
    fn sync_names(&self, shelf: &Path) -> io::Result<()> {
        sync_dir(shelf)?;
        if !lock(&self.named).contains(shelf) {
            sync_dir(&self.root)?;
            lock(&self.named).insert(shelf.to_owned());
        }
        Ok(())
    }

    /// A record may refer to the object then (K-45): the process that has put it there may have died before its last sync.
    pub(super) fn has(&self, name: &str, len: u64) -> io::Result<bool> {
        let place = self.place(name)?;
        match fs::metadata(&place) {
            Ok(found) if found.len() == len => {
                let shelf = place.parent().unwrap_or(&self.root);
                self.sync_names(shelf).map(|()| true).map_err(|error| failed(&place, &error))
            }
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(&place, &error)),
        }
    }

    pub(super) fn get(&self, name: &str, to: &mut File) -> io::Result<Option<(Digest, u64)>> {
        let place = self.place(name)?;
        let failed = |error: io::Error| failed(&place, &error);
        let mut from = match File::open(&place) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let (mut hasher, mut len, mut piece) = (blake3::Hasher::new(), 0, vec![0; PIECE]);
        loop {
            let count = from.read(&mut piece).map_err(failed)?;
            if count == 0 {
                return Ok(Some((Digest::from_bytes(*hasher.finalize().as_bytes()), len)));
            }
            hasher.update(&piece[..count]);
            to.write_all(&piece[..count])?;
            len += count as u64;
        }
    }

    pub(super) fn delete(&self, name: &str) -> io::Result<()> {
        let place = self.place(name)?;
        match fs::remove_file(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&place, &error)),
            _ => Ok(()),
        }
    }

    /// Removes temporary files that dead processes have left in a directory of objects.
    pub(super) fn clean(&self, shelf: &str) -> io::Result<()> {
        let entries = match fs::read_dir(self.root.join(shelf)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let now = SystemTime::now();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if !TEMPORARY.iter().any(|beginning| name.to_string_lossy().starts_with(beginning)) {
                continue;
            }
            // A file that is gone, or that cannot be removed now, is left to others.
            let modified = entry.metadata().and_then(|found| found.modified());
            if modified.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > TEMPORARY_LIFETIME)) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

fn sync_dir(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(path.to_owned()));
    File::open(path)?.sync_all()
}

fn failed(place: &Path, error: &io::Error) -> io::Error {
    let why = format!("`{}`: {error}", place.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => refused(why),
        _ => unavailable(why),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Write as _;

    use super::*;

    thread_local! {
        /// The directories that this thread has synced.
        pub(super) static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    /// K-45: an object and its directory have their names on the disk before a record refers to the object, even if another
    /// process has put it there.
    #[test]
    fn names_of_objects_are_on_the_disk() {
        let root = tempfile::tempdir().expect("a directory");
        let (root, name) = (root.path(), "values/a");
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"value").expect("written");
        let (one, two) = (Directory::new(root.to_owned()), Directory::new(root.to_owned()));
        let all = [root.join("values"), root.to_owned()];
        one.put(name, &mut file, 5, Existing::Kept).expect("put");
        assert_eq!(SYNCED.take(), all);
        one.put(name, &mut file, 5, Existing::Kept).expect("put again");
        assert_eq!(SYNCED.take(), all[..1]);
        assert!(two.has(name, 5).expect("looked at"));
        assert_eq!(SYNCED.take(), all);
        assert!(!two.has(name, 6).expect("looked at") && !two.has("values/b", 5).expect("looked at"));
        assert!(SYNCED.take().is_empty());
    }

    /// K-47: a file system without hard links has objects as well; an object that is there stays.
    #[test]
    fn objects_need_no_hard_links() {
        let root = tempfile::tempdir().expect("a directory");
        let link: fn(&Path, &Path) -> io::Result<()> = |_, _| Err(io::ErrorKind::PermissionDenied.into());
        let directory = Directory { link, ..Directory::new(root.path().to_owned()) };
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"value").expect("written");
        let put = |name: &str, file: &mut File| directory.put(name, file, 5, Existing::Kept);
        put("values/a", &mut file).expect("put");
        assert_eq!(fs::read(root.path().join("values/a")).expect("an object"), b"value");
        fs::write(root.path().join("values/b"), "other").expect("written");
        fs::write(root.path().join("values/c"), "val").expect("written");
        put("values/b", &mut file).expect("it is there");
        put("values/c", &mut file).expect("a damaged one is replaced");
        let read = |name: &str| fs::read_to_string(root.path().join(name)).expect("an object");
        assert_eq!((&*read("values/b"), &*read("values/c")), ("other", "value"));
        assert_eq!(fs::read_dir(root.path().join("values")).expect("listed").count(), 3);
    }

    /// Unfinished objects of dead processes are removed; objects, and unfinished objects of live processes, stay.
    #[test]
    fn temporary_files_of_dead_processes_are_removed() {
        let root = tempfile::tempdir().expect("a directory");
        let directory = Directory::new(root.path().to_owned());
        directory.clean("values").expect("there is nothing");
        let shelf = root.path().join("values");
        fs::create_dir(&shelf).expect("a directory");
        for (name, hours) in [("a", 48), (".part-1", 48), (".probe-1", 48), (".part-2", 1), (".other", 48)] {
            let file = File::create(shelf.join(name)).expect("a file");
            file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).expect("aged");
        }
        directory.clean("values").expect("cleaned");
        let left = fs::read_dir(&shelf).expect("listed").map(|entry| entry.expect("an entry").file_name());
        let left: BTreeSet<_> = left.collect();
        assert_eq!(left, [".other", ".part-2", "a"].map(Into::into).into());
    }
}

//! The definition with which a run began, restored from the files in its journal.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use etude_files::private;
use etude_process::blob::BlobStore;
use etude_runtime::engine::Record;

use crate::pins::Pins;

/// The pinned files of a run in a directory of their own, which is removed when this value is dropped.
#[derive(Debug)]
pub struct Pinned {
    dir: PathBuf,
}

impl Pinned {
    /// Writes the pinned files of `records` into the new directory `dir`. `None` if some were too large to be kept.
    ///
    /// # Errors
    /// The directory cannot be written, or a file is damaged.
    pub fn write(records: &[Record], blobs: &dyn BlobStore, dir: &Path) -> io::Result<Option<Self>> {
        let Some(files) = Pins::of_records(records).and_then(|pins| pins.kept(blobs)) else { return Ok(None) };
        let pinned = Self { dir: dir.to_owned() };
        private::create_dir_all(dir)?;
        for (path, bytes) in files {
            let relative = Path::new(&path);
            if relative.components().any(|part| !matches!(part, Component::Normal(_))) {
                return Ok(None);
            }
            let target = dir.join(relative);
            private::create_dir_all(target.parent().unwrap_or(dir))?;
            io::Write::write_all(&mut private::create(&target)?, &bytes)?;
        }
        Ok(Some(pinned))
    }

    /// The directory of the pinned files; it is removed when this value is dropped.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Leftover files hold nothing that the journal does not have.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

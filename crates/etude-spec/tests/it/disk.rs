//! The files of a test app.

use std::path::{Path, PathBuf};

use etude_spec::source::{Entry, FileKind, ReadFailure, Sources};

/// An app below a directory.
pub(crate) struct Disk(pub(crate) PathBuf);

impl Disk {
    fn failure(error: &std::io::Error) -> ReadFailure {
        match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => ReadFailure::Missing,
            std::io::ErrorKind::IsADirectory => ReadFailure::WrongKind,
            _ => ReadFailure::Other(error.to_string()),
        }
    }

    fn kind_of(path: &Path) -> Result<FileKind, ReadFailure> {
        let data = std::fs::metadata(path).map_err(|error| Self::failure(&error))?;
        let shebang = || std::fs::read(path).is_ok_and(|content| content.starts_with(b"#!"));
        // The executable bit does not survive every way of copying test data; a first line does.
        Ok(if data.is_dir() { FileKind::Dir } else { FileKind::File { executable: shebang() } })
    }
}

impl Sources for Disk {
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ReadFailure> {
        let content = std::fs::read(self.0.join(path)).map_err(|error| Self::failure(&error))?;
        let len = content.len() as u64;
        if len > limit { Err(ReadFailure::TooLarge { len }) } else { Ok(content) }
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>, ReadFailure> {
        let entries = std::fs::read_dir(self.0.join(dir)).map_err(|error| Self::failure(&error))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names
            .filter_map(|name| Some(Entry { kind: Self::kind_of(&self.0.join(dir).join(&name)).ok()?, name }))
            .collect())
    }

    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure> {
        Self::kind_of(&self.0.join(path))
    }
}

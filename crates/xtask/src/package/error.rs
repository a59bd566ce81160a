//! Errors of packaging.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why a package cannot be built, with a hint where possible.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read or written.
    #[error("`{}`: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// An archive cannot be assembled.
    #[error("the archive cannot be made: {0}")]
    Archive(#[from] io::Error),
    /// A zip archive cannot be assembled.
    #[error("the wheel cannot be made: {0}")]
    Zip(#[from] zip::result::ZipError),
    /// There are no packages for this target.
    #[error("there are no packages for the target `{target}`\nhint: the targets are {known}")]
    Target {
        /// Target triple that was given.
        target: String,
        /// All triples that have packages.
        known: String,
    },
    /// The root manifest lacks a field.
    #[error("`Cargo.toml` has no `{0}` in `[workspace.package]`")]
    Manifest(&'static str),
    /// A program could not be started, or failed.
    #[error("`{command}` failed: {reason}")]
    Command {
        /// Command line that failed.
        command: String,
        /// Last line of its stderr, or the system's reason.
        reason: String,
    },
    /// This machine cannot compile for the target.
    #[error("this machine cannot build for `{target}`: {missing}\nhint: {hint}")]
    Toolchain {
        /// The target triple.
        target: &'static str,
        /// Component that the machine lacks.
        missing: &'static str,
        /// Command that installs it.
        hint: String,
    },
    /// The program needs a C library, but packages of its target go to systems that may have another one.
    #[error("the binary is loaded by `{interpreter}`, and packages for `{target}` need a static program")]
    Dynamic {
        /// Target triple of the package.
        target: &'static str,
        /// Loader that the program names.
        interpreter: String,
    },
    /// The binary has another version.
    #[error("the binary reports `{found}`, and `Cargo.toml` has version {version}\nhint: build it again")]
    Stale {
        /// First line of `etude --version`.
        found: String,
        /// Version of the workspace.
        version: String,
    },
    /// A version has no form in another packaging system.
    #[error("version {version} has no form for {system}\nhint: pre-releases are `-alpha.N`, `-beta.N` and `-rc.N`")]
    Version {
        /// Version as written in the manifest.
        version: String,
        /// Name of the packaging system.
        system: &'static str,
    },
    /// There is no archive that the formula could refer to.
    #[error("`{}` has no archive of version {version}\nhint: make the tarballs first", out.display())]
    NoTarballs {
        /// Output directory.
        out: PathBuf,
        /// Version of the workspace.
        version: String,
    },
}

impl Error {
    /// Adds the path of the file to an I/O error.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

//! Why a package cannot be made.

use std::io;
use std::path::{Path, PathBuf};

/// The reasons, each with a way out where there is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read or written.
    #[error("`{}`: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// An archive cannot be assembled.
    #[error("the archive cannot be made: {0}")]
    Archive(#[from] io::Error),
    /// A zip archive cannot be assembled.
    #[error("the wheel cannot be made: {0}")]
    Zip(#[from] zip::result::ZipError),
    /// No package is made for this target.
    #[error("there are no packages for the target `{target}`\nhint: the targets are {known}")]
    Target {
        /// The target triple that was given.
        target: String,
        /// All triples that have packages.
        known: String,
    },
    /// The root manifest lacks a fact.
    #[error("`Cargo.toml` has no `{0}` in `[workspace.package]`")]
    Manifest(&'static str),
    /// A program could not be started, or failed.
    #[error("`{command}` failed: {reason}")]
    Command {
        /// The command line.
        command: String,
        /// The last line of its stderr, or the system's reason.
        reason: String,
    },
    /// This machine cannot compile for the target.
    #[error("this machine cannot build for `{target}`: {missing}\nhint: {hint}")]
    Toolchain {
        /// The target triple.
        target: &'static str,
        /// What the machine does not have.
        missing: &'static str,
        /// The command that installs it.
        hint: String,
    },
    /// The program needs a C library, and packages of its target go to systems that may have another one.
    #[error("the binary is loaded by `{interpreter}`, and packages for `{target}` need a static program")]
    Dynamic {
        /// The target triple.
        target: &'static str,
        /// The loader that the program names.
        interpreter: String,
    },
    /// The binary is of another version.
    #[error("the binary reports `{found}`, and `Cargo.toml` has version {version}\nhint: build it again")]
    Stale {
        /// The first line of `etude --version`.
        found: String,
        /// The version of the workspace.
        version: String,
    },
    /// A version has no form in another packaging system.
    #[error("version {version} has no form for {system}\nhint: pre-releases are `-alpha.N`, `-beta.N` and `-rc.N`")]
    Version {
        /// The version as the manifest has it.
        version: String,
        /// The packaging system.
        system: &'static str,
    },
    /// The formula has no archive to refer to.
    #[error("`{}` has no archive of version {version}\nhint: make the tarballs first", out.display())]
    NoTarballs {
        /// The output directory.
        out: PathBuf,
        /// The version of the workspace.
        version: String,
    },
}

impl Error {
    /// Names the file in an error of the system.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

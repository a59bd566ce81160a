//! Platforms, and their names in each packaging system.

use std::process::Command;

use super::Error;

/// A platform that has packages.
#[derive(Debug)]
pub(super) struct Target {
    /// Rust's name for it.
    pub(super) triple: &'static str,
    /// Debian's architecture; musl builds and other systems have no package.
    pub(super) deb: Option<&'static str>,
    /// The platform tag of a wheel. `{glibc}` stands for the C library that the program needs.
    pub(super) wheel: &'static str,
    /// The platform package of npm, with npm's `os`, `cpu` and `libc`.
    pub(super) npm: Npm,
    /// The blocks of a Homebrew formula; one archive per pair.
    pub(super) brew: Option<(&'static str, &'static str)>,
}

/// A platform in the words of npm.
#[derive(Debug)]
pub(super) struct Npm {
    /// What follows the scope in the package's name.
    pub(super) name: &'static str,
    pub(super) os: &'static str,
    pub(super) cpu: &'static str,
    pub(super) libc: Option<&'static str>,
}

/// All platforms that have packages.
pub(super) const TARGETS: [Target; 6] = [
    Target {
        triple: "x86_64-unknown-linux-gnu",
        deb: Some("amd64"),
        wheel: "manylinux_{glibc}_x86_64",
        npm: Npm { name: "linux-x64", os: "linux", cpu: "x64", libc: Some("glibc") },
        brew: Some(("on_linux", "on_intel")),
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        deb: Some("arm64"),
        wheel: "manylinux_{glibc}_aarch64",
        npm: Npm { name: "linux-arm64", os: "linux", cpu: "arm64", libc: Some("glibc") },
        brew: Some(("on_linux", "on_arm")),
    },
    Target {
        triple: "x86_64-unknown-linux-musl",
        deb: None,
        wheel: "musllinux_1_2_x86_64",
        npm: Npm { name: "linux-x64-musl", os: "linux", cpu: "x64", libc: Some("musl") },
        brew: None,
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        deb: None,
        wheel: "musllinux_1_2_aarch64",
        npm: Npm { name: "linux-arm64-musl", os: "linux", cpu: "arm64", libc: Some("musl") },
        brew: None,
    },
    Target {
        triple: "x86_64-apple-darwin",
        deb: None,
        wheel: "macosx_10_12_x86_64",
        npm: Npm { name: "darwin-x64", os: "darwin", cpu: "x64", libc: None },
        brew: Some(("on_macos", "on_intel")),
    },
    Target {
        triple: "aarch64-apple-darwin",
        deb: None,
        wheel: "macosx_11_0_arm64",
        npm: Npm { name: "darwin-arm64", os: "darwin", cpu: "arm64", libc: None },
        brew: Some(("on_macos", "on_arm")),
    },
];

impl Target {
    /// The platform of that triple.
    pub(super) fn find(triple: &str) -> Result<&'static Self, Error> {
        TARGETS.iter().find(|target| target.triple == triple).ok_or_else(|| Error::Target {
            target: triple.to_owned(),
            known: TARGETS.map(|target| target.triple).join(", "),
        })
    }
}

/// The triple for which rustc compiles without being asked for another one.
pub(super) fn of_this_machine() -> Result<String, Error> {
    let failed = |reason: String| Error::Command { command: "rustc -vV".to_owned(), reason };
    let done = Command::new("rustc").arg("-vV").output().map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&done.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| failed("it names no host".to_owned()))
}

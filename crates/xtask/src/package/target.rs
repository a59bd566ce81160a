//! Platforms, and their names in each packaging system.

use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::Error;

/// A platform that has packages.
#[derive(Debug)]
pub(super) struct Target {
    /// Rust's target triple.
    pub(super) triple: &'static str,
    /// Debian's architecture; musl builds and other systems have no package.
    pub(super) deb: Option<&'static str>,
    /// Platform tag of a wheel. `{glibc}` stands for the C library that the program needs.
    pub(super) wheel: &'static str,
    /// npm platform package, with npm's `os`, `cpu` and `libc`.
    pub(super) npm: Npm,
    /// Blocks of a Homebrew formula; one archive per pair.
    pub(super) brew: Option<(&'static str, &'static str)>,
}

/// A platform in npm's terms.
#[derive(Debug)]
pub(super) struct Npm {
    /// Suffix after the scope in the package's name.
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
    /// Finds the platform of a triple.
    pub(super) fn find(triple: &str) -> Result<&'static Self, Error> {
        TARGETS.iter().find(|target| target.triple == triple).ok_or_else(|| Error::Target {
            target: triple.to_owned(),
            known: TARGETS.map(|target| target.triple).join(", "),
        })
    }

    /// True if programs of this platform need no C library of the system.
    pub(super) fn is_static(&self) -> bool {
        self.triple.ends_with("-musl")
    }

    /// Checks the requirements of a build for this platform.
    ///
    /// # Errors
    /// The toolchain has no standard library for it, or there is no C compiler for musl.
    pub(super) fn check_toolchain(&self) -> Result<(), Error> {
        let library = rustc(&["--print", "target-libdir", "--target", self.triple])?;
        let compiler = env::var_os(format!("CC_{}", self.triple.replace('-', "_")));
        let path = env::var_os("PATH").unwrap_or_default();
        self.find_toolchain(Path::new(library.trim()), compiler.as_deref(), &path)
    }

    fn find_toolchain(&self, library: &Path, compiler: Option<&OsStr>, path: &OsStr) -> Result<(), Error> {
        let missing = |missing, hint: String| Err(Error::Toolchain { target: self.triple, missing, hint });
        if !library.is_dir() {
            let hint = format!("rustup target add {}", self.triple);
            return missing("the Rust toolchain has no standard library for it", hint);
        }
        let processor = self.triple.split('-').next().unwrap_or_default();
        let is_there = |name: &str| env::split_paths(path).any(|directory| directory.join(name).is_file());
        let has_compiler =
            compiler.is_some() || is_there("musl-gcc") || is_there(&format!("{processor}-linux-musl-gcc"));
        if self.is_static() && !has_compiler {
            return missing("there is no C compiler for musl", "install the package `musl-tools`".to_owned());
        }
        Ok(())
    }
}

/// Output of rustc.
fn rustc(words: &[&str]) -> Result<String, Error> {
    let failed = |reason: String| Error::Command { command: format!("rustc {}", words.join(" ")), reason };
    let done = Command::new("rustc").args(words).output().map_err(|error| failed(error.to_string()))?;
    if !done.status.success() {
        return Err(failed(done.status.to_string()));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Default target triple of rustc.
pub(super) fn of_this_machine() -> Result<String, Error> {
    let text = rustc(&["-vV"])?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    let unknown = || Error::Command { command: "rustc -vV".to_owned(), reason: "it names no host".to_owned() };
    host.map(str::to_owned).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_build_needs_a_standard_library_and_for_musl_a_c_compiler() {
        let machine = tempfile::tempdir().unwrap();
        let path = machine.path().as_os_str();
        let musl = Target::find("x86_64-unknown-linux-musl").unwrap();
        let fails = |library: &Path| musl.find_toolchain(library, None, path).unwrap_err().to_string();
        let error = fails(&machine.path().join("lib"));
        assert!(error.ends_with("\nhint: rustup target add x86_64-unknown-linux-musl"), "{error}");
        let error = fails(machine.path());
        assert!(error.contains("there is no C compiler for musl\nhint: "), "{error}");

        musl.find_toolchain(machine.path(), Some(OsStr::new("zig cc")), path).unwrap();
        Target::find("x86_64-unknown-linux-gnu").unwrap().find_toolchain(machine.path(), None, path).unwrap();
        fs::write(machine.path().join("musl-gcc"), "").unwrap();
        musl.find_toolchain(machine.path(), None, path).unwrap();
    }

    #[test]
    fn this_machine_can_build_for_itself() {
        Target::find(&of_this_machine().unwrap()).unwrap().check_toolchain().unwrap();
    }
}

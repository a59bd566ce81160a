//! Contents of packages beside the program: the manual, completions, licences.

use std::fs;
use std::path::Path;

use super::Error;
use super::binary::output;
use super::release::Release;

/// Contents of all packages of one binary.
pub(super) struct Contents {
    /// Bytes of the release binary.
    pub(super) program: Vec<u8>,
    /// Page for `man`, in roff.
    pub(super) manual: Vec<u8>,
    /// Scripts with which shells complete command lines.
    pub(super) completions: Vec<(&'static Shell, Vec<u8>)>,
    /// Documents of the repository's root, by name.
    pub(super) documents: Vec<(&'static str, Vec<u8>)>,
}

/// A shell with completions, and the paths of its script.
pub(super) struct Shell {
    name: &'static str,
    /// File name in a tarball.
    pub(super) file: &'static str,
    /// Path in a Debian package.
    pub(super) deb: &'static str,
}

const SHELLS: [Shell; 3] = [
    Shell { name: "bash", file: "etude.bash", deb: "usr/share/bash-completion/completions/etude" },
    Shell { name: "zsh", file: "_etude", deb: "usr/share/zsh/vendor-completions/_etude" },
    Shell { name: "fish", file: "etude.fish", deb: "usr/share/fish/vendor_completions.d/etude.fish" },
];

const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

impl Contents {
    /// Gets the manual and completions from the program, and reads the documents.
    ///
    /// # Errors
    /// The program does not run here, or has another version than the workspace.
    pub(super) fn of(release: &Release, binary: &Path) -> Result<Self, Error> {
        let found = String::from_utf8_lossy(&output(binary, &["--version"])?).trim_end().to_owned();
        if found.split(' ').take(2).ne(["etude", &release.version]) {
            return Err(Error::Stale { found, version: release.version.clone() });
        }
        let script = |shell: &'static Shell| Ok((shell, output(binary, &["completions", shell.name])?));
        let document = |name: &'static str| {
            let path = release.root.join(name);
            Ok((name, fs::read(&path).map_err(Error::at(&path))?))
        };
        Ok(Self {
            program: fs::read(binary).map_err(Error::at(binary))?,
            manual: output(binary, &["man"])?,
            completions: SHELLS.iter().map(script).collect::<Result<_, Error>>()?,
            documents: DOCUMENTS.into_iter().map(document).collect::<Result<_, Error>>()?,
        })
    }

    /// Documents that are licences.
    pub(super) fn licences(&self) -> impl Iterator<Item = &(&'static str, Vec<u8>)> {
        self.documents.iter().filter(|(name, _)| name.starts_with("LICENSE"))
    }

    /// A document by its name; empty if there is none.
    pub(super) fn document(&self, name: &str) -> &[u8] {
        self.documents.iter().find(|(known, _)| *known == name).map_or(&[], |(_, text)| text)
    }
}

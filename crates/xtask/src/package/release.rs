//! Facts of a release: the version and the fields that every package repeats.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;
use super::target::Target;

/// Sentence for lists of packages: no article, no full stop, under 80 characters, as Homebrew requires.
pub(super) const SUMMARY: &str = "Durable pipeline runner for agents: code steps and model calls in one file";

/// Start of 1980, in seconds since 1970. A zip archive has no earlier times.
const FIRST_EPOCH: u64 = 315_532_800;

/// A release of the workspace.
#[derive(Debug, Clone)]
pub(super) struct Release {
    /// Root of the repository on this machine.
    pub(super) root: PathBuf,
    /// Version as in `Cargo.toml`.
    pub(super) version: String,
    /// SPDX expression of the licence.
    pub(super) licence: String,
    /// URL of the repository.
    pub(super) repository: String,
    /// Modification time of all files, in seconds since 1970.
    pub(super) epoch: u64,
}

impl Release {
    /// Reads the facts of a repository from its root manifest.
    pub(super) fn of_repository(root: &Path) -> Result<Self, Error> {
        let path = root.join("Cargo.toml");
        let manifest = fs::read_to_string(&path).map_err(Error::at(&path))?;
        let fact = |key: &'static str| field(&manifest, key).ok_or(Error::Manifest(key));
        Ok(Self {
            root: root.to_owned(),
            version: fact("version")?,
            licence: fact("license")?,
            repository: fact("repository")?,
            epoch: epoch(root).max(FIRST_EPOCH),
        })
    }

    /// Name of an archive and of the directory in it.
    pub(super) fn stem(&self, target: &Target) -> String {
        format!("etude-{}-{}", self.version, target.triple)
    }

    /// URL of a file of this release.
    pub(super) fn download(&self, name: &str) -> String {
        format!("{}/releases/download/v{}/{name}", self.repository, self.version)
    }

    /// Version in Python's form: `1.2.0-rc.1` is `1.2.0rc1`.
    pub(super) fn python_version(&self) -> Result<String, Error> {
        let Some((base, label)) = self.version.split_once('-') else { return Ok(self.version.clone()) };
        let unknown = || Error::Version { version: self.version.clone(), system: "Python" };
        let (word, number) = label.split_once('.').ok_or_else(unknown)?;
        let word = match word {
            "alpha" => "a",
            "beta" => "b",
            "rc" => "rc",
            _ => return Err(unknown()),
        };
        number.parse::<u32>().map_err(|_| unknown())?;
        Ok(format!("{base}{word}{number}"))
    }

    /// Version in Debian's form, which orders a pre-release before its release: `1.2.0-rc.1` is `1.2.0~rc.1`.
    pub(super) fn debian_version(&self) -> String {
        self.version.replacen('-', "~", 1)
    }

    /// README with relative links turned into URLs, for the pages of package registries.
    pub(super) fn readme(&self) -> Result<String, Error> {
        let path = self.root.join("README.md");
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        let tree = format!("{}/blob/v{}/", self.repository, self.version);
        let raw = format!("{}/raw/v{}/", self.repository, self.version);
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find("](") {
            let (before, after) = rest.split_at(at + 2);
            out.push_str(before);
            let is_relative = !after.starts_with("http") && !after.starts_with('#');
            out.push_str(if is_relative { &tree } else { "" });
            rest = after;
        }
        out.push_str(rest);
        Ok(out
            .replace("srcset=\"docs/", &format!("srcset=\"{raw}docs/"))
            .replace("src=\"docs/", &format!("src=\"{raw}docs/")))
    }
}

/// Value of `key = "…"` in `[workspace.package]`.
fn field(manifest: &str, key: &str) -> Option<String> {
    let section = manifest.split("[workspace.package]").nth(1)?.split("\n[").next()?;
    let line = section.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
    Some(line.trim().trim_matches('"').to_owned())
}

/// `SOURCE_DATE_EPOCH`, or else the time of the last commit.
fn epoch(root: &Path) -> u64 {
    if let Some(given) = env::var("SOURCE_DATE_EPOCH").ok().and_then(|given| given.parse().ok()) {
        return given;
    }
    let commit = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root).output();
    commit.ok().and_then(|done| String::from_utf8_lossy(&done.stdout).trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_version(version: &str) -> Release {
        let (root, licence, repository) = (crate::tree::root(), String::new(), "https://example.com/r".to_owned());
        Release { root, version: version.to_owned(), licence, repository, epoch: 0 }
    }

    #[test]
    fn facts_come_from_the_section_of_the_workspace() {
        let manifest =
            "[workspace]\nversion = \"9\"\n[workspace.package]\nversion = \"1.2.3\"\n[x]\nlicense = \"no\"\n";
        assert_eq!(field(manifest, "version").as_deref(), Some("1.2.3"));
        assert_eq!(field(manifest, "license"), None);
    }

    #[test]
    fn pre_releases_have_a_form_for_each_system() {
        assert_eq!(of_version("1.2.0").python_version().unwrap(), "1.2.0");
        assert_eq!(of_version("1.2.0-rc.1").python_version().unwrap(), "1.2.0rc1");
        assert_eq!(of_version("1.2.0-beta.3").python_version().unwrap(), "1.2.0b3");
        assert_eq!(of_version("1.2.0-rc.1").debian_version(), "1.2.0~rc.1");
        assert!(of_version("1.2.0-nightly").python_version().is_err());
    }

    #[test]
    fn links_of_readme_work_on_other_pages() {
        let readme = of_version("1.2.0").readme().unwrap();
        assert!(readme.contains("](https://example.com/r/blob/v1.2.0/CONTRIBUTING.md)"));
        assert!(readme.contains("src=\"https://example.com/r/raw/v1.2.0/docs/pictures/run-light.png\""));
        let relative = readme.match_indices("](").find(|(at, _)| !readme[at + 2..].starts_with("http"));
        assert_eq!(relative.map(|(at, _)| &readme[at..at + 20]), None);
    }
}

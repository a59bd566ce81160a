//! Manifests: dependencies between crates, and checks that nothing is written twice.

use std::cmp::Ordering;

use crate::tree::{Tree, Violation};

/// A dependency in a crate's manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// Name under which the manifest lists it.
    pub name: String,
    /// Line in the manifest, from 1.
    pub line: usize,
    /// True if only tests use it.
    pub is_dev: bool,
    /// True if its version comes from the workspace.
    pub is_inherited: bool,
}

/// A crate's manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest<'t> {
    /// Path of `Cargo.toml`, from the repository's root.
    pub path: &'t str,
    /// Folder of the crate, which is its name.
    pub package: &'t str,
    /// Entries of all dependency tables, in order.
    pub dependencies: Vec<Dependency>,
    /// True if it inherits the workspace's lints.
    pub inherits_lints: bool,
}

impl<'t> Manifest<'t> {
    /// Manifests of all crates.
    pub fn all(tree: &'t Tree) -> Vec<Self> {
        let is_crate = |path: &str| path.starts_with("crates/") && path.split('/').count() == 3;
        tree.ending("/Cargo.toml")
            .filter(|(path, _)| is_crate(path))
            .map(|(path, text)| Self::parse(path, text))
            .collect()
    }

    fn parse(path: &'t str, text: &str) -> Self {
        let mut manifest =
            Self { path, package: crate::rust::package(path), dependencies: Vec::new(), inherits_lints: false };
        let mut section = String::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split(" #").next().unwrap_or_default().trim();
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_matches(['[', ']']).to_owned();
                manifest.table(&section, number + 1);
            } else if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
                manifest.entry(&section, key.trim(), value.trim(), number + 1);
            }
        }
        manifest
    }

    /// Reads the heading of a table such as `[dependencies.serde]`.
    fn table(&mut self, section: &str, line: usize) {
        if let Some((kind, name)) = section.rsplit_once('.')
            && is_dependencies(kind)
        {
            self.add(kind, name, line, false);
        }
    }

    fn entry(&mut self, section: &str, key: &str, value: &str, line: usize) {
        let blankless: String = value.chars().filter(|c| !c.is_whitespace()).collect();
        if section == "lints" && key == "workspace" && value == "true" {
            self.inherits_lints = true;
        } else if is_dependencies(section) {
            let (name, detail) = key.split_once('.').unwrap_or((key, ""));
            let inherited = detail == "workspace" && value == "true" || blankless.contains("workspace=true");
            match self.dependencies.last_mut().filter(|last| last.name == name && !detail.is_empty()) {
                Some(last) => last.is_inherited |= inherited,
                None => self.add(section, name, line, inherited),
            }
        } else if let Some((kind, _)) = section.rsplit_once('.')
            && is_dependencies(kind)
            && key == "workspace"
            && let Some(last) = self.dependencies.last_mut()
        {
            last.is_inherited = value == "true";
        }
    }

    fn add(&mut self, section: &str, name: &str, line: usize, is_inherited: bool) {
        let is_dev = section.ends_with("dev-dependencies");
        let name = name.trim_matches('"').to_owned();
        self.dependencies.push(Dependency { name, line, is_dev, is_inherited });
    }
}

fn is_dependencies(section: &str) -> bool {
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .iter()
        .any(|kind| section == *kind || (section.starts_with("target.") && section.ends_with(&format!(".{kind}"))))
}

/// Checks that every crate has the workspace's lints, and that every version is in the root manifest.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for manifest in Manifest::all(tree) {
        if !manifest.inherits_lints {
            found.push(Violation::of(
                manifest.path,
                "the workspace's lints are not inherited: `[lints]` with `workspace = true`",
            ));
        }
        for dependency in manifest.dependencies.iter().filter(|dependency| !dependency.is_inherited) {
            let what = format!("`{}` is not taken from the workspace: `workspace = true`", dependency.name);
            found.push(Violation::at(manifest.path, dependency.line, what));
        }
    }
    found
}

/// Maximum number of third-party crates in the lock file. It may only decrease (ADR 104).
pub const PACKAGES: usize = 442;

/// Checks that the lock file lists exactly `ceiling` third-party crates.
pub fn packages(tree: &Tree, ceiling: usize) -> Vec<Violation> {
    const LOCK: &str = "Cargo.lock";
    let lock = tree.text(LOCK).unwrap_or_default();
    let count = lock.lines().filter(|line| line.starts_with("source = ")).count();
    let what = match count.cmp(&ceiling) {
        Ordering::Equal => return Vec::new(),
        Ordering::Greater => format!("{count} crates from elsewhere, which are more than {ceiling}"),
        Ordering::Less => format!("{count} crates from elsewhere: lower `PACKAGES` from {ceiling}"),
    };
    vec![Violation::of(LOCK, what)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_from_elsewhere_are_counted_in_both_directions() {
        let lock = "[[package]]\nname = \"ours\"\n[[package]]\nname = \"a\"\nsource = \"registry\"\n";
        let found = |ceiling| packages(&Tree::made_up(&[("Cargo.lock", lock)]), ceiling).len();
        assert_eq!([found(0), found(1), found(2)], [1, 0, 1]);
    }

    const GOOD: &str = "[lints]\nworkspace = true\n[dependencies]\na.workspace = true\nb = { workspace = true, optional = true }\n\
                        [target.'cfg(unix)'.dependencies]\nc.workspace = true\n[dev-dependencies.d]\nworkspace = true\n";

    fn lines(text: &str) -> Vec<usize> {
        check(&Tree::made_up(&[("crates/a/Cargo.toml", text)])).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn what_comes_from_the_workspace_is_fine() {
        assert_eq!(lines(GOOD), [0; 0]);
        let manifest = Manifest::parse("crates/a/Cargo.toml", GOOD);
        let names: Vec<(&str, bool)> = manifest.dependencies.iter().map(|d| (d.name.as_str(), d.is_dev)).collect();
        assert_eq!(names, [("a", false), ("b", false), ("c", false), ("d", true)]);
    }

    #[test]
    fn a_version_of_its_own_is_found_in_every_form() {
        for entry in [
            "[dependencies]\na = \"1\"",
            "[dependencies]\na = { version = \"1\" }",
            "[dependencies.a]\nversion = \"1\"",
            "[dev-dependencies]\na.version = \"1\"",
            "[target.'cfg(unix)'.dependencies]\na = \"1\"",
            "[build-dependencies]\na = { path = \"../a\" }",
        ] {
            assert_eq!(lines(&format!("[lints]\nworkspace = true\n{entry}\n")).len(), 1, "{entry}");
        }
    }

    #[test]
    fn missing_lints_are_found() {
        assert_eq!(lines("[package]\nname = \"a\"\n"), [0]);
        assert_eq!(lines("[lints.rust]\nunsafe_code = \"deny\"\n"), [0]);
    }
}

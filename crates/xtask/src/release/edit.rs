//! Files that name the version, and the change to each of them.

use super::{CHANGELOG, Error};

/// Change from one version to the next.
pub(super) struct Edit {
    /// Version of the tree.
    pub(super) current: String,
    /// Version to release.
    pub(super) version: String,
    /// Date of the release.
    pub(super) today: String,
}

/// Function that changes the text of a file. The path is for errors.
type Change = fn(&Edit, &'static str, &str) -> Result<String, Error>;

/// All files that name the version.
pub(super) const FILES: [(&str, Change); 10] = [
    ("Cargo.toml", Edit::manifest),
    ("Cargo.lock", Edit::lock),
    ("fuzz/Cargo.lock", Edit::lock),
    (CHANGELOG, Edit::changelog),
    ("pyproject.toml", Edit::manifest),
    ("action.yml", Edit::default),
    ("docs/guides/ci.md", Edit::tag),
    ("docs/integrations.md", Edit::tag),
    ("integrations/claude-code/.claude-plugin/plugin.json", Edit::member),
    ("integrations/gemini/gemini-extension.json", Edit::member),
];

/// Reads the version of the workspace.
pub(super) fn version(manifest: &str) -> Result<String, Error> {
    let missing = || Error::Missing { path: "Cargo.toml", wanted: "version of the workspace".to_owned() };
    let section = manifest.split("[workspace.package]").nth(1).ok_or_else(missing)?;
    let value = section.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    value.map(str::to_owned).ok_or_else(missing)
}

impl Edit {
    fn manifest(&self, path: &'static str, text: &str) -> Result<String, Error> {
        self.replace(path, text, "\nversion = \"{}\"\n")
    }

    /// Replaces the tag of the version everywhere.
    fn tag(&self, path: &'static str, text: &str) -> Result<String, Error> {
        let tag = |version: &str| format!("v{version}");
        if !text.contains(&tag(&self.current)) {
            return Err(Error::Missing { path, wanted: format!("`{}`", tag(&self.current)) });
        }
        Ok(text.replace(&tag(&self.current), &tag(&self.version)))
    }

    fn member(&self, path: &'static str, text: &str) -> Result<String, Error> {
        self.replace(path, text, "\"version\": \"{}\"")
    }

    fn default(&self, path: &'static str, text: &str) -> Result<String, Error> {
        self.replace(path, text, "default: \"{}\"")
    }

    /// Replaces the first occurrence of the version; `{}` in the form stands for it.
    fn replace(&self, path: &'static str, text: &str, form: &str) -> Result<String, Error> {
        let wanted = form.replace("{}", &self.current);
        if !text.contains(&wanted) {
            return Err(Error::Missing { path, wanted: format!("`{}`", wanted.trim()) });
        }
        Ok(text.replacen(&wanted, &form.replace("{}", &self.version), 1))
    }

    /// Replaces the version of the workspace's crates, which are those without a source in the lock file.
    fn lock(&self, path: &'static str, text: &str) -> Result<String, Error> {
        let own = format!("version = \"{}\"\n", self.current);
        let mut is_changed = false;
        let mut change = |package: &str| {
            let is_ours = !package.contains("\nsource = ") && package.contains(&own) && !package.contains("-guided\"");
            is_changed |= is_ours;
            if is_ours {
                package.replacen(&own, &format!("version = \"{}\"\n", self.version), 1)
            } else {
                package.to_owned()
            }
        };
        let packages: Vec<String> = text.split("[[package]]\n").map(&mut change).collect();
        if !is_changed {
            return Err(Error::Missing { path, wanted: format!("crate of version {}", self.current) });
        }
        Ok(packages.join("[[package]]\n"))
    }

    /// Gives the newest section, which is unreleased, its version and date.
    fn changelog(&self, path: &'static str, text: &str) -> Result<String, Error> {
        let missing = || Error::Missing { path, wanted: "unreleased section at its top".to_owned() };
        let (before, rest) = text.split_once("\n## ").ok_or_else(missing)?;
        let (heading, rest) = rest.split_once('\n').ok_or_else(missing)?;
        if !heading.to_ascii_lowercase().contains("unreleased") {
            return Err(missing());
        }
        Ok(format!("{before}\n## [{}] - {}\n{rest}", self.version, self.today))
    }
}

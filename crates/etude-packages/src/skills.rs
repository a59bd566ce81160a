//! Agent Skills on disk: discovery, the catalog for agents, and activation (C-2, C-3).
//!
//! Three tiers: [`SkillCatalog::discover`] reads frontmatter only, [`SkillCatalog::activate`] reads one body, and the files of
//! a skill are named but never read here. [`check`] reports the faults of one skill.
//!
//! ```no_run
//! # use std::path::Path;
//! # use etude_packages::skills::{Compat, Invoker, Places, Request, SkillCatalog};
//! # use etude_packages::trust::Approvals;
//! let catalog = SkillCatalog::discover(&Places {
//!     start: Path::new("/srv/app"),
//!     home: Some(Path::new("/srv/people/ada")),
//!     compat: Compat::Spec,
//! });
//! let trust = Approvals::default();
//! let for_the_system_prompt: Option<String> = catalog.xml(&trust);
//! let request = Request { invoker: Invoker::Agent, ..Request::new(&trust) };
//! if let Ok(activation) = catalog.activate("tidy", &request) {
//!     let for_the_conversation: String = activation.text();
//! }
//! ```

mod activate;
mod check;
mod inject;
mod resources;
mod roots;
mod scan;

use std::path::{Path, PathBuf};

use etude_spec::Diagnostic;
use etude_spec::skill::catalog::{self, Listed};
use etude_spec::skill::{SKILL_FILE, Skill, findings};
use indexmap::IndexMap;

use crate::trust::{Approvals, Readable};

pub use activate::{Activation, ActivationError, Invoker, Request};
pub(crate) use activate::{body_in, body_of, text_of};
pub use check::{Checked, check};
pub use inject::Shell;
pub(crate) use resources::resources;
pub use scan::read_head;

/// The conventions to follow where formats differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compat {
    /// The Agent Skills specification.
    #[default]
    Spec,
    /// Claude Code: the user's skills before the project's, placeholders and commands in bodies (C-3).
    ClaudeCode,
}

etude_core::words! {
    /// The kind of place in which a skill was found.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Scope {
        /// The working directory or an ancestor, up to the root of its repository.
        Project = "project",
        /// The user's home.
        User = "user",
    }
}

/// Places to search for skills.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The working directory, absolute. The project consists of it and its ancestors up to the root of its repository; without
    /// a repository, of this directory alone.
    pub start: &'a Path,
    /// The user's home directory; `None`: not searched.
    pub home: Option<&'a Path>,
    /// The order of the places, and the conventions for bodies.
    pub compat: Compat,
}

/// A skill on disk.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The parsed frontmatter of its `SKILL.md`.
    pub skill: Skill,
    /// The project or the user's home.
    pub scope: Scope,
    /// Directory of the skill, absolute, with the links that led to it.
    pub directory: PathBuf,
    /// Path of the `SKILL.md`, absolute.
    pub location: PathBuf,
    /// Paths of the `SKILL.md` files that this skill hides, because they have the same name.
    pub shadows: Vec<PathBuf>,
}

/// The skills of one project and one user.
#[derive(Debug, Clone, Default)]
pub struct SkillCatalog {
    entries: IndexMap<String, Entry>,
    diagnostics: Vec<Diagnostic>,
    compat: Compat,
}

impl SkillCatalog {
    /// Discovers skills. Reads only their frontmatter.
    pub fn discover(places: &Places<'_>) -> Self {
        let mut scanner = scan::Scanner::new(places.compat);
        for (scope, root) in roots::roots(places) {
            scanner.scan(&root, scope);
        }
        let (found, mut diagnostics) = scanner.finish();
        let mut entries: IndexMap<String, Entry> = IndexMap::with_capacity(found.len());
        for entry in found {
            match entries.get_mut(&entry.skill.name) {
                Some(first) => {
                    let (path, by) = (entry.location.display().to_string(), first.location.display().to_string());
                    diagnostics.push(findings::shadowed(&path, &entry.skill.name, &by));
                    first.shadows.push(entry.location);
                }
                None => {
                    entries.insert(entry.skill.name.clone(), entry);
                }
            }
        }
        entries.sort_keys();
        Self { entries, diagnostics, compat: places.compat }
    }

    /// Every skill, ordered by name, including untrusted ones.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Faults of skills and of the directories around them. A skill with an error is not in the catalog.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Faults of files in directories named `name`: the reasons why no skill of that name is in the catalog.
    pub fn diagnostics_of<'c>(&'c self, name: &'c str) -> impl Iterator<Item = &'c Diagnostic> {
        let is_in = move |fault: &&Diagnostic| {
            let dir = Path::new(fault.file.path()).parent();
            dir.and_then(Path::file_name).is_some_and(|own| own == name)
        };
        self.diagnostics.iter().filter(is_in)
    }

    /// The skill with that name; with [`Compat::ClaudeCode`] also by the name of its directory.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        let by_directory = || {
            let is_named = |entry: &&Entry| entry.directory.file_name().is_some_and(|own| own == name);
            self.entries().find(is_named).filter(|_| self.compat == Compat::ClaudeCode)
        };
        self.entries.get(name).or_else(by_directory)
    }

    /// The skills that an agent may see: without those for people only, and of a project only trusted ones (C-0.4).
    pub fn visible_to_agents<'c>(&'c self, trust: &'c Approvals) -> impl Iterator<Item = &'c Entry> {
        self.entries().filter(|entry| !entry.skill.extensions.disable_model_invocation && is_trusted(entry, trust))
    }

    /// The catalog without the skill in `directory`, also if it was found through links: an agent does not see the skill that
    /// it follows.
    pub fn without(&self, directory: &Path) -> Self {
        let own = crate::trust::real(directory);
        let mut catalog = self.clone();
        catalog.entries.retain(|_, entry| crate::trust::real(&entry.directory) != own);
        catalog
    }

    /// The catalog as text for an agent; `None` if no skill is visible (C-2.5).
    pub fn xml(&self, trust: &Approvals) -> Option<String> {
        let texts: Vec<(String, String, String)> =
            self.visible_to_agents(trust).map(|entry| self.listed(entry)).collect();
        catalog::xml(texts.iter().map(|(name, description, location)| Listed { name, description, location }))
    }

    fn listed(&self, entry: &Entry) -> (String, String, String) {
        let mut description = entry.skill.description.clone();
        if let (Compat::ClaudeCode, Some(when)) = (self.compat, &entry.skill.extensions.when_to_use) {
            description = format!("{description} {when}").chars().take(MAX_LISTED_LENGTH).collect();
        }
        (entry.skill.name.clone(), description, entry.location.display().to_string())
    }
}

/// Maximum length of a description with its "when to use", in characters (C-3.1).
const MAX_LISTED_LENGTH: usize = 1536;

/// True if agents may see a skill.
fn is_trusted(entry: &Entry, trust: &Approvals) -> bool {
    trusted(entry, trust).is_some()
}

/// The reason why agents may read a skill; `None` if they may not.
fn trusted(entry: &Entry, trust: &Approvals) -> Option<Trusted> {
    match entry.scope {
        Scope::User => (!trust.is_blocked(&entry.directory)).then_some(Trusted::Place),
        Scope::Project => match trust.readable(&entry.directory)? {
            Readable::Folder => Some(Trusted::Place),
            Readable::Content(found) => {
                let text = found.text(Path::new(SKILL_FILE))?.to_vec();
                scan::is_read_from(&entry.skill, &text, &entry.directory).then_some(Trusted::Text(text))
            }
        },
    }
}

/// The reason why agents may read a skill.
enum Trusted {
    /// The skill is the user's own, or lies in a trusted folder.
    Place,
    /// Its content is approved. Holds the bytes of its `SKILL.md`, as they were compared.
    Text(Vec<u8>),
}

#[cfg(test)]
mod tests;

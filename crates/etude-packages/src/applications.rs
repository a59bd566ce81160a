//! Agent Applications on disk: their discovery, their activation for agents, and their commands (C-1).
//!
//! Three tiers: [`Catalog::discover`] reads frontmatter and runs nothing, [`activate`] reads the contract and the requested
//! skills, [`CommandCall`] runs a declared command. A command passes these checks in order before it runs: the package exists,
//! is sound, declares the command, is trusted, and a person has confirmed a command that needs confirmation (C-0.4).

mod activate;
mod call;
mod carry;
mod check;
mod confirm;
mod confirmations;
mod copy;
mod envelope;
mod execute;
mod form;
mod fresh;
mod invoke;
mod package;
mod scan;
mod schemas;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use etude_spec::Diagnostic;
use etude_spec::application::findings;
use indexmap::IndexMap;

pub use activate::{Activated, ActivatedSkill, activate};
pub use call::{CommandCall, Refusal, Why, prepare, scheduling};
pub use check::{Check, Conformance, Outcome, check};
pub use confirm::{Ask, Person, Unconfirmed};
pub use confirmations::{Answer, AnswerError, Confirmations, Request, Verdict};
pub use copy::copy_without_state;
pub use envelope::{Envelope, Status};
pub use execute::{DEFAULT_OUTPUT, DEFAULT_TIMEOUT, Limits, ProgramContext, RunEffect};
pub use fresh::Fresh;
pub use invoke::{Invoked, Invoking};
pub use package::{Access, Package};

etude_core::words! {
    /// The kind of place in which a package was found.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Source {
        /// A path that the user named.
        Path = "path",
        /// The project's directory, or a place below its `apps` or `.agents/apps`.
        Project = "project",
        /// The user's home.
        User = "user",
    }
}

/// Places to search for packages.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The project's directory, absolute.
    pub project: &'a Path,
    /// The user's home directory; `None`: not searched.
    pub home: Option<&'a Path>,
    /// Paths named by the user, which are searched first.
    pub paths: &'a [PathBuf],
}

/// The packages of one project and one user, ordered by slug.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    packages: IndexMap<String, Arc<Package>>,
    diagnostics: Vec<Diagnostic>,
}

impl Catalog {
    /// Discovers packages. Reads frontmatter only, and starts nothing.
    pub fn discover(places: &Places<'_>) -> Self {
        let of_user = places.home.map(|home| home.join(".agents/apps"));
        let mut scanner = scan::Scanner::new(of_user.as_deref());
        for path in places.paths {
            scanner.scan(path, Source::Path);
        }
        scanner.look_at(places.project, Source::Project);
        for below in ["apps", ".agents/apps"] {
            scanner.scan(&places.project.join(below), Source::Project);
        }
        if let Some(root) = &of_user {
            scanner.scan(root, Source::User);
        }
        let (found, diagnostics) = scanner.finish();
        let mut packages: IndexMap<String, Package> = IndexMap::new();
        for package in found {
            match packages.get_mut(&package.contract.slug) {
                Some(first) => {
                    let (path, used) = (package.file(), first.root.display().to_string());
                    first.diagnostics.push(findings::slug_collision(&path, &package.contract.slug, &used));
                    first.shadows.push(package.root);
                }
                None => {
                    packages.insert(package.contract.slug.clone(), package);
                }
            }
        }
        packages.sort_keys();
        let packages = packages.into_iter().map(|(slug, package)| (slug, Arc::new(package))).collect();
        Self { packages, diagnostics }
    }

    /// Every package, including unusable ones.
    pub fn packages(&self) -> impl Iterator<Item = &Arc<Package>> {
        self.packages.values()
    }

    /// The package with this slug, usable or not.
    pub fn find(&self, slug: &str) -> Option<&Arc<Package>> {
        self.packages.get(slug)
    }

    /// Faults of the searched places. Faults of a package are in [`Package::diagnostics`].
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

#[cfg(test)]
mod tests;

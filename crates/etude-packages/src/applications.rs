//! Agent Applications on disk: which there are, what agents are given, and how their commands are run (C-1).
//!
//! Three tiers: [`Catalog::discover`] reads frontmatter and runs nothing, [`activate`] reads the contract and the skills
//! that are wanted, [`Call`] runs a declared command. Before a command runs, in this order: the package must be there,
//! be sound, declare the command, be trusted, and a person must have confirmed what wants confirmation (C-0.4).

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
pub use call::{Call, Refusal, Why, prepare, scheduling};
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
    /// Where a package was found.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Source {
        /// The user named its place.
        Path = "path",
        /// The project's directory itself, or below its `apps` or `.agents/apps`.
        Project = "project",
        /// In the user's home.
        User = "user",
    }
}

/// Where to look for packages.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The project's directory, absolute.
    pub project: &'a Path,
    /// The user's home.
    pub home: Option<&'a Path>,
    /// Places that the user has named: they come first.
    pub paths: &'a [PathBuf],
}

/// The packages of one place and one user, by slug in order.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    packages: IndexMap<String, Arc<Package>>,
    diagnostics: Vec<Diagnostic>,
}

impl Catalog {
    /// Looks for packages. Reads frontmatter only, and starts nothing.
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

    /// Every package, also those that cannot be used.
    pub fn packages(&self) -> impl Iterator<Item = &Arc<Package>> {
        self.packages.values()
    }

    /// The usable or unusable package with this slug; `None`: there is none.
    pub fn find(&self, slug: &str) -> Option<&Arc<Package>> {
        self.packages.get(slug)
    }

    /// What is wrong with the places that were searched. What is wrong with a package stands with it.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

#[cfg(test)]
mod tests;

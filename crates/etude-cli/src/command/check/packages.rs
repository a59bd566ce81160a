//! Agent Applications in the check of an app: their faults, and the packages that steps may call.

use std::path::Path;

use etude_packages::applications::{Catalog, Places, Source};
use etude_spec::Diagnostic;
use etude_spec::pipeline::Packages;
use etude_spec::source::SourceFile;

use crate::paths;

/// Packages that are visible from an app.
pub(super) struct Found {
    /// Packages that steps may call, also those of the user.
    pub(super) known: Packages,
    /// Faults of the packages in the app's directory, with paths relative to it.
    pub(super) faults: Vec<Diagnostic>,
}

/// Discovers the packages that are visible from the app in `root`. Reads frontmatter only.
pub(super) fn find(root: &Path) -> Found {
    let catalog = Catalog::discover(&Places { project: root, home: paths::home().as_deref(), paths: &[] });
    let mut found = Found { known: Packages::default(), faults: Vec::new() };
    for package in catalog.packages() {
        match package.is_compatible() {
            true => found.known.sound.push(package.contract.clone()),
            false => found.known.broken.push(package.contract.slug.clone()),
        }
        if package.source == Source::Project {
            found.faults.extend(package.diagnostics.iter().map(|fault| relative(fault, root)));
        }
    }
    found
}

/// The fault with a path relative to the app, as in all other findings.
fn relative(fault: &Diagnostic, root: &Path) -> Diagnostic {
    let path = Path::new(fault.file.path()).strip_prefix(root).ok().and_then(Path::to_str);
    let mut own = fault.clone();
    if let Some(path) = path {
        own.file = SourceFile::new(path, fault.file.text());
    }
    own
}

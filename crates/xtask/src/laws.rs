//! Checks of the laws of `ARCHITECTURE.md`, with tables of what must be absent.

mod cycles;
mod table;

use crate::manifest::Manifest;
use crate::rust::{Source, line_of, mask, occurrences};
use crate::tree::{Tree, Violation};

pub use cycles::cycles;
pub use table::{ARROWS, Ban, CONSTRUCTS, CORE_DEPENDENCIES, ENGINES, FRONTS, LAWS};

/// Finds banned paths, words, macros and dependencies of a law in the table.
pub fn absences(tree: &Tree, law: u8) -> Vec<Violation> {
    let mut found = Vec::new();
    for ban in LAWS.iter().filter(|ban| ban.law == law) {
        let applies = |package: &str| ban.applies_to(package);
        for source in tree.sources().iter().filter(|source| applies(source.package())) {
            if ban.covers(source.module_path()) {
                in_source(ban, source, &mut found);
            }
        }
        for manifest in Manifest::all(tree).iter().filter(|manifest| applies(manifest.package)) {
            in_manifest(ban, manifest, &mut found);
        }
    }
    found.sort();
    found.dedup();
    found
}

fn in_source(ban: &Ban, source: &Source, found: &mut Vec<Violation>) {
    let mut report = |offset: usize, what: String| {
        let line = line_of(&source.code, offset);
        found.push(Violation::at(&source.path, line, format!("law {}: {what}; {}", ban.law, ban.why)));
    };
    for named in &source.paths {
        if ban.paths.iter().any(|path| named.is_below(path)) {
            report(named.offset, format!("names `{}`", named.path));
        }
    }
    for word in ban.words {
        occurrences(&source.code, word).for_each(|offset| report(offset, format!("names `{word}`")));
    }
    for part in ban.fragments {
        let lower = source.code.to_ascii_lowercase();
        lower.match_indices(part).for_each(|(offset, _)| report(offset, format!("names something with `{part}`")));
    }
}

fn in_manifest(ban: &Ban, manifest: &Manifest<'_>, found: &mut Vec<Violation>) {
    for dependency in manifest.dependencies.iter().filter(|dependency| !dependency.is_dev) {
        let is_banned = |name: &&str| match name.strip_suffix('*') {
            Some(start) => dependency.name.starts_with(start),
            None => dependency.name == **name,
        };
        if ban.dependencies.iter().any(is_banned) {
            let what = format!("law {}: depends on `{}`; {}", ban.law, dependency.name, ban.why);
            found.push(Violation::at(manifest.path, dependency.line, what));
        }
    }
}

/// Law 1, second half: checks that the dependencies of `etude-core` are in the list of known pure crates.
pub fn core_dependencies(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for manifest in Manifest::all(tree).iter().filter(|manifest| manifest.package == "etude-core") {
        for dependency in manifest.dependencies.iter().filter(|d| !d.is_dev) {
            if !CORE_DEPENDENCIES.contains(&dependency.name.as_str()) {
                let what = format!("law 1: `{}` is not known to be pure; see `CORE_DEPENDENCIES`", dependency.name);
                found.push(Violation::at(manifest.path, dependency.line, what));
            }
        }
    }
    found
}

/// Law 5, second half: checks that the tests of every engine run the conformance suite.
pub fn conformance(tree: &Tree) -> Vec<Violation> {
    let engines = Manifest::all(tree).into_iter().filter(|manifest| ENGINES.contains(&manifest.package));
    let is_untested = |manifest: &Manifest<'_>| {
        let below = format!("crates/{}/", manifest.package);
        let mut files = tree.ending(".rs").filter(|(path, _)| path.starts_with(&below));
        !files.any(|(_, text)| mask(text).0.contains("conformance::all("))
    };
    let what = "law 5: no test puts this engine through `etude_runtime::conformance::all`";
    engines.filter(is_untested).map(|manifest| Violation::of(manifest.path, what)).collect()
}

/// Law 7: checks that only types in files and folders for wire forms are serialized. The command line may read its
/// configuration with a derive.
pub fn serialization(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources().iter().filter(|source| source.package() != "xtask") {
        let is_wire = source.module_path().split('/').any(|part| WIRE.contains(&part));
        let words: &[&str] =
            if source.package() == "etude-cli" { &["Serialize"] } else { &["Serialize", "Deserialize"] };
        if is_wire && source.package() != "etude-core" {
            continue;
        }
        for word in words {
            for offset in occurrences(&source.code, word) {
                let what = format!(
                    "law 7: names `{word}`; journal and wire forms are types of their own, in files named for it"
                );
                found.push(Violation::at(&source.path, line_of(&source.code, offset), what));
            }
        }
    }
    found
}

/// Names of files and folders for forms that leave the process.
const WIRE: &[&str] = &["wire", "wire.rs", "format.rs", "header.rs", "document.rs"];

/// Law 8: checks that no construct of the machine names a sibling.
pub fn constructs(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources().iter().filter(|source| source.package() == "etude-core") {
        let Some(inner) = source.module_path().strip_prefix("machine/") else { continue };
        let own = inner.split(['/', '.']).next().unwrap_or_default();
        if !CONSTRUCTS.contains(&own) {
            continue;
        }
        let above = if inner.contains('/') { None } else { Some("super") };
        let roots = [Some("crate::machine"), above];
        for named in &source.paths {
            let is_below =
                |sibling: &&str| roots.iter().flatten().any(|root| named.is_below(&format!("{root}::{sibling}")));
            if let Some(sibling) =
                CONSTRUCTS.iter().filter(|sibling| **sibling != own).find(|sibling| is_below(sibling))
            {
                let what = format!("law 8: the construct `{own}` names its sibling `{sibling}`");
                found.push(Violation::at(&source.path, line_of(&source.code, named.offset), what));
            }
        }
    }
    found
}

/// Law 8: checks the dependencies between crates, and that front ends do not depend on each other.
pub fn arrows(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for manifest in Manifest::all(tree) {
        let Some((_, allowed)) = ARROWS.iter().find(|(package, _)| *package == manifest.package) else {
            let what = format!("law 8: nothing says where `{}` stands; see `ARROWS`", manifest.package);
            found.push(Violation::of(manifest.path, what));
            continue;
        };
        let is_ours = |name: &str| name == "xtask" || name == "etude" || name.starts_with("etude-");
        for dependency in manifest.dependencies.iter().filter(|d| !d.is_dev && is_ours(&d.name)) {
            if !allowed.contains(&dependency.name.as_str()) {
                let what = format!("law 8: `{}` must not know `{}`", manifest.package, dependency.name);
                found.push(Violation::at(manifest.path, dependency.line, what));
            }
        }
    }
    for source in tree.sources().iter().filter(|source| source.package() == "etude-spec") {
        let of =
            |path: &str| FRONTS.iter().find(|front| path.trim_end_matches(".rs").split('/').next() == Some(**front));
        let Some(own) = of(source.module_path()) else { continue };
        for named in &source.paths {
            if FRONTS.iter().any(|front| front != own && named.is_below(&format!("crate::{front}"))) {
                let what = format!("law 8: the front end `{own}` names `{}` of another one", named.path);
                found.push(Violation::at(&source.path, line_of(&source.code, named.offset), what));
            }
        }
    }
    found
}

/// Law 8: checks that no crate re-exports another crate of the workspace as a whole.
pub fn re_exports(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources() {
        for (offset, start) in source.code.match_indices("pub use etude_") {
            let path = source.code[offset + start.len()..].split(';').next().unwrap_or_default();
            if !path.contains("::") {
                let what = format!("law 8: `etude_{path}` is re-exported as a whole; its users name it themselves");
                found.push(Violation::at(&source.path, line_of(&source.code, offset), what));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;

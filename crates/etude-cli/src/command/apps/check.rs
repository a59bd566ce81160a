//! `etude apps check`: packages against the format (C-1.6).

use std::path::Path;
use std::sync::Arc;

use etude_packages::applications::{Conformance, Package, Source, check as conformance};
use etude_spec::render;
use serde_json::{Value, json};

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::stdout;

pub(super) fn check(context: &Context, args: &args::AppsCheck) -> Result<Exit, Problem> {
    let packages = packages(context, args)?;
    let approvals = crate::command::skill::approvals(context)?;
    let program_context = super::program_context(context, &[])?;
    let mut reports = Vec::new();
    for package in &packages {
        reports.push((&**package, conformance(package, &package.access(&approvals), &program_context)));
    }
    let is_conformant = reports.iter().all(|(_, report)| report.is_conformant);
    if context.is_json() {
        stdout::json(&document(&reports, is_conformant));
    } else {
        for (package, report) in &reports {
            print(context, package, report);
        }
    }
    Ok(if is_conformant { Exit::Done } else { Exit::Definition })
}

/// The named package, the package that contains the user's directory, or all packages found.
fn packages(context: &Context, args: &args::AppsCheck) -> Result<Vec<Arc<Package>>, Problem> {
    let catalog = super::discover(context, &args.places.apps_path)?;
    let Some(dir) = &args.dir else {
        let found: Vec<Arc<Package>> = catalog.packages().cloned().collect();
        if !found.is_empty() {
            return Ok(found);
        }
        // Outside of any package the directory itself is checked. The report then says that `APP.md` is missing.
        let root =
            std::fs::canonicalize(context.start_dir()?).map_err(|error| Problem::environment(error.to_string()))?;
        return Ok(vec![Arc::new(Package::load(&root, source_of(&root), &root))]);
    };
    let missing = || crate::paths::no_directory(dir);
    let root = std::fs::canonicalize(dir).map_err(|_| missing())?;
    let root = if root.is_dir() { root } else { root.parent().map(Path::to_owned).ok_or_else(missing)? };
    let found = catalog.packages().find(|package| package.root == root).cloned();
    // A directory named on the command line gets no more trust than one found in a project.
    Ok(vec![found.unwrap_or_else(|| Arc::new(Package::load(&root, source_of(&root), &root)))])
}

fn source_of(root: &Path) -> Source {
    let users = crate::paths::home().and_then(|home| std::fs::canonicalize(home.join(".agents/apps")).ok());
    if users.is_some_and(|users| root.starts_with(users)) { Source::User } else { Source::Project }
}

fn document(reports: &[(&Package, Conformance)], is_conformant: bool) -> Value {
    let is_one = reports.len() == 1;
    let point = |package: &Package, check: &etude_packages::applications::Check| {
        let diagnostics: Vec<Value> = check.diagnostics.iter().map(render::json).collect();
        let mut point = json!({"id": check.id, "status": check.outcome.word(), "diagnostics": diagnostics});
        if !is_one {
            point["slug"] = package.contract.slug.as_str().into();
        }
        point
    };
    let checks: Vec<Value> =
        reports.iter().flat_map(|(package, report)| report.checks.iter().map(|check| point(package, check))).collect();
    let diagnostics: Vec<Value> =
        reports.iter().flat_map(|(_, report)| report.diagnostics.iter().map(render::json)).collect();
    json!({"conformant": is_conformant, "checks": checks, "diagnostics": diagnostics})
}

fn print(context: &Context, package: &Package, report: &Conformance) {
    context.show(&report.diagnostics);
    let is_new = |d: &&etude_spec::Diagnostic| !report.diagnostics.contains(d);
    context.show(report.checks.iter().flat_map(|check| &check.diagnostics).filter(is_new));
    let points: Vec<String> =
        report.checks.iter().map(|check| format!("{} {}", check.id, check.outcome.word())).collect();
    let verdict = if report.is_conformant { "conformant" } else { "not conformant" };
    stdout::text(&format!("{}: {verdict} ({})\n", package.contract.slug, points.join(", ")));
}

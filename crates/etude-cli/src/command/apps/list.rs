//! `etude apps list`: all packages found, including those that are unusable.

use std::fmt::Write;

use etude_core::hidden::stripped;
use etude_packages::applications::{Catalog, Package};
use etude_packages::trust::Approvals;
use etude_spec::render;
use serde_json::{Value, json};

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::harmless;
use crate::stdout;

pub(super) fn list(context: &Context, args: &args::AppsPlaces) -> Result<Exit, Problem> {
    let catalog = super::discover(context, &args.apps_path)?;
    let approvals = crate::command::skill::approvals(context)?;
    if context.is_json() {
        let diagnostics: Vec<Value> = catalog.diagnostics().iter().map(render::json).collect();
        stdout::json(&json!({"applications": documents(&catalog, &approvals), "diagnostics": diagnostics}));
        return Ok(Exit::Done);
    }
    let width = catalog.packages().map(|package| package.contract.slug.chars().count()).max().unwrap_or(0).min(40);
    let mut text = String::new();
    for package in catalog.packages() {
        let contract = &package.contract;
        let fault = if package.is_compatible() { "" } else { "  (has errors: etude apps check)" };
        let description = harmless(contract.description.lines().next().unwrap_or_default());
        let trust = package.access(&approvals).word();
        let _ = writeln!(text, "{:<width$}  {trust:<8}  {description}{fault}", harmless(&contract.slug));
    }
    stdout::text(&text);
    context.show(catalog.diagnostics());
    if text.is_empty() && !context.global.quiet {
        crate::render::say!("no packages here or in your home directory; packages are in apps/ and .agents/apps/");
    }
    Ok(Exit::Done)
}

/// The packages as documents list them (C-1.9).
pub(crate) fn documents(catalog: &Catalog, approvals: &Approvals) -> Vec<Value> {
    catalog.packages().map(|package| document(package, approvals)).collect()
}

fn document(package: &Package, approvals: &Approvals) -> Value {
    let contract = &package.contract;
    let access = package.access(approvals);
    json!({
        "kind": "app",
        "schema": contract.schema,
        "slug": contract.slug,
        "slugDerived": contract.is_slug_derived,
        "name": stripped(&contract.name),
        "description": stripped(&contract.description),
        "version": stripped(&contract.version),
        "license": contract.license,
        "authors": contract.authors,
        "tags": contract.tags,
        "metadata": contract.metadata,
        "source": {
            "type": package.source.word(),
            "root": package.root,
            "scope": package.scope,
            "digest": access.content.as_ref().map(etude_packages::trust::Content::digest),
        },
        "trust": access.word(),
        "commands": contract.commands,
        "skills": contract.skills,
        "confirmationRequired": contract.confirmation_required,
        "schedulingSupported": contract.is_scheduling_supported,
        "compatible": package.is_compatible(),
        "shadows": package.shadows,
        "diagnostics": package.diagnostics.iter().map(render::json).collect::<Vec<_>>(),
    })
}

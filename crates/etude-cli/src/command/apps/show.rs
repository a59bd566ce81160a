//! `etude apps show`: a package in its activated form.

use etude_packages::applications::{Activated, Package, activate};
use etude_packages::skills::Invoker;
use etude_spec::application::findings;
use etude_spec::{Diagnostic, render};
use serde_json::{Value, json};

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::stdout;

pub(super) fn show(context: &Context, args: &args::AppsShow) -> Result<Exit, Problem> {
    let catalog = super::discover(context, &args.places.apps_path)?;
    let Some(package) = catalog.find(&args.slug) else {
        let known: Vec<String> = catalog.packages().map(|package| package.contract.slug.clone()).collect();
        return Ok(refused(context, &args.slug, vec![findings::no_such_package(&args.slug, &known)], Exit::Usage));
    };
    if !package.is_compatible() {
        let mut diagnostics = package.diagnostics.clone();
        diagnostics.push(findings::declined(&package.file(), &args.slug));
        return Ok(refused(context, &args.slug, diagnostics, Exit::Definition));
    }
    let approvals = crate::command::skill::approvals(context)?;
    let access = package.access(&approvals);
    if !access.activation {
        let has_changed = package.was_approved(&approvals).is_some_and(|approval| approval.activation);
        return Ok(refused(context, &args.slug, vec![not_trusted(package, has_changed)], Exit::Environment));
    }
    let selected = (!args.skill.is_empty()).then_some(args.skill.as_slice());
    let activated = activate(package, &access, Invoker::Reader, selected).map_err(Problem::usage)?;
    if context.is_json() {
        stdout::json(&document(&activated));
    } else {
        stdout::text(&format!("{}\n", activated.contract.trim()));
        for skill in &activated.skills {
            stdout::text(&format!("\n--- {}\n\n{}\n", skill.path, skill.body.trim()));
        }
        context.show(&activated.diagnostics);
    }
    Ok(Exit::Done)
}

fn not_trusted(package: &Package, has_changed: bool) -> Diagnostic {
    let shadowed: Vec<String> = package.shadows.iter().map(|root| root.display().to_string()).collect();
    findings::not_trusted(&package.file(), &package.root.display().to_string(), "activation", has_changed, &shadowed)
}

fn refused(context: &Context, slug: &str, diagnostics: Vec<Diagnostic>, exit: Exit) -> Exit {
    context.show(&diagnostics);
    if context.is_json() {
        let list: Vec<Value> = diagnostics.iter().map(render::json).collect();
        stdout::json(&json!({"status": "refused", "slug": slug, "diagnostics": list}));
    }
    exit
}

/// JSON document of an activation (C-1.10).
fn document(activated: &Activated) -> Value {
    let skills: Vec<Value> = activated
        .skills
        .iter()
        .map(|skill| json!({"shortname": skill.short_name, "path": skill.path, "body": skill.body}))
        .collect();
    let mut document = json!({
        "package": {"slug": activated.slug, "version": activated.version, "root": activated.root},
        "contract": activated.contract,
        "skills": skills,
        "resources": activated.resources,
        "retained": true,
        "diagnostics": activated.diagnostics.iter().map(render::json).collect::<Vec<_>>(),
    });
    if activated.has_more {
        document["more"] = json!(true);
    }
    document
}

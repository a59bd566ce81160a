//! `etude skill list`: all skills found, with their faults.

use std::fmt::Write;

use etude_packages::skills::{Compat, Entry, SkillCatalog};
use etude_spec::render;
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::layout::description;
use crate::render::text::harmless;
use crate::stdout;

pub(super) fn list(context: &Context, compat: Compat) -> Result<Exit, Problem> {
    let catalog = super::discover(context, compat)?;
    if context.is_json() {
        let diagnostics: Vec<Value> = catalog.diagnostics().iter().map(render::json).collect();
        stdout::json(&json!({"skills": documents(&catalog), "diagnostics": diagnostics}));
        return Ok(Exit::Done);
    }
    stdout::text(&table(&catalog, context.global.is_verbose()));
    context.show(catalog.diagnostics());
    if catalog.entries().next().is_none() && !context.global.quiet {
        crate::render::say!(
            "no skills here or in your home directory; skills are in .agents/skills, .etude/skills and .claude/skills"
        );
    }
    Ok(Exit::Done)
}

/// The skills as rows of a document.
pub(crate) fn documents(catalog: &SkillCatalog) -> Vec<Value> {
    catalog.entries().map(document).collect()
}

fn document(entry: &Entry) -> Value {
    json!({
        "name": entry.skill.name,
        "description": entry.skill.description,
        "location": entry.location,
        "scope": entry.scope.word(),
        "shadows": entry.shadows,
    })
}

fn table(catalog: &SkillCatalog, is_verbose: bool) -> String {
    let width = catalog.entries().map(|entry| entry.skill.name.chars().count()).max().unwrap_or(0).min(40);
    let mut text = String::new();
    for entry in catalog.entries() {
        let name = harmless(&entry.skill.name);
        let description = description(&entry.skill.description, width + 11, is_verbose);
        let _ = writeln!(text, "{name:<width$}  {:<7}  {description}", entry.scope.word());
    }
    text
}

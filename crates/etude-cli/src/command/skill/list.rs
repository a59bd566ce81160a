//! `etude skill list`: all skills found, with their faults.

use std::fmt::Write;
use std::fs;
use std::path::Path;

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
    let own = context.app_dir().map(|dir| of_steps(&dir.join("skills"))).unwrap_or_default();
    if !own.is_empty() && !context.global.quiet {
        let names = harmless(&own.join(", "));
        crate::render::say!("note: only steps and `etude skill run` have the skills in skills/: {names}");
    }
    Ok(Exit::Done)
}

/// Names of the skills in the app's `skills/`, which only its own steps use.
fn of_steps(skills: &Path) -> Vec<String> {
    let entries = fs::read_dir(skills).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().join("SKILL.md").is_file());
    let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
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

//! `etude skill catalog`: the list of skills that an agent receives here.

use etude_packages::skills::Compat;
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::stdout;

pub(super) fn catalog(context: &Context, compat: Compat) -> Result<Exit, Problem> {
    let catalog = super::discover(context, compat)?;
    let trust = super::approvals(context)?;
    if context.is_json() {
        let skills: Vec<Value> = catalog
            .visible_to_agents(&trust)
            .map(|entry| {
                json!({"name": entry.skill.name, "description": entry.skill.description, "location": entry.location})
            })
            .collect();
        stdout::json(&json!({ "skills": skills }));
        return Ok(Exit::Done);
    }
    stdout::text(&catalog.xml(&trust).unwrap_or_default());
    let shown = catalog.visible_to_agents(&trust).count();
    let hidden = catalog
        .entries()
        .filter(|entry| !entry.is_users_own())
        .filter(|entry| !trust.lets_activate(&entry.directory))
        .count();
    if hidden > 0 && !context.global.quiet {
        crate::render::say!(
            "{shown} shown; {hidden} of this project left out, because it is not trusted: etude trust DIR"
        );
    }
    Ok(Exit::Done)
}

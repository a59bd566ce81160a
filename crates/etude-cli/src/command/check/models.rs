//! Models of stage machines in the check of an app.

use std::path::Path;

use etude_core::machine::Machine;
use etude_spec::Diagnostic;
use etude_spec::stage_machine::{Machines, MissingModel};

use crate::context::Context;
use crate::settings;

/// Warns of each machine whose model is not configured, or cannot call tools (B-CN4). Nothing is looked up outside of the
/// configuration, and without any configured model nothing is reported.
pub(super) fn of_machines(context: &Context, app: &Path, machines: &Machines<'_>, names: &[&str]) -> Vec<Diagnostic> {
    let Ok(resolved) = context.settings(app) else { return Vec::new() };
    if resolved.settings.mapping.is_empty() {
        return Vec::new();
    }
    let Some(models) = settings::known_models(&resolved) else { return Vec::new() };
    let is_named = |name: &&String| names.is_empty() || names.contains(&name.as_str());
    let fault = |name: &String| {
        let machine = machines.machine(name).0?.plan;
        let missing = match models.describe(machine.tier) {
            None => MissingModel::Unmapped(machine.tier),
            Some(model) if machine.requires.is_empty() => {
                let claim = models.tool_calling(machine.tier);
                MissingModel::Incapable(Machine::refused_model(&machine, &model, claim)?.message)
            }
            // The required capability was reported with the definition.
            Some(_) => return None,
        };
        machines.without_model(name, &missing)
    };
    machines.names().iter().filter(is_named).filter_map(fault).collect()
}

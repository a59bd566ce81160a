//! Stage machines as definitions of runs (system B).

use etude_spec::Diagnostic;
use etude_spec::lower;
use etude_spec::stage_machine::{Machines, Rules};

use crate::definition::{Definition, LoadError, add_tools, tools_of};
use etude_runs::target::Target;
use etude_tools::disk::Disk;

/// Loads the stage machine `name` of the app in `disk`. `rules` are those of the user's configuration.
///
/// # Errors
/// The machine does not exist, or its definition is invalid.
pub fn load(disk: &Disk, name: &str, rules: &Rules) -> Result<Definition, LoadError> {
    let machines = Machines::new(disk, rules.clone());
    let known = || machines.names().iter().filter(|known| *known != name).cloned().collect();
    if !machines.contains(name) {
        // The directory may have a machine of that name.
        if !machines.diagnostics().is_empty() {
            return Err(LoadError::Invalid(machines.diagnostics().to_vec()));
        }
        return Err(LoadError::Unknown { known: known() });
    }
    let (machine, diagnostics) = machines.machine(name);
    let Some(machine) = machine else {
        let is_broken = diagnostics.iter().any(Diagnostic::is_error);
        return Err(if is_broken { LoadError::Invalid(diagnostics) } else { LoadError::Unknown { known: known() } });
    };
    let tools = tools_of(disk)?;
    let mut files = machine.files;
    add_tools(disk, &tools, &mut files);
    files.sort_unstable();
    files.dedup();
    Ok(Definition {
        target: Target::Machine(name.to_owned()),
        app: disk.root().to_owned(),
        plan: lower::stage_machine(machine.plan),
        input: machine.input,
        files,
        tools: Some(tools),
        warnings: diagnostics,
        learned: None,
    })
}

//! Skill mode: the app's own `SKILL.md` as the instructions of an agent.

use std::sync::Arc;

use etude_core::model::Tier;
use etude_core::plan::{Fallback, PipelineTool};
use etude_spec::input::InputDecl;
use etude_spec::skill::{Instructions, SKILL_FILE};
use etude_spec::{App, Diagnostic, learned, lower};

use crate::definition::{Definition, LoadError, add_tools, tools_of};
use etude_runs::target::Target;
use etude_tools::disk::Disk;

/// Default settings of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults {
    /// Capability level that the agent asks for.
    pub tier: Tier,
    /// Maximum number of turns of the agent.
    pub max_turns: u32,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { tier: Tier::Standard, max_turns: 50 }
    }
}

/// True if the app has instructions for skill mode.
pub fn is_there(disk: &Disk) -> bool {
    disk.root().join(SKILL_FILE).is_file()
}

/// The definition of a run in skill mode. Its input is `{"request": TEXT}`.
///
/// # Errors
/// The app has no `SKILL.md`, or it cannot be read.
pub fn load(disk: &Disk, defaults: Defaults) -> Result<Definition, LoadError> {
    load_as(disk, defaults, "")
}

/// The definition of a run whose target has the name `name`. An unnamed `SKILL.md` takes this name if the app's directory has
/// another one: on a worker, or after a move. The steps of the run use it as well.
///
/// # Errors
/// The errors of [`load`].
pub fn load_as(disk: &Disk, defaults: Defaults, name: &str) -> Result<Definition, LoadError> {
    if !is_there(disk) {
        return Err(LoadError::Unknown { known: Vec::new() });
    }
    let instructions = Instructions::read(disk, SKILL_FILE).map_err(LoadError::Invalid)?;
    let warnings = instructions.warnings.clone();
    let said = || if name.is_empty() { name_of(disk) } else { name.to_owned() };
    let name = instructions.name.clone().unwrap_or_else(said);
    let tools = tools_of(disk)?;
    let mut files = vec![SKILL_FILE.to_owned()];
    let pipelines = pipelines(disk, &mut files);
    add_tools(disk, &tools, &mut files);
    files.sort_unstable();
    files.dedup();
    Ok(Definition {
        app: disk.root().to_owned(),
        plan: lower::skill_mode(&name, instructions, (defaults.tier, defaults.max_turns), pipelines),
        target: Target::Skill(name),
        input: InputDecl::default(),
        files,
        tools: Some(tools),
        warnings,
        learned: None,
    })
}

/// Skill mode for a run whose pipeline deviates (L-67). `description` is that of the pipeline.
///
/// # Errors
/// The app has no `SKILL.md`, or it cannot be read.
pub(crate) fn fallback(disk: &Disk, defaults: Defaults, description: &str) -> Result<Fallback, LoadError> {
    let instructions = Instructions::read(disk, SKILL_FILE).map_err(LoadError::Invalid)?;
    let name = instructions.name.clone().unwrap_or_else(|| name_of(disk));
    Ok(lower::fallback(&name, instructions, (defaults.tier, defaults.max_turns), description))
}

/// The learned pipelines that the agent may call as tools while they are `active` (L-77). All states are included, so that a
/// change of state does not change the definition. A broken pipeline is left out: `etude check` reports it.
fn pipelines(disk: &Disk, files: &mut Vec<String>) -> Vec<Arc<PipelineTool>> {
    let app = App::new(disk);
    let own = learned::all(disk).into_iter().filter(|located| !located.is_candidate());
    let sound = own.filter_map(|located| {
        let (pipeline, found) = app.pipeline(&located.name);
        pipeline.filter(|_| !found.iter().any(Diagnostic::is_error))
    });
    let mut tools = Vec::new();
    for pipeline in sound {
        tools.push(Arc::new(lower::pipeline_tool(&pipeline)));
        files.extend(pipeline.files);
    }
    tools
}

/// Name of an app whose skill has none: the name of its directory.
fn name_of(disk: &Disk) -> String {
    disk.root().file_name().map_or_else(|| "skill".to_owned(), |name| name.to_string_lossy().into_owned())
}

//! Skill mode: the app's own `SKILL.md` as the instructions of an agent.

use std::sync::Arc;

use etude_core::failure::Phase;
use etude_core::model::Tier;
use etude_core::plan::{Agent, Origin, Plan, Step, StepKind};
use etude_core::template::{Reference, Segment, Template};
use etude_core::tool::ToolSelection;
use etude_spec::pipeline::input::InputDecl;
use etude_spec::{Diagnostic, frontmatter};

use crate::definition::{Definition, LoadError, add_tools, tools_of};
use crate::disk::Disk;
use crate::target::Target;

/// The file in an app's directory that skill mode follows.
pub const FILE: &str = "SKILL.md";

/// The parameter that holds what the user wants.
pub const REQUEST: &str = "request";

/// How agents work unless something else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults {
    /// The capability level.
    pub tier: Tier,
    /// Most answers of the model.
    pub max_turns: u32,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { tier: Tier::Standard, max_turns: 50 }
    }
}

/// True if the app has instructions for skill mode.
pub fn is_there(disk: &Disk) -> bool {
    disk.root().join(FILE).is_file()
}

/// The definition of a run in skill mode. Its input is `{"request": TEXT}`.
///
/// # Errors
/// There is no `SKILL.md`, or it cannot be read.
pub fn load(disk: &Disk, defaults: Defaults) -> Result<Definition, LoadError> {
    if !is_there(disk) {
        return Err(LoadError::Unknown { known: Vec::new() });
    }
    let invalid = |diagnostic: Box<Diagnostic>| LoadError::Invalid(vec![*diagnostic]);
    let file = frontmatter::open(disk, FILE).map_err(invalid)?;
    let parts = frontmatter::split(&file).map_err(invalid)?;
    let (root, diagnostics) = frontmatter::parse(&file, &parts);
    if diagnostics.iter().any(Diagnostic::is_error) {
        return Err(LoadError::Invalid(diagnostics));
    }
    let entries = root.as_ref().and_then(|root| root.as_map());
    let field = |name: &str| entries.and_then(|entries| entries.get(name));
    let name = field("name").and_then(|node| node.as_text()).map_or_else(|| name_of(disk), str::to_owned);
    let allowed = field("allowed-tools").map(|node| match node.as_seq() {
        Some(items) => items.iter().filter_map(|item| item.as_text().map(str::to_owned)).collect(),
        None => vec![node.as_text().unwrap_or_default().to_owned()],
    });
    let agent = Agent {
        skill: name.clone(),
        tier: defaults.tier,
        system: Template::literal(file.slice(parts.body).trim()),
        prompt: Template::reference(Reference::Input { path: vec![Segment::Field(REQUEST.to_owned())] }),
        tool_selection: Arc::new(ToolSelection {
            allowed,
            lists_skills: true,
            tier: defaults.tier,
            ..ToolSelection::default()
        }),
        schema: None,
        turn_cap: defaults.max_turns,
        max_tokens: None,
    };
    let place = field("name").map_or(parts.body, |node| node.span);
    let (line, column) = file.position(place.start);
    let origin = Origin { file: FILE.to_owned(), line, column };
    let tools = Some(tools_of(disk)?);
    let mut files = vec![FILE.to_owned()];
    add_tools(disk, &mut files);
    files.sort_unstable();
    files.dedup();
    Ok(Definition {
        target: Target::Skill(name.clone()),
        app: disk.root().to_owned(),
        plan: plan(name, agent, origin),
        input: InputDecl::default(),
        files,
        tools,
        warnings: diagnostics,
    })
}

/// A plan of one agent.
pub(crate) fn plan(name: String, agent: Agent, origin: Origin) -> Plan {
    Step::plain(name, StepKind::Skill(Box::new(agent)), origin).alone("skill".to_owned(), String::new(), Phase::Skill)
}

/// What an app without a name is called: as its directory.
fn name_of(disk: &Disk) -> String {
    disk.root().file_name().map_or_else(|| "skill".to_owned(), |name| name.to_string_lossy().into_owned())
}

//! Tools of MCP servers that learned pipelines call (`learn.md` 2.11). No file of the app has their descriptions and schemas.
//! The ledger keeps their last known state, from an agent whose run was learned from or from a call by a pipeline.

use std::collections::BTreeSet;
use std::path::Path;

use etude_core::model::Tool;
use etude_core::outcome::Outcome;
use etude_runtime::clock::now_ms;
use etude_runtime::engine::{Engine, Error, RunView};
use etude_runtime::record;
use etude_spec::learned;
use etude_spec::tool::MCP_PREFIX;

use super::book;

/// Notes the state that the tools of servers among `called` had when a run began.
///
/// # Errors
/// The journal cannot be read or written.
pub async fn note_available(
    engine: &dyn Engine,
    app: &Path,
    view: &RunView,
    called: &BTreeSet<&str>,
) -> Result<(), Error> {
    if !called.iter().any(|name| name.starts_with(MCP_PREFIX)) {
        return Ok(());
    }
    let blobs = engine.blobs();
    for record in view.records.iter().filter(|record| !record.key.starts_with('!')) {
        let Ok(completed) = record::to_outcome(record, &*blobs) else { continue };
        let Outcome::Opened(list) = completed.outcome else { continue };
        let tools = list.tools.iter().map(|available| &available.tool);
        for tool in tools.filter(|tool| tool.name.starts_with(MCP_PREFIX) && called.contains(tool.name.as_str())) {
            book::note_server_tool(engine, app, (&tool.name, &hash(tool)), view.row.created_at_ms).await?;
        }
    }
    Ok(())
}

/// True if a tool of a server has not changed since the last inspection of the pipeline in the directory `dir`. Its current
/// state is noted, so that the next inspection finds the change.
///
/// # Errors
/// The journal cannot be read or written.
pub async fn is_unchanged(engine: &dyn Engine, app: &Path, dir: &str, tool: &Tool) -> Result<bool, Error> {
    let own = hash(tool);
    book::note_server_tool(engine, app, (&tool.name, &own), now_ms()).await?;
    let before = book::tools(engine, app, dir)?;
    Ok(before.as_ref().and_then(|before| before.get(&tool.name)).is_none_or(|before| *before == own))
}

fn hash(tool: &Tool) -> String {
    learned::hash_of_tool(&tool.name, &tool.description, &tool.parameters)
}

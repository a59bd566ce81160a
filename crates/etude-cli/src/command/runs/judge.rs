//! `etude runs judge`: records the user's verdict on a run.

use etude_runs::listing::JUDGED;
use etude_runtime::engine::{Engine, Entry, EntryQuery, Expected, Write};
use serde_json::json;

use super::find::find;
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::runtime::block_on;
use crate::stdout;

/// Word for a missing verdict.
const UNKNOWN: &str = "unknown";

pub(super) fn judge(context: &Context, args: &args::RunsJudge) -> Result<Exit, Problem> {
    let engine = context.engine(false)?;
    let id = find(context, &*engine, &args.id)?.row.id;
    let verdict = match args.verdict {
        args::Verdict::Good => "good",
        args::Verdict::Bad => "bad",
    };
    let entry = Entry {
        book: JUDGED.to_owned(),
        key: id.clone(),
        at_ms: etude_runtime::clock::now_ms(),
        state: verdict.to_owned(),
        run_id: Some(id.clone()),
        body: "{}".to_owned(),
        ..Entry::default()
    };
    let write = Write { entry, expected: Expected::Anything, submission: None, is_alone: false };
    block_on(engine.write(&write))?.map_err(|error| of_engine(&error))?;
    if let Ok(disk) = context.disk() {
        crate::command::learn::settle_after(context, &disk)?;
    }
    if context.is_json() {
        stdout::json(&json!({"run_id": id, "judged": verdict}));
    } else if !context.global.quiet {
        crate::render::say!("run {id} is judged {verdict}");
    }
    Ok(Exit::Done)
}

/// Verdict on a run: `good`, `bad` or `unknown`.
pub(crate) fn verdict(engine: &dyn Engine, run_id: &str) -> Result<String, Problem> {
    let query = EntryQuery { book: JUDGED.to_owned(), key: Some(run_id.to_owned()), ..EntryQuery::default() };
    let found = engine.entries(&query).map_err(|error| of_engine(&error))?;
    Ok(found.into_iter().next().map_or_else(|| UNKNOWN.to_owned(), |entry| entry.state))
}

//! `etude runs judge`: records the user's verdict on a run.

use etude_evidence::details::judgement;
use serde_json::{Value, json};

use super::find::find;
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::runtime::block_on;
use crate::stdout;

pub(super) fn judge(context: &Context, args: &args::RunsJudge) -> Result<Exit, Problem> {
    let verdict = match args.verdict {
        args::Verdict::Good => "good",
        args::Verdict::Bad => "bad",
    };
    if let Some(remote) = context.server()? {
        let id = remote.find(&args.id)?.id;
        let judged = remote.post(&format!("/v1/runs/{id}/judge"), &json!({"verdict": verdict}).to_string())?;
        return Ok(judged_as(context, &id, &judged["judged"]));
    }
    let engine = context.engine(false)?;
    let id = find(context, &*engine, &args.id)?.row.id;
    block_on(engine.write(&judgement(&id, verdict)))?.map_err(|error| of_engine(&error))?;
    if let Ok(disk) = context.disk() {
        crate::command::learn::settle_after(context, &disk)?;
    }
    Ok(judged_as(context, &id, &verdict.into()))
}

/// Reports the recorded verdict.
fn judged_as(context: &Context, id: &str, verdict: &Value) -> Exit {
    if context.is_json() {
        stdout::json(&json!({"run_id": id, "judged": verdict}));
    } else if !context.global.quiet {
        crate::render::say!("run {id} is judged {}", verdict.as_str().unwrap_or_default());
    }
    Exit::Done
}

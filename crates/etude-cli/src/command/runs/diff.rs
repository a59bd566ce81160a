//! `etude runs diff`.

use std::collections::BTreeMap;

use etude_runs::inspect::{self, Stream};
use etude_runs::listing::{self, Side};
use etude_runtime::engine::{Engine, RunView};
use serde_json::Value;

use super::{document_of, find, show};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::layout;
use crate::render::runs::diff as render;
use crate::stdout;

/// Maximum size of an output that is compared value by value, in bytes. Larger ones are compared as bytes.
const MAX_PARSED: usize = 4 * 1024 * 1024;

pub(super) fn diff(context: &Context, args: &args::RunsDiff) -> Result<Exit, Problem> {
    let engine = context.engine(false)?;
    let side = |id: &str| -> Result<Side, Problem> { side(&*engine, &find::find(context, &*engine, id)?) };
    let found = listing::diff(&side(&args.a)?, &side(&args.b)?);
    if context.is_json() {
        stdout::json(&found);
        return Ok(Exit::Done);
    }
    stdout::styled(&render::text(&found, layout::width()));
    if listing::is_same(&found) && !context.global.quiet {
        crate::render::say!("the runs have the same definition, input, steps and outputs");
    }
    Ok(Exit::Done)
}

fn side(engine: &dyn Engine, view: &RunView) -> Result<Side, Problem> {
    let blobs = engine.blobs();
    let mut outputs = BTreeMap::new();
    for effect in inspect::effects(view, &*blobs).into_iter().filter(|effect| !effect.is_done_again) {
        let of_output = [Stream::Stdout, Stream::ModelResponse, Stream::Result];
        for stream in of_output.into_iter().filter(|stream| effect.streams.contains(stream)) {
            let bytes = inspect::read(view, &effect.id, stream, &*blobs).map_err(Problem::environment)?;
            outputs.extend(bytes.map(|bytes| (effect.id.clone(), bytes)));
        }
    }
    let output = match &view.result {
        Some(_) => document_of(engine, view)?.output,
        None => None,
    };
    let output = output.and_then(|json| json.text().ok().map(|text| text.to_string()));
    let output = output.filter(|text| text.len() <= MAX_PARSED);
    let output = output.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    Ok(Side { document: show::facts(engine, view, None)?, output, outputs })
}

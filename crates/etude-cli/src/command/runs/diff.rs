//! `etude runs diff`.

use std::collections::BTreeMap;

use etude_core::data::Json;
use etude_core::exact::Exact;
use etude_runs::inspect::{self, Inspected, Stream};
use etude_runs::listing::{self, Side};
use etude_runtime::engine::{Engine, RunState, RunView};

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
    let (a, b) = match context.server()? {
        Some(remote) => (super::remote::side(&remote, &args.a)?, super::remote::side(&remote, &args.b)?),
        None => {
            let engine = context.engine(false)?;
            let side = |id: &str| -> Result<Side, Problem> { side(&*engine, &find::find(context, &*engine, id)?) };
            (side(&args.a)?, side(&args.b)?)
        }
    };
    let found = listing::diff(&a, &b);
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
    let read = |effect: &str, stream| inspect::read(view, effect, stream, &*blobs).map_err(Problem::environment);
    let outputs = outputs(&inspect::effects(view, &*blobs), read)?;
    let output = match (&view.result, view.row.state) {
        (None, _) | (_, RunState::Running) => None,
        _ => document_of(engine, view)?.output,
    };
    let input = inspect::input(view, &*blobs).and_then(|input| Exact::parse(&input.text().ok()?).ok());
    Ok(Side { document: show::facts(engine, view, None)?, input, output: comparable(output.as_ref()), outputs })
}

/// Outputs of effects, by their ids.
pub(super) fn outputs(
    effects: &[Inspected],
    read: impl Fn(&str, Stream) -> Result<Option<Vec<u8>>, Problem>,
) -> Result<BTreeMap<String, Vec<u8>>, Problem> {
    let mut outputs = BTreeMap::new();
    for effect in effects.iter().filter(|effect| !effect.is_done_again) {
        let of_output = [Stream::Stdout, Stream::ModelResponse, Stream::Result];
        for stream in of_output.into_iter().filter(|stream| effect.streams.contains(stream)) {
            outputs.extend(read(&effect.id, stream)?.map(|bytes| (effect.id.clone(), bytes)));
        }
    }
    Ok(outputs)
}

/// An output that is compared value by value.
pub(super) fn comparable(output: Option<&Json>) -> Option<Exact> {
    let text = output?.text().ok().filter(|text| text.len() <= MAX_PARSED)?;
    Exact::parse(&text).ok()
}

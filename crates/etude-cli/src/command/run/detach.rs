//! `etude run --detach`: submits a run to the workers of a fleet.

use std::collections::BTreeMap;

use etude::queue::{Refused, Terms};
use etude::runner::Request;
use etude_core::digest::Hasher;
use etude_runtime::engine::{Enqueued, Placement, UniqueKey};
use serde_json::json;

use super::{Prepared, limits, unfit};
use crate::args;
use crate::context::{Context, Problem, block_on};
use crate::exit::Exit;
use crate::render::stopped::of_engine;
use crate::{bundles, command, stdout};

pub(super) fn submit(context: &Context, args: &args::Run, prepared: Prepared) -> Result<Exit, Problem> {
    crate::command::engine::check_named(context)?;
    let given = &args.detached;
    if !args.granted.read.is_empty() || !args.granted.write.is_empty() || args.granted.yolo {
        let problem =
            Problem::usage("a submitter grants nothing: `--detach` excludes `--read`, `--write` and `--yolo`");
        return Err(problem.hint("state what agents may do in the app's `approvals`"));
    }
    let Prepared { disk, definition, input, spent, routing, again_of, asked } = prepared;
    let engine = context.engine(args.limits.strict)?;
    let text = input.text().map_err(|error| Problem::environment(error.to_string()))?;
    let mut digest = Hasher::new("submission");
    digest.field(definition.target.to_string().as_bytes()).field(text.as_bytes());
    let digest = Some(digest.finish());
    let pushed = bundles::push(&*engine, disk.root())?;
    let placement = Placement {
        by: Some(command::user_name()),
        labels: labels(&given.labels)?,
        priority: given.priority,
        queue: given.queue.clone(),
        bundle: Some(pushed.digest),
        ..Placement::default()
    };
    let keys = given.key.iter().map(|key| UniqueKey { key: format!("run {key}"), digest }).collect();
    let terms = Terms { placement, keys, ..Terms::default() };
    // The run happens elsewhere, in the directory of its app.
    let request = Request {
        input,
        limits: limits(&args.limits),
        caller_dir: String::new(),
        spent,
        granted: etude::header::Granted::default(),
        refresh: args.refresh,
        routing,
        again_of,
        asked,
    };
    let now_ms = etude::clock::now_ms();
    let enqueued = block_on(etude::queue::enqueue(&*engine, &definition, request, terms, now_ms))?;
    let (id, enqueued) = enqueued.map_err(|refused| match refused {
        Refused::Input(problems) => unfit(problems),
        Refused::Engine(error) => of_engine(&error),
    })?;
    let (run_id, replayed) = match enqueued {
        Enqueued::Accepted => (id, false),
        Enqueued::Repeated { run_id, is_same: true, .. } => (run_id, true),
        Enqueued::Repeated { run_id, .. } => {
            let message = format!("`--key` belongs to run `{run_id}`, which has another target or input");
            return Err(Problem::usage(message).hint("give another key"));
        }
        Enqueued::Full => return Err(Problem::environment("the queue is full")),
    };
    if context.is_json() {
        stdout::json(&json!({"run_id": run_id, "status": "queued", "replayed": replayed}));
    } else {
        stdout::line(&run_id);
        if !context.global.quiet {
            crate::render::say!("hint: follow it with: etude runs watch {run_id}");
        }
    }
    Ok(Exit::Done)
}

fn labels(given: &[String]) -> Result<BTreeMap<String, String>, Problem> {
    let pair = |text: &String| {
        let pair = text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        pair.ok_or_else(|| Problem::usage(format!("`--label {text}` has no `=`")).hint("write it as --label KEY=VALUE"))
    };
    given.iter().map(pair).collect()
}

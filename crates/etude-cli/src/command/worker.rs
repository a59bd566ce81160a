//! `etude worker`: drives runs that other machines have submitted to a shared database.

use std::sync::Arc;
use std::time::Duration;

use etude_runtime::driver::Stop;
use etude_server::listen::Addresses;
use etude_server::{Event, Server, Settings, Stopped, Worker, work_alone};
use serde_json::{Value, json};

use super::serve::{apps, clock};
use crate::args;
use crate::context::{Context, Problem, block_on};
use crate::exit::Exit;
use crate::{paths, signals, stdout};

/// Runs at once for each core, if `--places` does not say.
const PLACES_PER_CORE: usize = 64;

pub(crate) fn worker(context: &Context, args: &args::Worker) -> Exit {
    work(context, args).unwrap_or_else(|problem| context.report(None, &problem))
}

fn work(context: &Context, args: &args::Worker) -> Result<Exit, Problem> {
    super::engine::check_named(context)?;
    let engine = context.engine(false)?;
    let name = engine.worker().unwrap_or_default();
    let state = paths::state_dir().map_err(Problem::environment)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let queues = match args.queue.is_empty() {
        true => vec![etude_runtime::engine::DEFAULT_QUEUE.to_owned()],
        false => args.queue.clone(),
    };
    let places = args.places.unwrap_or(cores * PLACES_PER_CORE);
    let idle = args.idle.map(Duration::from_millis);
    let mut settings = Settings::new(&state, Vec::new());
    settings.worker = Some(Worker { queues: queues.clone(), places, idle });
    settings.drain_timeout = Duration::from_millis(args.drain);
    let configured = Box::new(apps::Configured::new(&context.global, Arc::clone(&engine)));
    let addresses = Addresses { tcp: Vec::new(), socket: state.join("serve"), is_tls: false };
    let is_json = context.is_json();
    let is_quiet = context.global.quiet;
    let show = Arc::new(move |event: &Value| match is_json {
        true => stdout::json(event),
        false if is_quiet => {}
        false => crate::render::say!("{}", sentence(event)),
    });
    block_on(async {
        let mut stop = signals::listen().map_err(|e| Problem::environment(format!("signals cannot be caught: {e}")))?;
        let server = Server::new(settings, engine, configured, addresses, clock(), Box::new(|_| ()));
        show(&json!({
            "event": "ready", "worker": name, "pid": std::process::id(), "health": null, "queues": queues, "places": places,
        }));
        let (stopped, shows) = (Arc::clone(&server), Arc::clone(&show));
        let signals = tokio::spawn(async move {
            if stop.wait_for(|stop| *stop != Stop::No).await.is_ok() {
                shows(&json!({"event": "draining"}));
                stopped.drain();
            }
            if stop.wait_for(|stop| matches!(stop, Stop::Kill(_))).await.is_ok() {
                std::process::exit(Exit::Done as i32);
            }
        });
        let shows = Arc::clone(&show);
        let reason = match work_alone(server, Box::new(move |event: &Event| shows(&event.to_json()))).await {
            Stopped::Drained => "drained",
            Stopped::Idle => "idle",
        };
        signals.abort();
        show(&json!({"event": "stopped", "reason": reason}));
        Ok(Exit::Done)
    })?
}

/// An event for people.
fn sentence(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    match text("event") {
        "ready" => format!("worker {} takes runs from {}", text("worker"), event["queues"]),
        "claimed" => format!("run {}: claimed", text("run_id")),
        word @ ("released" | "lost") => format!("run {}: {word}, {}", text("run_id"), text("reason")),
        "stopped" => format!("stopped: {}", text("reason")),
        word => word.to_owned(),
    }
}

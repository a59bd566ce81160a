//! `etude worker`: drives runs that other machines have submitted to a shared database.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etude_core::machine::ABI;
use etude_process::guard::Guard;
use etude_process::sandbox::{self, Support};
use etude_runtime::driver::Stop;
use etude_runtime::engine::{Engine, Error, Profile, Rules};
use etude_server::health::{self, Subject};
use etude_server::listen::Addresses;
use etude_server::{Event, Server, Settings, Stopped, Worker, work_alone};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::serve::{apps, clock};
use crate::args;
use crate::bundles::workspace;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::runtime::block_on;
use crate::{engine, paths, settings, signals, stdout};

/// Pause between two checks of object storage that does not respond.
const PAUSE: Duration = Duration::from_secs(1);

/// Interval of the search for copies that no run needs.
const LOOK_FOR_COPIES: Duration = Duration::from_secs(60 * 60);

/// Concurrent runs per core, without `--places`.
const PLACES_PER_CORE: usize = 64;

pub(crate) fn worker(context: &Context, args: &args::Worker) -> Exit {
    work(context, args).unwrap_or_else(|problem| context.report(None, &problem))
}

/// Prints events: JSON lines for programs, sentences for people.
#[derive(Clone, Copy)]
struct Voice {
    is_json: bool,
    is_quiet: bool,
}

impl Voice {
    fn say(self, event: &Value) {
        match self.is_json {
            true => stdout::json(event),
            false if self.is_quiet => {}
            false => crate::render::say!("{}", sentence(event)),
        }
    }
}

fn work(context: &Context, args: &args::Worker) -> Result<Exit, Problem> {
    super::engine::check_named(context)?;
    // With a configuration fault every run would fail here, and fail fast: the worker would empty its queues.
    settings::of_user(&context.global)?;
    workspace::check()?;
    let voice = Voice { is_json: context.is_json(), is_quiet: context.global.quiet };
    block_on(async {
        let mut stop = signals::listen()?;
        let subject = Arc::<Subject>::default();
        let health = match args.health {
            Some(address) => Some(listen(address, &subject).await?),
            None => None,
        };
        let profile = profile(args);
        let joining = joined(context, profile.clone(), Arc::clone(&subject));
        let engine = tokio::select! {
            engine = joining => engine?,
            _ = stop.wait_for(|stop| *stop != Stop::No) => {
                voice.say(&json!({"event": "draining"}));
                voice.say(&json!({"event": "stopped", "reason": "drained"}));
                // The thread that tries to connect cannot be stopped.
                std::process::exit(Exit::Done as i32);
            }
        };
        let rules = engine.rules().map_err(|error| of_engine(&error))?;
        check_queues(&profile.queues, &rules, &sandbox::support())?;
        if let Some(warning) = unknown_queues(&profile.queues, &rules) {
            crate::render::say!("{}", crate::render::commands::complete(&warning));
        }
        let name = engine.worker().unwrap_or_default();
        remove_copies(&engine, engine::name(&context.global)?);
        let server = server(context, args, &profile, engine)?;
        subject.set(&server);
        if health.is_some() {
            tokio::spawn(health::attend_values(Arc::clone(&subject)));
        }
        voice.say(&json!({
            "event": "ready", "worker": name, "pid": std::process::id(), "health": health.map(|at| at.to_string()),
            "queues": profile.queues, "places": profile.places,
        }));
        Ok(until_stopped(server, stop, voice).await)
    })?
}

/// Periodically removes copies that workers of this machine have left behind. It uses a separate thread, so that the end of the
/// worker waits neither for the disk nor for the database.
fn remove_copies(engine: &Arc<dyn Engine>, name: String) {
    let engine = Arc::downgrade(engine);
    std::thread::spawn(move || {
        while let Some(engine) = engine.upgrade() {
            workspace::remove_unneeded(&*engine, &name);
            drop(engine);
            std::thread::sleep(LOOK_FOR_COPIES);
        }
    });
}

/// Profile that this worker registers.
fn profile(args: &args::Worker) -> Profile {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let places = u32::try_from(cores * PLACES_PER_CORE).unwrap_or(u32::MAX);
    Profile {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        abi: ABI,
        queues: match args.queue.is_empty() {
            true => vec![etude_runtime::engine::DEFAULT_QUEUE.to_owned()],
            false => args.queue.clone(),
        },
        places: args.places.unwrap_or(places),
        has_sandbox: sandbox::support().is_ok(),
    }
}

/// Refuses a worker that could claim nothing: it has no sandbox, and all of its queues need one (K-55).
fn check_queues(queues: &[String], rules: &Rules, support: &Result<Support, String>) -> Result<(), Problem> {
    let Err(why) = support else { return Ok(()) };
    let is_untrusted = |queue: &String| rules.queue(queue).is_some_and(|rules| rules.is_untrusted);
    if !queues.iter().all(is_untrusted) {
        return Ok(());
    }
    let named = queues.join("`, `");
    let message = format!("this worker claims nothing from `{named}`: every step there needs a sandbox, and {why}");
    Err(Problem::environment(message).hint("start it on a machine that can enforce sandboxes, or name another queue"))
}

/// Warning about queues that the fleet does not have. A worker of only such queues never gets a run.
fn unknown_queues(queues: &[String], rules: &Rules) -> Option<String> {
    let unknown: Vec<&str> = queues.iter().map(String::as_str).filter(|queue| rules.queue(queue).is_none()).collect();
    let known: Vec<&str> = rules.queues.keys().map(String::as_str).collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "warning: the fleet has no queue `{}`, so no run can be submitted to it; it has `{}`; add a queue to `queues` \
             of your configuration, then run `etude engine apply`",
            unknown.join("`, `"),
            known.join("`, `")
        )
    })
}

/// Serves health checks on the address, and returns the bound address with the actual port.
async fn listen(address: SocketAddr, subject: &Arc<Subject>) -> Result<SocketAddr, Problem> {
    let failed = |e| Problem::environment(format!("cannot listen on {address}: {e}")).hint("give another `--health`");
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tokio::spawn(health::attend(Arc::clone(subject), listener));
    Ok(bound)
}

/// Opens the engine once the database responds, the first heartbeat is acknowledged, and large values can be stored. Fails if
/// the role may not drive runs, or if object storage refuses this machine: the worker would claim runs that it cannot execute.
async fn joined(context: &Context, profile: Profile, subject: Arc<Subject>) -> Result<Arc<dyn Engine>, Problem> {
    let global = context.global.clone();
    let patience = Duration::from_millis(engine::settings(&context.global)?.patience_ms);
    let joining = tokio::task::spawn_blocking(move || {
        let mut has_warned = false;
        let mut engine = engine::open_patiently(&global)?;
        loop {
            let since = Instant::now();
            match engine.check_work().and_then(|()| engine.join(&profile)) {
                Ok(()) => return Ok(engine),
                Err(Error::ValuesAway(why)) => {
                    subject.wait_for_values(true);
                    if !std::mem::replace(&mut has_warned, true) {
                        crate::render::say!("warning: the worker waits for object storage: {why}");
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error @ Error::Refused { .. }) => return Err(of_engine(&error)),
                // The database was away for longer than statements wait.
                Err(_) if since.elapsed() >= patience => {
                    subject.wait_for_values(false);
                    engine = engine::open_patiently(&global)?;
                }
                Err(error) => return Err(of_engine(&error)),
            }
        }
    });
    joining.await.unwrap_or_else(|e| Err(Problem::environment(format!("the worker cannot start: {e}"))))
}

fn server(
    context: &Context,
    args: &args::Worker,
    profile: &Profile,
    engine: Arc<dyn Engine>,
) -> Result<Arc<Server>, Problem> {
    let given = engine::settings(&context.global)?;
    let state = paths::state_dir().map_err(Problem::environment)?;
    let mut settings = Settings::new(&state, Vec::new());
    settings.worker = Some(Worker {
        queues: profile.queues.clone(),
        places: profile.places as usize,
        idle: args.idle.map(Duration::from_millis),
        poll: Duration::from_millis(given.poll_ms),
        max_crashes: given.max_crashes,
    });
    settings.drain_timeout = Duration::from_millis(args.drain);
    let configured = Box::new(apps::Configured::new(&context.global, Arc::clone(&engine)));
    let addresses = Addresses { tcp: Vec::new(), socket: state.join("serve"), is_tls: false };
    Ok(Server::new(settings, engine, configured, addresses, clock(), Box::new(|_| ())))
}

/// Works until it must stop or was idle. The first signal drains, the second one hands over all runs at once.
async fn until_stopped(server: Arc<Server>, mut stop: watch::Receiver<Stop>, voice: Voice) -> Exit {
    let stopped = Arc::clone(&server);
    let signals = tokio::spawn(async move {
        if stop.wait_for(|stop| *stop != Stop::No).await.is_ok() {
            voice.say(&json!({"event": "draining"}));
            stopped.drain();
        }
        if stop.wait_for(|stop| matches!(stop, Stop::Kill(_))).await.is_ok() {
            stopped.leave();
        }
    });
    let guard = guard();
    let report = move |event: &Event| {
        match (&guard, event) {
            (Some(guard), Event::Claimed { run_id, .. }) => guard.watch(run_id),
            (Some(guard), Event::Released { run_id, .. } | Event::Lost { run_id, .. }) => guard.forget(run_id),
            _ => {}
        }
        voice.say(&event.to_json());
    };
    let ended = work_alone(server, Box::new(report)).await;
    let reason = match ended.reason {
        Stopped::Drained => "drained",
        Stopped::Idle => "idle",
    };
    signals.abort();
    voice.say(&json!({"event": "stopped", "reason": reason}));
    if !ended.is_over {
        // A thread that waits for the database cannot be stopped; the guard ends the remaining steps.
        std::process::exit(Exit::Done as i32);
    }
    Exit::Done
}

/// Starts the process that ends the steps of this worker if it dies (K-20).
fn guard() -> Option<Guard> {
    let started = std::env::current_exe().and_then(|program| Guard::start(&program));
    started
        .inspect_err(|e| {
            crate::render::say!("warning: cannot start the guard that ends the steps of a killed worker: {e}")
        })
        .ok()
}

/// Human-readable sentence for an event.
fn sentence(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    match text("event") {
        "ready" => {
            let health = event["health"].as_str().map(|at| format!("; health on http://{at}"));
            let queues: Vec<&str> =
                event["queues"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let (worker, queues) = (text("worker"), queues.join(", "));
            format!("worker {worker} takes runs from {queues}{}", health.unwrap_or_default())
        }
        "claimed" => match event["taken_from"].as_str() {
            Some(worker) => format!("run {}: taken over from {worker}", text("run_id")),
            None => format!("run {}: claimed", text("run_id")),
        },
        "lost" if event["message"].is_string() => {
            format!("run {}: lost, {}: {}", text("run_id"), text("reason"), text("message"))
        }
        word @ ("released" | "lost") => format!("run {}: {word}, {}", text("run_id"), text("reason")),
        "given_up" => format!("run {}: failed, because it stopped too often: {}", text("run_id"), text("message")),
        "journal_failed" => format!("cannot read the queue: {}", text("message")),
        "journal_usable" => "the queue is readable again".to_owned(),
        "connected" => format!("connected again after {} ms", event["after_ms"]),
        // The `stopped` event of the worker itself has no `run_id`.
        "stopped" if event["run_id"].is_string() => {
            format!("run {}: stopped, will be retried: {}", text("run_id"), text("message"))
        }
        "stopped" => format!("stopped: {}", text("reason")),
        word => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etude_runtime::engine::QueueRules;

    /// The `stopped` events of a run and of the worker differ, both in the sentence and in the JSON line.
    #[test]
    fn a_stopped_run_is_no_stopped_worker() {
        let (run_id, message) = ("r".to_owned(), "the bundle is not kept".to_owned());
        let stopped = Event::Stopped { run_id: run_id.clone(), message: message.clone() }.to_json();
        assert_eq!(sentence(&stopped), "run r: stopped, will be retried: the bundle is not kept");
        assert!(stopped.get("reason").is_none(), "{stopped}");
        let given_up = Event::GivenUp { run_id, message }.to_json();
        assert_eq!(sentence(&given_up), "run r: failed, because it stopped too often: the bundle is not kept");
        assert_eq!(sentence(&json!({"event": "stopped", "reason": "idle"})), "stopped: idle");
        assert_eq!(sentence(&Event::JournalUsable.to_json()), "the queue is readable again");
    }

    #[test]
    fn a_ready_worker_names_its_queues_and_its_health_check() {
        let ready =
            json!({"event": "ready", "worker": "vm-1", "queues": ["default", "batch"], "health": "127.0.0.1:9090"});
        assert_eq!(sentence(&ready), "worker vm-1 takes runs from default, batch; health on http://127.0.0.1:9090");
    }

    /// An unknown queue causes a warning, since a misspelt name looks like a queue without runs.
    #[test]
    fn queues_that_the_fleet_does_not_have_are_named() {
        let rules = Rules { queues: [("batch".to_owned(), QueueRules::default())].into(), ..Rules::default() };
        let warning = |queues: &[&str]| {
            let queues: Vec<String> = queues.iter().map(|queue| (*queue).to_owned()).collect();
            unknown_queues(&queues, &rules)
        };
        assert_eq!(warning(&["default", "batch"]), None);
        let found = warning(&["batch", "bacth"]).expect("a warning");
        assert!(found.contains("no queue `bacth`") && found.contains("it has `batch`"), "{found}");
    }

    /// K-55: a worker without a sandbox that serves only untrusted queues is refused; one that serves another queue is not.
    #[test]
    fn a_worker_without_a_sandbox_needs_a_trusted_queue() {
        let untrusted = QueueRules { is_untrusted: true, ..QueueRules::default() };
        let rules = Rules { queues: [("guests".to_owned(), untrusted)].into(), ..Rules::default() };
        let check = |queues: &[&str]| {
            let queues: Vec<String> = queues.iter().map(|queue| (*queue).to_owned()).collect();
            check_queues(&queues, &rules, &Err("this kernel has no Landlock".to_owned()))
        };
        let refused = check(&["guests"]).expect_err("it can claim nothing");
        assert_eq!(refused.exit as i32, 4);
        assert!(refused.failures[0].message.contains("this kernel has no Landlock"), "{:?}", refused.failures);
        assert!(check(&["guests", "default"]).is_ok() && check(&["default"]).is_ok());
    }
}

//! `etude mcp`: serves runs as tools of an agent, on stdin and stdout.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use etude_mcp::Selection;
use etude_runtime::driver::Stop;
use etude_server::listen::Addresses;
use etude_server::{Apps as _, LogLine, Server, Settings};
use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::{apps, clock, one_app, watch_clock};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::runtime::block_on;
use crate::{paths, signals};

/// Bytes of stdin in memory at once.
const PIECE: usize = 64 * 1024;

/// Time for runs to finish their effects after the client has gone. The client waits about as long for this process.
const DRAIN: Duration = Duration::from_secs(1);

pub(crate) fn mcp(context: &Context, args: &args::Mcp) -> Exit {
    serve(context, args).unwrap_or_else(|problem| {
        // stdout carries only the protocol.
        context.say_problem(&problem);
        problem.exit
    })
}

fn serve(context: &Context, args: &args::Mcp) -> Result<Exit, Problem> {
    let selection = Selection::new(args.tools.as_deref(), args.compact)
        .map_err(|why| Problem::usage(format!("`--tools` is not a glob: {why}")).hint("give one such as `deploy-*`"))?;
    let state = paths::state_dir().map_err(Problem::environment)?;
    let app = one_app(context)?;
    let dir = app.dir.clone();
    let mut settings = Settings::new(&state, vec![app]);
    super::limit(&mut settings, context, None)?;
    settings.drain_timeout = DRAIN;
    let engine = context.engine(false)?;
    let clock = clock();
    watch_clock(clock.clone());
    block_on(async {
        let mut stop = signals::listen()?;
        let apps = Box::new(apps::Configured::new(&context.global, Arc::clone(&engine)));
        let reading = apps::Configured::new(&context.global, Arc::clone(&engine));
        let is_quiet = context.global.quiet;
        // A client shows the note in its log, and does not wait for it.
        tokio::task::spawn_blocking(move || {
            if !is_quiet {
                say_faults(&reading, &dir)
            }
        });
        let log = Box::new(|_: &LogLine| ());
        let server = Server::new(settings, engine, apps, Addresses::default(), clock, log);
        let stopped = Arc::clone(&server);
        let signals = tokio::spawn(async move {
            if stop.wait_for(|stop| *stop != Stop::No).await.is_ok() {
                stopped.drain();
            }
            if stop.wait_for(|stop| matches!(stop, Stop::Kill(_))).await.is_ok() {
                std::process::exit(Exit::Done as i32);
            }
        });
        let input = stdin().map_err(|e| Problem::environment(format!("cannot start threads: {e}")))?;
        let served = etude_server::stdio(server, selection, input, tokio::io::stdout()).await;
        signals.abort();
        served.map_err(|e| Problem::environment(format!("cannot serve the client: {e}")))?;
        Ok(Exit::Done)
    })?
}

/// stdin as a stream. It is read by a thread outside of the runtime, which at its end would wait for a read that may never
/// return: many clients keep their end open when they end the program.
fn stdin() -> io::Result<DuplexStream> {
    let (input, mut given) = tokio::io::duplex(PIECE);
    let runtime = tokio::runtime::Handle::current();
    let follow = move || {
        let mut bytes = vec![0; PIECE];
        loop {
            match io::stdin().read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(length) if length > 0 && runtime.block_on(given.write_all(&bytes[..length])).is_ok() => {}
                // The client has closed its end, or the server has.
                _ => return,
            }
        }
    };
    thread::Builder::new().name("stdin".to_owned()).spawn(follow)?;
    Ok(input)
}

/// Notes the definitions that are not available as tools because of errors.
fn say_faults(apps: &apps::Configured, app: &Path) {
    let faults = apps.list(app).ok().and_then(|app| etude_mcp::faults(&app));
    if let Some(faults) = faults {
        crate::render::say!("note: not available as a tool: {}", crate::render::text::harmless(&faults));
    }
}

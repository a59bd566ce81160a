//! `etude run --web`: shows a run on its page in a browser.

use etude_runs::target::Target;
use etude_runtime::driver::Stop;

use super::{finished, remote};
use crate::args;
use crate::command::serve::Beside;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::remote::{Remote, Watching};
use crate::render::summary::AfterDecision;
use crate::runtime::block_on;
use crate::signals;

/// Runs on a server in this process, so that the page has all actions of a server's pages: answer, cancel, run again.
pub(super) fn run(context: &Context, args: &args::Run, about: &mut Option<Target>) -> Result<Exit, Refused> {
    if Remote::is_named(context) {
        let problem = Problem::usage("`--web` runs on this machine, `--server` on another one");
        return Err(problem.hint("open the page of the run in the browser: its address is that of the server").into());
    }
    let beside = Beside::start(context)?;
    let done = followed(context, &beside, args, about);
    beside.end();
    done
}

fn followed(context: &Context, beside: &Beside, args: &args::Run, about: &mut Option<Target>) -> Result<Exit, Refused> {
    let remote = Remote::of_process()?;
    let terms = remote::Terms::read(args)?;
    terms.refuse_detached()?;
    let body = remote::body(context, &remote, args, &terms, about)?;
    // From now on, signals are for the run, even before its id is known.
    let stop = Some(signals::listen()?);
    let (run, _) = terms.start(&remote, remote::RUNS, &body)?;
    let id = run["run_id"].as_str().unwrap_or_default();
    beside.show(id);
    let page = beside.page(id);
    let mut watching = Watching { stop, ..Watching::default() };
    let mut is_reported = false;
    let ended = loop {
        let run = remote.follow(context, id, watching)?;
        if run.status != "waiting" {
            break run.into_ended();
        }
        // The answer may come from here, from the page, or from `etude approve` anywhere.
        if !is_reported {
            crate::render::say!("\nwaiting for an answer: {page}");
            crate::render::say_hint!("Ctrl-C leaves the run waiting; continue it later: etude runs resume {id}");
            is_reported = true;
        }
        // While the run waits, Ctrl-C ends the process: the run stays in the journal.
        let after = remote.last_event(id)?;
        watching = Watching { after, changed_at: Some(run.changed_at), ..Watching::default() };
    };
    let exit = finished(context, None, &ended, AfterDecision::Resume);
    stay(&page)?;
    Ok(exit)
}

/// Keeps the pages available until Ctrl-C.
fn stay(page: &str) -> Result<(), Problem> {
    block_on(async {
        let mut stop = signals::listen()?;
        crate::render::say!("\nthe page stays until Ctrl-C: {page}");
        // The sender lives as long as the process.
        let _ = stop.wait_for(|stop| *stop != Stop::No).await;
        Ok(())
    })?
}

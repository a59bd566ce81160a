//! `etude runs watch`: follows a run of another process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use etude::definition::Definition;
use etude_core::failure::FailureKind;
use etude_core::machine::Command;
use etude_process::blob::BlobStore;
use etude_runs::document::Document;
use etude_runs::inspect::Replay;
use etude_runs::listing::{INTERRUPTED, status};
use etude_runs::target::Target;
use etude_runtime::driver::{Progress, Stop};
use etude_runtime::engine::{RunState, RunView};
use etude_runtime::record;
use serde_json::Value;

use super::{definition_as_pinned, document_of, find, pace};
use crate::command::run::print;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::events::Lines;
use crate::render::layout;
use crate::render::progress::Face;
use crate::render::runs::{BOLD, DIM, overview, short, usage};
use crate::render::stopped::of_engine;
use crate::{signals, stdout};

/// Minimum interval between two looks at the journal.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) fn watch(context: &Context, id: &str) -> Result<Exit, Refused> {
    if let Some(remote) = context.server()? {
        return Ok(super::remote::watch(context, &remote, id)?);
    }
    let engine = context.engine(false)?;
    let mut view = find::find(context, &*engine, id)?;
    let id = view.row.id.clone();
    let definition = definition_as_pinned(context, &*engine, &view);
    if definition.is_none() {
        note(context, "the definition of this run cannot be read: its steps are not shown");
    }
    let stop = signals::listen_to_follow()?;
    let mut follower = Follower::new(context, engine.blobs(), &view, definition.as_ref());
    let mut since = Instant::now();
    loop {
        follower.feed(&view);
        let is_on_its_way = matches!(view.row.state, RunState::Queued | RunState::Running);
        // Workers of a fleet continue interrupted runs.
        let has_workers = view.run.placement.bundle.is_some() && engine.is_shared();
        let is_left = status(&view.row) == INTERRUPTED && !has_workers;
        if !is_on_its_way || is_left {
            break;
        }
        pace::wait(pace::after(since.elapsed(), PAUSE), || *stop.borrow() != Stop::No);
        if *stop.borrow() != Stop::No {
            follower.close();
            let problem = Problem::left(&id, view.row.state).hint(format!("follow it again: etude runs watch {id}"));
            return Ok(context.report(Some(&Target::parse(&view.row.target)), &problem));
        }
        since = Instant::now();
        view = engine.view(&id).map_err(|e| of_engine(&e))?;
    }
    follower.close();
    if status(&view.row) == INTERRUPTED {
        let problem = Problem::environment(format!("run `{id}` was interrupted: no process executes it"));
        return Err(problem.hint(format!("continue it: etude runs resume {id}")).into());
    }
    if view.row.state == RunState::Moved {
        return Err(of_engine(&etude_runtime::engine::Error::Moved(id)).into());
    }
    let document = document_of(&*engine, &view)?;
    Ok(over(context, &document, &view.row.target))
}

fn note(context: &Context, text: &str) {
    if !context.global.quiet {
        crate::render::say!("note: {text}");
    }
}

/// Shows the effects of new records of a run.
pub(crate) struct Follower<'a> {
    context: &'a Context,
    blobs: Arc<dyn BlobStore>,
    definition: Option<&'a Definition>,
    replay: Option<Replay>,
    /// Number of records taken.
    taken: usize,
    has_noted: bool,
    face: Face,
    lines: Option<Lines>,
}

impl<'a> Follower<'a> {
    /// Starts with the current run; none of it has been shown.
    pub(crate) fn new(
        context: &'a Context,
        blobs: Arc<dyn BlobStore>,
        view: &RunView,
        definition: Option<&'a Definition>,
    ) -> Self {
        let is_of_machine = Target::parse(&view.row.target).machine().is_some();
        let lines = context.streams().then(|| Lines::new(is_of_machine));
        let (face, replay) = (context.face(), None);
        let mut follower = Self { context, blobs, definition, replay, taken: 0, has_noted: false, face, lines };
        follower.restart(view, false);
        follower
    }

    /// Starts the replay, or restarts it without records that do not count any more.
    fn restart(&mut self, view: &RunView, is_shown_before: bool) {
        self.taken = view.records.len();
        let Some(definition) = self.definition else { return };
        match Replay::new(view, &definition.plan, &definition.app, Arc::clone(&self.blobs)) {
            Ok((replay, commands)) => {
                self.replay = Some(replay);
                self.show(&commands, is_shown_before);
            }
            Err(why) => self.lose(&why),
        }
    }

    /// Stops showing steps; only the end of the run is shown. Unreadable records here do not affect the outcome of the run
    /// (K-46).
    fn lose(&mut self, why: &str) {
        self.replay = None;
        self.note_once(&format!(
            "some of the run's steps are not shown, because its records cannot be read here: {why}"
        ));
    }

    fn note_once(&mut self, text: &str) {
        if !std::mem::replace(&mut self.has_noted, true) {
            note(self.context, text);
        }
    }

    /// Skips everything that has happened so far.
    #[cfg(feature = "postgres")]
    pub(crate) fn skip(&mut self, view: &RunView) {
        self.restart(view, true);
        self.take(view, true);
    }

    /// Ends the display.
    pub(crate) fn close(self) {
        self.face.close();
    }

    /// Shows new records.
    pub(crate) fn feed(&mut self, view: &RunView) {
        self.take(view, false);
    }

    fn take(&mut self, view: &RunView, is_shown_before: bool) {
        let new = view.records.get(self.taken..).unwrap_or_default();
        let mut is_replay = is_shown_before;
        if new.iter().any(|record| [record::ATTEMPT, record::REOPENED].contains(&record.key.as_str())) {
            // Another attempt: some of the records are obsolete, and their order changes.
            is_replay = true;
            self.restart(view, is_replay);
        } else {
            self.replay.iter_mut().for_each(|replay| new.iter().cloned().for_each(|record| replay.push(record)));
        }
        self.taken = view.records.len();
        while let Some(replay) = &mut self.replay {
            match replay.advance() {
                Ok(Some((_, commands))) => self.show(&commands, is_replay),
                Ok(None) => break,
                Err(why) => self.lose(&why),
            }
        }
        if !self.replay.as_ref().is_none_or(Replay::is_faithful) {
            self.note_once("the definition has changed since the run began: some of its steps are not shown");
        }
    }

    fn show(&mut self, commands: &[Command], is_replay: bool) {
        let Some(replay) = &self.replay else { return };
        for command in commands {
            let Command::Emit(event) = command else { continue };
            let progress = Progress::Machine { event, rows: replay.machine().rows(), is_replay };
            self.face.show(&progress);
            if let Some(line) = self.lines.as_mut().and_then(|lines| lines.json(&progress)) {
                stdout::json(&line);
            }
        }
    }
}

/// Prints the end of the run as `etude run` does.
pub(super) fn over(context: &Context, document: &Document, target: &str) -> Exit {
    let state = RunState::from_word(document.status());
    if !context.global.quiet {
        let null = Value::Null;
        let member = |name: &str| document.members.get(name).unwrap_or(&null);
        for error in member("errors").as_array().into_iter().flatten() {
            crate::render::say_part!("\n{}", overview::failure(error, layout::width_of_stderr()));
        }
        let mut facts = vec![etude_core::report::duration(document.duration_ms)];
        facts.extend(usage(member("usage")));
        let id = document.run_id.as_deref().unwrap_or_default();
        let target = crate::render::text::harmless(target);
        crate::render::say!(
            "\n{BOLD}{target} {}{BOLD:#} {DIM}in {}, run {id}{DIM:#}",
            document.status(),
            facts.join(", ")
        );
        if state != Some(RunState::Succeeded) {
            crate::render::say_hint!("see the result and the next steps: etude runs show {}", short(id));
        }
    }
    print(context, document);
    match state {
        Some(RunState::Waiting) => Exit::Waiting,
        Some(RunState::Cancelled) => Exit::Interrupted,
        _ => Exit::of_kinds(&kinds(document)),
    }
}

/// Kinds of the errors in a result document.
fn kinds(document: &Document) -> Vec<FailureKind> {
    let errors = document.members.get("errors").and_then(Value::as_array);
    errors.into_iter().flatten().filter_map(|error| FailureKind::from_word(error["kind"].as_str()?)).collect()
}

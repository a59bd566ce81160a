//! The decisions of a resume, in one place: interpreter version, pins, accepted changes, slots and the next attempt.

use std::path::Path;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::failure::Failure;
use etude_core::machine::{self, Limits, Machine, Start};
use etude_core::plan::stages::{SlotForms, StageMachine};
use etude_core::report::Event;
use etude_invoke::{Modules, Project};
use etude_process::blob::{BlobStore, Watched};
use etude_runtime::driver::{Drive, OnMismatch, Progress, Replayed};
use etude_runtime::engine::{self, Engine, NewRun, QueueRules, Record, RunState, RunView, Session};
use etude_spec::source::Sources;
use serde_json::json;

use crate::allowance;
use crate::definition::Definition;
use crate::runner::{Error, Resume};
use etude_runs::document::Document;
use etude_runs::header::{Granted, Header, Request};
use etude_runs::pins::{self, Change, Pins, Unreadable};
use etude_runs::target::Target;

/// A run in its stored state, with its current definition.
pub(crate) struct Facts<'a> {
    run: &'a NewRun,
    definition: &'a Definition,
    sources: &'a dyn Sources,
    blobs: Arc<dyn BlobStore>,
    header: Header,
    project: Option<Project>,
    records: Vec<Record>,
    files: Vec<String>,
    now: Pins,
    stored: SlotForms,
}

/// Everything that decides how a run begins or continues.
pub(crate) struct ResumePlan {
    pub(crate) header: Header,
    /// The source of the middleware; the same files are pinned.
    pub(crate) project: Option<Project>,
    /// The journal, with `new` at its end.
    pub(crate) records: Vec<Record>,
    /// Records to write before anything runs.
    pub(crate) new: Vec<Record>,
    pub(crate) on_mismatch: OnMismatch,
    pub(crate) is_resumed: bool,
    /// True if another process ran it before: leftover processes are killed first.
    pub(crate) has_survivors: bool,
    /// True if a machine that is a step may refuse the version of its slot, which only the replay shows.
    pub(crate) may_refuse_slot: bool,
    /// Forms of slots at the last continuation of the run.
    stored: SlotForms,
}

impl<'a> Facts<'a> {
    /// Reads the header, and the files that define the run.
    ///
    /// # Errors
    /// Another version of the interpreter began the run, its header is damaged, or a file cannot be read.
    pub(crate) fn gather(
        run: &'a NewRun,
        definition: &'a Definition,
        sources: &'a dyn Sources,
        records: Vec<Record>,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        if !machine::replays(run.abi, &definition.plan) {
            return Err(Error::OtherAbi { run_id: run.id.clone(), found: run.abi });
        }
        let (header, blobs) = (header_of(run, engine)?, engine.blobs());
        let project = Project::of_app(&definition.app, Modules::Run);
        let files = files_of(definition, project.as_ref());
        let now = Pins::look(sources, &files)?;
        let stored = pins::last_slots(&records);
        Ok(Self { run, definition, sources, blobs, header, project, records, files, now, stored })
    }

    /// For a run whose target is a machine: the machine that cannot continue with its slot, and the reason (B-ST3).
    pub(crate) fn refused_slot(&self) -> Option<(String, Failure)> {
        let failure = Machine::refused_drift(&self.definition.plan, &self.stored)?;
        match &self.definition.target {
            Target::Machine(id) => Some((id.clone(), failure)),
            _ => None,
        }
    }

    /// Forms of slots at the last continuation of the run.
    pub(crate) fn stored(&self) -> &SlotForms {
        &self.stored
    }

    /// Limits of the run, or those of the next attempt.
    pub(crate) fn limits(&self, resume: &Resume) -> Limits {
        resume.attempt.as_ref().map_or(self.header.request.limits, |attempt| attempt.limits)
    }

    /// Decides about changed files and the next attempt.
    ///
    /// # Errors
    /// The definition has changed without acceptance, or a file cannot be stored.
    pub(crate) fn decide(self, resume: Resume, is_going_on: bool) -> Result<ResumePlan, Error> {
        let Self { run, definition, sources, blobs, header, project, mut records, files, now, stored } = self;
        let slots = definition.plan.slots();
        let pinned = || Pins::take(sources, &files, &*blobs).map(|pins| pins.to_record(&slots));
        let count = Pins::count(&records);
        // After an earlier accepted change, the journal still holds outcomes of the old definition.
        let mut on_mismatch = if count > 1 { OnMismatch::Redo } else { OnMismatch::Refuse };
        let mut new = Vec::new();
        match Pins::of_records(&records) {
            // The run died before its definition was pinned, so nothing of it has run.
            None => new.push(pinned()?),
            Some(before) => {
                let unnamed = unnamed_of(definition, project.as_ref());
                let changes = before.changes(&now, &unnamed, sources, &*blobs);
                let is_accepted = resume.accept_changes || are_declared(definition, &stored, &changes);
                if !changes.is_empty() && !is_accepted {
                    return Err(Error::Changed { run_id: run.id.clone(), changes });
                }
                if !changes.is_empty() {
                    new.push(pinned()?);
                    on_mismatch = OnMismatch::Redo;
                } else if before.lacks(&now) {
                    // New files are not a change, but they affect the keys of cached outputs, so requests may differ.
                    if count == 1 {
                        new.push(before.to_record(&slots));
                    }
                    on_mismatch = OnMismatch::Redo;
                }
            }
        }
        new.extend(resume.attempt.iter().map(|attempt| attempt.to_record()));
        records.extend(new.iter().cloned());
        let is_of_one = matches!(definition.target, Target::Machine(_));
        let may_refuse_slot = is_going_on && !is_of_one && Machine::refused_drift(&definition.plan, &stored).is_some();
        let (is_resumed, has_survivors) = (true, true);
        Ok(ResumePlan {
            header,
            project,
            records,
            new,
            on_mismatch,
            is_resumed,
            has_survivors,
            may_refuse_slot,
            stored,
        })
    }
}

impl ResumePlan {
    /// Plan of a new run, whose journal holds its pins.
    pub(crate) fn first(header: Header, project: Option<Project>, records: Vec<Record>) -> Self {
        Self {
            header,
            project,
            records,
            new: Vec::new(),
            on_mismatch: OnMismatch::Refuse,
            is_resumed: false,
            has_survivors: false,
            may_refuse_slot: false,
            stored: SlotForms::default(),
        }
    }

    /// Plan of a queued run that has not begun.
    ///
    /// # Errors
    /// Another version of the interpreter accepted the run, its header is damaged, or a file cannot be read.
    pub(crate) fn queued(
        run: &NewRun,
        definition: &Definition,
        project: Option<Project>,
        sources: &dyn Sources,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        if !machine::replays(run.abi, &definition.plan) {
            return Err(Error::OtherAbi { run_id: run.id.clone(), found: run.abi });
        }
        let header = header_of(run, engine)?;
        let pins = Pins::take(sources, &files_of(definition, project.as_ref()), &*engine.blobs())?;
        let pinned = pins.to_record(&definition.plan.slots());
        Ok(Self::first(header, project, vec![pinned]))
    }

    /// Plan of a run that continues in its own process, with the definition that it has.
    ///
    /// # Errors
    /// Its header is damaged.
    pub(crate) fn unchanged(
        run: &NewRun,
        definition: &Definition,
        records: Vec<Record>,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let header = header_of(run, engine)?;
        let project = Project::of_app(&definition.app, Modules::Run);
        let on_mismatch = if Pins::count(&records) > 1 { OnMismatch::Redo } else { OnMismatch::Refuse };
        Ok(Self { on_mismatch, is_resumed: true, ..Self::first(header, project, records) })
    }

    /// Replays the journal and records how the run continues, after `active_ms` of active time. A refused run stays unchanged,
    /// so that its cause can be fixed and the run resumed.
    ///
    /// # Errors
    /// The journal fails or does not match, or a machine refuses its slot.
    pub(crate) async fn open<'d>(
        &self,
        drive: Drive<'d>,
        definition: &Definition,
        active_ms: u64,
        emit: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Result<Replayed<'d>, Error> {
        let (session, run_id) = (drive.session, drive.start.run_id.clone());
        let replayed = match self.may_refuse_slot {
            true => replay_unless_refused(drive, definition, &self.stored, emit)?,
            false => drive.replay(emit).map_err(|source| Error::Drive { run_id: run_id.clone(), source })?,
        };
        self.begin_again(session, &Document::continued(&run_id, &definition.target, active_ms)).await?;
        Ok(replayed)
    }

    /// Writes the new records and kills the leftovers of earlier owners, which must not run beside the repeated step. The
    /// engine refuses a session that was overtaken meanwhile: the run's processes then belong to a later owner.
    async fn begin_again(&self, session: &dyn Session, so_far: &Document) -> Result<(), engine::Error> {
        for record in &self.new {
            session.append(record.clone()).await?;
        }
        if self.is_resumed {
            session.set_state(RunState::Running, Some(&so_far.to_journal())).await?;
        }
        if self.has_survivors {
            etude_process::reap_survivors_of(session.run_id());
        }
        Ok(())
    }

    /// Start values of the interpreter.
    pub(crate) fn start(&self, run: &NewRun, app: &Path, blobs: &dyn BlobStore) -> Start {
        self.header.start(run, app, &self.records, blobs)
    }
}

/// The header of a run that was read from the engine. A run that brings its app along was submitted from another machine, and
/// any run of a shared database may have been. Such a run gets at most the grants that its queue allows, whatever its header
/// says, and is called from the directory of its app (K-54).
pub(crate) fn header_of(run: &NewRun, engine: &dyn Engine) -> Result<Header, Error> {
    let blobs = Watched::new(engine.blobs());
    let header = Header::parse(&run.header, &blobs).map_err(|why| match blobs.outage() {
        Some(why) => Error::Engine(engine::Error::ValuesAway(why.to_owned())),
        None => Error::Header { run_id: run.id.clone(), why },
    })?;
    Ok(match run.placement.bundle.is_some() || engine.is_shared() {
        true => {
            let granted = match header.request.granted == Granted::default() || run.placement.bundle.is_none() {
                true => Granted::default(),
                false => allowance::allowed(header.request.granted, &rules_of(run, engine)?.allow),
            };
            let request = Request { granted, caller_dir: String::new(), ..header.request };
            Header { request, ..header }
        }
        false => header,
    })
}

/// The rules of a run's queue. A deleted queue has the rules of a new one.
fn rules_of(run: &NewRun, engine: &dyn Engine) -> Result<QueueRules, engine::Error> {
    Ok(engine.rules()?.queue(run.placement.queue()).unwrap_or_default())
}

/// Files that define a run: those of its target, and those of the app's middleware.
pub(crate) fn files_of(definition: &Definition, project: Option<&Project>) -> Vec<String> {
    let mut files = definition.files.clone();
    files.extend(middleware_of(project));
    files.sort_unstable();
    files.dedup();
    files
}

/// Files that the run uses without naming them: those of its middleware, and the definitions of the tools that its agents get.
/// A new one is a change.
fn unnamed_of(definition: &Definition, project: Option<&Project>) -> Vec<String> {
    let mut files = middleware_of(project);
    files.extend(definition.tools.iter().flat_map(|tools| tools.iter()).map(|tool| tool.file.clone()));
    files
}

fn middleware_of(project: Option<&Project>) -> Vec<String> {
    project.map(etude_invoke::pinned::files).unwrap_or_default()
}

/// Changes of a run's definition since the run began, without those that its machines declare.
///
/// # Errors
/// A file cannot be read.
pub fn changes(
    view: &RunView,
    definition: &Definition,
    sources: &dyn Sources,
    blobs: &dyn BlobStore,
) -> Result<Vec<Change>, Unreadable> {
    let Some(before) = Pins::of_records(&view.records) else { return Ok(Vec::new()) };
    let project = Project::of_app(&definition.app, Modules::Run);
    let now = Pins::look(sources, &files_of(definition, project.as_ref()))?;
    let changes = before.changes(&now, &unnamed_of(definition, project.as_ref()), sources, blobs);
    let is_declared = are_declared(definition, &pins::last_slots(&view.records), &changes);
    Ok(if is_declared { Vec::new() } else { changes })
}

/// Records with which a run accepts the current `definition`, for a process that continues it elsewhere. Empty if nothing has
/// changed, or if no definition was pinned yet.
///
/// # Errors
/// Another version of the interpreter began the run, its header is damaged, a file cannot be read or stored, or a machine
/// refuses its slot.
pub fn accepted(
    view: &RunView,
    definition: &Definition,
    sources: &dyn Sources,
    engine: &dyn Engine,
) -> Result<Vec<Record>, Error> {
    let facts = Facts::gather(&view.run, definition, sources, view.records.clone(), engine)?;
    if let Some((_, failure)) = facts.refused_slot() {
        return Err(Error::Refused { run_id: view.row.id.clone(), failure: Box::new(failure) });
    }
    if Pins::of_records(&view.records).is_none() {
        return Ok(Vec::new());
    }
    Ok(facts.decide(Resume { accept_changes: true, attempt: None }, true)?.new)
}

/// True if every change lies in the directory of a machine whose slot has a new version: the author of the change has declared
/// how the stored state of runs is treated (B-ST3).
fn are_declared(definition: &Definition, stored: &SlotForms, changes: &[Change]) -> bool {
    let machines = definition.plan.machines();
    let has_drifted = |machine: &&&Arc<StageMachine>| {
        stored.get(&machine.id).is_some_and(|form| form.version != machine.slot.version)
    };
    let dirs: Vec<String> = machines.iter().filter(has_drifted).map(|machine| format!("{}/", machine.dir)).collect();
    changes.iter().all(|change| dirs.iter().any(|dir| change.path.starts_with(dir)))
}

/// Replays the journal; events are passed on only if no machine refuses its slot (B-ST3).
fn replay_unless_refused<'d>(
    drive: Drive<'d>,
    definition: &Definition,
    stored: &SlotForms,
    emit: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<Replayed<'d>, Error> {
    let run_id = drive.start.run_id.clone();
    let mut past = Vec::new();
    let replayed = drive.replay(&mut |progress| {
        if let Progress::Machine { event, rows, .. } = progress {
            past.push((event.clone(), rows.to_vec()));
        }
    });
    let replayed = replayed.map_err(|source| Error::Drive { run_id: run_id.clone(), source })?;
    if let Some(refused) = replayed.refused_slot() {
        return Err(refused_slot(&run_id, definition, stored, refused, emit));
    }
    past.iter().for_each(|(event, rows)| emit(Progress::Machine { event, rows, is_replay: true }));
    Ok(replayed)
}

/// The error for a machine that refuses to continue with its slot. Also emits the event.
pub(crate) fn refused_slot(
    run_id: &str,
    definition: &Definition,
    stored: &SlotForms,
    (id, failure): (String, Failure),
    emit: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Error {
    let now = definition.plan.slots();
    let payload = json!({
        "sessionId": run_id, "workflowRunId": run_id, "extId": id, "storedVersion": stored.get(&id).map(|form| &form.version),
        "currentVersion": now.get(&id).map(|form| &form.version), "decision": now.get(&id).map(|form| &form.drift),
    });
    let event = Event::Stage { name: "StateSlotDrift", payload: Json::of(&payload) };
    emit(Progress::Machine { event: &event, rows: &[], is_replay: false });
    Error::Refused { run_id: run_id.to_owned(), failure: Box::new(failure) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;

//! Configuration, definitions and models for the server.

use std::path::Path;
#[cfg(feature = "postgres")]
use std::path::PathBuf;
use std::sync::Arc;

use etude::App;
use etude::Disk;
use etude::definition::{Configuration, Definition, LoadError};
use etude::runner::{RunResult, Runner};
use etude_core::model::Usage;
use etude_runs::header::Header;
use etude_runs::target::Target;
use etude_runtime::engine::NewRun;
use etude_server::{AppCommand, Apps, Code, Move, NotLoaded, Ran, RunObserver};
use etude_spec::automation::{Automation, Known};
use etude_spec::stage_machine::{Machines, Rules};
use serde_json::{Value, json};

use super::located;
use crate::args::{Format, Global, Purpose};
#[cfg(feature = "postgres")]
use crate::bundles::Unusable;
use crate::command::learn::Served;
use crate::context::Context;
use crate::problem::{Problem, Refused};
use crate::settings::{Need, Resolved};
use crate::telemetry::Telemetry;

/// The user's configuration, read for each app as the commands read it.
pub(crate) struct Configured {
    global: Global,
    engine: Arc<dyn etude_runtime::engine::Engine>,
}

impl Configured {
    pub(crate) fn new(global: &Global, engine: Arc<dyn etude_runtime::engine::Engine>) -> Self {
        // Requests print nothing and ask no questions.
        let global = Global { quiet: true, verbose: 0, format: Format::Json, ..global.clone() };
        Self { global, engine }
    }

    fn context(&self, app: &Path) -> Context {
        self.context_for(app, Purpose::Run)
    }

    /// Opens the current files and configuration of an app.
    fn open(&self, app: &Path) -> Result<(Disk, Resolved), String> {
        let disk = Disk::open(app).map_err(|e| e.to_string())?;
        // A folder may become an app later.
        if !etude::app::is_app(disk.root()) {
            return Err(format!("`{}` is no longer an app", app.display()));
        }
        let settings = self.context(app).settings(disk.root()).map_err(|problem| located(&problem))?;
        Ok((disk, settings))
    }

    fn context_for(&self, app: &Path, purpose: Purpose) -> Context {
        Context::new(Global { app: Some(app.to_owned()), ..self.global.clone() }, false, purpose)
    }
}

/// Checks that the process may open a few more files.
fn enough_descriptors() -> Result<(), String> {
    crate::runtime::descriptors().map_err(|problem| located(&problem))
}

/// Problem for a client: the faults of its request, or the diagnostics of a definition.
fn of_refused(refused: Refused, invalid: &'static str) -> etude_server::Problem {
    match refused {
        Refused::Problem(problem) => hinted(Code::InputInvalid, &problem),
        Refused::Invalid(diagnostics, _) => {
            let documents: Vec<Value> = diagnostics.iter().map(etude_spec::render::json).collect();
            etude_server::Problem::new(Code::DefinitionInvalid, invalid).with("diagnostics", documents)
        }
    }
}

/// Problem as a response of the server; its hints are joined into one.
fn hinted(code: Code, problem: &Problem) -> etude_server::Problem {
    let hints = problem.hints.join("; ");
    let out = etude_server::Problem::new(code, located(problem));
    if hints.is_empty() { out } else { out.hint(hints) }
}

impl Apps for Configured {
    fn observer(&self, run: &NewRun) -> Option<Box<dyn RunObserver>> {
        let traceparent = || Header::traceparent_of(&run.header);
        let telemetry = Telemetry::of_served(&Target::parse(&run.target), traceparent);
        telemetry.is_on().then(|| Box::new(telemetry) as Box<dyn RunObserver>)
    }

    /// Starts the shadow of a run in skill mode, as the command line does (L-52).
    fn after(&self, run: &NewRun, ended: &RunResult) {
        let is_skill = matches!(Target::parse(&run.target), Target::Skill(_));
        // The app of a run with a bundle is removed with the run.
        if !is_skill || run.placement.bundle.is_some() || ended.document.status() != "succeeded" {
            return;
        }
        let app = Path::new(&run.app);
        let Ok(disk) = Disk::open(app) else { return };
        // A shadow that does not start does not affect the run.
        if let Ok(Some(mut child)) = crate::command::learn::begin_shadow(&self.context(app), &disk, &run.id) {
            std::thread::spawn(move || {
                let _ = child.wait();
                etude_process::no_longer_exempt(&child);
            });
        }
    }

    #[cfg(feature = "postgres")]
    fn place(&self, run: &NewRun) -> Result<PathBuf, NotLoaded> {
        match run.placement.bundle {
            Some(digest) => {
                let made = crate::bundles::workspace::make(&self.global, &*self.engine, run, digest);
                made.map_err(|unusable| match unusable {
                    Unusable::Damaged(why) => NotLoaded::Unreadable(why),
                    Unusable::Unreachable(why) => NotLoaded::Unreachable(why),
                })
            }
            None => Ok(PathBuf::from(&run.app)),
        }
    }

    #[cfg(feature = "postgres")]
    fn leave(&self, run_id: &str) {
        crate::bundles::workspace::remove(run_id);
    }

    fn check_readable(&self, app: &Path) -> Result<(), String> {
        enough_descriptors()?;
        self.open(app).map(drop)
    }

    fn load(&self, app: &Path, target: &Target) -> Result<(Disk, Definition), NotLoaded> {
        let (disk, settings) = self.open(app).map_err(NotLoaded::Unreadable)?;
        let app = App::new(disk, Configuration { machines: settings.machines, agent: settings.agent });
        let loaded = app.load(target);
        // Unopened files are missing from the definitions found.
        if loaded.is_err() {
            enough_descriptors().map_err(NotLoaded::Unreadable)?;
        }
        match loaded {
            Ok(definition) => Ok((app.into_disk(), definition)),
            Err(LoadError::Unknown { known }) => Err(NotLoaded::Unknown { known }),
            Err(LoadError::Invalid(found)) => Err(NotLoaded::Invalid(found)),
        }
    }

    fn unpriced(&self, app: &Path, definition: &Definition) -> Vec<String> {
        let resolved = self.context(app).settings(app);
        resolved.map_or_else(|_| Vec::new(), |resolved| crate::settings::unpriced(&resolved, definition))
    }

    fn runner(&self, run: &NewRun, disk: &Disk, definition: &Definition) -> Result<Runner, String> {
        let context = self.context(disk.root());
        let mut is_isolated = false;
        if run.placement.bundle.is_some() {
            let rules = self.engine.rules().map_err(|error| error.to_string())?;
            let rules = rules.queue(run.placement.queue()).unwrap_or_default();
            let settings = context.settings(disk.root()).map_err(|problem| located(&problem))?;
            let agents = settings.grants.sandbox.as_ref();
            if let Some(denied) = etude::allowance::denied_step(definition, agents, &rules) {
                let queue = run.placement.queue();
                return Err(format!("{} is refused: `{}` of queue `{queue}` denies it", denied.what, denied.member));
            }
            is_isolated = rules.is_untrusted;
        }
        // There is no terminal: calls that need an approval wait for a decision if the configuration says so.
        let runner = context.runner(disk, definition, Arc::clone(&self.engine), Need::Ask);
        let mut runner = runner.map_err(|problem| located(&problem))?;
        // Runs of an untrusted queue cannot see each other (K-55).
        if let Some(sandboxes) = &mut runner.sandboxes {
            sandboxes.is_isolated = is_isolated;
        }
        Ok(runner)
    }

    fn skills(&self, app: &Path) -> Vec<(String, String)> {
        crate::command::skill::for_agents(&self.context(app))
    }

    fn skill(&self, app: &Path, name: &str) -> Option<String> {
        crate::command::skill::text_of(&self.context(app), name)
    }

    fn automation(&self, app: &Path) -> Result<Automation, String> {
        let disk = Disk::open(app).map_err(|e| e.to_string())?;
        let definitions = etude_spec::App::new(&disk);
        let pipelines: Vec<&str> = definitions.discovery().pipelines.iter().map(String::as_str).collect();
        let machines = Machines::new(&disk, Rules::default());
        let machines: Vec<&str> = machines.names().iter().map(String::as_str).collect();
        let known = Known { pipelines: &pipelines, machines: &machines };
        crate::settings::automation(&self.context(app).global, disk.root(), Some(known))
            .map_err(|problem| located(&problem))
    }

    fn route(&self, app: &Path, request: &str) -> Result<(Value, Usage), etude_server::Problem> {
        // A reader must not start programs of the app.
        let context = self.context_for(app, Purpose::Look);
        let document = crate::command::route::document_of(&context, request);
        document.map_err(|refused| of_refused(refused, "the matching pipeline has errors"))
    }

    fn learned(&self, app: &Path) -> Result<Value, etude_server::Problem> {
        let context = self.context_for(app, Purpose::Look);
        let list = Served::open(&context, &self.engine).and_then(|served| served.list());
        list.map_err(|problem| hinted(Code::InputInvalid, &problem))
    }

    fn learned_pipeline(&self, app: &Path, name: &str) -> Result<Option<Value>, etude_server::Problem> {
        let context = self.context_for(app, Purpose::Look);
        let shown = Served::open(&context, &self.engine).and_then(|served| served.show(name));
        shown.map_err(|problem| hinted(Code::InputInvalid, &problem))
    }

    fn move_learned(&self, app: &Path, name: &str, change: Move) -> Result<Option<Value>, etude_server::Problem> {
        let context = self.context(app);
        let invalid = |refused| of_refused(refused, "the learned pipeline has errors");
        let served = Served::open(&context, &self.engine).map_err(|problem| invalid(problem.into()))?;
        if !served.has(name).map_err(|problem| invalid(problem.into()))? {
            return Ok(None);
        }
        served.settle().map_err(|problem| invalid(problem.into()))?;
        let promotion = match change {
            Move::Demote { reason } => {
                return served.demote(name, reason.as_deref()).map(Some).map_err(|problem| invalid(problem.into()));
            }
            Move::Promote { to, accepts_risk, by } => served.promote(name, to, accepts_risk, by).map_err(invalid)?,
        };
        match promotion.refused {
            None => Ok(Some(promotion.document)),
            Some(problem) => {
                let members = ["from", "missing", "conflicts"];
                let with =
                    |out: etude_server::Problem, member: &&str| out.with(member, promotion.document[*member].clone());
                Err(members.iter().fold(hinted(Code::NotPromoted, &problem), with))
            }
        }
    }

    fn command(&self, app: &Path, command: AppCommand) -> Result<Ran, String> {
        crate::command::apps::of_server(&self.context(app), command).map_err(|problem| located(&problem))
    }

    fn expand(&self, text: &str) -> Option<String> {
        crate::settings::expanded(text)
    }

    fn list(&self, app: &Path) -> Result<Value, String> {
        if app.is_dir() && !etude::app::is_app(app) {
            // The directory may become an app later.
            let unlisted = Disk::open(app).map(|disk| etude::definition::unlisted(&disk)).unwrap_or_default();
            let diagnostics: Vec<Value> = unlisted.iter().map(etude_spec::render::json).collect();
            return Ok(json!({
                "pipelines": [], "machines": [], "skills": [], "applications": [], "diagnostics": diagnostics,
            }));
        }
        // A reader must not start programs of the app.
        let context = self.context_for(app, Purpose::Look);
        let mut document = crate::command::list::of_app(&context).map_err(|problem| located(&problem))?;
        let disk = Disk::open(app).map_err(|e| e.to_string())?;
        // An error of the command concerns the whole configuration; the list contains the diagnostics that do not need it.
        let diagnostics = crate::command::check::diagnostics(&context, &disk)
            .unwrap_or_else(|_| etude_spec::App::new(&disk).summaries().1);
        document["diagnostics"] = diagnostics.iter().map(etude_spec::render::json).collect();
        Ok(document)
    }
}

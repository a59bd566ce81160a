//! Configuration, definitions and models for the server.

use std::path::Path;
#[cfg(feature = "postgres")]
use std::path::PathBuf;
use std::sync::Arc;

use etude::definition::{self, Configuration, Definition, LoadError};
use etude::disk::Disk;
use etude::header::Header;
use etude::runner::Runner;
use etude::skill_mode;
use etude::target::Target;
use etude_runtime::engine::NewRun;
use etude_server::{Apps, NotLoaded, Ran, RunObserver};
use etude_spec::automation::{Automation, Known};
use etude_spec::stage_machine::{Machines, Rules};
use serde_json::Value;

use crate::args::Global;
#[cfg(feature = "postgres")]
use crate::bundles::Unusable;
use crate::context::{Context, Problem};
use crate::settings::{Need, Purpose};
use crate::telemetry::Telemetry;

/// The user's configuration, read for each app as the commands read it.
pub(crate) struct Configured {
    global: Global,
    engine: Arc<dyn etude_runtime::engine::Engine>,
}

impl Configured {
    pub(crate) fn new(global: &Global, engine: Arc<dyn etude_runtime::engine::Engine>) -> Self {
        // Nothing that a request causes is printed, and no one is asked.
        let global = Global { quiet: true, verbose: false, format: crate::args::Format::Json, ..global.clone() };
        Self { global, engine }
    }

    fn context(&self, app: &Path) -> Context {
        self.context_for(app, Purpose::Run)
    }

    fn context_for(&self, app: &Path, purpose: Purpose) -> Context {
        Context::new(Global { app: Some(app.to_owned()), ..self.global.clone() }, false, purpose)
    }
}

/// The sentence of a problem.
fn why(problem: &Problem) -> String {
    let messages: Vec<&str> = problem.failures.iter().map(|failure| failure.message.as_str()).collect();
    messages.join("; ")
}

impl Apps for Configured {
    fn observer(&self, run: &NewRun) -> Option<Box<dyn RunObserver>> {
        let traceparent = || Header::traceparent_of(&run.header);
        let telemetry = Telemetry::of_served(&Target::parse(&run.target), traceparent);
        telemetry.is_on().then(|| Box::new(telemetry) as Box<dyn RunObserver>)
    }

    #[cfg(feature = "postgres")]
    fn place(&self, run: &NewRun) -> Result<PathBuf, NotLoaded> {
        match run.placement.bundle {
            Some(digest) => {
                let made = crate::bundles::workspace::make(&*self.engine, run, digest);
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

    fn load(&self, app: &Path, target: &Target) -> Result<(Disk, Definition), NotLoaded> {
        let disk = Disk::open(app).map_err(|e| NotLoaded::Unreadable(e.to_string()))?;
        let context = self.context(app);
        let settings = context.settings(disk.root()).map_err(|problem| NotLoaded::Unreadable(why(&problem)))?;
        let loaded = match target {
            Target::Pipeline(name) => {
                let (machines, agent) = (settings.machines, settings.agent);
                definition::load(&disk, name, &Configuration { machines, agent })
            }
            Target::Machine(name) => etude::stage_machine::load(&disk, name, &settings.machines),
            Target::Skill(_) => skill_mode::load(&disk, settings.agent),
        };
        match loaded {
            Ok(definition) => Ok((disk, definition)),
            Err(LoadError::Unknown { known }) => Err(NotLoaded::Unknown { known }),
            Err(LoadError::Invalid(found)) => Err(NotLoaded::Invalid(found)),
        }
    }

    fn runner(&self, disk: &Disk, definition: &Definition) -> Result<Runner, String> {
        let context = self.context(disk.root());
        // No one sits at a terminal: calls that need an approval wait for a decision if the configuration says so.
        let runner = context.runner(disk, definition, Arc::clone(&self.engine), Need::Ask);
        runner.map_err(|problem| why(&problem))
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
        crate::settings::automation(&self.context(app).global, disk.root(), Some(known)).map_err(|e| why(&e))
    }

    fn route(&self, app: &Path, request: &str) -> Result<Value, etude_server::Problem> {
        use crate::context::Refused;
        // Who may only read starts no program of the app.
        let context = self.context_for(app, Purpose::Look);
        crate::command::route::document_of(&context, request).map_err(|refused| match refused {
            Refused::Problem(problem) => etude_server::Problem::new(etude_server::Code::InputInvalid, why(&problem)),
            Refused::Invalid(diagnostics, _) => {
                let documents: Vec<Value> = diagnostics.iter().map(etude_spec::render::json).collect();
                let message = "the definition of the pipeline that fits has errors";
                etude_server::Problem::new(etude_server::Code::DefinitionInvalid, message)
                    .with("diagnostics", documents)
            }
        })
    }

    fn command(&self, app: &Path, slug: &str, argv: &[String], stdin: Option<String>) -> Result<Ran, String> {
        crate::command::apps::of_server(&self.context(app), slug, argv, stdin).map_err(|problem| why(&problem))
    }

    fn expand(&self, text: &str) -> Option<String> {
        crate::settings::expanded(text)
    }

    fn list(&self, app: &Path) -> Result<Value, String> {
        let context = self.context(app);
        let mut document = crate::command::list::of_app(&context).map_err(|problem| why(&problem))?;
        let disk = Disk::open(app).map_err(|e| e.to_string())?;
        let (_, diagnostics) = etude_spec::App::new(&disk).summaries();
        document["diagnostics"] = diagnostics.iter().map(etude_spec::render::json).collect();
        Ok(document)
    }
}

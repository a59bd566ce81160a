//! The shared context of a server's parts: settings, journal, apps and clock. It depends on none of the parts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use etude::Disk;
use etude::definition::Definition;
use etude_runs::target::Target;
use etude_runtime::engine::{Engine, Limits, NewRun, RunRow, RunView, Takes, name_of};
use etude_spec::automation::Automation;
use tokio::sync::watch;

use crate::app::{Apps, NotLoaded};
use crate::automation::Automations;
use crate::clock::Clock;
use crate::listen::Addresses;
use crate::problem::{Problem, engine_failed, no_run};
use crate::settings::{ServedApp, Settings};
use crate::token::Caller;

/// The shared context of all parts of a server.
pub(crate) struct Context {
    settings: Settings,
    engine: Arc<dyn Engine>,
    apps: Box<dyn Apps>,
    automations: Automations,
    clock: Clock,
    addresses: Addresses,
    is_draining: AtomicBool,
    stop: watch::Sender<bool>,
}

impl Context {
    /// The context of a server at `addresses`.
    pub(crate) fn new(
        settings: Settings,
        engine: Arc<dyn Engine>,
        apps: Box<dyn Apps>,
        addresses: Addresses,
        clock: Clock,
    ) -> Self {
        Self {
            settings,
            engine,
            apps,
            automations: Automations::default(),
            clock,
            addresses,
            is_draining: AtomicBool::new(false),
            stop: watch::Sender::new(false),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    pub(crate) fn apps(&self) -> &dyn Apps {
        &*self.apps
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The addresses on which the server accepts connections.
    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The origin of the pages, without the base path and a trailing slash; `None` if the server listens only on its socket.
    pub(crate) fn origin(&self) -> Option<String> {
        self.addresses.origin(&self.settings.names, self.settings.is_behind_proxy)
    }

    /// True as soon as the server was asked to stop.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    /// Asks all tasks that live as long as the server to end.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
        self.stop.send_replace(true);
    }

    /// A receiver that becomes true when the server must stop.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// The automation of an app, at most a second old.
    pub(crate) fn automation(&self, app: &ServedApp) -> Result<Arc<Automation>, Problem> {
        self.automations.of(&*self.apps, app)
    }

    /// The same for each app that can be read.
    pub(crate) fn automations(&self) -> impl Iterator<Item = (&ServedApp, Arc<Automation>)> {
        self.settings.apps.iter().filter_map(|app| Some((app, self.automation(app).ok()?)))
    }

    pub(crate) fn app(&self, slug: &str) -> Option<&ServedApp> {
        self.settings.apps.iter().find(|app| app.slug == slug)
    }

    /// The slug of the app in the directory `dir`.
    pub(crate) fn slug(&self, dir: &str) -> Option<&str> {
        self.settings.apps.iter().find(|app| app.dir.to_str() == Some(dir)).map(|app| app.slug.as_str())
    }

    /// The served app in whose directory the run was started; `None` if this server does not serve it.
    pub(crate) fn app_of(&self, row: &RunRow) -> Option<&ServedApp> {
        self.settings.apps.iter().find(|app| app.dir.to_str() == Some(&row.app))
    }

    /// The directories of all served apps.
    pub(crate) fn dirs(&self) -> Vec<String> {
        self.settings.apps.iter().map(|app| app.dir.display().to_string()).collect()
    }

    /// True if the caller may see a run (S-16).
    pub(crate) fn shows(&self, caller: &Caller, row: &RunRow) -> bool {
        self.slug(&row.app).is_some() && caller.covers(name_of(&row.target))
    }

    /// The definition of a target for a new run. A learned pipeline that is not in use is unknown to everything that starts runs:
    /// requests, webhooks and schedules (L-36).
    pub(crate) fn startable(&self, app: &Path, target: &Target) -> Result<(Disk, Definition), NotLoaded> {
        let (disk, definition) = self.apps.load(app, target)?;
        if let (Some(name), true) = (target.pipeline(), definition.learned.is_some()) {
            let is_routed = etude_evidence::is_routed(&*self.engine, &disk, name);
            if !is_routed.map_err(|error| NotLoaded::Unreachable(error.to_string()))? {
                return Err(NotLoaded::Unknown { known: Vec::new() });
            }
        }
        Ok((disk, definition))
    }

    /// The current definition of a run's target.
    pub(crate) fn definition(&self, app: &str, target: &str) -> Result<(Disk, Definition), NotLoaded> {
        self.apps.load(Path::new(app), &Target::parse(target))
    }

    /// The definition of a run's target, from its bundle if the run has one.
    pub(crate) fn definition_for(&self, run: &NewRun) -> Result<(Disk, Definition), NotLoaded> {
        let app = self.apps.place(run)?;
        self.apps.load(&app, &Target::parse(&run.target))
    }

    /// The row of a run that the caller may see.
    pub(crate) fn visible(&self, caller: &Caller, id: &str) -> Result<RunRow, Problem> {
        let row = self.engine.row(id).map_err(|e| engine_failed(&e))?;
        if self.shows(caller, &row) { Ok(row) } else { Err(no_run()) }
    }

    /// The outline of such a run, without records.
    pub(crate) fn outline(&self, caller: &Caller, id: &str) -> Result<RunView, Problem> {
        let outline = self.engine.outline(id).map_err(|e| engine_failed(&e))?;
        // Here, the prefix of an id does not name a run.
        let is_visible = outline.row.id == id && self.shows(caller, &outline.row);
        if is_visible { Ok(outline) } else { Err(no_run()) }
    }

    /// The limits of the queue. Other servers on the same database may have other apps.
    pub(crate) fn limits(&self) -> Limits {
        Limits { takes: Takes::Apps(self.dirs()), ..Limits::of_default_queue(self.settings.max_runs) }
    }

    /// The definition with which a run was made: the current one if it is the same, otherwise that of its pins.
    pub(crate) fn definition_of(&self, view: &RunView) -> Option<Arc<Definition>> {
        let target = Target::parse(&view.row.target);
        let pins = etude_runs::pins::Pins::of_records(&view.records);
        let now = self.definition(&view.row.app, &view.row.target).ok();
        let Some(pins) = pins else { return now.map(|(_, definition)| Arc::new(definition)) };
        if let Some((disk, definition)) = now
            && pins.hold(&disk)
        {
            return Some(Arc::new(definition));
        }
        let dir = self.settings.state_dir.join("serve").join(format!("pinned-{}", etude_runtime::run_id::new()));
        let pinned = etude_runs::story::Pinned::write(&view.records, &*self.engine.blobs(), &dir).ok()??;
        let (_, mut definition) = self.apps.load(pinned.dir(), &target).ok()?;
        definition.app = view.row.app.clone().into();
        Some(Arc::new(definition))
    }
}

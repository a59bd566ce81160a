//! What every command works with: the flags that all of them share, the app, the journal, the models.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use etude::Disk;
use etude::agent::Grants;
use etude::definition::Definition;
use etude::runner::Runner;
use etude_core::effect::EffectId;
use etude_core::failure::Failure;
use etude_core::model::{Tier, Usage};
use etude_invoke::Modules;
use etude_runs::document::Document;
use etude_runs::inspect::Place;
use etude_runs::target::Target;
use etude_runtime::engine::Engine;
use etude_spec::Diagnostic;
use etude_sqlite::{self, Sqlite};

use crate::args::{Format, Global, Purpose};
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::progress::{Face, Loudness};
use crate::settings::{Need, Resolved};
use crate::{engine, paths, programs, render, settings, stdout};

/// How many diagnostics are drawn.
const MAX_SHOWN: usize = 100;

/// What every command works with.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) global: Global,
    /// A string output is printed as text wherever it goes.
    pub(crate) is_raw: bool,
    /// Whether the command runs the app or only looks at it.
    purpose: Purpose,
    /// The configuration as it was read first, with the directory that it is for.
    settings: OnceLock<(PathBuf, Resolved)>,
    /// The effects whose stderr has been shown as it came.
    streamed: Mutex<BTreeSet<EffectId>>,
}

impl Context {
    pub(crate) fn new(global: Global, is_raw: bool, purpose: Purpose) -> Self {
        Self { global, is_raw, purpose, settings: OnceLock::new(), streamed: Mutex::default() }
    }

    /// Notes that a piece of an effect's stderr is shown as it comes.
    pub(crate) fn note_streamed(&self, effect: &EffectId) {
        if self.global.quiet {
            return;
        }
        let mut streamed = self.streamed.lock().unwrap_or_else(PoisonError::into_inner);
        if !streamed.contains(effect) {
            streamed.insert(effect.clone());
        }
    }

    /// Whether the stderr of a step has been shown as it came, so that it must not be repeated.
    pub(crate) fn has_streamed(&self, step: &str) -> bool {
        let streamed = self.streamed.lock().unwrap_or_else(PoisonError::into_inner);
        streamed.iter().any(|effect| Place::of(effect.as_str(), step).is_some())
    }

    /// The configuration that holds for the app in `dir`; read once.
    pub(crate) fn settings(&self, dir: &Path) -> Result<Resolved, Problem> {
        if let Some((_, known)) = self.settings.get().filter(|(of, _)| of == dir) {
            return Ok(known.clone());
        }
        let resolved = settings::resolve(&self.global, dir, self.purpose, engine::own(&self.global))?;
        // Another directory than the first is read each time.
        let _ = self.settings.set((dir.to_owned(), resolved.clone()));
        Ok(resolved)
    }

    /// Whether JavaScript modules run, or are only read.
    pub(crate) fn modules(&self) -> Modules {
        match self.purpose {
            Purpose::Look => Modules::Read,
            Purpose::Run => Modules::Run,
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.global.is_json()
    }

    /// The app's directory.
    pub(crate) fn app_dir(&self) -> Result<PathBuf, Problem> {
        let hint = "an app has `SKILL.md`, `pipelines/` or `machines/`; make one with `etude new DIR`, or name it with `--app DIR`";
        if let Some(dir) = &self.global.app {
            if !dir.is_dir() {
                return Err(Problem::usage(format!("there is no directory `{}`", dir.display())));
            }
            if !etude::app::is_app(dir) {
                return Err(Problem::usage(format!("`{}` is not an app", dir.display())).hint(hint));
            }
            return Ok(dir.clone());
        }
        let here = here()?;
        etude::app::find(&here).ok_or_else(|| {
            let none = Problem::usage(format!("no app at or above `{}`", here.display()));
            match etude::app::of_others(&here) {
                Some(app) => none.hint(format!(
                    "other users can write to `{0}`, so its app is not used unless you name it: --app {0}",
                    app.display()
                )),
                None => none.hint(hint),
            }
        })
    }

    /// Where skills are looked for: the directory that was named, or the one the user is in.
    pub(crate) fn start_dir(&self) -> Result<PathBuf, Problem> {
        match &self.global.app {
            Some(dir) if !dir.is_dir() => Err(Problem::usage(format!("there is no directory `{}`", dir.display()))),
            Some(dir) => Ok(std::path::absolute(dir).unwrap_or_else(|_| dir.clone())),
            None => here(),
        }
    }

    /// Says something that only `--verbose` shows.
    pub(crate) fn say_more(&self, text: impl FnOnce() -> String) {
        if self.global.is_verbose() {
            crate::render::say!("{}", text());
        }
    }

    /// What the user has approved.
    pub(crate) fn trust(&self) -> Result<etude_packages::trust::Store, Problem> {
        let dir = paths::state_dir().map_err(Problem::environment)?;
        Ok(etude_packages::trust::Store::new(&dir))
    }

    /// Shows diagnostics on stderr: with `--quiet` errors only. Of very many the first ones: drawing is slow, and no one
    /// reads them all.
    pub(crate) fn show<'d>(&self, diagnostics: impl IntoIterator<Item = &'d Diagnostic>) {
        let mut shown = diagnostics.into_iter().filter(|d| !self.global.quiet || d.is_error());
        for diagnostic in shown.by_ref().take(MAX_SHOWN) {
            crate::render::say!("{}\n", etude_spec::render::text(diagnostic, self.colors()));
        }
        let more = shown.count();
        if more > 0 {
            crate::render::say!("{more} more are not shown; `--format json` has all of them\n");
        }
    }

    /// The app's files.
    pub(crate) fn disk(&self) -> Result<Disk, Problem> {
        let dir = self.app_dir()?;
        // Without them files of the app would seem to be at fault.
        crate::runtime::descriptors()?;
        Disk::open(&dir).map_err(|e| Problem::environment(format!("`{}` cannot be opened: {e}", dir.display())))
    }

    /// Whether machines share the runs: paths of apps say little then.
    pub(crate) fn is_shared(&self) -> bool {
        engine::is_shared(&self.global)
    }

    /// The engine. A shared one is always strict.
    pub(crate) fn engine(&self, is_strict: bool) -> Result<Arc<dyn Engine>, Problem> {
        if let Some(shared) = engine::shared(&self.global)? {
            return Ok(shared);
        }
        let dir = paths::state_dir().map_err(Problem::environment)?;
        etude_files::private::create_dir_all(&dir).map_err(|error| {
            let problem = Problem::environment(format!("the journal `{}` cannot be created: {error}", dir.display()));
            problem.hint(paths::WRITABLE)
        })?;
        let sync = if is_strict { etude_sqlite::Sync::Strict } else { etude_sqlite::Sync::Normal };
        match Sqlite::open(etude_sqlite::Settings { dir, sync }) {
            Ok(engine) => Ok(Arc::new(engine)),
            Err(error) => Err(Problem::environment(error.to_string())),
        }
    }

    /// What a run of `definition` is made with, its journal and its models. A pipeline without a model waits for none to
    /// be looked for; one whose model no one could ask is reported before anything of it runs.
    pub(crate) fn runner(
        &self,
        disk: &Disk,
        definition: &Definition,
        engine: Arc<dyn Engine>,
        need: Need,
    ) -> Result<Runner, Problem> {
        let tiers: Vec<Tier> = definition.tiers().into_iter().collect();
        let resolved = self.settings(disk.root())?;
        let sandboxed = definition.sandboxed(resolved.grants.sandbox.is_some());
        let sandboxes = programs::sandboxes(&sandboxed)?;
        let mut resolved = settings::ready(&self.global, resolved, &tiers, need)?;
        settings::given(&mut resolved, &definition.env_from())?;
        settings::answerable(&resolved, &tiers)?;
        for (tier, model) in tiers.iter().filter_map(|tier| Some((tier, resolved.first(*tier)?))) {
            self.say_more(|| format!("{tier} is {model}"));
        }
        Ok(Runner {
            engine,
            withheld_env: resolved.withheld_env.clone(),
            grants: Grants {
                can_ask: resolved.grants.can_ask || self.global.can_ask(),
                home: crate::paths::home(),
                trust: Some(self.trust()?),
                applications: programs::application_access()?,
                ..resolved.grants.clone()
            },
            python_worker: resolved.python_worker.clone(),
            models: settings::models(resolved),
            extra_env: Vec::new(),
            layers: programs::layer_settings(),
            sandboxes,
            is_exclusive: true,
        })
    }

    /// Whether answers of models are shown as they come. No one else has them streamed: events and documents tell whole
    /// answers.
    pub(crate) fn streams_completions(&self) -> bool {
        self.global.format == Format::Human && !self.global.quiet && std::io::stderr().is_terminal()
    }

    /// Where the user is.
    pub(crate) fn caller_dir(&self) -> String {
        here().map(|dir| dir.display().to_string()).unwrap_or_default()
    }

    /// Shows how a run goes on.
    pub(crate) fn face(&self) -> Face {
        let loudness = match (self.global.quiet, self.global.is_verbose()) {
            (true, _) => Loudness::Quiet,
            (_, true) => Loudness::Verbose,
            _ => Loudness::Normal,
        };
        Face::new(loudness, std::io::stderr().is_terminal(), self.colors())
    }

    /// Whether stderr takes colours.
    pub(crate) fn colors(&self) -> bool {
        !self.global.no_color && anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
    }

    /// Reports a problem on stderr, and where one is promised as the document of a run of `about`.
    pub(crate) fn report<'a>(&self, about: impl Into<About<'a>>, problem: &Problem) -> Exit {
        self.say_problem(problem);
        if self.is_json() {
            stdout::document(&about.into().document_of(problem));
        }
        problem.exit
    }

    /// Reports a problem on stderr alone.
    pub(crate) fn say_problem(&self, problem: &Problem) {
        for failure in &problem.failures {
            crate::render::say_part!("{}", render::failure::text(failure, None, false));
        }
        for hint in &problem.hints {
            crate::render::say!("hint: {hint}");
        }
    }

    /// Draws what is wrong with the definitions of `about`, and prints it as a document where one is promised.
    fn invalid<'a>(&self, about: impl Into<About<'a>>, diagnostics: &[Diagnostic], usage: &Usage) -> Exit {
        self.show(diagnostics);
        if self.is_json() {
            let faults: Vec<Failure> =
                diagnostics.iter().filter(|d| d.is_error()).map(render::failure::of_diagnostic).collect();
            stdout::document(&about.into().document(&faults, usage));
        }
        Exit::Definition
    }

    /// Reports whatever keeps `about` from being run.
    pub(crate) fn refuse<'a>(&self, about: impl Into<About<'a>>, refused: &Refused) -> Exit {
        match refused {
            Refused::Problem(problem) => self.report(about, problem),
            Refused::Invalid(diagnostics, usage) => self.invalid(about, diagnostics, usage),
        }
    }

    /// Whether events are printed as they come.
    pub(crate) fn streams(&self) -> bool {
        self.global.format == Format::Jsonl
    }
}

/// What a refusal is about.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct About<'a> {
    /// The run that could not be continued.
    pub(crate) run_id: Option<&'a str>,
    /// What was to run.
    pub(crate) target: Option<&'a Target>,
    /// What is known of the run so far.
    pub(crate) so_far: Option<&'a Document>,
}

impl<'a> From<Option<&'a Target>> for About<'a> {
    fn from(target: Option<&'a Target>) -> Self {
        Self { run_id: None, target, so_far: None }
    }
}

impl About<'_> {
    /// The document of a problem. It names the run that the problem stopped, or else the one that the refusal is about.
    fn document_of(self, problem: &Problem) -> Document {
        let run_id = problem.run_id.as_deref().or(self.run_id);
        About { run_id, ..self }.document(&problem.failures, &problem.usage).hinted(&problem.hints)
    }

    fn document(self, failures: &[Failure], usage: &Usage) -> Document {
        let run_id = self.run_id.map(str::to_owned);
        let mut document = Document { run_id, ..Document::not_started(self.target, failures, usage) };
        if let Some(so_far) = self.so_far {
            for name in ["steps", "stages"] {
                if let Some(rows) = so_far.members.get(name) {
                    document.members.insert(name.to_owned(), rows.clone());
                }
            }
            document.attempt = so_far.attempt;
        }
        document
    }
}

/// Where the user is.
pub(crate) fn here() -> Result<PathBuf, Problem> {
    std::env::current_dir().map_err(|e| {
        Problem::environment(format!("the current directory cannot be found: {e}"))
            .hint("go to a directory that is there, or name the app with `--app DIR`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A follower that loses its database, and a resume that is refused, name their run: a program can go on with it.
    #[test]
    fn the_document_of_a_problem_names_its_run() {
        let lost = Problem::environment("the database does not answer");
        let named = |about: About<'_>, problem: &Problem| about.document_of(problem).run_id;
        let about = About { run_id: Some("01"), ..About::default() };
        assert_eq!(named(about, &lost).as_deref(), Some("01"));
        assert_eq!(named(About::default(), &lost), None);
        assert_eq!(named(About::default(), &lost.of_run("02")).as_deref(), Some("02"));
    }
}

//! Context of all commands: shared flags, the app, the journal, the models.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use etude::Disk;
use etude::agent::Grants;
use etude::definition::Definition;
use etude::runner::Runner;
use etude_core::effect::EffectId;
use etude_core::failure::{Failure, FailureKind};
use etude_core::model::{Tier, Usage};
use etude_invoke::Modules;
use etude_runs::document::Document;
use etude_runs::inspect::EffectPlace;
use etude_runs::target::Target;
use etude_runtime::engine::Engine;
use etude_spec::Diagnostic;
use etude_sqlite::{self, Sqlite};

use crate::args::{Format, Global, Purpose};
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::commands;
use crate::render::progress::{Face, Loudness};
use crate::render::text::visible;
use crate::settings::{Need, Resolved};
use crate::{engine, paths, programs, render, settings, stdout};

/// Maximum number of diagnostics shown.
const MAX_SHOWN: usize = 100;

/// Shared state of a command.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) global: Global,
    /// True if a string output is printed as text, wherever stdout leads.
    pub(crate) is_raw: bool,
    /// States if the command runs the app or only reads it.
    purpose: Purpose,
    /// Configuration from the first read, with its directory.
    settings: OnceLock<(PathBuf, Resolved)>,
    /// Effects whose stderr has been shown live.
    streamed: Mutex<BTreeSet<EffectId>>,
}

impl Context {
    pub(crate) fn new(global: Global, is_raw: bool, purpose: Purpose) -> Self {
        Self { global, is_raw, purpose, settings: OnceLock::new(), streamed: Mutex::default() }
    }

    /// Records that stderr of an effect is shown live.
    pub(crate) fn note_streamed(&self, effect: &EffectId) {
        if self.global.quiet {
            return;
        }
        let mut streamed = self.streamed.lock().unwrap_or_else(PoisonError::into_inner);
        if !streamed.contains(effect) {
            streamed.insert(effect.clone());
        }
    }

    /// True if the stderr of a step has been shown live, so that it must not be repeated.
    pub(crate) fn has_streamed(&self, step: &str) -> bool {
        let streamed = self.streamed.lock().unwrap_or_else(PoisonError::into_inner);
        streamed.iter().any(|effect| EffectPlace::of(effect.as_str(), step).is_some())
    }

    /// Configuration of the app in `dir`; read once.
    pub(crate) fn settings(&self, dir: &Path) -> Result<Resolved, Problem> {
        if let Some((_, known)) = self.settings.get().filter(|(of, _)| of == dir) {
            return Ok(known.clone());
        }
        let resolved = settings::resolve(&self.global, dir, self.purpose, engine::own(&self.global))?;
        // Only the first directory is cached.
        let _ = self.settings.set((dir.to_owned(), resolved.clone()));
        Ok(resolved)
    }

    /// States if JavaScript modules run, or are only read.
    pub(crate) fn modules(&self) -> Modules {
        match self.purpose {
            Purpose::Look => Modules::Read,
            Purpose::Run => Modules::Run,
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.global.is_json()
    }

    /// Directory of the app.
    pub(crate) fn app_dir(&self) -> Result<PathBuf, Problem> {
        let hint = "an app has `SKILL.md`, `pipelines/` or `machines/`; make one with `etude new DIR`, or name it with `--app DIR`";
        if let Some(dir) = &self.global.app {
            if !dir.is_dir() {
                return Err(paths::no_directory(dir));
            }
            if !etude::app::is_app(dir) {
                return Err(not_an_app(dir).hint(hint));
            }
            return Ok(dir.clone());
        }
        let here = here()?;
        etude::app::find(&here).ok_or_else(|| {
            let none = without_app(Problem::usage(format!("no app at or above `{}`", here.display())), &here);
            match etude::app::of_others(&here) {
                Some(app) => none.hint(format!(
                    "other users can write to `{0}`, so its app is not used unless you name it: --app {0}",
                    app.display()
                )),
                None => none.hint(hint),
            }
        })
    }

    /// Directory in which skills are looked up: the named one, or the current one.
    pub(crate) fn start_dir(&self) -> Result<PathBuf, Problem> {
        match &self.global.app {
            Some(dir) if !dir.is_dir() => Err(paths::no_directory(dir)),
            Some(dir) => Ok(std::path::absolute(dir).unwrap_or_else(|_| dir.clone())),
            None => here(),
        }
    }

    /// Prints a message with `--verbose`.
    pub(crate) fn say_more(&self, text: impl FnOnce() -> String) {
        if self.global.is_verbose() {
            crate::render::say!("{}", text());
        }
    }

    /// Opens the store of the user's approvals.
    pub(crate) fn trust(&self) -> Result<etude_packages::trust::Store, Problem> {
        let dir = paths::state_dir().map_err(Problem::environment)?;
        Ok(etude_packages::trust::Store::new(&dir))
    }

    /// Shows diagnostics on stderr: with `--quiet` errors only, and at most [`MAX_SHOWN`], because rendering is slow.
    pub(crate) fn show<'d>(&self, diagnostics: impl IntoIterator<Item = &'d Diagnostic>) {
        let mut shown = diagnostics.into_iter().filter(|d| !self.global.quiet || d.is_error());
        for diagnostic in shown.by_ref().take(MAX_SHOWN) {
            crate::render::say!("{}\n", etude_spec::render::text(&commands::in_hint(diagnostic), self.colors()));
        }
        let more = shown.count();
        if more > 0 {
            crate::render::say!("{more} more are not shown; list all with `--format json`\n");
        }
    }

    /// Opens the app's files.
    pub(crate) fn disk(&self) -> Result<Disk, Problem> {
        let dir = self.app_dir()?;
        // Without free file descriptors, the files of the app would seem to be at fault.
        crate::runtime::descriptors()?;
        Disk::open(&dir).map_err(|e| Problem::environment(format!("`{}` cannot be opened: {e}", dir.display())))
    }

    /// True if machines share the runs, so that paths of apps mean little.
    pub(crate) fn is_shared(&self) -> bool {
        engine::is_shared(&self.global)
    }

    /// Opens the engine. A shared one is always strict.
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

    /// Runner for runs of `definition`, with its journal and its models. A pipeline without model calls does not wait for a
    /// model lookup. A model that cannot be called is reported before anything runs.
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
            middleware: programs::middleware_settings(),
            sandboxes,
            is_exclusive: true,
        })
    }

    /// True if responses of models are shown while they arrive. Only people see them streamed: events and documents contain
    /// complete responses.
    pub(crate) fn streams_completions(&self) -> bool {
        self.global.format == Format::Human && !self.global.quiet && std::io::stderr().is_terminal()
    }

    /// Current directory, empty if unknown.
    pub(crate) fn caller_dir(&self) -> String {
        here().map(|dir| dir.display().to_string()).unwrap_or_default()
    }

    /// Progress display of a run.
    pub(crate) fn face(&self) -> Face {
        let loudness = match (self.global.quiet, self.global.is_verbose()) {
            (true, _) => Loudness::Quiet,
            (_, true) => Loudness::Verbose,
            _ => Loudness::Normal,
        };
        Face::new(loudness, std::io::stderr().is_terminal(), self.colors())
    }

    /// True if stderr supports colours.
    pub(crate) fn colors(&self) -> bool {
        !self.global.no_color && anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
    }

    /// Reports a problem on stderr, and with JSON output also as the document of a run of `about`.
    pub(crate) fn report<'a>(&self, about: impl Into<About<'a>>, problem: &Problem) -> Exit {
        self.say_problem(problem);
        if self.is_json() {
            stdout::document(&about.into().document_of(problem));
        }
        problem.exit
    }

    /// Reports a problem on stderr alone.
    pub(crate) fn say_problem(&self, problem: &Problem) {
        let drawn = problem.drawn.iter().map(|drawn| Failure::new(FailureKind::DefinitionInvalid, drawn));
        let drawn: Vec<Failure> = drawn.collect();
        for failure in if drawn.is_empty() { &problem.failures } else { &drawn } {
            crate::render::say_part!("{}", render::failure::text(failure, None, false));
        }
        for hint in &problem.hints {
            crate::render::say_hint!("{hint}");
        }
    }

    /// Shows the diagnostics of the definitions of `about`, and prints the document with JSON output.
    fn invalid<'a>(&self, about: impl Into<About<'a>>, diagnostics: &[Diagnostic], usage: &Usage) -> Exit {
        self.show(diagnostics);
        if self.is_json() {
            let faults: Vec<Failure> =
                diagnostics.iter().filter(|d| d.is_error()).map(render::failure::of_diagnostic).collect();
            stdout::document(&about.into().document(&faults, usage));
        }
        Exit::Definition
    }

    /// Reports why `about` cannot run.
    pub(crate) fn refuse<'a>(&self, about: impl Into<About<'a>>, refused: &Refused) -> Exit {
        match refused {
            Refused::Problem(problem) => self.report(about, problem),
            Refused::Invalid(diagnostics, usage) => self.invalid(about, diagnostics, usage),
        }
    }

    /// True if events are printed as they happen.
    pub(crate) fn streams(&self) -> bool {
        self.global.format == Format::Jsonl
    }
}

/// Problem for a directory that is not an app.
pub(crate) fn not_an_app(dir: &Path) -> Problem {
    if let Some((path, cause)) = etude::app::unreadable(dir) {
        return Problem::environment(format!("`{}` cannot be read: {cause}", path.display()));
    }
    without_app(Problem::usage(format!("`{}` is not an app", dir.display())), dir)
}

/// Adds the entry of `dir` that would make it an app if it were a directory, or had a slightly different name.
fn without_app(problem: Problem, dir: &Path) -> Problem {
    if let Some((path, cause)) = etude::app::unreadable(dir) {
        return problem.hint(format!("`{}` cannot be read: {cause}", path.display()));
    }
    if let Some(name) = etude::app::not_directories(dir).first() {
        return problem.hint(format!("`{name}` in `{}` is not a directory", dir.display()));
    }
    match etude::app::near_miss(dir) {
        Some((name, meant)) => {
            problem.hint(format!("`{}` in `{}` must be named `{meant}`", visible(&name), dir.display()))
        }
        None => problem,
    }
}

/// Subject of a refusal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct About<'a> {
    /// Id of the run that could not continue.
    pub(crate) run_id: Option<&'a str>,
    /// Target that could not run.
    pub(crate) target: Option<&'a Target>,
    /// Result document of the run so far.
    pub(crate) so_far: Option<&'a Document>,
}

impl<'a> From<Option<&'a Target>> for About<'a> {
    fn from(target: Option<&'a Target>) -> Self {
        Self { run_id: None, target, so_far: None }
    }
}

impl About<'_> {
    /// Document of a problem. It names the run that the problem stopped, or else that of the refusal.
    fn document_of(self, problem: &Problem) -> Document {
        let run_id = problem.run_id.as_deref().or(self.run_id);
        let hints: Vec<String> = problem.hints.iter().map(|hint| commands::complete(hint)).collect();
        let mut document = About { run_id, ..self }.document(&problem.failures, &problem.usage).hinted(&hints);
        if let Some(state) = problem.state {
            document.members.insert("status".to_owned(), state.word().into());
        }
        document
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

/// Current directory.
pub(crate) fn here() -> Result<PathBuf, Problem> {
    std::env::current_dir().map_err(|e| {
        Problem::environment(format!("the current directory cannot be found: {e}"))
            .hint("change to an existing directory, or name the app with `--app DIR`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document names the run if a follower loses its database or a resume is refused, so that a program can continue it.
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

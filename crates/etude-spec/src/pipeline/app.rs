//! An app with all its pipelines.

use std::collections::BTreeSet;
use std::sync::Arc;

use etude_core::plan::Sequence;

use crate::check::Findings;
use crate::diagnose::values;
use crate::diagnostic::{self, Diagnostic};
use crate::discover::{self, Discovery};
use crate::files::source;
use crate::input::InputDecl;
use crate::pipeline::load::{self, Loaded, Loader};
use crate::pipeline::package::Packages;
use crate::source::Sources;
use crate::stage_machine::Rules;
use crate::yaml;

/// An app whose definitions come from `sources`.
pub struct App<'s> {
    sources: &'s dyn Sources,
    discovery: Discovery,
    machines: Rules,
    /// `None`: steps of type `application` are not checked against packages.
    packages: Option<Packages>,
}

/// A valid pipeline.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// Name of the pipeline's directory below `pipelines/`.
    pub name: String,
    /// The description, by which requests are routed.
    pub description: String,
    /// The parameters under `input`.
    pub input: InputDecl,
    /// True if a deviation leads to skill mode instead of a failure (L-67).
    pub falls_back: bool,
    /// The compiled steps.
    pub sequence: Arc<Sequence>,
    /// Every file that a run depends on, relative to the app, in order: definitions, schemas, validators, scripts.
    pub files: Vec<String>,
    /// A note for each use of an extension (`etude check --portable`).
    pub extensions: Vec<Diagnostic>,
}

/// Overview of a pipeline, from its own file.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Name of the pipeline's directory below `pipelines/`.
    pub name: String,
    /// Purpose of the pipeline; empty if the file does not give one.
    pub description: String,
    /// Example requests, in the order of the file.
    pub triggers: Vec<String>,
    /// The parameters under `input`; none if they cannot be read.
    pub input: InputDecl,
    /// True if the file itself has no errors. Faults of other files (schemas, other pipelines) appear in
    /// [`App::pipeline`].
    pub valid: bool,
    /// Faults of the file.
    pub diagnostics: Vec<Diagnostic>,
}

/// Result of checking the definitions of an app.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// All faults, by file and place.
    pub diagnostics: Vec<Diagnostic>,
    /// A note for each use of an extension, by file and place.
    pub extensions: Vec<Diagnostic>,
    /// Number of pipelines checked.
    pub checked: usize,
    /// Names of the pipelines with errors, in order.
    pub broken: Vec<String>,
}

impl Report {
    /// Warnings for the steps that ask for a sandbox on a machine that cannot enforce one; `why` is the reason.
    pub fn without_sandbox(&self, why: &str) -> Vec<Diagnostic> {
        values::no_sandbox(&self.extensions, why)
    }
}

/// Maximum number of reloads of pipelines in cycles, each starting at another one. Every pipeline of a cycle has an
/// error.
const MAX_AGAIN: usize = 5_000;

/// Minimum number of pipelines that several threads read.
const MANY: usize = 32;

impl<'s> App<'s> {
    /// Discovers the pipelines of an app.
    pub fn new(sources: &'s dyn Sources) -> Self {
        Self::with_discovery(sources, discover::discover(sources))
    }

    /// Same as [`App::new`], with the candidate `name` of `learned/` in place of a pipeline of that name.
    pub fn of_candidate(sources: &'s dyn Sources, name: &str) -> Self {
        Self::with_discovery(sources, discover::discover(sources).with_candidate(name))
    }

    fn with_discovery(sources: &'s dyn Sources, discovery: Discovery) -> Self {
        Self { sources, discovery, machines: Rules::default(), packages: None }
    }

    /// Sets the user's configuration for stage machines, which steps may run.
    #[must_use]
    pub fn with_machines(self, machines: Rules) -> Self {
        Self { machines, ..self }
    }

    /// Sets the packages that steps of type `application` find on this machine, so that the steps are checked against them.
    #[must_use]
    pub fn with_packages(self, packages: Packages) -> Self {
        Self { packages: Some(packages), ..self }
    }

    /// The discovered pipelines, valid or not.
    pub fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// Loads one pipeline (also [`discover::CONSTRUCTOR`] or [`discover::DESTRUCTOR`]) with everything it needs. The
    /// diagnostics include those of the pipelines that it runs. Without a pipeline there is at least one error, or the
    /// warning that its directory has no definition.
    pub fn pipeline(&self, name: &str) -> (Option<Pipeline>, Vec<Diagnostic>) {
        let mut loader = Loader::new(self.sources, &self.discovery, (&self.machines, self.packages.as_ref()));
        let loaded = loader.load(name);
        let mut found = Collected::default();
        found.add(&loader, &loaded);
        let Collected { mut diagnostics, mut extensions, .. } = found;
        diagnostic::sort(&mut diagnostics);
        diagnostic::sort(&mut extensions);
        let pipeline = loaded.sequence.as_ref().map(|sequence| Pipeline {
            name: loaded.name.clone(),
            description: loaded.description.clone(),
            input: loaded.input.clone(),
            falls_back: loaded.falls_back,
            sequence: Arc::clone(sequence),
            files: loader.files_of(&loaded).into_iter().collect(),
            extensions,
        });
        (pipeline, diagnostics)
    }

    /// Checks the pipelines `names`, or all of them if `names` is empty. Unknown names are skipped: see
    /// [`Discovery::contains`].
    pub fn check(&self, names: &[&str]) -> Report {
        let all: Vec<&str> = self.discovery.all().filter(|name| names.is_empty() || names.contains(name)).collect();
        let parts = in_shares(&all, |names| vec![self.check_share(names)]);
        let mut report = Report::default();
        if names.is_empty() {
            report.diagnostics.extend(self.discovery.diagnostics.iter().cloned());
        }
        for part in parts {
            report.diagnostics.extend(part.diagnostics);
            report.extensions.extend(part.extensions);
            report.checked += part.checked;
            report.broken.extend(part.broken);
        }
        diagnostic::sort(&mut report.diagnostics);
        diagnostic::sort(&mut report.extensions);
        report
    }

    /// Checks some of the pipelines. A pipeline that several of them run is loaded once.
    fn check_share(&self, names: &[&str]) -> Report {
        let mut loader = Loader::new(self.sources, &self.discovery, (&self.machines, self.packages.as_ref()));
        let mut found = Collected::default();
        let (mut checked, mut broken, mut again) = (0, Vec::new(), 0);
        for name in names {
            // The findings from other starting points are enough.
            if again > MAX_AGAIN && found.in_cycles.contains(*name) {
                checked += 1;
                broken.push((*name).to_owned());
                continue;
            }
            let loaded = loader.load(name);
            // A directory without a definition does not count as a pipeline.
            checked += usize::from(!loaded.missing);
            if loaded.sequence.is_none() && !loaded.missing {
                broken.push((*name).to_owned());
            }
            found.add(&loader, &loaded);
            again += loader.forget_cycles();
        }
        Report { diagnostics: found.diagnostics, extensions: found.extensions, checked, broken }
    }

    /// Summaries of all business pipelines that may receive routed requests, in order of their names. Directories
    /// without a definition are left out and reported. Reads each definition once and checks that the files it names
    /// exist, without opening them.
    pub fn summaries(&self) -> (Vec<Summary>, Vec<Diagnostic>) {
        let names: Vec<&str> = self.discovery.pipelines.iter().map(String::as_str).collect();
        let mut warnings = self.discovery.diagnostics.clone();
        let mut summaries = Vec::with_capacity(names.len());
        let summary = |name: &&str| crate::learned::is_routable(self.sources, name).then(|| self.summary(name));
        for (summary, missing) in in_parallel(&names, summary).into_iter().flatten() {
            if missing {
                warnings.extend(summary.diagnostics);
            } else {
                summaries.push(summary);
            }
        }
        (summaries, warnings)
    }

    /// Summary of one pipeline from its own file; `None` if the app has no such pipeline.
    pub fn summary_of(&self, name: &str) -> Option<Summary> {
        self.discovery.contains(name).then(|| self.summary(name).0)
    }

    fn summary(&self, name: &str) -> (Summary, bool) {
        let failed = |diagnostics| Summary {
            name: name.to_owned(),
            description: String::new(),
            triggers: Vec::new(),
            input: InputDecl::default(),
            valid: false,
            diagnostics,
        };
        let file = match source(self.sources, &self.discovery.file_of(name)) {
            Ok(file) => file,
            Err((diagnostic, missing)) => return (failed(vec![diagnostic]), missing),
        };
        let (root, diagnostics) = yaml::parse(&file);
        let Some(root) = root else {
            return (failed(diagnostics), false);
        };
        let mut found = Findings::new(&file);
        found.list = diagnostics;
        let definition = load::definition(&mut found, self.sources, &root, (name, &self.discovery.dir_of(name)));
        let mut diagnostics = found.list;
        diagnostic::sort(&mut diagnostics);
        let Some(definition) = definition else {
            return (failed(diagnostics), false);
        };
        let summary = Summary {
            name: name.to_owned(),
            description: definition.description,
            triggers: definition.triggers,
            input: definition.input,
            valid: !diagnostics.iter().any(Diagnostic::is_error),
            diagnostics,
        };
        (summary, false)
    }
}

/// Findings of several pipelines.
#[derive(Default)]
struct Collected {
    seen: BTreeSet<String>,
    /// Pipelines that run themselves, or run one that does.
    in_cycles: BTreeSet<String>,
    diagnostics: Vec<Diagnostic>,
    extensions: Vec<Diagnostic>,
}

impl Collected {
    /// Adds the findings of a pipeline and of those that it runs.
    fn add(&mut self, loader: &Loader<'_>, loaded: &Arc<Loaded>) {
        let mut waiting = vec![loaded];
        while let Some(loaded) = waiting.pop() {
            let is_new = !self.seen.contains(&loaded.name);
            if is_new {
                self.seen.insert(loaded.name.clone());
                self.in_cycles.extend(loaded.is_cyclic.then(|| loaded.name.clone()));
                self.extensions.extend(loaded.extensions.iter().cloned());
            }
            if is_new {
                waiting.extend(loaded.runs.iter().filter_map(|name| loader.done(name)));
            }
            // The findings of a cycle depend on where loading began.
            if is_new || loaded.is_cyclic {
                self.diagnostics.extend(loaded.diagnostics.iter().cloned());
            }
        }
    }
}

/// Runs `work` for each item, on all processors if there are many; the results keep the order of the items.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    in_shares(items, |share| share.iter().map(&work).collect())
}

/// Same as [`in_parallel`], for a `work` that takes several items at once.
fn in_shares<T: Sync, R: Send>(items: &[T], work: impl Fn(&[T]) -> Vec<R> + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(items.len() / MANY + 1);
    if threads < 2 {
        return work(items);
    }
    let share = items.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = items.chunks(share).map(|chunk| scope.spawn(move || work(chunk))).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

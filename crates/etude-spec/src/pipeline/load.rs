//! Loading of pipelines with everything they need: schemas, other pipelines, and the plan.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use etude_core::plan::Sequence;
use etude_core::schema::{MAX_PATTERN_BYTES, Schema};

use crate::check::Findings;
use crate::diagnostic::Diagnostic;
use crate::discover::{CONSTRUCTOR, DESTRUCTOR, Discovery};
use crate::files::{below, source};
use crate::input::{InputDecl, check_parameters};
use crate::pipeline::called::CalledMachine;
use crate::pipeline::definition::{Body, Definition, StepDef};
use crate::pipeline::extent::Extent;
use crate::pipeline::lower::{self, Resolved};
use crate::pipeline::package::Packages;
use crate::pipeline::resolve::Bringing;
use crate::pipeline::shape::Shape;
use crate::pipeline::{files, names, read, skill, slips};
use crate::source::{SourceFile, Sources};
use crate::stage_machine::{Machines, Rules};
use crate::tool::{self, AppTool};
use crate::yaml::{self, Node};

/// A pipeline with every part that could be loaded.
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) input: InputDecl,
    /// True if a deviation leads to skill mode.
    pub(crate) falls_back: bool,
    /// The plan; `None` if there are errors.
    pub(crate) sequence: Option<Arc<Sequence>>,
    /// Files that its own steps depend on. [`Loader::files_of`] adds those of the pipelines that they run.
    pub(crate) files: BTreeSet<String>,
    /// Faults of its own files.
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) extensions: Vec<Diagnostic>,
    /// Names of the pipelines that its steps run. Names instead of pipelines keep the drop of a long chain from
    /// recursing.
    pub(crate) runs: BTreeSet<String>,
    /// True if it, or a pipeline that it runs, runs itself. Its findings then depend on where loading began.
    pub(crate) is_cyclic: bool,
    pub(super) extent: Extent,
    input_schema: OnceLock<Arc<Schema>>,
    /// True if there is no pipeline.yaml.
    pub(crate) missing: bool,
    pub(super) output: Shape,
}

impl Loaded {
    fn failed(name: &str, diagnostics: Vec<Diagnostic>) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            input: InputDecl::default(),
            falls_back: false,
            sequence: None,
            files: BTreeSet::new(),
            diagnostics,
            extensions: Vec::new(),
            runs: BTreeSet::new(),
            is_cyclic: false,
            extent: Extent::default(),
            input_schema: OnceLock::new(),
            missing: false,
            output: Shape::Any,
        }
    }

    /// JSON Schema of the input, shared by all steps that run the pipeline.
    pub(super) fn input_schema(&self) -> Arc<Schema> {
        let new = || self.input.compiled(&format!("input of {}", self.name));
        Arc::clone(self.input_schema.get_or_init(new))
    }

    pub(super) fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count()
    }
}

/// A stage machine, or its number of errors.
type MachineLoaded = Result<Arc<CalledMachine>, usize>;

/// Reads and checks a definition without loading anything else.
pub(crate) fn definition<'n>(
    found: &mut Findings<'_>,
    sources: &dyn Sources,
    root: &'n Node<'n>,
    (name, dir): (&str, &str),
) -> Option<Definition<'n>> {
    let definition = read::definition(found, root, name)?;
    let open_input = (name == CONSTRUCTOR || name == DESTRUCTOR) && definition.input.parameters.is_empty();
    names::check(found, &definition, open_input);
    files::check(found, sources, dir, &definition.steps);
    skill::check_fallback(found, sources, name, definition.fallback);
    Some(definition)
}

/// Loader of pipelines; it loads each of them once.
pub(crate) struct Loader<'a> {
    pub(super) sources: &'a dyn Sources,
    pub(super) discovery: &'a Discovery,
    /// Settings of the configuration for stage machines.
    pub(super) rules: &'a Rules,
    /// Packages of this machine; `None` if steps are not checked against them.
    pub(super) packages: Option<&'a Packages>,
    done: BTreeMap<String, Arc<Loaded>>,
    /// Files that were read only for the names in them.
    texts: BTreeMap<String, Arc<SourceFile>>,
    machines: OnceLock<Machines<'a>>,
    machines_done: BTreeMap<String, MachineLoaded>,
    /// Tools of the app, for all steps that call or list some.
    tools: OnceLock<Vec<AppTool>>,
    /// Tools that the app's skill allows to steps; `None` means all.
    allowed: OnceLock<Option<Vec<String>>>,
    /// Pipelines that are being loaded, outermost first.
    pub(super) open: Vec<String>,
    /// Bytes that the compiled patterns of further schemas may take.
    pub(super) pattern_bytes: usize,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(
        sources: &'a dyn Sources,
        discovery: &'a Discovery,
        (rules, packages): (&'a Rules, Option<&'a Packages>),
    ) -> Self {
        Self {
            sources,
            discovery,
            rules,
            packages,
            done: BTreeMap::new(),
            texts: BTreeMap::new(),
            machines: OnceLock::new(),
            machines_done: BTreeMap::new(),
            tools: OnceLock::new(),
            allowed: OnceLock::new(),
            open: Vec::new(),
            pattern_bytes: MAX_PATTERN_BYTES,
        }
    }

    /// Tools of the app without errors.
    pub(super) fn tools(&self) -> &[AppTool] {
        self.tools.get_or_init(|| tool::load(self.sources).0)
    }

    /// Tools that the app's skill allows to steps; `None` means all.
    pub(super) fn allowed(&self) -> Option<&[String]> {
        self.allowed.get_or_init(|| skill::allowed(self.sources)).as_deref()
    }

    /// Loads a pipeline after all those that it runs. Chains in an app's files can have any length, so open pipelines
    /// are kept in a list instead of recursing.
    pub(crate) fn load(&mut self, name: &str) -> Arc<Loaded> {
        if let Some(done) = self.done.get(name) {
            return Arc::clone(done);
        }
        let outside = self.open.len();
        self.open.push(name.to_owned());
        let mut waiting = vec![self.called(name).into_iter()];
        while let Some(called) = waiting.last_mut() {
            let next = called.find(|name| !self.done.contains_key(name) && !self.open.contains(name));
            if let Some(next) = next {
                waiting.push(self.called(&next).into_iter());
                self.open.push(next);
                continue;
            }
            waiting.pop();
            let Some(name) = self.open.last().cloned() else { break };
            let loaded = Arc::new(self.load_new(&name));
            self.open.pop();
            self.done.insert(name, loaded);
        }
        self.open.truncate(outside);
        self.done.get(name).map_or_else(|| Arc::new(Loaded::failed(name, Vec::new())), Arc::clone)
    }

    /// A pipeline that is already loaded.
    pub(crate) fn done(&self, name: &str) -> Option<&Arc<Loaded>> {
        self.done.get(name)
    }

    /// Drops the pipelines that another starting point must load again, and returns their number.
    pub(crate) fn forget_cycles(&mut self) -> usize {
        let before = self.done.len();
        self.done.retain(|_, loaded| !loaded.is_cyclic);
        before - self.done.len()
    }

    /// Files that a pipeline depends on, including those of the pipelines that it runs.
    pub(crate) fn files_of(&self, loaded: &Loaded) -> BTreeSet<String> {
        let mut files = loaded.files.clone();
        self.add_files_of(&mut files, &loaded.runs);
        files
    }

    fn add_files_of(&self, files: &mut BTreeSet<String>, runs: &BTreeSet<String>) {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut waiting: Vec<&str> = runs.iter().map(String::as_str).collect();
        while let Some(name) = waiting.pop() {
            if let (true, Some(run)) = (seen.insert(name), self.done.get(name)) {
                files.extend(run.files.iter().cloned());
                waiting.extend(run.runs.iter().map(String::as_str));
            }
        }
    }

    /// Names of the pipelines that the file of one may run. The file is read as a definition later.
    fn called(&mut self, name: &str) -> Vec<String> {
        let Ok(file) = source(self.sources, &self.discovery.file_of(name)) else { return Vec::new() };
        self.texts.insert(name.to_owned(), Arc::clone(&file));
        // Most pipelines do not run any other.
        if !file.text().contains("pipeline") && !file.text().contains('\\') {
            return Vec::new();
        }
        let (Some(root), _) = yaml::parse(&file) else { return Vec::new() };
        let steps = root.as_map().and_then(|entries| entries.get("steps"));
        let mut names = Vec::new();
        let mut waiting: Vec<&Node<'_>> = steps.into_iter().collect();
        while let Some(node) = waiting.pop() {
            waiting.extend(node.as_seq().into_iter().flatten().rev());
            let Some(entries) = node.as_map() else { continue };
            waiting.extend(entries.get("steps"));
            let called = entries.get("pipeline").and_then(Node::as_text);
            let is_one = |name: &&str| self.discovery.contains(name) && *name != CONSTRUCTOR && *name != DESTRUCTOR;
            names.extend(called.filter(is_one).map(str::to_owned));
        }
        names
    }

    /// A stage machine of the app, loaded once; otherwise its number of errors.
    pub(super) fn machine(&mut self, name: &str) -> MachineLoaded {
        if let Some(done) = self.machines_done.get(name) {
            return done.clone();
        }
        let (machine, diagnostics) = self.machines().machine(name);
        let errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
        let loaded = machine
            .map(|machine| Arc::new(CalledMachine::new(machine.plan, machine.input, machine.files)))
            .ok_or(errors);
        self.machines_done.insert(name.to_owned(), loaded.clone());
        loaded
    }

    /// The stage machines of the app, discovered once.
    pub(super) fn machines(&self) -> &Machines<'a> {
        self.machines.get_or_init(|| Machines::new(self.sources, self.rules.clone()))
    }

    /// Text of a pipeline file, which [`Loader::called`] may have read already.
    fn text_of(&mut self, name: &str) -> Result<Arc<SourceFile>, (Diagnostic, bool)> {
        self.texts.remove(name).map_or_else(|| source(self.sources, &self.discovery.file_of(name)), Ok)
    }

    fn load_new(&mut self, name: &str) -> Loaded {
        let file = match self.text_of(name) {
            Ok(file) => file,
            Err((diagnostic, missing)) => return Loaded { missing, ..Loaded::failed(name, vec![diagnostic]) },
        };
        let (root, diagnostics) = yaml::parse(&file);
        let Some(root) = root else {
            return Loaded::failed(name, diagnostics);
        };
        let mut found = Findings::new(&file);
        found.list = diagnostics;
        let dir = self.discovery.dir_of(name);
        let Some(definition) = definition(&mut found, self.sources, &root, (name, &dir)) else {
            return Loaded::failed(name, found.list);
        };
        slips::check(&mut found, &definition);
        files::check_scripts(&mut found, self.sources, &dir, &definition.steps);
        check_parameters(&mut found, &definition.input, root.as_map().and_then(|entries| entries.get("input")));
        let own = self.discovery.file_of(name);
        let mut pipeline = Bringing {
            loader: self,
            found: &mut found,
            dir: &dir,
            input: &definition.input,
            shapes: BTreeMap::new(),
            schemas: BTreeMap::new(),
            files: BTreeSet::from([own]),
            runs: BTreeSet::new(),
            is_cyclic: false,
            extent: Extent::new(count(&definition.steps), file.text().len()),
            elsewhere: Vec::new(),
        };
        let resolved: Vec<Resolved> = definition.steps.iter().map(|step| pipeline.step(step, None)).collect();
        let Bringing { shapes, mut files, runs, elsewhere, is_cyclic, extent, .. } = pipeline;
        self.add_files(&mut files, &dir, &definition.steps);
        let output = match definition.output {
            Some(output) => Some(output.text),
            None => definition.steps.last().map(|step| step.name),
        };
        let output = output.and_then(|name| shapes.get(name).cloned()).unwrap_or(Shape::Any);
        let Findings { list: mut diagnostics, extensions, .. } = found;
        diagnostics.extend(elsewhere);
        let all_files = self.with_files_of(&files, &definition.steps, &runs);
        let context = lower::Context {
            sources: self.sources,
            file: &file,
            dir: &dir,
            files: &all_files,
            steps: &definition.steps,
        };
        let sound = !diagnostics.iter().any(Diagnostic::is_error);
        let sequence = sound.then(|| lower::sequence(&context, name, &definition, resolved));
        drop(all_files);
        Loaded {
            name: name.to_owned(),
            description: definition.description,
            input: definition.input,
            falls_back: definition.fallback.is_some(),
            sequence: sequence.flatten().map(Arc::new),
            files,
            diagnostics,
            extensions,
            runs,
            is_cyclic,
            extent,
            input_schema: OnceLock::new(),
            missing: false,
            output,
        }
    }

    /// `files` together with those of the pipelines in `runs`, if a step is cached: they belong to its key.
    fn with_files_of<'f>(
        &self,
        files: &'f BTreeSet<String>,
        steps: &[StepDef<'_>],
        runs: &BTreeSet<String>,
    ) -> Cow<'f, BTreeSet<String>> {
        let is_cached = |step: &StepDef<'_>| step.cache.is_some();
        let inner =
            |step: &StepDef<'_>| matches!(&step.body, Body::Parallel { steps, .. } if steps.iter().any(is_cached));
        if runs.is_empty() || !steps.iter().any(|step| is_cached(step) || inner(step)) {
            return Cow::Borrowed(files);
        }
        let mut all = files.clone();
        self.add_files_of(&mut all, runs);
        Cow::Owned(all)
    }

    /// Adds the files that a run depends on, except those of schemas.
    fn add_files(&self, files: &mut BTreeSet<String>, dir: &str, steps: &[StepDef<'_>]) {
        files::named(files, self.sources, dir, steps);
        for inner in ["steps", "schemas"] {
            below(files, self.sources, &format!("{dir}/{inner}"));
        }
    }
}

/// Number of steps, including those of groups.
fn count(steps: &[StepDef<'_>]) -> usize {
    let inner = |step: &StepDef<'_>| match &step.body {
        Body::Parallel { steps, .. } => count(steps),
        _ => 0,
    };
    steps.iter().map(|step| 1 + inner(step)).sum()
}

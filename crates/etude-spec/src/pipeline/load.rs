//! Pipelines with everything they need: schemas, other pipelines, and the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etude_core::plan::Sequence;

use crate::diagnose::{files as diagnose_files, values, yaml as diagnose};
use crate::diagnostic::Diagnostic;
use crate::discover::{self, CONSTRUCTOR, DESTRUCTOR, Discovery};
use crate::fields::check::Findings;
use crate::machine::Rules;
use crate::pipeline::definition::{Definition, StepDef};
use crate::pipeline::input::{InputDecl, fits};
use crate::pipeline::lower::{self, Resolved};
use crate::pipeline::resolve::Bringing;
use crate::pipeline::shape::Shape;
use crate::pipeline::{files, names, read, schema_file};
use crate::source::{ReadFailure, SourceFile, Sources};
use crate::yaml::{self, Node};

/// Largest definition file that is read, in bytes.
pub(crate) const LARGEST: u64 = 1 << 20;

/// A pipeline as far as it could be loaded.
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) triggers: Vec<String>,
    pub(crate) input: InputDecl,
    /// Absent if there are errors.
    pub(crate) sequence: Option<Arc<Sequence>>,
    pub(crate) files: BTreeSet<String>,
    /// What is wrong with its own files.
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) extensions: Vec<Diagnostic>,
    /// The pipelines that its steps run.
    pub(crate) runs: Vec<Arc<Self>>,
    /// There is no pipeline.yaml.
    pub(crate) missing: bool,
    pub(super) output: Shape,
}

impl Loaded {
    fn failed(name: &str, diagnostics: Vec<Diagnostic>) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            triggers: Vec::new(),
            input: InputDecl::default(),
            sequence: None,
            files: BTreeSet::new(),
            diagnostics,
            extensions: Vec::new(),
            runs: Vec::new(),
            missing: false,
            output: Shape::Any,
        }
    }

    pub(super) fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count()
    }
}

/// The text of a definition file.
pub(crate) fn source(sources: &dyn Sources, path: &str) -> Result<Arc<SourceFile>, (Diagnostic, bool)> {
    let bytes = sources.read(path, LARGEST).map_err(|failure| match failure {
        ReadFailure::Missing => {
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            (diagnose_files::no_pipeline_file(dir), true)
        }
        ReadFailure::TooLarge { len } => (diagnose::too_large(path, len, LARGEST), false),
        ReadFailure::Outside => (diagnose::unreadable(path, "it lies outside the app's directory"), false),
        ReadFailure::WrongKind => (diagnose::unreadable(path, "it is not a regular file"), false),
        ReadFailure::Other(why) => (diagnose::unreadable(path, &why), false),
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(SourceFile::new(path, text)),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let valid = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
            Err((diagnose::not_utf8(path, &valid), false))
        }
    }
}

/// The text of a file that a definition lies in.
pub(crate) fn source_text(sources: &dyn Sources, path: &str) -> Result<Arc<SourceFile>, Diagnostic> {
    source(sources, path).map_err(|(diagnostic, missing)| match missing {
        true => diagnose::unreadable(path, "it is no longer there"),
        false => diagnostic,
    })
}

/// Reads and checks a definition without bringing in anything else.
pub(crate) fn definition<'n>(
    found: &mut Findings<'_>,
    sources: &dyn Sources,
    root: &'n Node<'n>,
    name: &str,
) -> Option<Definition<'n>> {
    let definition = read::definition(found, root, name)?;
    let open_input = (name == CONSTRUCTOR || name == DESTRUCTOR) && definition.input.parameters.is_empty();
    names::check(found, &definition, open_input);
    files::check(found, sources, &discover::dir_of(name), &definition.steps);
    Some(definition)
}

/// Loads pipelines, each once.
pub(crate) struct Loader<'a> {
    pub(super) sources: &'a dyn Sources,
    pub(super) discovery: &'a Discovery,
    /// What the configuration says about machines.
    pub(super) rules: &'a Rules,
    done: BTreeMap<String, Arc<Loaded>>,
    /// The pipelines that are being loaded, outermost first.
    pub(super) open: Vec<String>,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(sources: &'a dyn Sources, discovery: &'a Discovery, rules: &'a Rules) -> Self {
        Self { sources, discovery, rules, done: BTreeMap::new(), open: Vec::new() }
    }

    pub(crate) fn load(&mut self, name: &str) -> Arc<Loaded> {
        if let Some(done) = self.done.get(name) {
            return Arc::clone(done);
        }
        self.open.push(name.to_owned());
        let loaded = Arc::new(self.load_new(name));
        self.open.pop();
        self.done.insert(name.to_owned(), Arc::clone(&loaded));
        loaded
    }

    fn load_new(&mut self, name: &str) -> Loaded {
        let file = match source(self.sources, &discover::file_of(name)) {
            Ok(file) => file,
            Err((diagnostic, missing)) => {
                return Loaded { missing, ..Loaded::failed(name, vec![diagnostic]) };
            }
        };
        let (root, diagnostics) = yaml::parse(&file);
        let Some(root) = root else {
            return Loaded::failed(name, diagnostics);
        };
        let mut found = Findings::new(&file);
        found.list = diagnostics;
        let Some(definition) = definition(&mut found, self.sources, &root, name) else {
            return Loaded::failed(name, found.list);
        };
        files::warn_of_scripts(&mut found, self.sources, &discover::dir_of(name), &definition.steps);
        check_parameters(&mut found, &definition.input, root.as_map().and_then(|entries| entries.get("input")));
        let dir = discover::dir_of(name);
        let mut pipeline = Bringing {
            loader: self,
            found: &mut found,
            dir: &dir,
            input: &definition.input,
            shapes: BTreeMap::new(),
            schemas: BTreeMap::new(),
            files: BTreeSet::from([discover::file_of(name)]),
            runs: Vec::new(),
            elsewhere: Vec::new(),
        };
        let resolved: Vec<Resolved> = definition.steps.iter().map(|step| pipeline.step(step, None)).collect();
        let Bringing { shapes, mut files, runs, elsewhere, .. } = pipeline;
        self.add_files(&mut files, &dir, &definition.steps, &runs);
        let output = match definition.output {
            Some(output) => Some(output.text),
            None => definition.steps.last().map(|step| step.name),
        };
        let output = output.and_then(|name| shapes.get(name).cloned()).unwrap_or(Shape::Any);
        let Findings { list, extensions, .. } = found;
        let mut diagnostics = list;
        diagnostics.extend(elsewhere);
        let context =
            lower::Context { sources: self.sources, file: &file, dir: &dir, files: &files, steps: &definition.steps };
        let sound = !diagnostics.iter().any(Diagnostic::is_error);
        let sequence = sound.then(|| lower::sequence(&context, name, &definition, resolved));
        Loaded {
            name: name.to_owned(),
            description: definition.description,
            triggers: definition.triggers,
            input: definition.input,
            sequence: sequence.flatten().map(Arc::new),
            files,
            diagnostics,
            extensions,
            runs,
            missing: false,
            output,
        }
    }

    /// Adds the files that a run depends on and that no schema brought in.
    fn add_files(&self, files: &mut BTreeSet<String>, dir: &str, steps: &[StepDef<'_>], runs: &[Arc<Loaded>]) {
        files::named(files, self.sources, dir, steps);
        for below in ["steps", "schemas"] {
            files::below(files, self.sources, &format!("{dir}/{below}"));
        }
        for run in runs {
            files.extend(run.files.iter().cloned());
        }
    }
}

/// Checks the schemas and defaults of parameters in the long form. `node` is the value of `input`.
pub(crate) fn check_parameters(found: &mut Findings<'_>, input: &InputDecl, node: Option<&Node<'_>>) {
    for parameter in input.parameters.iter().filter(|parameter| parameter.short.is_none() && parameter.sound) {
        let own = node.and_then(Node::as_map).and_then(|entries| entries.get(&parameter.name));
        let place = |pointer: &str| own.map_or(parameter.at, |own| place_in(own, pointer));
        if let Err(error) = jsonschema::meta::validate(parameter.schema.document()) {
            let pointer = error.instance_path().to_string();
            let (why, hint) = schema_file::meta_words(&pointer, error.instance(), &error.to_string());
            let diagnostic = values::not_a_parameter_schema(found.file, place(&pointer), &parameter.name, &why);
            found.push(diagnostic.maybe_hint(hint));
        } else if let Some(default) = parameter.default.as_ref().and_then(|json| json.inline())
            && let Err(why) = fits(parameter, default)
        {
            found.push(values::bad_default(found.file, place("/default"), &parameter.name, &why));
        }
    }
}

/// The place of what a JSON pointer names inside a value.
pub(crate) fn place_in(node: &Node<'_>, pointer: &str) -> crate::source::Span {
    let mut node = node;
    for token in pointer.split('/').skip(1) {
        let token = crate::json_text::unescaped(token);
        let inner = match (node.as_map(), node.as_seq()) {
            (Some(entries), _) => entries.get(&token),
            (_, Some(items)) => token.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => None,
        };
        node = inner.unwrap_or(node);
    }
    node.span
}

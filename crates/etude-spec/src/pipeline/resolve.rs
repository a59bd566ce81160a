//! Resolution of the other files that the steps of a pipeline refer to, and checks of reference paths.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etude_core::condition::Condition;
use etude_core::effect::Protocol;
use etude_core::plan::Binding;
use etude_core::schema::Schema;
use etude_core::template::Reference;

use crate::check::Findings;
use crate::diagnose::values::extension;
use crate::diagnose::{files as diagnose_files, references, stage_machine as machine_words};
use crate::diagnostic::Diagnostic;
use crate::discover::{CONSTRUCTOR, DESTRUCTOR, PIPELINES};
use crate::files::below;
use crate::input::{InputDecl, fits};
use crate::learned;
use crate::pipeline::cacheable;
use crate::pipeline::called::CalledMachine;
use crate::pipeline::definition::{BindingDef, Body, LlmDef, SchemaDef, StepDef};
use crate::pipeline::extent::Extent;
use crate::pipeline::load::{Loaded, Loader};
use crate::pipeline::lower::Resolved;
use crate::pipeline::package;
use crate::pipeline::shape::{Miss, Shape, Why, with_article};
use crate::pipeline::skill::{self, Skill};
use crate::pipeline::tool_args;
use crate::schema_file;
use crate::source::{FileKind, SourceFile, Span, join};
use crate::stage_machine::stage_alone;
use crate::value_types::ValueTypes;
use crate::yaml::{Locator, Node, Text};

/// State of one pipeline while its schemas and other pipelines are added.
pub(super) struct Bringing<'l, 'a, 'f, 's> {
    pub(super) loader: &'l mut Loader<'a>,
    pub(super) found: &'f mut Findings<'s>,
    pub(super) dir: &'l str,
    pub(super) input: &'l InputDecl,
    /// Shapes of the outputs of the steps so far.
    pub(super) shapes: BTreeMap<String, Shape>,
    pub(super) schemas: BTreeMap<String, Option<Arc<Schema>>>,
    pub(super) files: BTreeSet<String>,
    /// Names of the pipelines that its steps run.
    pub(super) runs: BTreeSet<String>,
    pub(super) is_cyclic: bool,
    /// Extent with everything that its steps run so far.
    pub(super) extent: Extent,
    /// Faults of schema files.
    pub(super) elsewhere: Vec<Diagnostic>,
}

impl Bringing<'_, '_, '_, '_> {
    /// Resolves a step; `item` is the element of an enclosing group.
    pub(super) fn step(&mut self, step: &StepDef<'_>, item: Option<&Shape>) -> Resolved {
        let schema = step.schema.and_then(|schema| match schema {
            SchemaDef::File(path) => self.schema(path),
            SchemaDef::Inline(node) => self.inline_schema(step, node),
        });
        let own_item = step.for_each.as_ref().map(|over| self.shape_of(&over.items, item).element());
        let inner = own_item.as_ref().or(item);
        self.list(step, item);
        self.paths(step, item, inner);
        self.conditions(step, item);
        self.extensions(step);
        let mut resolved = Resolved { schema, ..Resolved::default() };
        if let Body::Skill(def) = &step.body {
            resolved.skill = def.skill.and_then(|name| self.skill(name));
            skill::check_patterns(self.found, self.loader, step.node);
        }
        if let (Body::Application { application, command, .. }, Some(packages)) = (&step.body, self.loader.packages) {
            package::check(self.found, (*application, *command), packages);
        }
        if let Body::Tool { tool: Some(name), args } = &step.body {
            let called = skill::check_tool(self.found, self.loader, *name);
            if let Some(schema) = &called.schema {
                tool_args::check(self.found, (step, *name), args, schema);
            }
            (resolved.allowed, resolved.writes) = (called.allowed, called.writes);
        }
        let shape = match (&step.body, &resolved.schema) {
            (Body::Approval(_), schema) => approval(schema.as_ref()),
            (_, Some(schema)) => Shape::of_schema(schema.document(), schema.name()),
            (Body::Llm(llm), None) if llm.choose.is_some() => self.chosen(llm, inner),
            (Body::Llm(_) | Body::Skill(_), None) => Shape::Leaf("a string"),
            (Body::Code(code), None) if code.protocol == Protocol::Text => Shape::Leaf("a string"),
            (Body::Machine { of, is_stage, input }, None) => {
                resolved.machine = of.and_then(|name| match is_stage {
                    true => self.stage(name),
                    false => self.machine(step, name, input),
                });
                Shape::Any
            }
            (Body::Parallel { steps, .. }, None) => {
                resolved.children = steps.iter().map(|child| self.step(child, inner)).collect();
                let members = steps
                    .iter()
                    .filter_map(|child| Some((child.name.to_owned(), self.shapes.get(child.name)?.clone())));
                Shape::Object(members.collect())
            }
            (Body::Pipeline { pipeline, .. }, None) => {
                resolved.sub = pipeline.and_then(|name| self.sub_pipeline(step, name));
                resolved.sub.as_ref().map_or(Shape::Any, |sub| sub.output.clone())
            }
            _ => Shape::Any,
        };
        if let Some(diagnostic) = cacheable::check(self.found.file, step, &resolved) {
            self.found.push(diagnostic);
        }
        let shape = match &step.for_each {
            None => shape,
            Some(over) if over.collect => Shape::Array(Arc::new(Shape::Collected(Arc::new(shape)))),
            Some(_) => Shape::Array(Arc::new(shape)),
        };
        self.shapes.insert(step.name.to_owned(), shape);
        resolved
    }

    fn schema(&mut self, path: Text<'_>) -> Option<Arc<Schema>> {
        let full = join(self.dir, path.text)?;
        if let Some(known) = self.schemas.get(&full) {
            return known.clone();
        }
        // A missing file was reported with the step.
        let is_file = matches!(self.loader.sources.kind(&full), Ok(FileKind::File { .. }));
        let schema = is_file.then(|| {
            let loaded = schema_file::load(self.loader.sources, &full, &mut self.loader.pattern_bytes);
            self.files.extend(loaded.files);
            self.elsewhere.extend(loaded.diagnostics);
            loaded.schema
        });
        let schema = schema.flatten();
        self.schemas.insert(full, schema.clone());
        schema
    }

    fn inline_schema(&mut self, step: &StepDef<'_>, node: &Node<'_>) -> Option<Arc<Schema>> {
        let name = format!("{}.schema", step.name);
        let left = &mut self.loader.pattern_bytes;
        let loaded = schema_file::load_inline(self.loader.sources, self.found.file, self.dir, node, &name, left);
        self.files.extend(loaded.files);
        let own = self.found.file.path();
        let (here, elsewhere): (Vec<_>, Vec<_>) = loaded.diagnostics.into_iter().partition(|d| d.file.path() == own);
        here.into_iter().for_each(|diagnostic| self.found.push(diagnostic));
        self.elsewhere.extend(elsewhere);
        loaded.schema
    }

    fn skill(&mut self, name: Text<'_>) -> Option<Skill> {
        match skill::find(self.loader.sources, self.found.file, name) {
            Ok(skill) => {
                // The agent works with the whole folder.
                if self.files.insert(skill.file.clone()) {
                    self.elsewhere.extend(skill.warnings.iter().cloned());
                    below(&mut self.files, self.loader.sources, &skill.dir);
                }
                if let Err(excess) = self.extent.add_bytes(skill.body.len() as u64) {
                    self.found.push(references::too_far(self.found.file, name.at, "skill", name.text, excess));
                    return None;
                }
                Some(skill)
            }
            Err(diagnostics) => {
                let own = self.found.file.path();
                let (here, elsewhere): (Vec<_>, Vec<_>) = diagnostics.into_iter().partition(|d| d.file.path() == own);
                here.into_iter().for_each(|diagnostic| self.found.push(diagnostic));
                self.elsewhere.extend(elsewhere);
                None
            }
        }
    }

    fn machine(&mut self, step: &StepDef<'_>, name: Text<'_>, input: &[BindingDef<'_>]) -> Option<Arc<CalledMachine>> {
        if !self.loader.machines().contains(name.text) {
            let known: Vec<&str> = self.loader.machines().names().iter().map(String::as_str).collect();
            self.found.push(machine_words::unknown_machine(self.found.file, name.at, name.text, &known));
            return None;
        }
        let machine = match self.loader.machine(name.text) {
            Ok(machine) => machine,
            Err(errors) => {
                self.found.push(machine_words::broken_machine(self.found.file, name.at, name.text, errors));
                return None;
            }
        };
        self.files.extend(machine.files.iter().cloned());
        if !machine.input.is_open {
            self.bindings(step, input, name, &machine.input);
        }
        Some(machine)
    }

    /// Loads the stage in a file, as a stage machine of its own. Its errors are reported with it.
    fn stage(&mut self, path: Text<'_>) -> Option<Arc<CalledMachine>> {
        let Some(full) = join(self.dir, path.text) else {
            self.found.push(diagnose_files::leaves_app(self.found.file, path.at, "the stage", path.text));
            return None;
        };
        if !matches!(self.loader.sources.kind(&full), Ok(FileKind::File { .. })) {
            let missing = diagnose_files::missing_file(
                self.found.file,
                path.at,
                diagnose_files::Purpose::Stage,
                path.text,
                &full,
                &[],
            );
            self.found.push(missing);
            return None;
        }
        let (machine, diagnostics) = stage_alone(self.loader.sources, &full, self.dir, self.loader.rules);
        self.elsewhere.extend(diagnostics);
        self.files.insert(full);
        let input = InputDecl { is_open: true, ..InputDecl::default() };
        Some(Arc::new(CalledMachine::new(Arc::new(machine?), input, Vec::new())))
    }

    fn sub_pipeline(&mut self, step: &StepDef<'_>, name: Text<'_>) -> Option<Arc<Loaded>> {
        let file = self.found.file;
        if name.text == CONSTRUCTOR || name.text == DESTRUCTOR {
            self.found.push(references::scope_pipeline(file, name.at, name.text));
            return None;
        }
        if !self.loader.discovery.contains(name.text) {
            let all: Vec<&str> = self.loader.discovery.pipelines.iter().map(String::as_str).collect();
            self.found.push(references::unknown_pipeline(file, name.at, name.text, &all));
            return None;
        }
        // A learned pipeline's state applies to its own runs: here nothing would confirm its writes or end its use
        // (L-63, L-80).
        if learned::find(self.loader.sources, PIPELINES, name.text).is_some() {
            self.found.push(references::learned_pipeline(file, name.at, name.text));
            return None;
        }
        if let Some(from) = self.loader.open.iter().position(|open| open == name.text) {
            self.is_cyclic = true;
            self.found.push(references::recursion(file, name.at, &self.loader.open[from..]));
            return None;
        }
        let sub = self.loader.load(name.text);
        if sub.missing {
            let all: Vec<&str> =
                self.loader.discovery.pipelines.iter().map(String::as_str).filter(|n| *n != name.text).collect();
            self.found.push(references::unknown_pipeline(file, name.at, name.text, &all));
            return None;
        }
        self.runs.insert(name.text.to_owned());
        self.is_cyclic |= sub.is_cyclic;
        if sub.sequence.is_none() {
            self.found.push(references::broken_pipeline(file, name.at, name.text, sub.errors()));
            return None;
        }
        if let Err(excess) = self.extent.add(sub.extent, &sub.input) {
            self.found.push(references::too_far(file, name.at, "pipeline", name.text, excess));
            return None;
        }
        if let Body::Pipeline { input, .. } = &step.body {
            self.bindings(step, input, name, &sub.input);
        }
        Some(sub)
    }

    /// Checks the arguments of a step against the parameters of the pipeline that it runs.
    fn bindings(&mut self, step: &StepDef<'_>, input: &[BindingDef<'_>], pipeline: Text<'_>, declared: &InputDecl) {
        let file = self.found.file;
        for binding in input {
            let name = binding.name.text;
            let Some(parameter) = declared.parameter(name) else {
                self.found.push(references::undeclared_binding(
                    file,
                    binding.name.at,
                    pipeline.text,
                    name,
                    &declared.names(),
                ));
                continue;
            };
            let why = match &binding.value {
                etude_core::plan::Binding::Literal(json) => json.inline().map_or(Ok(()), |raw| fits(parameter, raw)),
                _ => Ok(()),
            };
            if let Err(why) = why {
                self.found.push(references::mistyped_binding(file, binding.at, pipeline.text, name, &why));
            }
        }
        let given = step.node.as_map().and_then(|entries| entries.get("input")).and_then(Node::as_map);
        let is_given = |name: &str| given.is_some_and(|entries| entries.get(name).is_some());
        let missing: Vec<&str> =
            declared.parameters.iter().filter(|p| p.required && !is_given(&p.name)).map(|p| p.name.as_str()).collect();
        if !missing.is_empty() {
            self.found.push(references::missing_bindings(file, pipeline.at, pipeline.text, &missing));
        }
    }

    /// Notes template features that only etude has (L-49).
    fn extensions(&mut self, step: &StepDef<'_>) {
        for used in &step.uses {
            for (reference, range) in used.template.references() {
                if *reference == Reference::Request
                    && let Some(mut locator) = Locator::new(self.found.file, used.node)
                {
                    let (at, subject) = (locator.span(range), format!("step `{}`", step.name));
                    self.found.extensions.push(extension(self.found.file, at, &subject, "{{run.request}}", "L-49"));
                }
            }
        }
    }

    /// Warns of a `for_each` over a value that is never a list. The step fails in a run, or deviates.
    fn list(&mut self, step: &StepDef<'_>, item: Option<&Shape>) {
        let Some(over) = &step.for_each else { return };
        let Some(kind) = self.follow(&over.items, item).ok().and_then(|shape| shape.no_list()) else { return };
        let node = step.node.as_map().and_then(|entries| entries.get("for_each"));
        let at = node.map_or(step.at, |node| node.span);
        self.found.push(references::no_list(self.found.file, at, &over.items.to_string(), kind));
    }

    /// Checks the paths of a step's references against the known shapes of their values.
    fn paths(&mut self, step: &StepDef<'_>, outer: Option<&Shape>, inner: Option<&Shape>) {
        for used in step.uses.iter().filter(|used| !used.may_be_missing) {
            let Some(mut locator) = Locator::new(self.found.file, used.node) else {
                continue;
            };
            let item = if used.per_element { inner } else { outer };
            for (reference, range) in used.template.references() {
                if let Err((reference, miss)) = self.follow(reference, item) {
                    let at = locator.span(range);
                    self.found.push(no_such_value(self.found.file, at, reference, &miss));
                }
            }
        }
    }

    /// Warns of comparisons in `when` and `require` that no value can change.
    fn conditions(&mut self, step: &StepDef<'_>, item: Option<&Shape>) {
        let entries = step.node.as_map();
        let fields = [("when", step.when.as_ref()), ("require", step.require.as_ref().map(|own| &own.condition))];
        for (field, condition) in fields {
            let node = entries.and_then(|entries| entries.get(field));
            if let (Some(condition), Some(node)) = (condition, node) {
                self.comparisons(condition, node, item);
            }
        }
    }

    fn comparisons(&mut self, condition: &Condition, node: &Node<'_>, item: Option<&Shape>) {
        let entries = node.as_map();
        let below = |field: &str| entries.and_then(|entries| entries.get(field));
        match condition {
            Condition::All(all) => {
                let nodes = node.as_seq().unwrap_or_default();
                all.iter().zip(nodes).for_each(|(inner, node)| self.comparisons(inner, node, item));
            }
            Condition::Any(any) => {
                let nodes = below("any").and_then(Node::as_seq).unwrap_or_default();
                any.iter().zip(nodes).for_each(|(inner, node)| self.comparisons(inner, node, item));
            }
            Condition::Not(inner) => {
                if let Some(node) = below("not") {
                    self.comparisons(inner, node, item);
                }
            }
            Condition::Compare { value, op, literal } => {
                let known = match value {
                    Binding::Reference(reference) => {
                        let shape = self.follow(reference, item).ok();
                        shape.and_then(|shape| shape.types()).map(|types| (format!("`{{{{{reference}}}}}`"), types))
                    }
                    Binding::Template(_) => ValueTypes::of_word("string").map(|types| ("the text".to_owned(), types)),
                    Binding::Literal(_) => None,
                };
                let Some((shown, types)) = known else { return };
                if let (Some(is_true), Some(node)) = (types.decided(*op, literal.tree()), below(op.word())) {
                    let (said, word) = (types.shown(), op.word());
                    let meant = types.meant(literal.tree());
                    let fault = (shown.as_str(), said.as_str());
                    let at = node.span;
                    self.found.push(references::decided_comparison(self.found.file, at, fault, (word, is_true), meant));
                }
            }
            Condition::Truthy(_) | Condition::Relate { .. } => {}
        }
    }

    fn follow<'r>(&self, reference: &'r Reference, item: Option<&Shape>) -> Result<Shape, (&'r Reference, Miss)> {
        let walk = |shape: &Shape, skip: usize| {
            let path = reference.path().get(skip..).unwrap_or_default();
            shape.walk(path).map_err(|miss| (reference, Miss { depth: miss.depth + skip, ..miss }))
        };
        match reference {
            Reference::Output { step, .. } => self.shapes.get(step).map_or(Ok(Shape::Any), |shape| walk(shape, 0)),
            Reference::Item { .. } => item.map_or(Ok(Shape::Any), |shape| walk(shape, 0)),
            Reference::Input { path } => {
                let parameter = path.first().and_then(|first| self.input.parameter(&first.to_string()));
                parameter.map_or(Ok(Shape::Any), |parameter| match parameter.short {
                    None => walk(&Shape::of_schema(parameter.schema.document(), ""), 1),
                    Some(kind) => match kind.word() {
                        "object" => Ok(Shape::Any),
                        "array" => walk(&Shape::Array(Arc::new(Shape::Any)), 1),
                        word => walk(&Shape::Leaf(with_article(word)), 1),
                    },
                })
            }
            Reference::Index => Ok(Shape::Leaf("a number")),
            Reference::Request => Ok(Shape::Leaf("a string")),
        }
    }

    /// Shape of the answer to a closed question: an element of its list, or several.
    fn chosen(&self, llm: &LlmDef<'_>, item: Option<&Shape>) -> Shape {
        let Some(choose) = &llm.choose else { return Shape::Any };
        let element = self.shape_of(&choose.from, item).element();
        if choose.many { Shape::Array(Arc::new(element)) } else { element }
    }

    fn shape_of(&self, reference: &Reference, item: Option<&Shape>) -> Shape {
        self.follow(reference, item).unwrap_or(Shape::Any)
    }
}

fn approval(schema: Option<&Arc<Schema>>) -> Shape {
    let answer = schema.map_or(Shape::Any, |schema| Shape::of_schema(schema.document(), schema.name()));
    Shape::Object(Arc::new([
        ("approved".to_owned(), Shape::Leaf("a boolean")),
        ("answer".to_owned(), answer),
        ("by".to_owned(), Shape::Any),
        ("at".to_owned(), Shape::Leaf("a string")),
    ]))
}

fn no_such_value(file: &Arc<SourceFile>, at: Span, reference: &Reference, miss: &Miss) -> Diagnostic {
    let whole = reference.to_string();
    let path = reference.path();
    let behind: usize = path[miss.depth..].iter().map(|segment| segment.to_string().len() + 1).sum();
    let so_far = &whole[..whole.len() - behind];
    let name = path[miss.depth].to_string();
    let way = whole[whole.len() - behind..].trim_start_matches('.');
    let why = match &miss.why {
        Why::NoMember(known) => references::NoValue::Member { name: &name, known },
        Why::Leaf(kind) => references::NoValue::Leaf { kind, into: &name },
        Why::Array => references::NoValue::Array { name: &name, way },
        Why::CollectedArray => references::NoValue::CollectedArray { name: &name, way },
        Why::Collected => references::NoValue::Collected { name: &name, way },
    };
    references::no_such_value(file, at, &whole, so_far, &miss.schema, &why)
}

//! Checks of references inside one file: step names, references, `output`.

use std::collections::BTreeMap;

use etude_core::template::{Reference, Segment};

use crate::check::Findings;
use crate::diagnose::{references, values};
use crate::pipeline::definition::{Body, Definition, StepDef, TemplateUse};
use crate::source::Span;
use crate::yaml::Locator;

/// Place of a step in the file.
#[derive(Clone, Copy)]
struct Place<'n> {
    /// Index of the top-level step that it is or belongs to.
    top: usize,
    /// Name of the enclosing group.
    group: Option<&'n str>,
    at: Span,
}

/// Checks names and references. With `open_input`, the input is that of another pipeline and unknown here.
pub(crate) fn check(found: &mut Findings<'_>, definition: &Definition<'_>, open_input: bool) {
    let places = places(found, &definition.steps);
    let names: Vec<&str> = definition.steps.iter().map(|step| step.name).collect();
    let inputs = definition.input.names();
    let checker = Checker { places: &places, names: &names, inputs: (!open_input).then_some(&inputs) };
    for (top, step) in definition.steps.iter().enumerate() {
        checker.step(found, &Owner { step, top, group: None });
        if let Body::Parallel { steps, .. } = &step.body {
            for child in steps {
                checker.step(found, &Owner { step: child, top, group: Some(step) });
            }
        }
    }
    if let Some(output) = definition.output.filter(|_| !definition.steps.is_empty()) {
        match places.get(output.text) {
            Some(Place { group: Some(group), top, .. }) if repeated(&definition.steps[*top]) => {
                found.push(references::output_of_elements(found.file, output.at, output.text, group));
            }
            Some(_) => {}
            None => {
                let all: Vec<&str> = places.keys().copied().collect();
                let shown = if all.len() == names.len() { &names } else { &all };
                found.push(references::unknown_output(found.file, output.at, output.text, shown));
            }
        }
    }
}

fn places<'n>(found: &mut Findings<'_>, steps: &[StepDef<'n>]) -> BTreeMap<&'n str, Place<'n>> {
    let mut places: BTreeMap<&'n str, Place<'n>> = BTreeMap::new();
    let mut add = |step: &StepDef<'n>, top: usize, group: Option<&'n str>| {
        if step.name.is_empty() {
            return;
        }
        if let Some(first) = places.get(step.name) {
            found.push(values::duplicate_name(found.file, step.at, first.at, step.name));
        } else {
            places.insert(step.name, Place { top, group, at: step.at });
        }
    };
    for (top, step) in steps.iter().enumerate() {
        add(step, top, None);
        if let Body::Parallel { steps, .. } = &step.body {
            steps.iter().for_each(|child| add(child, top, Some(step.name)));
        }
    }
    places
}

struct Checker<'a, 'n> {
    places: &'a BTreeMap<&'n str, Place<'n>>,
    names: &'a [&'n str],
    inputs: Option<&'a Vec<&'a str>>,
}

/// A step whose references are checked.
struct Owner<'a, 'n> {
    step: &'a StepDef<'n>,
    /// Index of the top-level step that it is or belongs to.
    top: usize,
    group: Option<&'a StepDef<'n>>,
}

impl Checker<'_, '_> {
    fn step(&self, found: &mut Findings<'_>, owner: &Owner<'_, '_>) {
        let in_group = owner.group.is_some_and(repeated);
        for used in &owner.step.uses {
            let has_item = in_group || (used.per_element && repeated(owner.step));
            self.template(found, used, owner, has_item);
        }
    }

    fn template(&self, found: &mut Findings<'_>, used: &TemplateUse<'_>, owner: &Owner<'_, '_>, has_item: bool) {
        let Some(mut locator) = Locator::new(found.file, used.node) else {
            return;
        };
        for (reference, range) in used.template.references() {
            let problem = match reference {
                Reference::Input { path } => self.input(path).map(|name| Problem::Input(name.into_owned())),
                Reference::Output { step, .. } => self.output(step, owner),
                Reference::Item { .. } if !has_item => Some(Problem::Item("item")),
                Reference::Index if !has_item => Some(Problem::Item("index")),
                _ => None,
            };
            if let Some(problem) = problem {
                let at = locator.span(range);
                self.report(found, problem, reference, used.field, owner, at);
            }
        }
    }

    /// Name of the parameter, if it is not declared.
    fn input<'p>(&self, path: &'p [Segment]) -> Option<std::borrow::Cow<'p, str>> {
        let name = match path.first()? {
            Segment::Field(name) => std::borrow::Cow::Borrowed(name.as_str()),
            Segment::Index(index) => std::borrow::Cow::Owned(index.to_string()),
        };
        let declared = self.inputs?;
        (!declared.contains(&name.as_ref())).then_some(name)
    }

    fn output(&self, step: &str, owner: &Owner<'_, '_>) -> Option<Problem> {
        let Some(place) = self.places.get(step) else {
            return Some(Problem::Unknown);
        };
        let own_group = owner.group.map(|group| group.name);
        if step == owner.step.name {
            return Some(Problem::Own);
        }
        if own_group == Some(step) {
            return Some(Problem::OwnGroup);
        }
        match place.group {
            Some(around) if own_group == Some(around) => Some(Problem::Sibling(around.to_owned())),
            Some(_) if place.top == owner.top => Some(Problem::Own),
            _ if place.top >= owner.top => Some(Problem::Later(place.at)),
            Some(around) => Some(Problem::Child(around.to_owned())),
            None => None,
        }
    }

    fn report(
        &self,
        found: &mut Findings<'_>,
        problem: Problem,
        reference: &Reference,
        field: &str,
        owner: &Owner<'_, '_>,
        at: Span,
    ) {
        let file = found.file;
        let earlier = &self.names[..owner.top];
        let name = owner.step.name;
        let step = match reference {
            Reference::Output { step, .. } => step.as_str(),
            _ => "",
        };
        found.push(match problem {
            Problem::Input(name) => {
                references::unknown_input(file, at, &name, self.inputs.map(Vec::as_slice).unwrap_or_default())
            }
            Problem::Item(word) => references::no_item(file, at, word, field, repeated(owner.step)),
            Problem::Unknown => references::unknown_step(file, at, field, step, name, earlier),
            Problem::Own => references::own_step(file, at, step, earlier),
            Problem::OwnGroup => references::own_group(file, at, name, step),
            Problem::Sibling(group) => references::sibling_step(file, at, step, name, &group),
            Problem::Later(declared) => references::later_step(file, at, step, name, earlier, declared),
            Problem::Child(group) => references::child_of_group(file, at, step, &group),
        });
    }
}

/// True if a step runs once per element.
fn repeated(step: &StepDef<'_>) -> bool {
    step.node.as_map().is_some_and(|entries| entries.get("for_each").is_some())
}

/// Fault of a reference.
enum Problem {
    Input(String),
    Item(&'static str),
    Unknown,
    Own,
    OwnGroup,
    Sibling(String),
    Later(Span),
    Child(String),
}

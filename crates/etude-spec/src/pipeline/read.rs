//! Reading of a definition from the YAML tree: fields, types and other checks of single values.

use etude_core::template::{self, ProblemKind, Template};

use crate::check::{Findings, Subject, object};
use crate::diagnose::{references, values};
use crate::fields::pipeline as tables;
use crate::input::{self, InputDecl};
use crate::pipeline::definition::{Definition, StepDef, TemplateUse};
use crate::pipeline::step;
use crate::yaml::{Entries, Locator, Node, text, texts};

/// Reads the definition in `root`; `dir_name` is the required name of the pipeline. Without a definition there is at
/// least one error.
pub(crate) fn definition<'n>(found: &mut Findings<'_>, root: &'n Node<'n>, dir_name: &str) -> Option<Definition<'n>> {
    let Some(entries) = root.as_map() else {
        if !root.is_invalid() {
            found.push(values::top_level(found.file, root.span, "a pipeline", root.kind()));
        }
        return None;
    };
    let subject = format!("pipeline `{dir_name}`");
    let at = entries.0.first().map_or(root.span, |(key, _)| key.span);
    object(found, entries, &tables::PIPELINE, Subject { name: &subject, at }, &[&tables::CODE, &tables::LLM]);
    if let Some(name) = text(entries, "name").filter(|name| name.text != dir_name) {
        found.push(values::name_mismatch(found.file, name.at, name.text, dir_name));
    }
    let input = match entries.get("input").and_then(Node::as_map) {
        Some(parameters) => input::read(found, parameters),
        None => InputDecl::default(),
    };
    let names = step_names(entries);
    Some(Definition {
        description: text(entries, "description").map(|t| t.text.to_owned()).unwrap_or_default(),
        triggers: texts(entries, "triggers"),
        input,
        steps: steps(found, entries, &subject, &names, None),
        output: text(entries, "output"),
        fallback: text(entries, "fallback").filter(|word| word.text == "skill").map(|word| word.at),
    })
}

/// Names of all steps at the top level, for hints about templates.
fn step_names<'n>(entries: &'n Entries<'n>) -> Vec<&'n str> {
    let steps = entries.get("steps").and_then(Node::as_seq).unwrap_or_default();
    steps.iter().filter_map(|step| step.as_map()?.get("name")?.as_text()).collect()
}

/// Reads the steps of a pipeline or of the group `group`.
pub(crate) fn steps<'n>(
    found: &mut Findings<'_>,
    entries: &'n Entries<'n>,
    subject: &str,
    names: &[&str],
    group: Option<&str>,
) -> Vec<StepDef<'n>> {
    let Some((key, node)) = entries.entry("steps") else {
        return Vec::new();
    };
    let Some(items) = node.as_seq() else { return Vec::new() };
    if items.is_empty() {
        let at = if node.span.is_empty() { key.span } else { node.span };
        found.push(values::no_steps(found.file, at, subject));
    }
    items.iter().filter_map(|item| step::read(found, item, key.span, names, group)).collect()
}

/// Reader of one step's templates; it keeps those that have references.
pub(crate) struct Templates<'a, 'n> {
    pub(crate) uses: Vec<TemplateUse<'n>>,
    /// All texts, by their fields.
    pub(crate) texts: Vec<(&'static str, &'n Node<'n>)>,
    /// Step names, for hints.
    pub(crate) names: &'a [&'a str],
}

impl<'n> Templates<'_, 'n> {
    /// Reads the template in `node`; `None` if it is not text.
    pub(crate) fn read(
        &mut self,
        found: &mut Findings<'_>,
        field: &'static str,
        node: &'n Node<'n>,
        per_element: bool,
    ) -> Option<Template> {
        let text = node.as_text()?;
        self.texts.push((field, node));
        if !text.contains("{{") {
            return Some(Template::literal(text));
        }
        let (template, problems) = template::parse(text);
        let mut places = Locator::new(found.file, node)?;
        for problem in problems {
            match problem.kind {
                ProblemKind::Unclosed => {
                    let open = problem.range.start..problem.range.start + 2;
                    found.push(references::unclosed(found.file, places.span(open), field));
                }
                ProblemKind::NotAReference { text } => {
                    let at = places.span(problem.range);
                    found.push(references::not_a_reference(found.file, at, &text, self.names));
                }
            }
        }
        if !template.is_literal() {
            let template = template.clone();
            self.uses.push(TemplateUse { field, node, template, per_element, may_be_missing: false });
        }
        Some(template)
    }

    /// Reads the template of a field.
    pub(crate) fn field(
        &mut self,
        found: &mut Findings<'_>,
        entries: &'n Entries<'n>,
        field: &'static str,
    ) -> Option<Template> {
        self.read(found, field, entries.get(field)?, true)
    }
}

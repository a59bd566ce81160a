//! Texts that are valid but were probably meant otherwise: references in the braces of other programs, and names of files.

use std::ops::Range;

use etude_core::template::{Reference, Segment};

use crate::check::Findings;
use crate::diagnose::references;
use crate::pipeline::definition::{Body, Definition, StepDef};
use crate::yaml::{Locator, Node};

/// Fields whose text a model reads.
const PROMPTS: [&str; 3] = ["prompt", "system", "request"];

/// Ends of the names of files with text.
const TEXT_FILES: [&str; 7] = [".md", ".txt", ".prompt", ".tmpl", ".jinja", ".j2", ".mustache"];

/// Parts of the names of amounts of money, which often follow a `$`.
const MONEY: [&str; 8] = ["price", "cost", "amount", "total", "usd", "budget", "fee", "dollar"];

/// Names that a reference in the file can refer to.
struct Known<'a> {
    inputs: Vec<&'a str>,
    steps: Vec<&'a str>,
}

/// Warns of the slips in the templates of a pipeline.
pub(super) fn check(found: &mut Findings<'_>, definition: &Definition<'_>) {
    let mut steps: Vec<&str> = Vec::new();
    for step in &definition.steps {
        steps.push(step.name);
        if let Body::Parallel { steps: inner, .. } = &step.body {
            steps.extend(inner.iter().map(|step| step.name));
        }
    }
    let known = Known { inputs: definition.input.names(), steps };
    for step in &definition.steps {
        of_step(found, step, false, &known);
        if let Body::Parallel { steps, .. } = &step.body {
            steps.iter().for_each(|inner| of_step(found, inner, step.for_each.is_some(), &known));
        }
    }
}

fn of_step(found: &mut Findings<'_>, step: &StepDef<'_>, in_fan_out: bool, known: &Known<'_>) {
    let has_item = in_fan_out || step.for_each.is_some();
    for (field, node) in &step.texts {
        let Some(text) = node.as_text() else { continue };
        if PROMPTS.contains(field) && is_file_name(text) {
            found.push(references::file_as_text(found.file, node.span, field, text.trim()));
        }
        of_text(found, node, text, has_item, known);
    }
}

fn of_text(found: &mut Findings<'_>, node: &Node<'_>, text: &str, has_item: bool, known: &Known<'_>) {
    let Some(mut places) = Locator::new(found.file, node) else { return };
    for (range, inner) in braces(text) {
        let Ok(reference) = inner.trim().parse::<Reference>() else { continue };
        if !is_known(&reference, has_item, known) {
            continue;
        }
        let at = places.span(range.clone());
        let written = &text[range];
        let is_doubled = written.ends_with("}}");
        if !is_doubled || (inner.starts_with(' ') && !is_money(&reference)) {
            found.push(references::other_braces(found.file, at, written, &reference.to_string(), is_doubled));
        }
    }
}

/// Texts that another program would fill in, `{…}`, `${…}` and `${{…}}`, with the text between the braces.
fn braces(text: &str) -> Vec<(Range<usize>, &str)> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(open) = text[at..].find('{').map(|found| at + found) {
        let width = text[open..].bytes().take_while(|byte| *byte == b'{').count();
        let inside = open + width;
        at = inside;
        let is_escaped = text[..open].ends_with('\\');
        let has_dollar = text[..open].ends_with('$');
        let Some(length) = text[inside..].find(['{', '}']) else { continue };
        let close = inside + length;
        let is_closed = text[close..].bytes().take_while(|byte| *byte == b'}').count() == width;
        if is_closed && !is_escaped && (width == 1 || (width == 2 && has_dollar)) {
            all.push((open - usize::from(has_dollar)..close + width, &text[inside..close]));
        }
    }
    all
}

/// True if the reference has a value in this file: other texts in braces are literal.
fn is_known(reference: &Reference, has_item: bool, known: &Known<'_>) -> bool {
    match reference {
        Reference::Input { path } => match path.first() {
            Some(Segment::Field(name)) => known.inputs.contains(&name.as_str()),
            _ => false,
        },
        Reference::Output { step, .. } => known.steps.contains(&step.as_str()),
        Reference::Item { .. } => has_item,
        Reference::Request => true,
        Reference::Index => false,
    }
}

/// True if the value is probably an amount of money: a `$` before it is text.
fn is_money(reference: &Reference) -> bool {
    let name = reference.path().last().map(ToString::to_string).unwrap_or_default().to_lowercase();
    MONEY.iter().any(|part| name.contains(part))
}

/// True if the whole text is the name of a file with text.
fn is_file_name(text: &str) -> bool {
    let text = text.trim();
    let is_name = |c: char| c.is_alphanumeric() || "._-/".contains(c);
    let stem = TEXT_FILES.iter().find_map(|end| text.strip_suffix(end));
    stem.is_some_and(|stem| stem.chars().all(is_name) && stem.ends_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use crate::pipeline::App;
    use crate::source::MemorySources;

    fn findings(step: &str) -> Vec<(String, String)> {
        let text = format!(
            "name: p\ndescription: d\ninput: {{x: string, n: integer, price: number}}\nsteps:\n  \
             - {{name: first, type: code, command: cat}}\n  - {{name: a, {step}}}\n"
        );
        let sources = MemorySources::new().with("pipelines/p/pipeline.yaml", text);
        let report = App::new(&sources).check(&[]);
        let said = |fault: crate::Diagnostic| (fault.message, fault.hint.unwrap_or_default());
        report.diagnostics.into_iter().map(said).collect()
    }

    fn of_prompt(prompt: &str) -> Vec<(String, String)> {
        findings(&format!("type: llm, prompt: {}", serde_json::Value::from(prompt)))
    }

    /// a reference in the braces of another program is text, so it is reported with its spelling.
    #[test]
    fn references_in_other_braces_are_reported() {
        let text = |written: &str| format!("`{written}` is text, not a reference");
        for (written, right) in
            [("{input.x}", "input.x"), ("{first.output.title}", "first.output.title"), ("${input.x}", "input.x")]
        {
            let hint = format!("write `{{{{{right}}}}}`");
            assert_eq!(of_prompt(&format!("Sum up {written}.")), [(text(written), hint)], "{written}");
        }
        let dollar = ("the `$` of `${{ input.x }}` stays in the text".to_owned(), "write `{{input.x}}`".to_owned());
        assert_eq!(of_prompt("Sum up ${{ input.x }}."), [dollar]);
        assert_eq!(findings("type: code, command: cat, env: {X: \"{input.x}\"}").len(), 1);
        assert_eq!(findings("type: llm, for_each: \"{{first.output}}\", prompt: \"Sum up {item.title}\"").len(), 1);
    }

    /// JSON, code and other literal braces are no slips.
    #[test]
    fn other_braces_are_text() {
        for text in [
            "Answer {\"x\": {\"input.x\": 1}} or {x: 1} or {n}.",
            "{input.unknown} {other.output} {item} {index} {} { }",
            "\\{input.x} and f\"{value}\" and ${HOME}",
            "It costs ${{input.n}}, or ${{ input.price }}.",
            "Read notes.md and {{input.x}}.",
            "{\"type\": \"object\", \"properties\": {\"input\": {\"type\": \"string\"}}}",
        ] {
            let own = of_prompt(text);
            assert_eq!(own, [], "{text}");
        }
    }

    /// the name of a file as a prompt is sent as it is written.
    #[test]
    fn a_file_name_as_a_prompt_is_reported() {
        let message = "`prompt` is the text `prompts/sum-up.md`, not the content of a file".to_owned();
        let hint = "write the text itself in a block: `prompt: |`".to_owned();
        assert_eq!(of_prompt("prompts/sum-up.md"), [(message, hint)]);
        assert_eq!(findings("type: llm, prompt: x, system: system.txt").len(), 1);
        assert_eq!(of_prompt("{{input.x}}.md"), []);
    }
}

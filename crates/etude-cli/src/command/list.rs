//! `etude list`: the contents of the app.

use std::fmt::Write;

use etude::{Disk, definition};
use etude_packages::skills::Compat;
use etude_spec::stage_machine::{Machines, Rules, Summary as MachineSummary};
use etude_spec::{App, Summary};
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::commands::complete;
use crate::render::layout::{clip, description};
use crate::render::text::harmless;
use crate::stdout;

/// Suffix of entries that have errors.
const FAULT: &str = "  (has errors: etude check)";

/// Maximum number of characters shown of a parameter.
const MAX_PARAMETER: usize = 90;

pub(crate) fn list(context: &Context) -> Exit {
    let disk = match context.disk() {
        Ok(disk) => disk,
        Err(problem) => return context.report(None, &problem),
    };
    let rules = match rules(context, &disk) {
        Ok(rules) => rules,
        Err(problem) => return context.report(None, &problem),
    };
    let (summaries, _) = App::new(&disk).summaries();
    let machines = Machines::new(&disk, rules).summaries();
    let unlisted = definition::unlisted(&disk);
    let exit = if unlisted.is_empty() { Exit::Done } else { Exit::Definition };
    if context.is_json() {
        stdout::text(&format!("{}\n", document(context, &summaries, &machines)));
        context.show(&unlisted);
        return exit;
    }
    let names = summaries.iter().map(|s| &s.name).chain(machines.iter().map(|m| &m.name));
    let width = names.map(|name| name.chars().count()).max().unwrap_or(0).min(40);
    let is_verbose = context.global.is_verbose();
    let broken = complete(FAULT);
    let described = |text: &str, used: usize| description(text, width + 2 + used, is_verbose);
    let mut text = String::new();
    for pipeline in &summaries {
        let fault = if pipeline.valid { "" } else { broken.as_str() };
        let description = described(&pipeline.description, fault.len());
        let _ = writeln!(text, "{:<width$}  {description}{fault}", pipeline.name);
        text.push_str(&parameters(&pipeline.input.schema(), width));
    }
    for machine in &machines {
        let fault = if machine.valid { "" } else { broken.as_str() };
        let description = described(&machine.description, "machine: ".len() + fault.len());
        let _ = writeln!(text, "{:<width$}  machine: {description}{fault}", machine.name);
        text.push_str(&parameters(&machine.input.schema(), width));
    }
    stdout::text(&text);
    show_others(context);
    context.show(&unlisted);
    if summaries.is_empty() && machines.is_empty() && unlisted.is_empty() && !context.global.quiet {
        crate::render::say!("this app has no pipelines; make one with `etude new NAME`");
    }
    exit
}

/// The configured rules of machines. A configuration that the command line names must be valid; `etude check` reports the faults
/// of the app's own.
fn rules(context: &Context, disk: &Disk) -> Result<Rules, Problem> {
    let configured = context.settings(disk.root()).map(|resolved| resolved.machines);
    if context.global.config.is_some() { configured } else { Ok(configured.unwrap_or_default()) }
}

/// Document of the app that the context names.
#[cfg(feature = "serve")]
pub(crate) fn of_app(context: &Context) -> Result<Value, Problem> {
    let disk = context.disk()?;
    let (summaries, _) = App::new(&disk).summaries();
    let rules = context.settings(disk.root()).map(|resolved| resolved.machines).unwrap_or_default();
    let machines = Machines::new(&disk, rules).summaries();
    let text = document(context, &summaries, &machines);
    serde_json::from_str(&text).map_err(|e| Problem::environment(e.to_string()))
}

fn document(context: &Context, summaries: &[Summary], machines: &[MachineSummary]) -> String {
    let pipelines = documents(summaries);
    let machines = machines.iter().map(|machine| of_machine(machine).to_string()).collect::<Vec<_>>().join(",");
    let (skills, applications) = others(context);
    format!(
        "{{\"pipelines\":[{pipelines}],\"machines\":[{machines}],\"skills\":{},\"applications\":{}}}",
        Value::from(skills),
        Value::from(applications),
    )
}

/// Parameters of an input schema, one a line below the name: `count: integer = 3`.
fn parameters(schema: &Value, width: usize) -> String {
    let required: Vec<&Value> = schema["required"].as_array().into_iter().flatten().collect();
    let mut out = String::new();
    for (name, parameter) in schema["properties"].as_object().into_iter().flatten() {
        let choices = parameter["enum"]
            .as_array()
            .map(|choices| choices.iter().map(Value::to_string).collect::<Vec<_>>().join(" | "));
        let kind = choices.unwrap_or_else(|| match &parameter["type"] {
            Value::String(kind) => kind.clone(),
            Value::Null => "any".to_owned(),
            kinds => kinds.to_string(),
        });
        let default = match parameter.get("default") {
            Some(default) => format!(" = {default}"),
            None if required.iter().any(|known| *known == name) => String::new(),
            None => " (optional)".to_owned(),
        };
        let line = clip(&format!("{name}: {kind}{default}"), MAX_PARAMETER);
        let _ = writeln!(out, "{:<width$}    {line}", "");
    }
    out
}

/// Skills and applications as documents. Their own commands report those that are unreadable here.
fn others(context: &Context) -> (Vec<Value>, Vec<Value>) {
    let skills = super::skill::discover(context, Compat::Spec).map(|catalog| super::skill::documents(&catalog));
    let approvals = super::skill::approvals(context).unwrap_or_default();
    let applications = super::apps::discover(context, &[]).map(|catalog| super::apps::documents(&catalog, &approvals));
    (skills.unwrap_or_default(), applications.unwrap_or_default())
}

/// Prints skills and applications for people, under a heading each.
fn show_others(context: &Context) {
    let (skills, applications) = others(context);
    for (heading, entries, key) in [("skills", skills, "name"), ("applications", applications, "slug")] {
        let width =
            entries.iter().filter_map(|e| e[key].as_str()).map(|name| name.chars().count()).max().unwrap_or(0).min(40);
        let mut text = String::new();
        for entry in &entries {
            let word = |key: &str| entry[key].as_str().unwrap_or_default();
            let shown = description(word("description"), width + 2, context.global.is_verbose());
            let fault = if entry["compatible"] == false { "  (has errors: etude apps check)" } else { "" };
            let _ = writeln!(text, "{:<width$}  {shown}{fault}", harmless(word(key)));
        }
        if !text.is_empty() {
            stdout::text(&format!("\n{heading}:\n{text}"));
        }
    }
}

/// Number of documents from which two threads print them.
const MANY: usize = 500;

/// Documents of the pipelines, separated by commas.
fn documents(summaries: &[Summary]) -> String {
    let print = |part: &[Summary]| part.iter().map(|s| of_pipeline(s).to_string()).collect::<Vec<_>>().join(",");
    if summaries.len() < MANY {
        return print(summaries);
    }
    let (first, second) = summaries.split_at(summaries.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| print(second));
        let first = print(first);
        let second = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        format!("{first},{second}")
    })
}

fn of_machine(machine: &MachineSummary) -> Value {
    json!({
        "name": machine.name,
        "description": machine.description,
        "triggers": machine.triggers,
        "input": machine.input.schema(),
        "valid": machine.valid,
    })
}

fn of_pipeline(pipeline: &Summary) -> Value {
    json!({
        "name": pipeline.name,
        "description": pipeline.description,
        "triggers": pipeline.triggers,
        "input": pipeline.input.schema(),
        "valid": pipeline.valid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_shown_with_type_and_default() {
        let schema = json!({"type": "object", "required": ["name"], "properties": {
            "count": {"type": "integer", "default": 3}, "name": {"type": "string"}, "note": {"type": "string"},
            "sort": {"enum": ["a", "b"], "default": "a"},
        }});
        assert_eq!(
            parameters(&schema, 4),
            "        count: integer = 3
        name: string
        note: string (optional)
        sort: \"a\" | \"b\" = \"a\"
"
        );
    }
}

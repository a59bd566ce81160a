//! `etude run --dry-run`: shows the steps and the maximum cost of a run. Nothing runs.

use std::fmt::Write;

use etude::definition::Definition;
use etude_core::data::Json;
use etude_core::effect::Command;
use etude_core::failure::Phase;
use etude_core::machine::Limits;
use etude_core::plan::OnTimeout;
use etude_core::report::duration;
use etude_preview::dry_run::{self, DryRun, Question, Repeat, StepFacts, Work, WorstCase};

use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::harmless;
use crate::{settings, stdout};

/// Prints the plan of the run, and compares its maximum cost with the limits.
pub(crate) fn show(context: &Context, definition: &Definition, input: &Json, limits: &Limits) -> Exit {
    let models = match context.settings(&definition.app) {
        Ok(resolved) => settings::known_models(&resolved),
        Err(problem) => return context.report(None, &problem),
    };
    let price = |tier| models.as_ref().and_then(|models| models.price(tier));
    let run = dry_run::of(&definition.plan, input, Some(&price));
    if context.is_json() {
        match run.document(limits) {
            Ok(document) => stdout::documents(|out| writeln!(out, "{document}")),
            Err(error) => return context.report(None, &Problem::environment(error.to_string())),
        }
    } else {
        stdout::text(&text(&run, limits));
    }
    if !context.global.quiet {
        crate::render::say!("nothing was run");
    }
    Exit::Done
}

fn text(run: &DryRun, limits: &Limits) -> String {
    let mut out = String::new();
    let input = run.input.text().unwrap_or_default();
    let _ = writeln!(out, "pipeline {} with {}", run.pipeline, harmless(&input));
    let mut phase = None;
    for step in &run.steps {
        if phase.replace(step.phase) != Some(step.phase) {
            let is_fallback = step.phase == Phase::Skill && run.steps[0].phase != Phase::Skill;
            let why = if is_fallback { ", after a deviation" } else { "" };
            let _ = writeln!(out, "\n{}{why}", step.phase.word());
        }
        draw(&mut out, step);
    }
    let _ = writeln!(out, "\nat worst: {}", worst(&run.worst_case));
    for note in run.worst_case.against(limits) {
        let _ = writeln!(out, "          {note}");
    }
    out
}

fn worst(worst: &WorstCase) -> String {
    let mut text = match worst.model_calls {
        0 => return "no model calls".to_owned(),
        1 => "1 model call".to_owned(),
        many => format!("{many} model calls"),
    };
    match worst.max_output_tokens {
        Some(tokens) => text.push_str(&format!(", {tokens} output tokens")),
        None => text.push_str(", unbounded output tokens (a step has no `max_tokens`)"),
    }
    if let Some(cost) = worst.cost_usd {
        text.push_str(&format!(", ${cost:.4} for them; input tokens cost extra"));
    }
    text
}

fn draw(out: &mut String, step: &StepFacts) {
    let pad = "  ".repeat(step.inside.len() + 1);
    let mark = if step.has_effects { "  changes the outside world" } else { "" };
    let _ = writeln!(out, "{pad}{} ({}){mark}", step.name, step.word());
    let mut lines = Vec::new();
    if let Some(when) = &step.when {
        let holds = match when.holds {
            None => "",
            Some(true) => "  (holds)",
            Some(false) => "  (false: the step is skipped)",
        };
        lines.push(format!("when {}{holds}", when.text));
    }
    lines.extend(step.require.as_ref().map(|require| {
        let holds = match require.holds {
            None => "",
            Some(true) => "  (holds)",
            Some(false) => "  (false: the run deviates here)",
        };
        format!("requires {}{holds}", require.text)
    }));
    lines.extend(step.for_each.as_ref().map(repeat));
    work(&mut lines, &step.work);
    lines.extend(step.timeout_ms.map(|ms| format!("at most {}", duration(ms))));
    if step.is_cached {
        lines.push("reuses an earlier output if there is one".to_owned());
    }
    if step.worst_case.model_calls > 0 {
        let derivation = step.bound.as_ref().map(|bound| format!(" = {}", bound.text())).unwrap_or_default();
        lines.push(format!("at worst {}{derivation}", worst(&step.worst_case)));
        let unknown = step.bound.iter().flat_map(|bound| &bound.unknown);
        lines.extend(unknown.map(|why| format!("unknown: {why}")));
    }
    for line in lines.iter().flat_map(|line| line.lines()) {
        let _ = writeln!(out, "{pad}    {}", harmless(line));
    }
}

fn repeat(each: &Repeat) -> String {
    let count = match each.count {
        Some(count) if count > each.max_items => {
            format!("{count} elements, more than `max_items` ({}): the step fails before anything runs", each.max_items)
        }
        Some(count) => format!("{count} elements"),
        None => format!("at most {} elements", each.max_items),
    };
    format!("for each of {}: {count}, {} at once", each.items, each.max_parallel)
}

fn work(lines: &mut Vec<String>, work: &Work) {
    match work {
        Work::Code { command, dir, env, schema, retry, sandbox } => {
            lines.push(match command {
                Command::Direct(words) => format!("runs {}", serde_json::Value::from(words.as_slice())),
                Command::Shell(line) | Command::Script(line) => format!("runs a shell: {line}"),
            });
            lines.push(format!("in {dir}"));
            lines.extend(env.iter().map(|(name, value)| format!("with {name}={value}")));
            lines.extend(schema.as_ref().map(|schema| format!("output must satisfy {schema}")));
            lines.extend(sandbox.as_ref().map(|asked| {
                let network = if asked.network { "with the network" } else { "without network" };
                let paths = |what: &str, paths: &[String]| match paths {
                    [] => String::new(),
                    paths => format!("; may {what} {}", paths.join(", ")),
                };
                format!("in a sandbox {network}{}{}", paths("read", &asked.read), paths("write", &asked.write))
            }));
            if *retry > 0 {
                lines.push(format!("a failed attempt is repeated, retries: {retry}"));
            }
        }
        Work::Llm(ask) => question(lines, ask),
        Work::Application { application, command, args } => {
            lines.push(format!("runs `{application} {command}`"));
            lines.extend((!args.is_empty()).then(|| format!("arguments: {}", args.join(" "))));
        }
        Work::Tool { tool, args } => {
            lines.push(format!("calls the tool {tool}"));
            lines.extend(args.iter().map(|(name, value)| format!("with {name} = {value}")));
        }
        Work::Skill { skill, tier, prompt, allowed, schema, max_turns } => {
            lines.push(format!("follows skill `{skill}` with a model of tier {tier}, at most {max_turns} turns"));
            let tools = allowed.as_ref().map_or_else(|| "all available".to_owned(), |list| list.join(", "));
            lines.push(format!("tools: {tools}"));
            lines.extend(schema.as_ref().map(|name| format!("answer: {name}")));
            lines.push(format!("prompt: {prompt}"));
        }
        Work::Parallel { max_parallel: Some(most) } => lines.push(format!("at most {most} of these at once:")),
        Work::Parallel { max_parallel: None } => lines.push("all of these at once:".to_owned()),
        Work::Machine { machine, tier, stages, max_executions, .. } => {
            lines.push(format!("runs the stages of {machine}, each with a model of tier {tier}"));
            lines.push(format!("stages {}; at most {max_executions} executions", stages.join(", ")));
        }
        Work::Pipeline { name, input } => {
            lines.push(format!("runs the steps of pipeline {name}"));
            lines.extend(input.iter().map(|(name, value)| format!("with {name} = {value}")));
        }
        Work::Approval { message, schema, approvers, on_timeout } => {
            let who = if approvers.is_empty() { "a person".to_owned() } else { approvers.join(" or ") };
            lines.push(format!("waits until {who} decides: {message}"));
            lines.extend(schema.as_ref().map(|schema| format!("answer must satisfy {schema}")));
            match on_timeout {
                OnTimeout::Fail => {}
                OnTimeout::Deny => lines.push("counts as denied after the timeout".to_owned()),
                OnTimeout::Approve => lines.push("counts as approved after the timeout".to_owned()),
            }
        }
    }
}

fn question(lines: &mut Vec<String>, ask: &Question) {
    let limit = ask.max_tokens.map(|most| format!(", at most {most} tokens per response")).unwrap_or_default();
    lines.push(format!("calls a model of tier {}, retries: {}{limit}", ask.tier, ask.retry));
    let quoted = |lines: &mut Vec<String>, what: &str, text: &str| {
        lines.push(format!("{what}:"));
        lines.extend(text.lines().map(|line| format!("  | {line}")));
    };
    if let Some(system) = &ask.system {
        quoted(lines, "system prompt", system);
    }
    quoted(lines, "prompt", &ask.prompt);
    lines.extend(ask.images.iter().map(|image| format!("image {image}")));
    lines.extend(ask.schema.as_ref().map(|schema| format!("answer must satisfy {schema}")));
    lines.extend(ask.validate.as_ref().map(|script| format!("answer is checked by {script}")));
}

#[cfg(test)]
mod tests;

//! The files that a pipeline names: do they exist, and which ones does a run depend on.

use std::collections::BTreeSet;

use etude_core::effect::Command;

use crate::check::Findings;
use crate::command;
use crate::diagnose::{files as diagnose, values};
use crate::files::beside;
use crate::pipeline::definition::{Body, SchemaDef, StepDef, ValidatorDef};
use crate::source::{FileKind, ReadFailure, Sources, Span, join};
use crate::yaml::{Locator, Text};

/// Extensions for which an interpreter is known.
const SCRIPTS: &[&str] = &["py", "sh", "js", "mjs", "ts", "rb", "pl"];

/// Checks that the files that `steps` name exist. `dir` is the pipeline's directory.
pub(crate) fn check(found: &mut Findings<'_>, sources: &dyn Sources, dir: &str, steps: &[StepDef<'_>]) {
    for step in steps {
        if let Some(SchemaDef::File(schema)) = step.schema {
            exists(found, sources, dir, "the schema", schema);
        }
        if let Some(ValidatorDef::Script(validator)) = step.validate
            && let Some(executable) = exists(found, sources, dir, "the validator", validator)
        {
            let extension = validator.text.rsplit_once('.').map_or("", |(_, extension)| extension);
            if !executable && !SCRIPTS.contains(&extension) {
                found.push(values::no_interpreter(found.file, validator.at, validator.text));
            }
        }
        match &step.body {
            Body::Llm(llm) => {
                for (_, image) in llm.images.iter().filter(|(template, _)| template.is_literal()) {
                    exists(found, sources, dir, "the image", *image);
                }
            }
            Body::Parallel { steps, .. } => check(found, sources, dir, steps),
            _ => {}
        }
    }
}

/// Warns of scripts that the commands of `steps` name and that do not exist. No error depends on it, so a listing of
/// many pipelines goes without.
pub(crate) fn warn_of_scripts(found: &mut Findings<'_>, sources: &dyn Sources, dir: &str, steps: &[StepDef<'_>]) {
    for step in steps {
        if let Some(ValidatorDef::Command { command: Some(command), node }) = &step.validate {
            scripts(found, sources, dir, command, node);
        }
        match &step.body {
            Body::Code(code) => {
                if let (Some(command), Some(node)) = (&code.command, code.command_node) {
                    scripts(found, sources, dir, command, node);
                }
            }
            Body::Parallel { steps, .. } => warn_of_scripts(found, sources, dir, steps),
            _ => {}
        }
    }
}

/// Whether the file may be executed; `None` if it is not there, which is reported.
fn exists(found: &mut Findings<'_>, sources: &dyn Sources, dir: &str, what: &str, path: Text<'_>) -> Option<bool> {
    let Text { text, at } = path;
    let Some(full) = join(dir, text) else {
        found.push(diagnose::leaves_app(found.file, at, what, text));
        return None;
    };
    match sources.kind(&full) {
        Ok(FileKind::File { executable }) => return Some(executable),
        Ok(_) | Err(ReadFailure::WrongKind) => found.push(diagnose::not_a_file(found.file, at, what, text)),
        Err(ReadFailure::Missing) => {
            let beside = beside(sources, &full);
            found.push(diagnose::missing_file(found.file, at, what, text, &full, &beside));
        }
        Err(ReadFailure::Outside) => found.push(diagnose::leaves_app(found.file, at, what, text)),
        Err(ReadFailure::Other(why)) => found.push(diagnose::unreadable_at(found.file, at, what, text, &why)),
        Err(ReadFailure::TooLarge { .. }) => {}
    }
    None
}

/// Warns of words that look like scripts in `steps/` and are none.
fn scripts(
    found: &mut Findings<'_>,
    sources: &dyn Sources,
    dir: &str,
    command: &Command,
    node: &crate::yaml::Node<'_>,
) {
    for word in command::words(command) {
        let relative = word.strip_prefix("./").unwrap_or(word);
        if !relative.starts_with("steps/") || relative.ends_with('/') {
            continue;
        }
        let Some(full) = join(dir, relative) else { continue };
        if sources.kind(&full) == Err(ReadFailure::Missing) {
            let at = place_of(found, node, word);
            let beside = beside(sources, &full);
            found.push(diagnose::missing_script(
                found.file,
                at,
                word,
                &beside,
                "commands run in the pipeline's directory",
            ));
        }
    }
}

fn place_of(found: &Findings<'_>, node: &crate::yaml::Node<'_>, word: &str) -> Span {
    let text = node.as_text().unwrap_or_default();
    match (text.find(word), Locator::new(found.file, node)) {
        (Some(at), Some(mut locator)) => locator.span(at..at + word.len()),
        _ => node.span,
    }
}

/// Adds the files that a run of `steps` depends on, but for schemas, which are known when they have been loaded.
pub(crate) fn named(files: &mut BTreeSet<String>, sources: &dyn Sources, dir: &str, steps: &[StepDef<'_>]) {
    let mut add = |path: &str| {
        if let Some(full) = join(dir, path)
            && matches!(sources.kind(&full), Ok(FileKind::File { .. }))
        {
            files.insert(full);
        }
    };
    for step in steps {
        let command = match (&step.body, &step.validate) {
            (Body::Code(code), _) => code.command.as_ref(),
            (_, Some(ValidatorDef::Command { command, .. })) => command.as_ref(),
            (_, Some(ValidatorDef::Script(validator))) => {
                add(validator.text);
                None
            }
            _ => None,
        };
        for word in command.into_iter().flat_map(command::words).filter(|word| word.contains(['/', '.'])) {
            add(word);
        }
    }
    for step in steps {
        if let Body::Parallel { steps, .. } = &step.body {
            named(files, sources, dir, steps);
        }
    }
}

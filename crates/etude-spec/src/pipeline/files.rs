//! The files that a pipeline names: do they exist, and which ones does a run depend on.

use std::collections::BTreeSet;
use std::sync::Arc;

use etude_core::effect::Command;

use crate::check::Findings;
use crate::command;
use crate::diagnose::{files as diagnose, values};
use crate::diagnostic::Diagnostic;
use crate::files::beside;
use crate::pipeline::definition::{Body, SchemaDef, StepDef, ValidatorDef};
use crate::source::{FileKind, ReadFailure, SourceFile, Sources, Span, join};
use crate::yaml::{Locator, Text};

/// Extensions for which an interpreter is known (A-4.7), and what most scripts with them are written for.
const SCRIPTS: [(&str, &str); 7] = [
    ("py", "python3"),
    ("sh", "bash"),
    ("js", "node"),
    ("mjs", "node"),
    ("ts", "node"),
    ("rb", "ruby"),
    ("pl", "perl"),
];

/// Largest script whose first line is looked at, in bytes: a larger file is a program.
const MAX_SCRIPT: u64 = 64 << 10;

/// Checks that the files that `steps` name exist. `dir` is the pipeline's directory.
pub(crate) fn check(found: &mut Findings<'_>, sources: &dyn Sources, dir: &str, steps: &[StepDef<'_>]) {
    for step in steps {
        if let Some(SchemaDef::File(schema)) = step.schema {
            exists(found, sources, dir, "the schema", schema);
        }
        if let Some(ValidatorDef::Script(validator)) = step.validate
            && exists(found, sources, dir, "the validator", validator) == Some(false)
            && interpreter(validator.text).is_none()
        {
            found.push(values::no_interpreter(found.file, validator.at, validator.text));
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

/// The interpreter for a file with this extension.
fn interpreter(path: &str) -> Option<&'static str> {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    SCRIPTS.iter().find(|(known, _)| *known == extension).map(|(_, interpreter)| *interpreter)
}

/// Warns of scripts that the commands of `steps` name and that do not exist or cannot be started. No error depends on it, so a listing of
/// many pipelines goes without.
pub(crate) fn warn_of_scripts(found: &mut Findings<'_>, sources: &dyn Sources, dir: &str, steps: &[StepDef<'_>]) {
    for step in steps {
        match &step.validate {
            Some(ValidatorDef::Command { command: Some(command), node }) => {
                scripts(found, sources, dir, command, node);
                program(found, sources, dir, command, node);
            }
            Some(ValidatorDef::Script(Text { text, at })) => {
                // Without the execute bit its extension names the interpreter, whatever its first line is.
                let full = join(dir, text);
                if let Some(full) = full.filter(|full| sources.kind(full) == Ok(FileKind::File { executable: true })) {
                    found.list.extend(first_line(sources, &full, text, (found.file, *at)));
                }
            }
            _ => {}
        }
        match &step.body {
            Body::Code(code) => {
                if let (Some(command), Some(node)) = (&code.command, code.command_node) {
                    scripts(found, sources, dir, command, node);
                    program(found, sources, dir, command, node);
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

/// Warns of a program that lies in the app and cannot be started: a file without the execute bit, or one whose first line is not read
/// as meant.
fn program(
    found: &mut Findings<'_>,
    sources: &dyn Sources,
    dir: &str,
    command: &Command,
    node: &crate::yaml::Node<'_>,
) {
    let Command::Direct(words) = command else { return };
    let Some(word) = words.first().filter(|word| word.contains('/') && !word.starts_with('/')) else { return };
    let Some(full) = join(dir, word.strip_prefix("./").unwrap_or(word)) else { return };
    let Ok(FileKind::File { executable }) = sources.kind(&full) else { return };
    let at = place_of(found, node, word);
    if executable {
        found.list.extend(first_line(sources, &full, word, (found.file, at)));
        return;
    }
    let other = interpreter(word).map(|interpreter| format!(", or name its interpreter: `{interpreter} {word}`"));
    let hint = format!("set it with `chmod +x`{}", other.unwrap_or_default());
    found.push(diagnose::unusable_script(found.file, at, word, "has no execute permission", hint));
}

/// What is wrong with the first line of the script `full`, which is called `path` at a place.
fn first_line(
    sources: &dyn Sources,
    full: &str,
    path: &str,
    (file, at): (&Arc<SourceFile>, Span),
) -> Option<Diagnostic> {
    let bytes = sources.read(full, MAX_SCRIPT).ok()?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let (why, hint) = match line {
        _ if line.starts_with(b"\xef\xbb\xbf#!") => {
            ("has a byte order mark before its `#!` line", "save it as UTF-8 without one")
        }
        _ if line.starts_with(b"#!") && line.ends_with(b"\r") => {
            ("has a carriage return at the end of its `#!` line", "save it with Unix line ends")
        }
        _ => return None,
    };
    Some(diagnose::unusable_script(file, at, path, why, hint))
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

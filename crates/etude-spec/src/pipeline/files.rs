//! Files that a pipeline names: checks that they exist, and the list of those that a run depends on.

use std::collections::BTreeSet;
use std::sync::Arc;

use etude_core::effect::Command;

use crate::check::Findings;
use crate::command;
use crate::command::script::{needed, script_of, usual_interpreter};
use crate::diagnose::files::{self as diagnose, Purpose};
use crate::diagnose::values;
use crate::diagnostic::{Diagnostic, Severity};
use crate::files::siblings;
use crate::pipeline::definition::{Body, SchemaDef, StepDef, ValidatorDef};
use crate::source::{FileKind, ReadFailure, SourceFile, Sources, Span, join};
use crate::yaml::{Locator, Text};

/// Maximum size of a script whose first line is read, in bytes: a larger file is a program.
const MAX_SCRIPT: u64 = 64 << 10;

/// Checks that the files named by `steps` exist. `dir` is the pipeline's directory.
pub(crate) fn check(found: &mut Findings<'_>, sources: &dyn Sources, dir: &str, steps: &[StepDef<'_>]) {
    for step in steps {
        if let Some(SchemaDef::File(schema)) = step.schema {
            exists(found, sources, dir, Purpose::Schema, schema);
        }
        if let Some(ValidatorDef::Script(validator)) = step.validate
            && exists(found, sources, dir, Purpose::Validator, validator) == Some(false)
            && usual_interpreter(validator.text).is_none()
        {
            found.push(values::no_interpreter(found.file, validator.at, validator.text));
        }
        match &step.body {
            Body::Llm(llm) => {
                for (_, image) in llm.images.iter().filter(|(template, _)| template.is_literal()) {
                    exists(found, sources, dir, Purpose::Image, *image);
                }
            }
            Body::Parallel { steps, .. } => check(found, sources, dir, steps),
            _ => {}
        }
    }
}

/// Reports scripts in commands of `steps` that do not exist or cannot be started. Listings of many pipelines skip this
/// check.
pub(crate) fn check_scripts(found: &mut Findings<'_>, sources: &dyn Sources, dir: &str, steps: &[StepDef<'_>]) {
    check_scripts_after(found, (sources, dir), &[], steps);
}

fn check_scripts_after(
    found: &mut Findings<'_>,
    (sources, dir): (&dyn Sources, &str),
    earlier: &[&StepDef<'_>],
    steps: &[StepDef<'_>],
) {
    for (nth, step) in steps.iter().enumerate() {
        let earlier: Vec<&StepDef<'_>> = earlier.iter().copied().chain(&steps[..nth]).collect();
        let place = Place { sources, dir, earlier: &earlier };
        match &step.validate {
            Some(ValidatorDef::Command { command: Some(command), node }) => {
                scripts(found, &place, command, node);
                program(found, sources, dir, command, node);
            }
            Some(ValidatorDef::Script(Text { text, at })) => {
                // Without the execute bit, the extension names the interpreter, whatever the first line says.
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
                    scripts(found, &place, command, node);
                    program(found, sources, dir, command, node);
                }
            }
            Body::Parallel { steps, .. } => check_scripts_after(found, (sources, dir), &earlier, steps),
            _ => {}
        }
    }
}

/// Place of a command: its directory, and the steps before it.
struct Place<'p> {
    sources: &'p dyn Sources,
    dir: &'p str,
    earlier: &'p [&'p StepDef<'p>],
}

impl Place<'_> {
    /// True if an earlier step may write the file `path`: an agent, the program of a package, or a step whose
    /// definition or script contains the file name.
    fn may_be_written(&self, file: &SourceFile, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.earlier.iter().any(|step| self.may_write(file, step, name)) || self.is_named_below(CONSTRUCTOR_DIR, name)
    }

    fn may_write(&self, file: &SourceFile, step: &StepDef<'_>, name: &str) -> bool {
        if file.slice(step.node.span).contains(name) {
            return true;
        }
        match &step.body {
            Body::Code(code) => {
                let words = code.command.iter().flat_map(command::words);
                words.filter_map(|word| join(self.dir, word)).any(|full| self.is_named_in(&full, name))
            }
            Body::Llm(_) | Body::Approval(_) => false,
            Body::Parallel { steps, .. } => steps.iter().any(|step| self.may_write(file, step, name)),
            _ => true,
        }
    }

    /// True if a program before the step may make the directory of the file `full`, as a download or a build does.
    fn may_be_made(&self, full: &str) -> bool {
        let exists = |dir: &str| self.sources.list(dir).is_ok();
        let is_quiet = |step: &&StepDef<'_>| matches!(step.body, Body::Llm(_) | Body::Approval(_));
        let runs_programs = !self.earlier.iter().all(is_quiet) || exists(CONSTRUCTOR_DIR);
        runs_programs && !full.rsplit_once('/').is_none_or(|(dir, _)| exists(dir))
    }

    fn is_named_in(&self, full: &str, name: &str) -> bool {
        let bytes = self.sources.read(full, MAX_SCRIPT).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(name)
    }

    /// True if a file in `dir` or `dir/steps` contains the name.
    fn is_named_below(&self, dir: &str, name: &str) -> bool {
        let dirs = [dir.to_owned(), format!("{dir}/steps")];
        dirs.iter().any(|dir| {
            let entries = self.sources.list(dir).unwrap_or_default();
            entries.iter().any(|entry| self.is_named_in(&format!("{dir}/{}", entry.name), name))
        })
    }
}

/// Directory of the app's constructor.
const CONSTRUCTOR_DIR: &str = "pipelines/_constructor";

/// True if the file is executable; `None`, with a diagnostic, if it does not exist.
fn exists(
    found: &mut Findings<'_>,
    sources: &dyn Sources,
    dir: &str,
    purpose: Purpose,
    path: Text<'_>,
) -> Option<bool> {
    let what = purpose.words();
    let Text { text, at } = path;
    let Some(full) = join(dir, text) else {
        found.push(diagnose::leaves_app(found.file, at, what, text));
        return None;
    };
    match sources.kind(&full) {
        Ok(FileKind::File { executable }) => return Some(executable),
        Ok(_) | Err(ReadFailure::WrongKind) => found.push(diagnose::not_a_file(found.file, at, what, text)),
        Err(ReadFailure::Missing) => {
            let beside = siblings(sources, &full);
            found.push(diagnose::missing_file(found.file, at, purpose, text, &full, &beside));
        }
        Err(ReadFailure::Outside) => found.push(diagnose::leaves_app(found.file, at, what, text)),
        Err(ReadFailure::Other(why)) => found.push(diagnose::unreadable_at(found.file, at, what, text, &why)),
        Err(ReadFailure::TooLarge { .. }) => {}
    }
    None
}

/// Reports words that look like scripts in `steps/` but name no file, and any other missing script that the command runs.
/// Missing scripts are errors if the command needs them and nothing before can have written them.
fn scripts(found: &mut Findings<'_>, place: &Place<'_>, command: &Command, node: &crate::yaml::Node<'_>) {
    let needed = needed(command);
    for word in command::words(command) {
        let relative = word.strip_prefix("./").unwrap_or(word);
        let is_step = relative.starts_with("steps/") && !relative.ends_with('/');
        let is_run = script_of(command) == Some(word);
        if !is_step && !is_run {
            continue;
        }
        let Some(full) = join(place.dir, relative) else { continue };
        if place.sources.kind(&full) == Err(ReadFailure::Missing) {
            let at = place_of(found, node, word);
            let beside = siblings(place.sources, &full);
            let missing =
                diagnose::missing_script(found.file, at, word, &beside, "commands run in the pipeline's directory");
            let is_certain = needed == Some(word)
                && !place.may_be_written(found.file, relative)
                && (is_step || !place.may_be_made(&full) && !is_looked_up(command, word));
            found.push(if is_certain { missing.severity(Severity::Error) } else { missing });
        }
    }
}

/// True if a shell that runs the script looks for it on `PATH`, too.
fn is_looked_up(command: &Command, script: &str) -> bool {
    let is_shell = command::words(command).first().is_some_and(|program| program.ends_with("sh"));
    is_shell && !script.contains('/')
}

/// Warns of a program in the app that cannot be started: a file without the execute bit, or with an unusable first
/// line.
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
    let other = usual_interpreter(word).map(|interpreter| format!(", or name its interpreter: `{interpreter} {word}`"));
    let hint = format!("set it with `chmod +x`{}", other.unwrap_or_default());
    found.push(diagnose::unusable_script(found.file, at, word, "has no execute permission", hint));
}

/// Checks the first line of the script `full`, which the definition calls `path`.
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

/// Adds the files that a run of `steps` depends on. Schemas are left out, because their files are known only after
/// loading.
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

#[cfg(test)]
mod tests {
    use crate::code::Code;
    use crate::pipeline::App;
    use crate::source::MemorySources;

    /// Severities of missing scripts in the pipeline `p` with these steps and files.
    fn missing(steps: &[&str], files: &[(&str, &str)]) -> Vec<&'static str> {
        let text = format!(
            "name: p\ndescription: d\nsteps:\n{}",
            steps.iter().map(|step| format!("  - {step}\n")).collect::<String>()
        );
        let sources = MemorySources::new().with("pipelines/p/pipeline.yaml", text);
        let sources = files.iter().fold(sources, |sources, (path, text)| sources.with(path, *text));
        let found = App::new(&sources).pipeline("p").1;
        found.iter().filter(|fault| fault.code == Code::MissingScript).map(|fault| fault.severity.word()).collect()
    }

    /// A-2.2: a missing script is an error where the command surely fails. It is a warning where the command may not
    /// run it, or an earlier step may write it.
    #[test]
    fn a_missing_script_is_an_error_where_it_is_certain() {
        let step = |command: &str| format!("{{name: b, type: code, command: \"{command}\"}}");
        for command in [
            "bash steps/x.sh",
            "python3 -W ignore steps/x.sh 1",
            "./steps/x.sh",
            "steps/x.sh",
            "/bin/sh -eu steps/x.sh",
            "perl -p steps/x.sh",
        ] {
            assert_eq!(missing(&[&step(command)], &[]), ["error"], "{command}");
        }
        for command in
            ["test -e steps/x.sh && true", "cp a steps/x.sh", "bash -lc steps/x.sh", "sh steps/y.sh steps/x.sh"]
        {
            let files = [("pipelines/p/steps/y.sh", "")];
            assert_eq!(missing(&[&step(command)], &files), ["warning"], "{command}");
        }
        let run = step("bash steps/x.sh");
        let after = |earlier: &str, files: &[(&str, &str)]| missing(&[earlier, &run], files);
        assert_eq!(after("{name: a, type: code, command: \"cat y\"}", &[]), ["error"]);
        assert_eq!(after("{name: a, type: code, command: \"cp a steps/x.sh\"}", &[]), ["warning", "warning"]);
        let writer = [("pipelines/p/steps/w.sh", "echo > steps/x.sh")];
        assert_eq!(after("{name: a, type: code, command: \"sh steps/w.sh\"}", &writer), ["warning"]);
        assert_eq!(after("{name: a, type: application, application: git, command: clone, args: []}", &[]), ["warning"]);
        let constructor = [("pipelines/_constructor/pipeline.yaml", "# makes x.sh")];
        assert_eq!(missing(&[&run], &constructor), ["warning"]);
    }

    /// A-2.2: a script that a command runs is reported wherever it should be. In a directory that does not exist yet, an
    /// earlier step may make it.
    #[test]
    fn a_missing_script_outside_of_steps_is_reported() {
        let step = |command: &str| format!("{{name: b, type: code, command: \"{command}\"}}");
        for command in [
            "python3 x.py", "./x.sh", "../shared/x.py", "node x.mjs 1", "python3 ../shared/x.py", "lib/x.rb",
            "bash ./x.sh",
        ] {
            assert_eq!(missing(&[&step(command)], &[]), ["error"], "{command}");
        }
        assert_eq!(missing(&[&step("bash x.sh")], &[]), ["warning"], "bash looks for it on PATH");
        for command in [
            "x.sh",
            "python3 -m x.py",
            "deno run https://example.com/x.ts",
            "cp x.py y.py",
            "/opt/x.py",
            "python3 /opt/x.py",
            "node x",
            "python3 x",
            "bin/x",
            "./x",
            "python3 \\\"$X\\\"",
            "python3 ../../../x.py",
        ] {
            assert_eq!(missing(&[&step(command)], &[]), Vec::<&str>::new(), "{command}");
        }
        let files = [("pipelines/shared/x.py", ""), ("pipelines/p/x.py", "")];
        for command in ["python3 x.py", "./x.py", "python3 ../shared/x.py"] {
            assert_eq!(missing(&[&step(command)], &files), Vec::<&str>::new(), "{command}");
        }
        let (clone, run) =
            ("{name: a, type: code, command: \"git clone https://example.com/repo\"}", step("python3 repo/x.py"));
        assert_eq!(missing(&[clone, &run], &[]), ["warning"]);
        assert_eq!(missing(&[clone, &run], &[("pipelines/p/repo/y.py", "")]), ["error"]);
        assert_eq!(missing(&[&run], &[("pipelines/_constructor/pipeline.yaml", "")]), ["warning"]);
        assert_eq!(
            missing(&["{name: a, type: code, command: \"cp y x.py\"}", &step("python3 x.py")], &[]),
            ["warning"]
        );
    }
}

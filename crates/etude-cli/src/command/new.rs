//! `etude new`: creates an app, or another pipeline, machine, skill or package in an app.

mod templates;
#[cfg(test)]
mod tests;

mod unix;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use etude_core::failure::{Failure, FailureKind};
use etude_core::shell;
use etude_core::template::is_step_name;
use etude_files::beneath::{self, Root, Unresolved};
use etude_spec::did_you_mean;
use serde_json::json;

use crate::args;
use crate::context::{Context, here};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::visible;
use crate::stdout;
use templates::{File, Template};

/// Kinds that can be created: word and description.
pub(crate) const KINDS: [(&str, &str); 4] = [
    ("pipeline", "a pipeline of the app"),
    ("machine", "a stage machine of the app"),
    ("skill", "a skill in .agents/skills"),
    ("app", "a new app, or inside an app an Agent Application in apps/"),
];

pub(crate) fn new(context: &Context, args: &args::New) -> Exit {
    match create(context, args) {
        Ok(made) => {
            say(context, &made);
            Exit::Done
        }
        Err(problem) => context.report(None, &problem),
    }
}

fn create(context: &Context, args: &args::New) -> Result<Made, Problem> {
    let app_dir = app_around(context)?;
    let given = context.global.app.as_deref();
    let (kind, name) = match (&args.name, args.kind.as_str()) {
        (Some(name), kind) => (kind, name.as_str()),
        (None, kind) if KINDS.iter().any(|(word, _)| *word == kind) => return Err(without_name(kind)),
        // A name without a kind depends on the current directory.
        (None, name) if app_dir.is_some() => ("pipeline", name),
        (None, name) => ("app", name),
    };
    match (kind, &app_dir) {
        ("pipeline", Some(dir)) => pipeline(dir, name, given),
        ("machine", Some(dir)) => machine(dir, name, given),
        ("pipeline" | "machine", None) => {
            Err(Problem::usage(format!("a {kind} belongs to an app, and this directory is not in one"))
                .hint("create an app here: etude new .")
                .hint("or elsewhere: etude new DIR; or name one with `--app DIR`"))
        }
        ("skill", dir) => skill(dir.as_deref(), name, given),
        ("app", Some(dir)) => package(dir, name, given),
        ("app", None) => app(Path::new(name)),
        (other, _) => Err(unknown_kind(other)),
    }
}

fn without_name(kind: &str) -> Problem {
    Problem::usage(format!("`etude new {kind}` needs a name"))
        .hint(format!("name it: etude new {kind} NAME; for something called `{kind}`: etude new app {kind}"))
}

fn unknown_kind(word: &str) -> Problem {
    let words: Vec<&str> = KINDS.iter().map(|(word, _)| *word).collect();
    let problem = Problem::usage(format!("`etude new` cannot create `{}`", visible(word)));
    match did_you_mean(word, words.iter().copied()) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem.hint(format!("`etude new` creates: {}", words.join(", "))),
    }
}

struct Made {
    files: Vec<PathBuf>,
    /// Next steps, as command lines.
    next: Vec<String>,
    /// An existing file of the user that was not changed.
    kept: Option<PathBuf>,
    /// A remark about something that another reading of the command line could expect.
    note: Option<String>,
}

fn say(context: &Context, made: &Made) {
    let here = here().unwrap_or_default();
    let shown = |path: &PathBuf| path.strip_prefix(&here).unwrap_or(path).display().to_string();
    let created: Vec<String> = made.files.iter().map(shown).collect();
    if context.is_json() {
        return stdout::json(&json!({ "created": created }));
    }
    stdout::text(&created.iter().map(|path| format!("{path}\n")).collect::<String>());
    if !context.global.quiet {
        if let Some(kept) = &made.kept {
            crate::render::say!("note: `{}` already exists and was not changed", shown(kept));
        }
        if let Some(note) = &made.note {
            crate::render::say!("note: {note}");
        }
        crate::render::say!("\nnext:");
        made.next.iter().for_each(|line| crate::render::say!("  {line}"));
    }
}

/// The app to extend: the named one, or the one around the current directory.
fn app_around(context: &Context) -> Result<Option<PathBuf>, Problem> {
    if context.global.app.is_some() {
        return context.app_dir().map(Some);
    }
    Ok(etude::app::find(&here()?))
}

/// File that describes an app, and that most projects already have.
const README: &str = "README.md";

/// Creates an app in `dir`.
fn app(dir: &Path) -> Result<Made, Problem> {
    // `.` and `..` have the name of the directory that they lead to.
    let place = if dir.file_name().is_some() { dir.to_owned() } else { fs::canonicalize(dir).unwrap_or_default() };
    let name = place.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // A project that exists keeps the name of its directory; the app has a similar one.
    let name = match check_name(name) {
        Err(_) if place.is_dir() => similar(name),
        checked => checked.map(|()| name.to_owned())?,
    };
    let mut files = filled("", templates::APP, &name);
    // An existing README describes the project and stays. All other files belong to the app.
    let readme = dir.join(README);
    let kept = fs::symlink_metadata(&readme).is_ok().then_some(readme);
    files.retain(|file| kept.is_none() || file.path != README);
    let files = write(dir, files, &[Schema::Pipeline, Schema::Test])?;
    // A command in the directory of an app finds it.
    let is_here = || {
        here().is_ok_and(|here| {
            fs::canonicalize(dir).is_ok_and(|dir| fs::canonicalize(&here).is_ok_and(|here| here == dir))
                && etude::app::find(&here) == Some(here)
        })
    };
    let at = if is_here() { String::new() } else { named(Some(dir)) };
    let next = vec![
        format!("etude run{at} --pipeline hello -i name=Ada    # uses no model"),
        format!(
            "etude run{at} --pipeline explain -i text='A tide is the rise and fall of the sea.'    # uses a model: needs a key or a local model"
        ),
    ];
    Ok(Made { files, next, kept, note: None })
}

/// Creates the pipeline `name` in the app in `dir`, which the command line named as `given`.
fn pipeline(dir: &Path, name: &str, given: Option<&Path>) -> Result<Made, Problem> {
    check_name(name).map_err(|problem| {
        let is_path = name.contains(['/', '\\', '.']);
        if is_path {
            problem
                .hint("inside an app, this command creates a pipeline; to create an app, run it in a directory outside")
        } else {
            problem
        }
    })?;
    let files = run_effect(dir, &format!("pipelines/{name}"), templates::PIPELINE, name, &[Schema::Pipeline])?;
    let at = named(given);
    let next = vec![format!("etude check{at} {name}"), format!("etude run{at} --pipeline {name} -i text='some text'")];
    Ok(Made { files, next, kept: None, note: None })
}

/// Creates the stage machine `name` in the app in `dir`.
fn machine(dir: &Path, name: &str, given: Option<&Path>) -> Result<Made, Problem> {
    check_name(name)?;
    let files = run_effect(dir, &format!("machines/{name}"), templates::MACHINE, name, &[Schema::Machine])?;
    let at = named(given);
    let next = vec![
        format!("etude check{at} {name}"),
        format!("etude machine show{at} {name}"),
        format!(
            "etude machine run{at} {name} -i task='Say what this app does'    # uses a model: needs a key or a local model"
        ),
    ];
    Ok(Made { files, next, kept: None, note: None })
}

/// Creates the skill `name` in the app in `dir`, which the command line named as `given`, or in the current directory.
fn skill(dir: Option<&Path>, name: &str, given: Option<&Path>) -> Result<Made, Problem> {
    check_slug(name)?;
    let dir = dir.map_or_else(here, |dir| Ok(dir.to_owned()))?;
    let files = run_effect(&dir, &format!(".agents/skills/{name}"), templates::SKILL, name, &[])?;
    let place = relative(&dir.join(".agents/skills").join(name));
    let next = vec![format!("etude skill check {place}"), format!("etude skill show{} {name}", named(given))];
    Ok(Made { files, next, kept: None, note: None })
}

/// Creates the Agent Application `name` in the app in `dir`, which the command line named as `given`.
fn package(dir: &Path, name: &str, given: Option<&Path>) -> Result<Made, Problem> {
    check_slug(name)?;
    let files = run_effect(dir, &format!("apps/{name}"), templates::PACKAGE, name, &[])?;
    let place = relative(&dir.join("apps").join(name));
    let next = vec![
        format!("etude apps check {place}"),
        format!("etude trust {place} --execution    # once you have read it"),
        format!("etude apps run{} {name} count -- one two three", named(given)),
    ];
    let note = format!(
        "this is an Agent Application in the app `{}`; for a separate app, run this command in a directory outside",
        dir.display()
    );
    Ok(Made { files, next, kept: None, note: Some(note) })
}

/// Shell word of a path, relative to the current directory.
fn relative(path: &Path) -> String {
    let here = here().unwrap_or_default();
    shell::word(&path.strip_prefix(&here).unwrap_or(path).display().to_string())
}

/// `-C` option of a command line, if the app was named with it.
fn named(given: Option<&Path>) -> String {
    given.map(|dir| format!(" -C {}", shell::word(&dir.display().to_string()))).unwrap_or_default()
}

/// Checks that a name is valid for a step and does not begin with `_`, since such a pipeline would not be found
///
fn check_name(name: &str) -> Result<(), Problem> {
    if is_step_name(name) && !name.starts_with('_') {
        return Ok(());
    }
    Err(Problem::usage(format!("`{}` cannot be the name of an app, pipeline or machine", visible(name)))
        .hint("a name is a letter, then letters, digits, `_` and `-`"))
}

/// A valid name similar to that of a directory, such as `my-site-com` for `my site.com`.
fn similar(directory: &str) -> String {
    let parts = directory.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|part| !part.is_empty());
    let name = parts.collect::<Vec<_>>().join("-");
    match name.trim_start_matches(['_', '-']) {
        "" => "app".to_owned(),
        name if name.starts_with(|c: char| c.is_ascii_alphabetic()) => name.to_owned(),
        name => format!("app-{name}"),
    }
}

/// Checks the name of a skill or package: lower-case letters, digits and single hyphens.
fn check_slug(name: &str) -> Result<(), Problem> {
    const MAX_CHARS: usize = 60;
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if name.len() <= MAX_CHARS && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.split('-').all(is_part) {
        return Ok(());
    }
    Err(Problem::usage(format!("`{}` cannot be the name of a skill or package", visible(name)))
        .hint("a name has lower-case letters, digits and single hyphens, such as `word-count`"))
}

/// A JSON Schema with which editors check a file. It is part of the app, so that an editor needs no network.
#[derive(Debug, Clone, Copy)]
enum Schema {
    Pipeline,
    Machine,
    Test,
}

impl Schema {
    fn file(self) -> File {
        let (path, schema) = match self {
            Self::Pipeline => (".etude/schemas/pipeline.json", etude_spec::pipeline_schema()),
            Self::Machine => (".etude/schemas/machine.json", etude_spec::stage_machine::machine_schema()),
            Self::Test => (".etude/schemas/test.json", etude_spec::test_schema()),
        };
        File { path: path.to_owned(), text: format!("{schema:#}\n"), executable: false }
    }
}

/// Fills the templates, with paths below the directory `below` of the app.
fn filled(below: &str, templates: &[Template], name: &str) -> Vec<File> {
    let below = if below.is_empty() { String::new() } else { format!("{below}/") };
    let file = |template: &Template| {
        let file = template.fill(name);
        File { path: format!("{below}{}", file.path), ..file }
    };
    templates.iter().map(file).collect()
}

/// Writes the templates into the new directory `below` of the app in `dir`.
fn run_effect(
    dir: &Path,
    below: &str,
    templates: &[Template],
    name: &str,
    schemas: &[Schema],
) -> Result<Vec<PathBuf>, Problem> {
    let place = dir.join(below);
    if fs::symlink_metadata(&place).is_ok() {
        return Err(in_the_way(&[place]));
    }
    write(dir, filled(below, templates, name), schemas)
}

/// Writes the files below `dir`, and the missing schemas. Either all of them are written or none.
fn write(dir: &Path, files: Vec<File>, schemas: &[Schema]) -> Result<Vec<PathBuf>, Problem> {
    let schemas = schemas.iter().map(|schema| schema.file()).filter(|file| !dir.join(&file.path).exists());
    let files: Vec<File> = files.into_iter().chain(schemas).collect();
    let paths: Vec<PathBuf> = files.iter().map(|file| dir.join(&file.path)).collect();
    let obstacles = obstacles(dir, &paths);
    if !obstacles.is_empty() {
        return Err(in_the_way(&obstacles));
    }
    // A link of the app may lead anywhere.
    let leads_out = |file: &File| {
        let root = Root::open(dir).ok()?;
        match beneath::resolve(std::slice::from_ref(&root), &root.real().join(&file.path)) {
            Err(Unresolved::Outside(to)) => Some(to),
            _ => None,
        }
    };
    if let Some((path, to)) = files.iter().zip(&paths).find_map(|(file, path)| Some((path, leads_out(file)?))) {
        let problem = Problem::usage(format!("`{}` leads out of the app, to `{}`", path.display(), to.display()));
        return Err(problem.hint("nothing was written; the app has a symbolic link instead of a directory"));
    }
    let mut made = Undo::default();
    for (file, path) in files.iter().zip(&paths) {
        let written = made.dirs(path.parent().unwrap_or(dir)).and_then(|()| made.file(path, file));
        if let Err(error) = written {
            made.undo();
            return Err(Problem::environment(format!("`{}` cannot be written: {error}", path.display())));
        }
    }
    Ok(paths)
}

/// Existing paths in the way: a file to create, or a file where a directory is needed.
fn obstacles(dir: &Path, paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = paths.iter().filter(|path| fs::symlink_metadata(path).is_ok()).cloned().collect();
    for path in paths {
        for above in path.ancestors().skip(1).take_while(|above| above.starts_with(dir)) {
            if fs::symlink_metadata(above).is_ok() && !above.is_dir() {
                found.push(above.to_owned());
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Maximum number of obstacles that a message names.
const MAX_NAMED: usize = 3;

fn in_the_way(paths: &[PathBuf]) -> Problem {
    let failure =
        |path: &PathBuf| Failure::new(FailureKind::InputInvalid, format!("`{}` is already there", path.display()));
    let failures = paths.iter().take(MAX_NAMED).map(failure).collect();
    let more = paths.len().saturating_sub(MAX_NAMED);
    let others = (more > 0).then(|| format!("{more} more of its files already exist"));
    let remedy = "nothing was written; choose another name, or move it away".to_owned();
    others.into_iter().chain([remedy]).fold(Problem::of_failures(failures), Problem::hint)
}

/// Files and directories created so far.
#[derive(Default)]
struct Undo {
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
}

impl Undo {
    fn dirs(&mut self, dir: &Path) -> io::Result<()> {
        let is_new = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let missing: Vec<PathBuf> = dir.ancestors().take_while(is_new).map(Path::to_owned).collect();
        for dir in missing.into_iter().rev() {
            fs::create_dir(&dir)?;
            self.dirs.push(dir);
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, file: &File) -> io::Result<()> {
        let mut opened = unix::options(file.executable).open(path)?;
        self.files.push(path.to_owned());
        opened.write_all(file.text.as_bytes())
    }

    /// Removes them, as a best effort: the user sees the error that led here.
    fn undo(self) {
        self.files.iter().for_each(|file| drop(fs::remove_file(file)));
        self.dirs.iter().rev().for_each(|dir| drop(fs::remove_dir(dir)));
    }
}

//! `etude new`: an app to start from, or another pipeline for the app that is there.

mod templates;
#[cfg(test)]
mod tests;

#[cfg(unix)]
#[path = "new/unix.rs"]
mod os;
#[cfg(windows)]
#[path = "new/windows.rs"]
mod os;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use etude::core::failure::{Failure, Kind};
use etude::core::template::is_step_name;
use serde_json::json;

use crate::args;
use crate::context::{Context, Problem, here};
use crate::exit::Exit;
use crate::stdout;
use templates::Template;

pub(crate) fn new(context: &Context, args: &args::New) -> Exit {
    let made = match app_around(context) {
        Ok(Some(app)) => pipeline(&app, &args.name, context.global.app.as_deref()),
        Ok(None) => app(Path::new(&args.name)),
        Err(problem) => Err(problem),
    };
    match made {
        Ok(made) => {
            say(context, &made);
            Exit::Done
        }
        Err(problem) => context.report(None, &problem),
    }
}

/// What was made.
struct Made {
    files: Vec<PathBuf>,
    /// What to do next, as command lines.
    next: Vec<String>,
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
        crate::render::say!("\nnext:");
        made.next.iter().for_each(|line| crate::render::say!("  {line}"));
    }
}

/// The app that a pipeline is made for: the one that was named, or the one around the current directory.
fn app_around(context: &Context) -> Result<Option<PathBuf>, Problem> {
    if context.global.app.is_some() {
        return context.app_dir().map(Some);
    }
    Ok(etude::app::find(&here()?))
}

/// Makes an app in `dir`.
fn app(dir: &Path) -> Result<Made, Problem> {
    // `.` and `..` have the name of the directory that they lead to.
    let place = if dir.file_name().is_some() { dir.to_owned() } else { fs::canonicalize(dir).unwrap_or_default() };
    let name = place.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    check_name(name)?;
    let files = write(dir, templates::APP, name)?;
    let at = shell_word(&dir.display().to_string());
    let next = vec![
        format!("etude run -C {at} --pipeline hello -i name=Ada    # no model is asked"),
        format!(
            "etude run -C {at} --pipeline explain -i text='A tide is the rise and fall of the sea.'    # asks a model: needs a key or a local one"
        ),
    ];
    Ok(Made { files, next })
}

/// Makes the pipeline `name` in the app in `dir`, which was named on the command line as `given`.
fn pipeline(dir: &Path, name: &str, given: Option<&Path>) -> Result<Made, Problem> {
    check_name(name).map_err(|problem| {
        let is_path = name.contains(['/', '\\', '.']);
        if is_path {
            problem.hint("inside an app a new pipeline is made; for a new app go to a directory outside")
        } else {
            problem
        }
    })?;
    let place = dir.join("pipelines").join(name);
    if fs::symlink_metadata(&place).is_ok() {
        return Err(in_the_way(&[place]));
    }
    let files = write(&place, templates::PIPELINE, name)?;
    let at = given.map(|dir| format!(" -C {}", shell_word(&dir.display().to_string()))).unwrap_or_default();
    let next = vec![format!("etude check{at} {name}"), format!("etude run{at} --pipeline {name} -i text='some text'")];
    Ok(Made { files, next })
}

/// Names are those of steps (A-2.1), without a `_` at the start: such a pipeline would not be found (A-1.2).
fn check_name(name: &str) -> Result<(), Problem> {
    if is_step_name(name) && !name.starts_with('_') {
        return Ok(());
    }
    Err(Problem::usage(format!("`{name}` cannot be the name of an app or pipeline"))
        .hint("a name is a letter, then letters, digits, `_` and `-`"))
}

/// Writes the templates below `dir`. Either all of them are written or none.
fn write(dir: &Path, templates: &[Template], name: &str) -> Result<Vec<PathBuf>, Problem> {
    let paths: Vec<PathBuf> = templates.iter().map(|template| dir.join(template.path)).collect();
    let obstacles = obstacles(dir, &paths);
    if !obstacles.is_empty() {
        return Err(in_the_way(&obstacles));
    }
    let mut made = Undo::default();
    for (template, path) in templates.iter().zip(&paths) {
        let file = made.dirs(path.parent().unwrap_or(dir)).and_then(|()| made.file(path, template, name));
        if let Err(error) = file {
            made.undo();
            return Err(Problem::environment(format!("`{}` cannot be written: {error}", path.display())));
        }
    }
    Ok(paths)
}

/// What is there already: one of the files, or something else than a directory where one is needed.
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

/// Of what is in the way so much is named.
const MOST_NAMED: usize = 3;

fn in_the_way(paths: &[PathBuf]) -> Problem {
    let failure = |path: &PathBuf| Failure::new(Kind::InputInvalid, format!("`{}` is already there", path.display()));
    let failures = paths.iter().take(MOST_NAMED).map(failure).collect();
    let more = paths.len().saturating_sub(MOST_NAMED);
    let others = (more > 0).then(|| format!("{more} more of its files are there already"));
    let way_out = "nothing was written; choose another name, or move it away".to_owned();
    Problem {
        exit: Exit::Usage,
        failures,
        usage: etude::core::model::Usage::default(),
        hints: others.into_iter().chain([way_out]).collect(),
    }
}

/// What was made so far.
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

    fn file(&mut self, path: &Path, template: &Template, name: &str) -> io::Result<()> {
        let mut file = os::options(template.executable).open(path)?;
        self.files.push(path.to_owned());
        file.write_all(template.fill(name).as_bytes())
    }

    /// Best effort: the error that led here is what the user is told.
    fn undo(self) {
        self.files.iter().for_each(|file| drop(fs::remove_file(file)));
        self.dirs.iter().rev().for_each(|dir| drop(fs::remove_dir(dir)));
    }
}

/// `text` as one word of a command line.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

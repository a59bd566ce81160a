//! Files and programs: the app, the configuration, the journal, interpreters, completions.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use etude::Disk;
use etude::definition::{self, Configuration};
use etude_core::model::Tier;
use etude_runtime::engine::Query;
use etude_spec::stage_machine::Rules;

use super::{Finding, Level, unix};
use crate::context::Context;
use crate::problem::located;
use crate::{paths, settings};

/// The app that findings are about, if there is one.
pub(super) struct App {
    pub(super) disk: Option<Disk>,
    rules: Rules,
    /// Reason why no app could be opened.
    fault: Option<String>,
}

impl App {
    pub(super) fn open(context: &Context) -> Self {
        match context.disk() {
            Ok(disk) => {
                let rules = context.settings(disk.root()).map(|resolved| resolved.machines).unwrap_or_default();
                Self { disk: Some(disk), rules, fault: None }
            }
            Err(problem) => {
                let fault = problem.failures.first().map(|failure| failure.message.clone()).unwrap_or_default();
                Self { disk: None, rules: Rules::default(), fault: Some(fault) }
            }
        }
    }

    /// Directory of the app, else the current directory.
    pub(super) fn dir(&self) -> PathBuf {
        self.disk.as_ref().map_or_else(|| env::current_dir().unwrap_or_default(), |disk| disk.root().to_owned())
    }

    /// Tiers that the app's valid pipelines call.
    pub(super) fn tiers(&self) -> BTreeSet<Tier> {
        let Some(disk) = &self.disk else { return BTreeSet::new() };
        let names = etude_spec::App::new(disk).discovery().pipelines.clone();
        let configuration = Configuration { machines: self.rules.clone(), ..Configuration::default() };
        let loaded = names.iter().filter_map(|name| definition::load(disk, name, &configuration).ok());
        loaded.flat_map(|definition| definition.tiers()).collect()
    }
}

/// Checks that the app exists and is valid.
pub(super) fn app(app: &App) -> Vec<Finding> {
    let Some(disk) = &app.disk else {
        let fault = app.fault.clone().unwrap_or_default();
        let finding = Finding::new("app", Level::Note, fault);
        return vec![finding.fix("go to an app, name it with `--app DIR`, or create one: etude new DIR")];
    };
    let report = etude_spec::App::new(disk).with_machines(app.rules.clone()).check(&[]);
    let machines = etude_spec::stage_machine::Machines::new(disk, app.rules.clone()).check(&[]);
    let diagnostics = report.diagnostics.iter().chain(&machines.diagnostics);
    let errors = diagnostics.filter(|diagnostic| diagnostic.is_error()).count();
    let root = disk.root().display();
    if errors > 0 {
        let plural = if errors == 1 { "" } else { "s" };
        return vec![Finding::new("app", Level::Error, format!("{root}: {errors} error{plural}")).fix("etude check")];
    }
    let pipelines = etude_spec::App::new(disk).discovery().pipelines.len();
    let plural = if pipelines == 1 { "" } else { "s" };
    vec![Finding::ok("app", format!("{root}: {pipelines} pipeline{plural}, no errors"))]
}

/// Checks the configuration files in effect here.
pub(super) fn configuration(context: &Context, app: &App) -> Vec<Finding> {
    let dir = app.dir();
    let ignored = settings::misnamed(&context.global, &dir).into_iter().map(|file| {
        let finding = Finding::new("configuration", Level::Warning, file.message);
        Finding { fix: file.hint, ..finding }
    });
    std::iter::once(of_present(context, &dir)).chain(ignored).collect()
}

/// Checks the files that are read for the app in `dir`.
fn of_present(context: &Context, dir: &Path) -> Finding {
    let found = match settings::present(&context.global, dir) {
        Ok(found) => found,
        Err(problem) => return of_problem("configuration", &problem),
    };
    if found.is_empty() {
        return Finding::ok("configuration", "no file, so the defaults apply");
    }
    let shown: Vec<String> = found.iter().map(|path| path.display().to_string()).collect();
    match context.settings(dir) {
        Ok(_) => Finding::ok("configuration", shown.join(", ")),
        Err(problem) => of_problem("configuration", &problem),
    }
}

/// Turns the problem of a check into an error with a fix.
pub(super) fn of_problem(check: &str, problem: &crate::problem::Problem) -> Finding {
    let finding = Finding::new(check, Level::Error, located(problem));
    match problem.hints.first() {
        Some(hint) => finding.fix(hint),
        None if check == "journal" => finding.fix("restore it from a backup, or move its files away"),
        None => finding.fix("etude check"),
    }
}

/// Free space below which runs with large values may fail, in bytes.
const LITTLE_SPACE: u64 = 200 << 20;

/// Checks that the journal opens, its size, and the free space. A missing journal is not created.
pub(super) fn journal(context: &Context) -> Vec<Finding> {
    if context.is_shared() {
        return vec![match context.engine(false) {
            Ok(_) => Finding::ok("journal", "in a database; `etude engine check` has more"),
            Err(problem) => of_problem("journal", &problem),
        }];
    }
    let dir = match paths::state_dir() {
        Ok(dir) => dir,
        Err(why) => return vec![Finding::new("journal", Level::Error, why.clone()).fix("set HOME or XDG_STATE_HOME")],
    };
    let shown = dir.display();
    let mut findings = Vec::new();
    if dir.is_dir() {
        let opened = context.engine(false).and_then(|engine| {
            let one = Query { limit: Some(1), ..Query::default() };
            engine.list(&one).map(drop).map_err(|error| crate::render::stopped::of_engine(&error))
        });
        findings.push(match opened {
            Ok(()) => of_opened(&shown.to_string(), bytes_below(&dir), unix::can_write(&dir)),
            Err(problem) => of_problem("journal", &problem),
        });
    }
    let existing = dir.ancestors().find(|above| above.exists());
    if !dir.is_dir() {
        findings.push(of_missing(&dir, existing));
    }
    let Some(free) = existing.and_then(unix::free_bytes) else { return findings };
    findings.push(match free < LITTLE_SPACE {
        false => Finding::ok("disk", format!("{} free for the journal", size(free))),
        true => Finding::new("disk", Level::Warning, format!("only {} free for the journal", size(free)))
            .fix("free some space, or remove old runs: etude runs prune"),
    });
    findings
}

/// Finding about a journal that can be read. On a read-only file system, commands that list runs work and no run starts.
pub(super) fn of_opened(shown: &str, bytes: u64, is_writable: bool) -> Finding {
    match is_writable {
        true => Finding::ok("journal", format!("{shown}: {}", size(bytes))),
        false => Finding::new("journal", Level::Error, format!("{shown} is not writable, so no run can start"))
            .fix(paths::WRITABLE),
    }
}

/// Finding about a journal that does not exist yet. `existing` is the nearest existing path above it.
fn of_missing(dir: &Path, existing: Option<&Path>) -> Finding {
    let shown = dir.display();
    match existing {
        Some(above) if above.is_dir() && !unix::can_write(above) => {
            let message = format!("{shown} cannot be created: `{}` is not writable", above.display());
            Finding::new("journal", Level::Error, message).fix(paths::WRITABLE)
        }
        Some(above) if !above.is_dir() => {
            let message = format!("{shown} cannot be created: `{}` is not a directory", above.display());
            Finding::new("journal", Level::Error, message).fix(paths::WRITABLE)
        }
        _ => Finding::ok("journal", format!("{shown}: the first run creates it")),
    }
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

/// Human-readable size.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
    let unit = UNITS.iter().find(|(_, unit)| bytes >= *unit);
    unit.map_or_else(|| format!("{bytes} bytes"), |(name, unit)| format!("{:.1} {name}", bytes as f64 / *unit as f64))
}

/// Programs in which steps are commonly written.
const INTERPRETERS: [&str; 4] = ["python3", "node", "bash", "git"];

pub(super) fn interpreters() -> Vec<Finding> {
    let finding = |name: &&str| match program(name) {
        Some(path) => Finding::ok(*name, path.display().to_string()),
        None if *name == "python3" => Finding::new(*name, Level::Warning, "not on PATH").fix("install Python 3"),
        None => Finding::new(*name, Level::Note, "not on PATH").fix(format!("install `{name}` if steps use it")),
    };
    INTERPRETERS.iter().map(finding).collect()
}

/// Path of the first program `name` in a directory of `PATH`.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name)).find(|file| unix::is_program(file))
}

/// Checks whether the user's shell completes this program, for shells whose files are known.
pub(super) fn completions() -> Option<Finding> {
    let home = paths::home()?;
    let shell = env::var("SHELL").ok()?;
    let shell = Path::new(&shell).file_name()?.to_str()?;
    let files: &[&str] = match shell {
        "bash" => &[".bashrc", ".bash_profile", ".profile", ".local/share/bash-completion/completions/etude"],
        "zsh" => &[".zshrc", ".zprofile"],
        "fish" => &[".config/fish/completions/etude.fish", ".config/fish/config.fish"],
        _ => return None,
    };
    let is_there = |file: &&&str| fs::read_to_string(home.join(file)).is_ok_and(|text| text.contains("etude"));
    Some(match files.iter().find(is_there) {
        Some(file) => Finding::ok("completions", format!("{shell}: ~/{file}")),
        None => Finding::new("completions", Level::Note, format!("not installed for {shell}"))
            .fix(crate::command::shell::installation_of(shell)),
    })
}

//! `etude check`: reports all definition errors of the app at once, or those of skills where there is no app.

mod models;
mod packages;
mod skills;

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::path::Path;

use etude::Disk;
use etude::definition::{self, Configuration, LoadError};
use etude::skill_mode;
use etude_invoke::Project;
use etude_process::sandbox;
use etude_spec::automation::{Known, Schedule, Target};
use etude_spec::stage_machine::{Machines, Rules};
use etude_spec::{App, Diagnostic, Severity, did_you_mean, render};
use serde_json::{Value, json};

use super::{by_path, learn};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::commands;
use crate::{settings, stdout};

pub(crate) fn check(context: &Context, args: &args::Check) -> Exit {
    let done = match context.disk() {
        Ok(disk) => of_app(context, args, &disk),
        Err(problem) => {
            let dir = skills::directory(context).filter(|_| args.names.is_empty());
            dir.map_or(Err(problem), |dir| skills::check(context, &dir))
        }
    };
    done.unwrap_or_else(|problem| context.report(None, &problem))
}

fn of_app(context: &Context, args: &args::Check, disk: &Disk) -> Result<Exit, Problem> {
    let named = args.names.iter().map(|name| by_path::name(disk.root(), name)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<&str> = named.iter().map(AsRef::as_ref).collect();
    let (mut found, project) = findings(context, disk, &names)?;
    // Not dropped, since the program ends here: dropping thousands of skills takes a twentieth of the total time.
    let _project = ManuallyDrop::new(project);
    if names.is_empty() {
        found.others.extend(learn::demoted(context, disk));
    }
    let mut diagnostics: Vec<&Diagnostic> = found.configured.iter().chain(&found.others).collect();
    if args.portable {
        diagnostics.extend(&found.extensions);
    }
    Ok(conclude(context, &diagnostics, &found.broken, found.sound, || {
        for diagnostic in found.configured.iter().filter(|d| !context.global.quiet || d.is_error()) {
            crate::render::say!("{}\n", settings::drawn(diagnostic));
        }
        context.show(diagnostics.iter().skip(found.configured.len()).copied());
    }))
}

/// Findings of the check of an app.
struct Findings {
    /// Diagnostics of the configuration.
    configured: Vec<Diagnostic>,
    /// Diagnostics of all other files.
    others: Vec<Diagnostic>,
    /// Uses of extensions.
    extensions: Vec<Diagnostic>,
    broken: Vec<String>,
    /// Number of sound definitions, and the noun for them.
    sound: (usize, &'static str),
}

/// All errors, warnings and notes of an app, as the command prints them.
#[cfg(feature = "serve")]
pub(crate) fn diagnostics(context: &Context, disk: &Disk) -> Result<Vec<Diagnostic>, Problem> {
    let (found, _) = findings(context, disk, &[])?;
    Ok(found.configured.into_iter().chain(found.others).collect())
}

/// Checks the named definitions, or the whole app. Returns the findings and the skills that were read for them.
fn findings(context: &Context, disk: &Disk, names: &[&str]) -> Result<(Findings, Option<Project>), Problem> {
    let (mut configured, rules) = of_configuration(context, disk.root())?;
    let packages = packages::find(disk.root());
    let app = App::new(disk).with_machines(rules.clone()).with_packages(packages.known);
    let machines = Machines::new(disk, rules.clone());
    let known: Vec<&str> = app.discovery().all().chain(machines.names().iter().map(String::as_str)).collect();
    let pipelines: Vec<&str> = app.discovery().pipelines.iter().map(String::as_str).collect();
    let ids: Vec<&str> = machines.names().iter().map(String::as_str).collect();
    let known_targets = Known { pipelines: &pipelines, machines: &ids };
    let automation = settings::automation(&context.global, disk.root(), Some(known_targets))?;
    configured.extend(of_schedules(disk, &automation.schedules, &rules));
    configured.extend(automation.diagnostics);
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        let unlisted = definition::unlisted(disk);
        if !unlisted.is_empty() {
            let broken = vec![(*name).to_owned()];
            let sound = (0, "definition");
            return Ok((Findings { configured, others: unlisted, extensions: Vec::new(), broken, sound }, None));
        }
        return Err(unknown(name, &known));
    }
    let mut report = app.check(names);
    let of_machines = machines.check(names);
    report.diagnostics.extend(of_machines.diagnostics);
    report.broken.extend(of_machines.broken);
    let checked = [report.checked, of_machines.checked];
    let tools = if names.is_empty() { etude_spec::tool::load(disk).1 } else { Vec::new() };
    let learned = if names.is_empty() { etude_spec::pipeline::learned::check(disk) } else { Vec::new() };
    let skill = if names.is_empty() { of_skill(disk) } else { Vec::new() };
    // An app with a main skill has a search path with chains; both are checked with everything else.
    let project = names.is_empty().then(|| Project::to_check(disk.root(), context.modules())).flatten();
    let (chains, skills) = project.as_ref().map(|project| (project.check(), project.own_skills())).unwrap_or_default();
    let mut sound = (checked[0] + checked[1] - report.broken.len(), noun(checked));
    if checked == [0, 0] && skills > 0 {
        let files: BTreeSet<&str> = chains.iter().filter(|d| d.is_error()).map(|d| d.file.path()).collect();
        sound = (skills.saturating_sub(files.len()), "skill");
        report.broken.extend(files.into_iter().map(str::to_owned));
    }
    report.broken.extend(files_with_errors(&configured));
    let input = |name: &str| match ids.contains(&name) {
        true => machines.machine(name).0.map(|machine| machine.input),
        false => app.summary_of(name).filter(|summary| summary.valid).map(|summary| summary.input),
    };
    let targets = etude_spec::test::Known { pipelines: &pipelines, machines: &ids, input: &input };
    let tests = if names.is_empty() { etude_spec::test::check(disk, targets) } else { Vec::new() };
    report.broken.extend(files_with_errors(&tests));
    let packages = if names.is_empty() { packages.faults } else { Vec::new() };
    report.broken.extend(files_with_errors(&packages));
    let models = models::of_machines(context, disk.root(), &machines, names);
    let unsandboxed = sandbox::support().err().map(|why| report.without_sandbox(&why)).unwrap_or_default();
    let mut others: Vec<Diagnostic> =
        [report.diagnostics, models, learned, skill, tools, chains, tests, packages, unsandboxed]
            .into_iter()
            .flatten()
            .collect();
    if names.is_empty() {
        // A step or a chain that uses the skill has reported its faults.
        let unread = etude_spec::pipeline::unread_skills(disk).into_iter();
        let unread: Vec<_> = unread.filter(|fault| others.iter().all(|other| other.file != fault.file)).collect();
        others.extend(unread);
    }
    Ok((Findings { configured, others, extensions: report.extensions, broken: report.broken, sound }, project))
}

/// Paths of the files with errors, in order.
fn files_with_errors(found: &[Diagnostic]) -> impl Iterator<Item = String> + use<> {
    let files: BTreeSet<String> =
        found.iter().filter(|fault| fault.is_error()).map(|fault| fault.file.path().to_owned()).collect();
    files.into_iter()
}

/// Problem for a name that the app does not have.
fn unknown(name: &str, known: &[&str]) -> Problem {
    let problem = Problem::usage(format!("there is no pipeline or machine `{name}`"));
    problem.hint(match did_you_mean(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => {
            "this app has no pipelines or machines; create one with `etude new NAME`".to_owned()
        }
        None => format!("pipelines and machines of this app: {}", known.join(", ")),
    })
}

/// Prints the findings as a document, or as `show` prints them, with a summary of the sound and the `broken` definitions.
fn conclude(
    context: &Context,
    found: &[&Diagnostic],
    broken: &[String],
    sound: (usize, &str),
    show: impl FnOnce(),
) -> Exit {
    let count = |severity| found.iter().filter(|d| d.severity == severity).count();
    let errors = count(Severity::Error);
    if context.is_json() {
        let list: Vec<Value> = found.iter().map(|d| render::json(&commands::in_hint(d))).collect();
        stdout::json(&json!({ "diagnostics": list }));
    } else {
        show();
        if !context.global.quiet {
            crate::render::say!("{}", summary(errors, count(Severity::Warning), broken, sound, found));
        }
    }
    if errors > 0 { Exit::Definition } else { Exit::Done }
}

/// Noun for the counted definitions.
fn noun([pipelines, machines]: [usize; 2]) -> &'static str {
    match (pipelines, machines) {
        (_, 0) => "pipeline",
        (0, _) => "machine",
        _ => "definition",
    }
}

/// Checks the configuration. Returns its diagnostics and its rules for machines.
fn of_configuration(context: &Context, app: &Path) -> Result<(Vec<Diagnostic>, Rules), Problem> {
    let mut found = settings::check(&context.global, app)?;
    if found.iter().any(Diagnostic::is_error) {
        return Ok((found, Rules::default()));
    }
    // Each file may be valid while their combination is not.
    let problems = match context.settings(app) {
        Err(problem) => vec![problem],
        Ok(resolved) => match settings::faults(&resolved) {
            faults if faults.is_empty() => match settings::sound(&resolved) {
                Ok(_) => return Ok((found, resolved.machines)),
                Err(problem) => vec![problem],
            },
            faults => faults,
        },
    };
    for problem in &problems {
        found.extend(settings::together(&context.global, app, problem)?);
    }
    Ok((found, Rules::default()))
}

/// Checks the inputs of schedules. Their targets are checked separately.
fn of_schedules(disk: &Disk, schedules: &[Schedule], rules: &Rules) -> Vec<Diagnostic> {
    let configuration = Configuration { machines: rules.clone(), ..Configuration::default() };
    let definition = |schedule: &Schedule| match schedule.target.as_ref().filter(|_| schedule.broken.is_empty())? {
        Target::Pipeline(name) => definition::load(disk, name, &configuration).ok(),
        Target::Machine(name) => etude::stage_machine::load(disk, name, rules).ok(),
    };
    schedules
        .iter()
        .filter_map(|one| Some(one.misfits(&definition(one)?.input)))
        .flatten()
        .map(settings::without_keys)
        .collect()
}

/// Diagnostics of the SKILL.md that skill mode would follow.
fn of_skill(disk: &Disk) -> Vec<Diagnostic> {
    match skill_mode::load(disk, skill_mode::Defaults::default()) {
        Ok(definition) => definition.warnings,
        // Faults of tools are reported separately, also where there is no SKILL.md.
        Err(LoadError::Invalid(diagnostics)) => {
            diagnostics.into_iter().filter(|d| !d.file.path().starts_with("tools/")).collect()
        }
        Err(LoadError::Unknown { .. }) => Vec::new(),
    }
}

fn summary(
    errors: usize,
    warnings: usize,
    broken: &[String],
    (sound, noun): (usize, &str),
    all: &[&Diagnostic],
) -> String {
    let counted = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let mut text = if errors == 0 && sound == 0 {
        format!("no errors; there are no {noun}s")
    } else if errors == 0 {
        format!("{} fine", counted(sound, noun) + if sound == 1 { " is" } else { " are" })
    } else {
        let names: Vec<String> = broken.iter().take(5).map(|name| format!("`{name}`")).collect();
        let more = if broken.len() > 5 { format!(" and {} more", broken.len() - 5) } else { String::new() };
        let place = if names.is_empty() { String::new() } else { format!(" in {}{more}", names.join(", ")) };
        let rest = match sound {
            0 => String::new(),
            1 => format!("; 1 other {noun} is fine"),
            many => format!("; {many} other {noun}s are fine"),
        };
        format!("{}{place}{rest}", counted(errors, "error"))
    };
    if warnings > 0 {
        text.push_str(&format!("; {}", counted(warnings, "warning")));
    }
    if let Some(first) = all.iter().find(|d| d.is_error()) {
        text.push_str(&format!(". More: etude explain {}", first.code.as_str()));
    }
    text
}

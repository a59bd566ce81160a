//! `etude check` in a directory that has skills and no app.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use etude::cascade::{Project, Setup};
use etude::skills;
use etude::spec::skill::Profile;
use etude::spec::{Code, Diagnostic, Severity, render};
use serde_json::{Value, json};

use crate::context::{Context, Problem};
use crate::exit::Exit;
use crate::stdout;

/// The directory that is checked as one of skills: it is no app, lies in none, and skills lie in it.
pub(super) fn directory(context: &Context) -> Option<PathBuf> {
    context.start_dir().ok().filter(|dir| etude::app::has_skills(dir))
}

/// Everything that is wrong with the skills of a project, and how many it has.
pub(super) fn of_project(project: Project) -> (Vec<Diagnostic>, usize) {
    // It holds memory and nothing else, and the program ends after this: to take thousands of skills apart would only cost.
    let project = Box::leak(Box::new(project));
    (project.check(), project.own_skills())
}

/// Checks every skill below `dir`: its chain (D-4), and Agent Skills for what their own specification asks (C-2.9).
pub(super) fn check(context: &Context, dir: &Path) -> Result<Exit, Problem> {
    let cannot = |error: std::io::Error| Problem::environment(format!("`{}` cannot be read: {error}", dir.display()));
    let setup = Setup { start: dir.to_owned(), dir: Some(dir.to_owned()), ..Setup::default() };
    let project = Project::open(setup).map_err(cannot)?;
    let (mut found, skills) = of_project(project);
    // Nothing here is a project, which is what has a main skill.
    found.retain(|d| d.code != Code::NoMainSkill);
    for folder in etude::app::skill_folders(dir) {
        found.extend(skills::check(&folder, Profile::Lenient).map_err(cannot)?.diagnostics);
    }
    etude::spec::diagnostic::sort(&mut found);
    found.dedup();
    let of = |severity| found.iter().filter(move |d| d.severity == severity);
    let errors = of(Severity::Error).count();
    if context.is_json() {
        let list: Vec<Value> = found.iter().map(render::json).collect();
        stdout::json(&json!({ "diagnostics": list }));
    } else {
        context.show(&found);
        if !context.global.quiet {
            let broken: BTreeSet<&str> = of(Severity::Error).map(|d| d.file.path()).collect();
            let broken: Vec<String> = broken.into_iter().map(str::to_owned).collect();
            let sound = skills.saturating_sub(broken.len());
            let all: Vec<&Diagnostic> = found.iter().collect();
            let warnings = of(Severity::Warning).count();
            crate::render::say!("{}", super::summary(errors, warnings, &broken, (sound, "skill"), &all));
        }
    }
    Ok(if errors > 0 { Exit::Definition } else { Exit::Done })
}

//! `etude check` in a directory with skills but without an app.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use etude_invoke::{Project, Setup};
use etude_packages::skills;
use etude_spec::skill::Profile;
use etude_spec::{Code, Diagnostic};

use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;

/// The directory to check as a directory of skills: it is outside of any app, and contains skills.
pub(super) fn directory(context: &Context) -> Option<PathBuf> {
    context.start_dir().ok().filter(|dir| etude::app::has_skills(dir))
}

/// Checks every skill below `dir`: its chain (D-4), and Agent Skills against their own specification (C-2.9).
pub(super) fn check(context: &Context, dir: &Path) -> Result<Exit, Problem> {
    let cannot = |error: std::io::Error| Problem::environment(format!("`{}` cannot be read: {error}", dir.display()));
    let setup = Setup { start: dir.to_owned(), dir: Some(dir.to_owned()), checks: true, ..Setup::default() };
    let project = Project::open(setup).map_err(cannot)?;
    let mut found = project.check();
    for folder in etude::app::skill_folders(dir) {
        found.extend(skills::check(&folder, Profile::Lenient).map_err(cannot)?.diagnostics);
    }
    // Only a project needs a main skill. Two skills that both claim to be the main one are still an error.
    found.retain(|d| d.code != Code::NoMainSkill || d.is_error());
    etude_spec::diagnostic::sort(&mut found);
    found.dedup();
    let broken: BTreeSet<&str> = found.iter().filter(|d| d.is_error()).map(|d| d.file.path()).collect();
    let broken: Vec<String> = broken.into_iter().map(str::to_owned).collect();
    let sound = (project.own_skills().saturating_sub(broken.len()), "skill");
    let all: Vec<&Diagnostic> = found.iter().collect();
    Ok(super::conclude(context, &all, &broken, sound, || context.show(&found)))
}

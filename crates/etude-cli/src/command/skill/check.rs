//! `etude skill check`: checks one skill against the specification.

use std::path::Path;

use etude_packages::skills::{self, Checked};
use etude_spec::render;
use etude_spec::skill::{Profile, properties};
use serde_json::{Value, json};

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::stdout;

pub(super) fn check(context: &Context, args: &args::SkillCheck) -> Result<Exit, Problem> {
    let profile = if args.strict { Profile::Strict } else { Profile::Lenient };
    let checked = checked(&args.path, profile)?;
    if context.is_json() {
        let diagnostics: Vec<Value> = checked.diagnostics.iter().map(render::json).collect();
        let properties = checked.skill.as_ref().map(properties);
        stdout::json(&json!({"valid": checked.is_valid, "properties": properties, "diagnostics": diagnostics}));
    } else {
        context.show(&checked.diagnostics);
        if !context.global.quiet {
            let verdict = if checked.is_valid { "valid" } else { "not valid" };
            crate::render::say!("{verdict}: {}", args.path.display());
        }
    }
    Ok(if checked.is_valid { Exit::Done } else { Exit::Definition })
}

fn checked(path: &Path, profile: Profile) -> Result<Checked, Problem> {
    skills::check(path, profile).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            crate::paths::absent(Problem::usage(format!("there is no `{}`", path.display())), path)
        }
        _ => Problem::environment(format!("`{}` cannot be read: {error}", path.display())),
    })
}

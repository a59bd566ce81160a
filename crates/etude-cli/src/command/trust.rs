//! `etude trust` and `etude untrust`: grants agents access to discovered skills and packages (C-1.11).

use std::fmt::Write;
use std::path::{Path, PathBuf};

use etude_packages::approve::{self, Grants};
use etude_packages::trust::{Approval, ApprovalSubject};
use serde_json::{Value, json};

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::harmless;
use crate::stdout;

pub(crate) fn trust(context: &Context, args: &args::Trust) -> Exit {
    let done = match &args.path {
        Some(path) if !args.list => give(context, path, args),
        _ => list(context),
    };
    done.unwrap_or_else(|problem| context.report(None, &problem))
}

pub(crate) fn untrust(context: &Context, args: &args::Untrust) -> Exit {
    take(context, args).unwrap_or_else(|problem| context.report(None, &problem))
}

fn give(context: &Context, path: &Path, args: &args::Trust) -> Result<Exit, Problem> {
    // Without flags, both kinds are granted.
    let execution = args.execution || !args.activation;
    let grants = Grants { activation: true, execution };
    refuse_everything(path)?;
    let given =
        approve::approve(&context.trust()?, path, grants, &super::user_name()).map_err(|error| problem(&error))?;
    say(context, "trusted", &given);
    Ok(Exit::Done)
}

/// Refuses a whole disk or a whole home: they are too large to review, and are not read.
fn refuse_everything(path: &Path) -> Result<(), Problem> {
    let Ok(place) = std::fs::canonicalize(path) else { return Ok(()) };
    let what = match crate::paths::home().and_then(|home| home.canonicalize().ok()) {
        _ if place.parent().is_none() => "the root directory",
        Some(home) if home == place => "your home directory",
        Some(home) if home.starts_with(&place) => "a directory above your home directory",
        _ => return Ok(()),
    };
    let problem = Problem::usage(format!("`{}` is {what}, which is too large to review and trust", path.display()));
    Err(problem.hint("name the folder of one project, a package or a skill: etude trust DIR"))
}

fn take(context: &Context, args: &args::Untrust) -> Result<Exit, Problem> {
    let store = context.trust()?;
    let path = std::path::absolute(&args.path).unwrap_or_else(|_| PathBuf::from(&args.path));
    let taken = store
        .untrust(&path, args.block, &super::user_name())
        .map_err(|error| Problem::environment(error.to_string()))?;
    if taken.is_empty() && !args.block && !context.is_json() && !context.global.quiet {
        crate::render::say!("nothing at or below `{}` was trusted; --block keeps agents away from it", path.display());
    }
    say(context, if args.block { "blocked" } else { "untrusted" }, &taken);
    Ok(Exit::Done)
}

fn list(context: &Context) -> Result<Exit, Problem> {
    let approvals = super::skill::approvals(context)?;
    if context.is_json() {
        stdout::json(&json!({"trusted": approvals.iter().map(document).collect::<Vec<_>>()}));
        return Ok(Exit::Done);
    }
    let mut text = String::new();
    for approval in approvals.iter() {
        let _ = writeln!(
            text,
            "{:<9}  {:<7}  {}",
            grants(approval),
            word(approval.kind),
            harmless(&approval.path.display().to_string())
        );
    }
    stdout::text(&text);
    if text.is_empty() && !context.global.quiet {
        crate::render::say!("nothing outside your home directory is trusted; trust a project with `etude trust DIR`");
    }
    Ok(Exit::Done)
}

fn say(context: &Context, verb: &str, approvals: &[Approval]) {
    if context.is_json() {
        return stdout::json(&json!({verb: approvals.iter().map(document).collect::<Vec<_>>()}));
    }
    if !context.global.quiet {
        for approval in approvals {
            crate::render::say!("{verb} ({}): {} {}", grants(approval), word(approval.kind), approval.path.display());
        }
    }
}

fn document(approval: &Approval) -> Value {
    json!({
        "path": approval.path,
        "kind": word(approval.kind),
        "activation": approval.activation,
        "execution": approval.execution,
        "blocked": approval.blocked,
        "digest": approval.content.as_ref().map(etude_packages::trust::Content::digest),
        "by": approval.by,
        "at": approval.at,
    })
}

const fn word(kind: ApprovalSubject) -> &'static str {
    match kind {
        ApprovalSubject::Package => "package",
        ApprovalSubject::Skill => "skill",
        ApprovalSubject::Folder => "folder",
    }
}

const fn grants(approval: &Approval) -> &'static str {
    match (approval.blocked, approval.execution) {
        (true, _) => "blocked",
        (_, true) => "to run",
        (_, false) => "to read",
    }
}

fn problem(error: &approve::Error) -> Problem {
    match error {
        approve::Error::Missing(_) => {
            Problem::usage(error.to_string()).hint("name a package, a skill, or a directory that contains some")
        }
        approve::Error::NotOne(_) => Problem::usage(error.to_string())
            .hint("name the package or skill itself, or its whole folder: etude trust DIR"),
        approve::Error::TooLarge(_) => {
            Problem::usage(error.to_string()).hint("name the packages and skills to trust: etude trust DIR/NAME")
        }
        _ => Problem::environment(error.to_string()),
    }
}

//! `etude runs backup`.

use std::path::Path;

use etude_runtime::engine::Error;
use etude_sqlite::{Settings, Sqlite, Sync};
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::{paths, stdout};

pub(super) fn backup(context: &Context, file: &Path) -> Result<Exit, Problem> {
    if context.is_shared() {
        let problem = Problem::usage("`etude runs backup` copies the journal of this machine");
        return Err(problem.hint("back up the database with `pg_dump`; for the journal here, add `--engine embedded`"));
    }
    if file.exists() {
        let problem = Problem::usage(format!("`{}` already exists and was not overwritten", file.display()));
        return Err(problem.hint("name a file that does not exist"));
    }
    let dir = paths::state_dir().map_err(Problem::environment)?;
    let engine = Sqlite::open(Settings { dir: dir.clone(), sync: Sync::Normal }).map_err(|e| of_engine(&e))?;
    let made = engine.backup(file).map_err(|e| failed(file, &e))?;
    if context.is_json() {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        stdout::json(&json!({"file": file, "runs": made.runs, "values": made.blobs, "bytes": made.bytes}));
    } else if !context.global.quiet {
        let (file, size) = (file.display(), etude_core::report::bytes(made.bytes));
        crate::render::say!("{} runs and {} large values in {file} ({size})", made.runs, made.blobs);
        crate::render::say!("hint: to restore, with no journal in the directory: tar -xf {file} -C {}", dir.display());
    }
    Ok(Exit::Done)
}

/// Problem of a backup that was not made: of its file, or of the journal.
fn failed(file: &Path, error: &Error) -> Problem {
    match error {
        Error::Store { path, why } if *path == file.display().to_string() => {
            Problem::environment(format!("the backup `{path}` cannot be written: {why}"))
                .hint("name a file in a directory that exists and that you can write to")
        }
        _ => of_engine(error),
    }
}

//! Human-readable problems of runs that could not start or continue.

use etude::runner::Error;
use etude_core::failure::FailureKind;
use etude_runtime::driver;
use etude_runtime::engine;

use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::commands::complete;

/// Problem for `error`, with a hint.
pub(crate) fn problem(error: &Error) -> Problem {
    match error {
        Error::Engine(engine) => of_engine(engine),
        Error::Changed { run_id, changes } => {
            let mut message = error.to_string();
            for change in changes {
                message.push_str(&format!("\n{} {}", change.what, change.path));
                for line in change.diff.iter().flat_map(|diff| diff.lines().skip(2)) {
                    message.push_str(&format!("\n  {line}"));
                }
            }
            Problem::new(Exit::Definition, FailureKind::DefinitionInvalid, message)
                .hint("restore the files, then resume the run")
                .hint(format!("or accept the changes: etude runs resume {run_id} --accept-changes"))
        }
        Error::Drive { run_id, source: driver::Error::Mismatch { .. } } => {
            Problem::new(Exit::Definition, FailureKind::DefinitionInvalid, error.to_string()).hint(format!(
                "accept the changes and repeat the changed steps: etude runs resume {run_id} --accept-changes"
            ))
        }
        Error::Drive { run_id, .. } => {
            let problem = Problem::environment(error.to_string()).of_run(run_id);
            problem.hint(format!("fix the cause, then run: etude runs resume {run_id}"))
        }
        Error::OtherAbi { .. } => {
            Problem::environment(error.to_string()).hint("resume it with the version of etude that began it")
        }
        Error::Refused { run_id, failure } => {
            let failures = [(**failure).clone()];
            Problem::of(Exit::of_failures(&failures), (**failure).clone())
                .hint(format!("the run is unchanged; fix the cause, then run: etude runs resume {run_id}"))
        }
        Error::Unpriced(unpriced) => {
            let models = unpriced.models.iter().map(|model| format!("\"{model}\": {{input: 1.0, output: 5.0}}"));
            let models = models.collect::<Vec<_>>().join(", ");
            Problem::environment(error.to_string())
                .hint(format!("in US dollars per million tokens, 0 for a free model: prices: {{{models}}}"))
                .hint("or limit the tokens instead: --max-tokens N")
        }
        Error::Unreadable(_) | Error::Header { .. } => Problem::environment(error.to_string()),
    }
}

/// Problem for a failure of the engine.
pub(crate) fn of_engine(error: &engine::Error) -> Problem {
    match error {
        engine::Error::Unknown(_) => Problem::usage(error.to_string()).hint("list them with `etude runs list`"),
        engine::Error::Ambiguous { .. } => {
            Problem::usage(error.to_string()).hint("list the full ids with `etude runs list`")
        }
        engine::Error::Moved(run) => Problem::environment(error.to_string()).hint(format!(
            "import the export file into an engine, and continue the run there: etude runs resume {run}"
        )),
        engine::Error::TooNew { path, .. } => Problem::environment(error.to_string()).hint(newer(path)),
        engine::Error::Refused { hint, .. } => Problem::environment(error.to_string()).hint(hint),
        engine::Error::Busy { run, .. } => {
            Problem::environment(error.to_string()).hint(format!("wait for it, or stop it: etude runs cancel {run}"))
        }
        // The store's reason ends with the command that fixes it.
        _ => Problem::environment(complete(&error.to_string())),
    }
}

/// Hint for a journal of a later version.
fn newer(path: &str) -> &'static str {
    match path.starts_with("postgres://") {
        true => "use the version of etude that ran `etude engine migrate`, or a later one",
        false => "use the version of etude that wrote it, or a later one",
    }
}

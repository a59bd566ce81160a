//! Runs the code of a candidate on everything that it computes in its cases (L-12), in one process (ADR 0103).

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use etude::Disk;
use etude_core::effect::{Chunk, Command, ProcessCall, Protocol, Sandbox, Setting, Stdin};
use etude_core::outcome::Exit;
use etude_learn::{Candidate, Evaluation};
use etude_process::blob::FileBlobs;
use etude_process::{Cancel, ChildEnvironment, HostSettings, ProcessHost, Redaction};
use etude_runtime::driver::Stop;
use etude_spec::discover::LEARNED;
use serde_json::Value;
use tokio::sync::watch::Receiver;

use crate::context::Context;
use crate::problem::Problem;
use crate::{paths, programs};

/// Python driver: for each call in a line of stdin, prints the output of the step.
const DRIVER: &str = r#"
import json, runpy, sys
module = runpy.run_path("steps/bindings.py")
for line in sys.stdin:
    step, run = json.loads(line)
    print(json.dumps({"output": module["output"](module["BINDINGS"][step], run)}))
"#;

/// Interval at which the driver loop checks whether the user has ended the command.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Maximum growth of an output as Python writes it: six bytes for a two-byte letter, and blanks.
const MAX_GROWTH: usize = 4;
/// Length of `{"output": }` and its line break, with a margin.
const FRAME: usize = 16;

/// True if the code of a candidate, as stored in `learned/`, computes other values than the learner. The code runs as its steps
/// do: same interpreter, variables and sandbox.
///
/// # Errors
/// The code cannot run here.
pub(super) fn differ(
    context: &Context,
    disk: &Disk,
    candidate: &Candidate,
    stop: &Receiver<Stop>,
) -> Result<bool, Problem> {
    let evaluations = &candidate.evaluations;
    if evaluations.is_empty() {
        return Ok(false);
    }
    let name = &candidate.name;
    let scratch = paths::scratch("learn").map_err(Problem::environment)?;
    let settings = HostSettings {
        run_id: etude_runtime::run_id::new(),
        app_dir: disk.root().to_owned(),
        blobs: Arc::new(FileBlobs::new(scratch.path(), false)),
    };
    let environment = ChildEnvironment::without_keys(&context.settings(disk.root())?.withheld_env);
    let sandboxes = programs::sandboxes(&steps(candidate))?;
    let host = ProcessHost::builder(settings, environment, Redaction::NoSecrets, sandboxes.into()).build();
    let lines: String = evaluations.iter().flat_map(|one| [one.call.as_str(), "\n"]).collect();
    let call = ProcessCall {
        command: Command::Direct(["python3", "-c", DRIVER].map(str::to_owned).to_vec()),
        dir: format!("{LEARNED}/{name}"),
        env: Vec::new(),
        key: name.clone(),
        attempt: 1,
        stdin: Stdin(vec![Chunk::Text(lines.into())]),
        protocol: Protocol::Document,
        setting: Setting { sandbox: Some(Box::new(Sandbox::default())), ..Setting::default() },
    };
    let limit: usize = evaluations.iter().map(|one| one.output.len() * MAX_GROWTH + FRAME).sum();
    let cannot = |why: &str| Problem::environment(format!("the code of `{name}` cannot be run: {why}"));
    let cancel = Cancel::new();
    let ended = thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        scope.spawn(|| {
            let is_done = is_done;
            while is_done.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if *stop.borrow() != Stop::No {
                    cancel.cancel();
                }
            }
        });
        let ended = host.run_bounded(&call, &cancel, limit);
        drop(done);
        ended
    });
    let ended = ended.map_err(|_| cannot("it was cancelled"))?;
    match ended.exit {
        Exit::NotStarted(why) => Err(cannot(&why)),
        Exit::Status(0) if !ended.is_too_large => Ok(!are_as_computed(&ended.stdout, evaluations)),
        _ => Ok(true),
    }
}

/// Names of the candidate's code steps.
fn steps(candidate: &Candidate) -> Vec<String> {
    let steps = candidate.definition["steps"].as_array().into_iter().flatten();
    let names = steps.filter(|step| step.get("sandbox").is_some()).filter_map(|step| step["name"].as_str());
    names.map(str::to_owned).collect()
}

/// True if the lines are the outputs of the evaluations, parsed as the runner parses the output of a step.
fn are_as_computed(stdout: &[u8], evaluations: &[Evaluation]) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    let is_as_computed = |(line, one): (&str, &Evaluation)| {
        let found = value(line);
        found
            .as_ref()
            .and_then(|found| found.get("output"))
            .is_some_and(|found| Some(found) == value(&one.output).as_ref())
    };
    let lines: Vec<&str> = std::str::from_utf8(stdout).unwrap_or_default().lines().collect();
    lines.len() == evaluations.len() && lines.into_iter().zip(evaluations).all(is_as_computed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_accepted(stdout: &str, outputs: &[&str]) -> bool {
        let evaluation = |output: &&str| Evaluation { call: String::new(), output: (*output).to_owned() };
        are_as_computed(stdout.as_bytes(), &outputs.iter().map(evaluation).collect::<Vec<_>>())
    }

    /// L-12: outputs are compared as the values that the runner reads. The order of members and the form of a number do not
    /// matter, its type does.
    #[test]
    fn outputs_are_compared_as_values() {
        let accepted = [
            (r#"{"output": {"b": 1, "a": "\u00e9"}}"#, r#"{"a":"é","b":1}"#),
            (r#"{"output": 1e+22}"#, "1e22"),
            (r#"{"output": 18446744073709551615}"#, "18446744073709551615"),
            (r#"{"output": null}"#, "null"),
        ];
        for (line, output) in accepted {
            assert!(is_accepted(&format!("{line}\n"), &[output]), "{line} is {output}");
        }
        let refused =
            [(r#"{"output": 1.0}"#, "1"), (r#"{"output": NaN}"#, "null"), (r#"{"output": "1"}"#, "1"), ("{}", "null")];
        for (line, output) in refused {
            assert!(!is_accepted(&format!("{line}\n"), &[output]), "{line} is not {output}");
        }
    }

    /// L-12: code that ends early, or prints more than its outputs, fails the comparison.
    #[test]
    fn every_output_has_its_line() {
        let (one, two) = ("{\"output\": 1}\n", "{\"output\": 1}\n{\"output\": 2}\n");
        assert!(is_accepted(two, &["1", "2"]));
        assert!(!is_accepted(one, &["1", "2"]) && !is_accepted(two, &["1"]) && !is_accepted("", &["1"]));
    }
}

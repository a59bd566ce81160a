//! A program as a model: it reads a prompt on stdin and prints the completion.
//!
//! The whole conversation goes to the program as one text: the system prompt, then the messages, with a heading for each when
//! there is more than one. Its output, without blanks around it, is the response.
//!
//! Programs that print a result object, such as `claude -p --output-format json`, are understood too. An object with
//! `"type": "result"` and a text `result` gives text, usage and cost.

mod group;
mod output;
mod prompt;
mod stdout_deltas;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use etude_core::model::Request;
use etude_process::{ChildEnvironment, detached};

use crate::delta_sink::DeltaSink;
use crate::dialect;
use crate::redact::Redactor;
use crate::settings::ProviderSettings;
use crate::transport::{DEFAULT_TIMEOUT_MS, shown};
use crate::wire::MAX_BODY_BYTES;
use group::{Ended, Group};
pub(crate) use output::Printed;
use stdout_deltas::StdoutDeltas;

/// Maximum length of stderr that a failure quotes, in characters.
const STDERR_TAIL_CHARS: usize = 2000;

/// A provider of the kind `command`.
pub(crate) struct Program {
    argv: Vec<String>,
    dir: PathBuf,
    withheld_env: Vec<String>,
    timeout: Duration,
    redactor: Redactor,
}

/// Failure of a program that gave no response.
pub(crate) enum ProgramFailed {
    /// The program could not be started.
    NotStarted(String),
    /// The program exceeded its time limit.
    TimedOut(String),
    /// The program exited with another status than 0, printed no usable response, or does not support the request.
    Failed(String),
}

impl Program {
    pub(crate) fn new(settings: &ProviderSettings, dir: &Path, withheld_env: Vec<String>, redactor: Redactor) -> Self {
        Self {
            argv: settings.command.clone(),
            dir: dir.to_owned(),
            withheld_env,
            timeout: Duration::from_millis(settings.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS).max(1)),
            redactor,
        }
    }

    /// Runs the program. Dropping the future kills it with all its children.
    pub(crate) async fn call(
        &self,
        model: &str,
        request: &Request,
        delta_sink: Option<&DeltaSink<'_>>,
    ) -> Result<Printed, ProgramFailed> {
        if !request.tools.is_empty() {
            let message = "a model of kind `command` cannot call tools; map the tier to another kind";
            return Err(ProgramFailed::Failed(message.to_owned()));
        }
        let mut asked = request.clone();
        if let Some(schema) = &request.schema {
            dialect::instruct(&mut asked, schema);
        }
        let Some((program, arguments)) = self.arguments(model, request) else {
            return Err(ProgramFailed::NotStarted("no command is configured".to_owned()));
        };
        let mut command = detached(&program, ChildEnvironment::without(&self.withheld_env));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !self.dir.as_os_str().is_empty() {
            command.current_dir(&self.dir);
        }
        let name = program.to_string_lossy().into_owned();
        let group = Group::spawn(command.into()).map_err(|error| {
            ProgramFailed::NotStarted(format!("program `{name}` cannot be started: {error}; is it installed?"))
        })?;
        let prompt = prompt::write(&asked).into_bytes();
        let mut stdout_deltas = StdoutDeltas::new(delta_sink);
        match tokio::time::timeout(self.timeout, group.run(prompt, &mut stdout_deltas)).await {
            Ok(Ok(ended)) => self.read(&name, ended),
            Ok(Err(error)) if error.kind() == io::ErrorKind::FileTooLarge => Err(ProgramFailed::Failed(format!(
                "program `{name}` printed more than {MAX_BODY_BYTES} bytes, the limit of a response, and was killed"
            ))),
            Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Err(ProgramFailed::Failed(format!(
                "program `{name}` read from the terminal, which is not available, and was killed"
            ))),
            Ok(Err(error)) => Err(ProgramFailed::Failed(format!("cannot wait for program `{name}`: {error}"))),
            Err(_) => {
                let limit = shown(self.timeout);
                Err(ProgramFailed::TimedOut(format!("program `{name}` did not respond within {limit} and was killed")))
            }
        }
    }

    fn read(&self, name: &str, ended: Ended) -> Result<Printed, ProgramFailed> {
        let stderr = self.redactor.tail(&String::from_utf8_lossy(&ended.stderr), STDERR_TAIL_CHARS);
        let text = String::from_utf8(ended.stdout)
            .map_err(|_| ProgramFailed::Failed(format!("program `{name}` printed bytes that are not UTF-8")));
        let stderr =
            if stderr.is_empty() { "nothing on stderr".to_owned() } else { format!("stderr ends with: {stderr}") };
        if !ended.status.success() {
            // Some programs report failures as a result object on stdout.
            let reported = text.ok().and_then(|text| output::reported_failure(&text));
            let reported = reported.map(|reported| format!("; it printed: {}", self.redactor.quote(&reported, 500)));
            let status = ended.status;
            let message = format!("program `{name}` failed with {status}{}; {stderr}", reported.unwrap_or_default());
            return Err(ProgramFailed::Failed(message));
        }
        output::read(&text?).map_err(|reported| {
            ProgramFailed::Failed(format!(
                "program `{name}` reports: {}; {stderr}",
                self.redactor.quote(&reported, 500)
            ))
        })
    }

    /// The program and its arguments, with placeholders filled in.
    fn arguments(&self, model: &str, request: &Request) -> Option<(OsString, Vec<OsString>)> {
        let schema = request.schema.as_ref().map_or_else(|| "{}".to_owned(), |schema| schema.schema.to_string());
        let (program, arguments) = self.argv.split_first()?;
        let fill = |argument: &String| OsString::from(fill(argument, model, &schema));
        // A relative path starts at the app's directory, as in every other command of an app.
        let path = Path::new(program);
        let program =
            if path.is_relative() && path.components().count() > 1 { self.dir.join(path) } else { path.into() };
        Some((program.into_os_string(), arguments.iter().map(fill).collect()))
    }
}

/// Fills the placeholders in one pass, so that text which was filled in is not searched again.
fn fill(argument: &str, model: &str, schema: &str) -> String {
    let mut out = String::with_capacity(argument.len());
    let mut rest = argument;
    while let Some(at) = rest.find('{') {
        let (before, tail) = rest.split_at(at);
        out.push_str(before);
        rest = if let Some(tail) = tail.strip_prefix("{model}") {
            out.push_str(model);
            tail
        } else if let Some(tail) = tail.strip_prefix("{schema}") {
            out.push_str(schema);
            tail
        } else {
            out.push('{');
            &tail[1..]
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_once() {
        assert_eq!(fill("--model={model} {x} {schema}", "{schema}", "S"), "--model={schema} {x} S");
    }
}

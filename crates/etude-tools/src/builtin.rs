//! The built-in tools of every agent: `Read, Write, Edit, Glob, Grep, List, Bash` (`b-stages` 0.1 rule 6, A-7.1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::confine::{PathArgument, Refusal, Roots};
use crate::found::Found;
use crate::pattern::Withheld;
use crate::program::Programs;
use crate::tool::{ApprovalKey, Args, Boxed, CallContext, Effect, Origin, Run, Tool, ToolError, ToolResult, members};

mod bash;
mod edit;
mod glob;
mod grep;
mod ignored;
mod list;
mod read;
mod text;
pub(crate) mod walk;
mod write;

pub use etude_spec::tool::BUILT_IN as NAMES;

/// Time limit of a tool that only touches files.
const FILE_TIME: Duration = Duration::from_secs(30);

/// Time for a tool to notice that it must stop.
const STUCK: Duration = Duration::from_secs(2);

/// The argument that names a file or folder.
const PATH: &str = "path";

/// The built-in tools over the folders of `roots`. `programs` runs the commands of `Bash`.
pub(crate) fn entries(roots: &Roots, programs: &Programs) -> Vec<Found> {
    let file = |name, description, schema, effect, key, work: Work| {
        let mut tool = Tool::new(name, description, schema, effect, Origin::BuiltIn);
        tool.approval_key = key;
        Found::new(tool, FileTool { roots: roots.clone(), work })
    };
    let path = ApprovalKey::Path(PATH);
    let mut bash = Tool::new("Bash", bash::DESCRIPTION, bash::schema(), Effect::Executes, Origin::BuiltIn);
    bash.approval_key = ApprovalKey::Command("command");
    vec![
        file("Read", read::DESCRIPTION, read::schema(), Effect::Reads, path.clone(), read::run),
        file("Write", write::DESCRIPTION, write::schema(), Effect::Writes, path.clone(), write::run),
        file("Edit", edit::DESCRIPTION, edit::schema(), Effect::Writes, path.clone(), edit::run),
        file("Glob", glob::DESCRIPTION, glob::schema(), Effect::Reads, path.clone(), glob::run),
        file("Grep", grep::DESCRIPTION, grep::schema(), Effect::Reads, path.clone(), grep::run),
        file("List", list::DESCRIPTION, list::schema(), Effect::Reads, path, list::run),
        Found::new(bash, bash::Bash::new(programs.clone())),
    ]
}

type Work = fn(&PathArgument, &Args, &Stop) -> Result<String, ToolError>;

/// A tool that only touches files.
#[derive(Debug)]
struct FileTool {
    roots: Roots,
    work: Work,
}

impl Run for FileTool {
    fn run(&self, args: Arc<Value>, cx: CallContext) -> Boxed<ToolResult> {
        let (roots, work) = (self.roots.clone(), self.work);
        let (stopped, deadline) = (cx.cancel.clone(), Instant::now() + FILE_TIME);
        let stop = Stop { token: cx.cancel.clone(), deadline, withheld: Arc::clone(&cx.withheld) };
        Box::pin(async move {
            let mut work = tokio::task::spawn_blocking(move || {
                let args = members(&args);
                // The tool touches the path that was judged. A call that was not judged resolves its path now.
                let path = cx.path.unwrap_or_else(|| Arc::new(roots.resolve(text(args, PATH).unwrap_or("."))));
                work(&path, args, &stop)
            });
            // A thread that hangs in a system call (a network disk that is gone) cannot be stopped, and is abandoned.
            let stuck = async {
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = tokio::time::sleep_until(deadline.into()) => {}
                }
                tokio::time::sleep(STUCK).await;
            };
            let done = tokio::select! {
                done = &mut work => done,
                () = stuck => return late(&stopped).into(),
            };
            match done {
                Ok(Ok(content)) => ToolResult::ok(content),
                Ok(Err(error)) => error.into(),
                Err(error) => ToolError::failed(format!("internal error: the tool panicked: {error}")).into(),
            }
        })
    }
}

/// Deadline and cancellation of a tool, and the files that it must leave out.
#[derive(Debug)]
pub(crate) struct Stop {
    token: CancellationToken,
    deadline: Instant,
    withheld: Arc<Withheld>,
}

impl Stop {
    /// A `Stop` for work that is not cancelled and has no short time limit: its deadline is a day away.
    pub(crate) fn unlimited() -> Self {
        let deadline = Instant::now() + std::time::Duration::from_secs(24 * 60 * 60);
        Self { token: CancellationToken::new(), deadline, withheld: Arc::default() }
    }

    /// An error if the tool must stop. Called between files and between blocks of a long file.
    fn check(&self) -> Result<(), ToolError> {
        if self.token.is_cancelled() || Instant::now() > self.deadline { Err(late(&self.token)) } else { Ok(()) }
    }
}

/// The error of a tool that was cancelled or took too long.
fn late(token: &CancellationToken) -> ToolError {
    if token.is_cancelled() {
        return ToolError::cancelled();
    }
    let seconds = FILE_TIME.as_secs();
    let message = format!("it took longer than {seconds} s; use a narrower `path` or pattern");
    ToolError::transient("ExecutionTimeout", message)
}

impl From<Refusal> for ToolError {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Outside { .. } | Refusal::LeadsOut { .. } => "PathRefused",
            Refusal::Missing { .. } => "NotFound",
            Refusal::Other { .. } => "ToolExecutionFailed",
        };
        Self::terminal(code, refusal.to_string())
    }
}

/// The text of an argument. The schema has ensured that required ones exist.
fn text<'a>(args: &'a Args, name: &str) -> Option<&'a str> {
    args.get(name).and_then(Value::as_str)
}

fn number(args: &Args, name: &str, default: usize) -> usize {
    args.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).unwrap_or(default)
}

fn flag(args: &Args, name: &str) -> bool {
    args.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Formats a count: `1 line`, `2 lines`.
fn count(n: usize, what: &str) -> String {
    let plural = if what.ends_with("ch") { "es" } else { "s" };
    format!("{n} {what}{}", if n == 1 { "" } else { plural })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// L-43: the arguments that a check of definitions knows are those of the tools.
    #[test]
    fn checks_know_the_arguments_of_the_built_in_tools() {
        let schemas = [
            ("Read", read::schema()),
            ("Write", write::schema()),
            ("Edit", edit::schema()),
            ("Glob", glob::schema()),
            ("Grep", grep::schema()),
            ("List", list::schema()),
            ("Bash", bash::schema()),
        ];
        assert_eq!(schemas.len(), NAMES.len());
        for (name, schema) in schemas {
            let required =
                |argument: &str| schema["required"].as_array().is_some_and(|all| all.contains(&argument.into()));
            let kind = |value: &Value| value["type"].as_str().unwrap_or_default().to_owned();
            let own: BTreeSet<(&str, String, bool)> = schema["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.as_str(), kind(value), required(name)))
                .collect();
            let known = etude_spec::tool::built_in::ARGUMENTS.iter().find(|(known, _)| *known == name);
            let known: BTreeSet<_> =
                known.unwrap().1.iter().map(|(name, kind, needs)| (*name, (*kind).to_owned(), *needs)).collect();
            assert_eq!(own, known, "{name}");
        }
    }
}

//! Shell completions: arguments are completed with names of the app, its parameters, or runs of the journal.
//!
//! Unreadable sources have no candidates: a completion never fails and never writes.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Arg, Command};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _,
};
use etude::Disk;
use etude_core::data::bare;
use etude_core::model::Tier;
use etude_core::plan::Sequence;
use etude_packages::skills::Compat;
use etude_runs::target::Target;
use etude_runtime::clock;
use etude_runtime::engine::{Query, RunRow, RunState};
use etude_spec::App;
use etude_spec::input::InputDecl;
use etude_spec::learned::Located;
use etude_spec::source::Sources as _;
use etude_spec::stage_machine::Machines;
use serde_json::Value;

use crate::args::{self, Format, Global, Purpose};
use crate::command;
use crate::context::Context;
use crate::render::text::harmless;

/// Maximum number of runs listed.
const MAX_RUNS: u32 = 30;

/// Clap command line with candidates for its arguments.
pub(crate) fn command() -> Command {
    completed(args::command(), "")
}

/// Adds candidates to the arguments of a command and of its subcommands. `path` has its words after `etude`.
fn completed(command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| {
        let path = format!("{path} {name}");
        command.mut_subcommand(name, |inner| completed(inner, path.trim()))
    });
    command.mut_args(|argument| with_candidates(argument, path))
}

/// Adds the candidates of an argument of the command `path`.
fn with_candidates(argument: Arg, path: &str) -> Arg {
    let (group, _) = path.split_once(' ').unwrap_or((path, ""));
    let candidates: fn() -> Vec<CompletionCandidate> = match (group, argument.get_id().as_str()) {
        ("run" | "machine", "pairs") => return argument.add(ArgValueCompleter::new(parameters)),
        ("run" | "machine", "input") => return argument.add(ArgValueCompleter::new(files_of_input)),
        (_, "pipeline") => pipelines,
        ("machine", "name") => machines,
        ("check", "names") | ("graph", "name") => pipelines_and_machines,
        ("run", "again") => runs,
        ("runs", "id" | "ids" | "a" | "b") => runs,
        ("runs", "from" | "step") => steps,
        ("runs", "status") => statuses,
        ("learn", "run" | "runs") => runs,
        ("convert", "model") => tiers,
        ("approve" | "deny", "id") => waiting_runs,
        ("skill", "name") => skills,
        ("apps", "slug") => packages,
        ("new", "kind") => kinds_of_new,
        ("test", "name") => tests,
        ("learn", "name") => learned,
        ("model", "tier") => tiers,
        ("explain", "words") => codes,
        ("help", "command") => commands,
        (_, "server") => || vec![candidate("local", "your own server")],
        (_, "engine") => || vec![candidate("embedded", "the journal of this machine")],
        _ => return argument,
    };
    argument.add(ArgValueCandidates::new(candidates))
}

/// A candidate with a one-line description.
fn candidate(value: impl Into<String>, description: &str) -> CompletionCandidate {
    let line = harmless(description.lines().next().unwrap_or_default());
    CompletionCandidate::new(value.into()).help((!line.is_empty()).then(|| line.into()))
}

/// Words of the command line that is being completed.
fn words() -> Vec<String> {
    let args = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    args.skip_while(|word| word != "--").skip(1).collect()
}

/// Value of an option in `words`: `--long VALUE`, `--long=VALUE`, `-s VALUE` or `-sVALUE`.
fn option(words: &[String], long: &str, short: &str) -> Option<String> {
    let next = |at: usize| words.get(at + 1).cloned();
    words.iter().enumerate().find_map(|(at, word)| {
        if word == long || word == short {
            return next(at);
        }
        let joined = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
        joined.or_else(|| word.strip_prefix(short).filter(|_| !word.starts_with("--"))).map(str::to_owned)
    })
}

/// The word that follows `command` in `words`, unless it is an option.
fn after<'w>(words: &'w [String], command: &[&str]) -> Option<&'w str> {
    let at = words.windows(command.len()).position(|window| window == command)?;
    words.get(at + command.len()).map(String::as_str).filter(|word| !word.starts_with('-'))
}

/// Context of the command line that is being completed.
fn context() -> Context {
    let app = option(&words(), "--app", "-C").map(PathBuf::from);
    let global = Global {
        app,
        server: None,
        engine: None,
        config: None,
        format: Format::Human,
        quiet: true,
        verbose: 0,
        no_color: true,
    };
    Context::new(global, false, Purpose::Look)
}

fn disk() -> Option<Disk> {
    context().disk().ok()
}

/// Pipelines of the app.
fn pipelines() -> Vec<CompletionCandidate> {
    let Some(disk) = disk() else { return Vec::new() };
    let (summaries, _) = App::new(&disk).summaries();
    summaries.iter().map(|pipeline| candidate(&pipeline.name, &pipeline.description)).collect()
}

/// Stage machines of the app.
fn machines() -> Vec<CompletionCandidate> {
    let Some(disk) = disk() else { return Vec::new() };
    let summaries = Machines::new(&disk, etude_spec::stage_machine::Rules::default()).summaries();
    summaries.iter().map(|machine| candidate(&machine.name, &machine.description)).collect()
}

/// Pipelines and stage machines of the app.
fn pipelines_and_machines() -> Vec<CompletionCandidate> {
    pipelines().into_iter().chain(machines()).collect()
}

/// Skills of the project and of the user.
fn skills() -> Vec<CompletionCandidate> {
    let Ok(catalog) = command::skill::discover(&context(), Compat::Spec) else { return Vec::new() };
    catalog.entries().map(|entry| candidate(&entry.skill.name, &entry.skill.description)).collect()
}

/// Packages of the project and of the user.
fn packages() -> Vec<CompletionCandidate> {
    let Ok(catalog) = command::apps::discover(&context(), &[]) else { return Vec::new() };
    let contracts = catalog.packages().map(|package| &package.contract);
    contracts.map(|contract| candidate(&contract.slug, &contract.description)).collect()
}

/// Parameters as `name=`, and after that the possible values of the parameter.
fn parameters(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let Some(input) = disk().and_then(|disk| input(&disk, &words())) else { return Vec::new() };
    let all = match current.split_once('=') {
        None => {
            input.parameters.iter().map(|p| candidate(format!("{}=", p.name), &described(&input, &p.name))).collect()
        }
        Some((name, _)) => values(&input, name),
    };
    all.into_iter()
        .filter(|one: &CompletionCandidate| one.get_value().to_string_lossy().starts_with(&*current))
        .collect()
}

/// Parameters of the pipeline or machine that the command line runs.
fn input(disk: &Disk, words: &[String]) -> Option<InputDecl> {
    if let Some(name) = after(words, &["machine", "run"]) {
        let machines = Machines::new(disk, etude_spec::stage_machine::Rules::default()).summaries();
        return machines.into_iter().find(|machine| machine.name == name).map(|machine| machine.input);
    }
    let name = option(words, "--pipeline", "-p")?;
    let (summaries, _) = App::new(disk).summaries();
    summaries.into_iter().find(|pipeline| pipeline.name == name).map(|pipeline| pipeline.input)
}

/// Files as values of `--input @FILE`.
fn files_of_input(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(path) = current.to_str().and_then(|text| text.strip_prefix('@')) else { return Vec::new() };
    PathCompleter::file().complete(OsStr::new(path)).into_iter().map(|found| found.add_prefix("@")).collect()
}

/// Tests of the app.
fn tests() -> Vec<CompletionCandidate> {
    let entries = disk().and_then(|disk| disk.list(etude_spec::test::DIR).ok()).unwrap_or_default();
    entries.iter().filter_map(|entry| entry.name.strip_suffix(".yaml")).map(|name| candidate(name, "")).collect()
}

/// Learned pipelines of the app, with their states.
fn learned() -> Vec<CompletionCandidate> {
    let found = disk().map(|disk| etude_spec::learned::all(&disk)).unwrap_or_default();
    let state = |one: &Located| one.learned.as_ref().map_or("", |learned| learned.state.word());
    found.iter().map(|one| candidate(&one.name, state(one))).collect()
}

/// Tiers of models.
fn tiers() -> Vec<CompletionCandidate> {
    Tier::ALL.iter().map(|tier| candidate(tier.word(), "")).collect()
}

/// JSON Schema of one parameter.
fn schema(input: &InputDecl, name: &str) -> Value {
    input.schema()["properties"][name].clone()
}

/// Short description of a parameter, such as `integer, default 3`.
fn described(input: &InputDecl, name: &str) -> String {
    let schema = schema(input, name);
    let kind = schema["type"].as_str().map(str::to_owned);
    let parameter = input.parameter(name);
    let default = parameter.and_then(|p| p.default.as_ref()?.text().ok().map(|text| format!("default {text}")));
    let required = parameter.filter(|p| p.required).map(|_| "required".to_owned());
    let about = schema["description"].as_str().map(str::to_owned);
    [about, kind, default, required].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `name=value` for every value that the schema lists.
fn values(input: &InputDecl, name: &str) -> Vec<CompletionCandidate> {
    let schema = schema(input, name);
    let mut values: Vec<String> =
        schema["enum"].as_array().into_iter().flatten().map(|value| bare(value).into_owned()).collect();
    if schema["type"] == "boolean" {
        values.extend(["true", "false"].map(str::to_owned));
    }
    // A shell inserts candidates without quoting.
    let is_inert = |value: &String| !value.contains(|c: char| c.is_control() || "$`\\\"';&|<>()".contains(c));
    values.into_iter().filter(is_inert).map(|value| candidate(format!("{name}={value}"), "")).collect()
}

/// All runs of the app, the newest first.
fn runs() -> Vec<CompletionCandidate> {
    let rows = rows(&[], MAX_RUNS);
    named(&rows, rows.first())
}

/// Runs that wait for an approval, however many runs are newer.
fn waiting_runs() -> Vec<CompletionCandidate> {
    named(&rows(&[RunState::Waiting], MAX_RUNS), rows(&[], 1).first())
}

/// Candidates for runs. `latest` is one of them if the newest run is.
fn named(rows: &[RunRow], newest: Option<&RunRow>) -> Vec<CompletionCandidate> {
    let latest = rows.first().filter(|row| newest.is_some_and(|newest| newest.id == row.id));
    let latest = latest.map(|row| candidate("latest", &format!("the latest run: {}", about(row))));
    latest.into_iter().chain(rows.iter().map(|row| candidate(&row.id, &about(row)))).collect()
}

fn about(row: &RunRow) -> String {
    let status = command::runs::status(row);
    format!("{} {status}, {}", Target::parse(&row.target), clock::local(row.created_at_ms))
}

/// Newest runs of the app, or of all apps outside of one, in one of these states (empty: all). A missing journal yields none, and is
/// not created.
fn rows(states: &[RunState], limit: u32) -> Vec<RunRow> {
    let context = context();
    // A key stroke must not wait for a database.
    let is_elsewhere = crate::engine::is_shared(&context.global);
    if is_elsewhere || !crate::paths::state_dir().is_ok_and(|dir| dir.is_dir()) {
        return Vec::new();
    }
    let app = context.disk().ok().map(|disk| disk.root().display().to_string());
    let query =
        Query { apps: app.into_iter().collect(), states: states.to_vec(), limit: Some(limit), ..Query::default() };
    context.engine(false).ok().and_then(|engine| engine.list(&query).ok()).unwrap_or_default()
}

/// Steps of the pipeline of the run on the command line.
fn steps() -> Vec<CompletionCandidate> {
    let words = words();
    let wanted = after(&words, &["runs", "retry"]).or_else(|| after(&words, &["runs", "show"])).unwrap_or("latest");
    let rows = rows(&[], MAX_RUNS);
    let row = rows.iter().find(|row| wanted == "latest" || row.id.starts_with(wanted));
    let Some(Target::Pipeline(name)) = row.map(|row| Target::parse(&row.target)) else { return Vec::new() };
    let Some(disk) = disk() else { return Vec::new() };
    let (pipeline, _) = App::new(&disk).pipeline(&name);
    pipeline.map(|pipeline| names(&pipeline.sequence)).unwrap_or_default()
}

fn names(sequence: &Sequence) -> Vec<CompletionCandidate> {
    sequence.steps.iter().map(|step| candidate(&step.name, "")).collect()
}

/// Kinds that `etude new` creates.
fn kinds_of_new() -> Vec<CompletionCandidate> {
    command::new::KINDS.iter().map(|(word, about)| candidate(*word, about)).collect()
}

/// Error codes with their titles.
fn codes() -> Vec<CompletionCandidate> {
    command::explain::codes().map(|(code, title)| candidate(code, title)).collect()
}

/// Statuses of runs.
fn statuses() -> Vec<CompletionCandidate> {
    let words = RunState::ALL.iter().map(|state| state.word()).chain([command::runs::INTERRUPTED]);
    words.map(|word| candidate(word, "")).collect()
}

/// Subcommands for `etude help`.
fn commands() -> Vec<CompletionCandidate> {
    let words = words();
    let start = words.iter().position(|word| word == "help").map_or(words.len(), |at| at + 1);
    let mut command = args::command();
    // The last word is the one being completed.
    for word in words.iter().take(words.len().saturating_sub(1)).skip(start) {
        match command.find_subcommand(word).cloned() {
            Some(inner) => command = inner,
            None => return Vec::new(),
        }
    }
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    inner
        .map(|inner| candidate(inner.get_name(), &inner.get_about().map(ToString::to_string).unwrap_or_default()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments below `command` that have candidates, with their commands.
    fn completed_arguments(command: &Command, path: &str) -> Vec<String> {
        let is_completed = |argument: &&Arg| {
            argument.get::<ArgValueCandidates>().is_some() || argument.get::<ArgValueCompleter>().is_some()
        };
        let own = command.get_arguments().filter(is_completed).map(|argument| format!("{path}: {}", argument.get_id()));
        let below = |inner: &Command| completed_arguments(inner, format!("{path} {}", inner.get_name()).trim());
        own.chain(command.get_subcommands().flat_map(below)).collect()
    }

    /// cli: every argument that names an item of the app, the journal or the program has candidates.
    #[test]
    fn arguments_that_name_something_have_candidates() {
        let expected = [
            ": server", ": engine", "run: pipeline", "run: pairs", "run: input", "run: again", "machine run: name",
            "machine run: pairs", "machine run: input", "machine show: name", "runs list: pipeline",
            "runs list: status", "runs show: id", "runs show: step", "runs resume: id", "runs retry: id",
            "runs retry: from", "runs cancel: id", "runs export: id", "runs watch: id", "runs judge: id",
            "runs diff: a", "runs diff: b", "runs stats: pipeline", "runs delete: ids", "learn: runs",
            "learn show: name", "learn test: name", "learn promote: name", "learn demote: name", "learn forget: name",
            "learn forget: run", "learn export: runs", "cache list: pipeline", "cache clear: pipeline", "approve: id",
            "deny: id", "new: kind", "convert: model", "check: names", "graph: name", "test: name", "apps show: slug",
            "apps run: slug", "skill show: name", "skill explain: name", "skill graph: name", "skill run: name",
            "model test: tier", "explain: words", "help: command",
        ];
        assert_eq!(completed_arguments(&command(), ""), expected);
    }
}

//! Entry point: from the command line to an exit status.

use std::ffi::{OsStr, OsString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args as _, CommandFactory as _, FromArgMatches};
use etude_core::failure::FailureKind;
use etude_process::{guard, sandbox};
use serde_json::{Value, json};

use crate::args::{self, Cli, Command, Deals, Runs};
use crate::command;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::mistyped;
use crate::problem::Problem;
use crate::remote::SERVER;
use crate::render::text::visible;
use crate::{render, settings, stdout};

/// Minimum size of the stack for a command line, in bytes. `ulimit -s` can set a smaller one for the main thread.
const STACK: usize = 4 * 1024 * 1024;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // This comes first, because the process may have to become another one.
    let word = args.next();
    if word.as_ref().is_some_and(|word| word == sandbox::WORD) {
        let (why, status) = sandbox::enter(args.collect(), std::io::stdin());
        crate::render::say!("{why}");
        return status.into();
    }
    if word.is_some_and(|word| word == guard::WORD) {
        guard::attend(std::io::stdin());
        return Exit::Done.into();
    }
    keep_keys();
    // A thread for every program would make its start slower.
    match etude_process::main_stack().is_some_and(|bytes| bytes < STACK as u64) {
        true => on_a_thread(),
        false => command_line(),
    }
    .into()
}

/// Runs the command line on a thread with a stack of [`STACK`] bytes.
fn on_a_thread() -> Exit {
    let thread = std::thread::Builder::new().name("main".to_owned()).stack_size(STACK).spawn(command_line);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(exit) => exit.unwrap_or(Exit::Bug),
        Err(error) => {
            crate::render::say!("error: cannot start a thread with a stack of {STACK} bytes: {error}");
            Exit::Environment
        }
    }
}

fn command_line() -> Exit {
    clap_complete::CompleteEnv::with_factory(complete::command).complete();
    match parse().map_or_else(|exit| exit, execute) {
        // A caller must not mistake a missing or cut-off document for a whole one.
        Exit::Done if stdout::has_failed() => Exit::Environment,
        exit => exit,
    }
}

/// Executes a parsed command line.
fn execute(cli: Cli) -> Exit {
    if cli.global.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    render::commands::keep(&cli.global);
    etude_http::environment::keep(|name| std::env::var_os(name));
    let context = Context::new(cli.global, cli.command.is_raw(), cli.command.purpose());
    let done = catch_unwind(AssertUnwindSafe(|| dispatch(&context, cli.command)));
    done.unwrap_or_else(|_| broken_down(&context))
}

/// Keeps the keys in this environment from child processes. A process that was itself started by a step was given none. It must
/// stay readable, because its environment identifies it if the run is ended without it.
fn keep_keys() {
    if std::env::var_os("ETUDE_RUN_ID").is_none() {
        etude_process::keep_private();
    }
}

/// Reports a panic, whose message is already on stderr.
fn broken_down(context: &Context) -> Exit {
    let problem = Problem::new(Exit::Bug, FailureKind::Internal, "internal error: etude panicked")
        .hint("report it with the message above")
        .hint("list interrupted runs: etude runs list --status interrupted");
    context.report(None, &problem)
}

/// Parses the command line; the error is the exit status after help or an error was printed.
fn parse() -> Result<Cli, Exit> {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let error = match matches(&typed) {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    // Help and errors are printed without the parsed options.
    if typed.iter().take_while(|word| *word != "--").any(|word| word == "--no-color") {
        anstream::ColorChoice::Never.write_global();
    }
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        match wants_json(&typed) {
            true => stdout::json(&about(&error, &typed)),
            false => stdout::with(|_| error.print()),
        }
        return Err(Exit::Done);
    }
    // An error repeats the typed words, which may control the terminal.
    let shown: Vec<OsString> = typed.iter().map(|word| visible(&word.to_string_lossy()).into()).collect();
    let mut error = matches(&shown).err().filter(|again| again.kind() == error.kind()).unwrap_or(error);
    let hint = mistyped::hint(&mut error, &typed);
    if wants_json(&typed) {
        let without_command = [ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, ErrorKind::MissingSubcommand];
        let is_help = without_command.contains(&error.kind());
        let rendered = error.render().to_string();
        // The word is part of the text for people; a document has the message alone.
        let rendered = rendered.strip_prefix("error: ").unwrap_or(&rendered);
        let message = if is_help { "a command is missing" } else { rendered };
        match is_serve(&typed) {
            #[cfg(feature = "serve")]
            true => crate::command::serve::usage_error(message),
            _ => stdout::usage_error(message),
        }
    }
    // A closed stderr cannot be reported.
    let _ = error.print();
    if let Some(hint) = hint {
        crate::render::say!("hint: {hint}");
    }
    Err(Exit::Usage)
}

/// Document for `--help`, as of `etude help`, and for `--version`.
fn about(shown: &clap::Error, typed: &[OsString]) -> Value {
    if shown.kind() == ErrorKind::DisplayVersion {
        return json!({"command": "etude", "version": env!("CARGO_PKG_VERSION")});
    }
    let words: Vec<OsString> = typed.iter().filter(|word| *word != "--help" && *word != "-h").cloned().collect();
    json!({"command": mistyped::command_of(&words), "help": shown.render().to_string()})
}

/// Parses a command line. Only help needs the examples of all commands, which take longer to build than all the rest.
pub(crate) fn matches(words: &[OsString]) -> Result<Cli, clap::Error> {
    if let Some(cli) = of_run(words) {
        return Ok(cli);
    }
    parsed(Cli::command(), words).or_else(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => parsed(args::command(), words),
        _ => Err(error),
    })
}

fn parsed(command: clap::Command, words: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = command.color(clap::ColorChoice::Auto).try_get_matches_from(words)?;
    Cli::from_arg_matches(&matches)
}

/// Parses `etude run` without all other commands. Their options took a third of the instructions of a run of one step. `None` for
/// other commands, for help and for errors, of which all commands are a part.
fn of_run(words: &[OsString]) -> Option<Cli> {
    const NAME: &str = "run";
    if !words.iter().any(|word| word == NAME) {
        return None;
    }
    let command = args::Global::augment_args(clap::Command::new("etude").disable_help_subcommand(true));
    parsed(command.subcommand(args::Run::augment_args(clap::Command::new(NAME))), words).ok()
}

/// True if `--format json` is on a command line that could not be parsed, because a document is promised there too.
fn wants_json(words: &[OsString]) -> bool {
    let is_json = |value: &OsStr| value == "json" || value == "jsonl";
    words.iter().any(|word| word == "--format=json" || word == "--format=jsonl")
        || words.windows(2).any(|pair| pair[0] == "--format" && is_json(&pair[1]))
}

/// True if an invalid command line is one of `etude serve`, which has its own document.
fn is_serve(words: &[OsString]) -> bool {
    let found = Cli::command().ignore_errors(true).try_get_matches_from(words);
    found.is_ok_and(|found| found.subcommand_name() == Some("serve"))
}

/// Refuses commands that servers do not have. The variable applies to every command; those without runs ignore it.
fn on_a_server(context: &Context, command: &Command) -> Option<Problem> {
    let (is_named, deals) = (context.global.server.is_some(), command.deals());
    let is_refused = deals == Deals::Journal && context.is_remote() || deals == Deals::Files && is_named;
    is_refused.then(|| match (is_named, deals) {
        (true, Deals::Journal) => Problem::usage("this command does not work on a server")
            .hint(way_out(command))
            .hint("or run the command on the server's machine, without `--server`"),
        (true, _) => Problem::usage("this command does not work on a server")
            .hint("omit `--server` to run the command on this machine"),
        (false, _) => Problem::usage(format!("`{SERVER}` is set, and this command does not work on a server"))
            .hint(format!("for the journal of this machine, unset it: env -u {SERVER} etude …")),
    })
}

/// Way out of a command on a journal, which servers do not have.
fn way_out(command: &Command) -> &'static str {
    match command {
        Command::Runs(Runs::Export(_)) => "print a run with its steps and effects: etude runs show RUN --format json",
        Command::Runs(Runs::Prune(_)) => "delete single runs: etude runs delete RUN",
        Command::Learn(_) => "the pages of the server show, promote and demote learned pipelines",
        _ => "the server's journal is on its machine",
    }
}

/// Refuses a named configuration that does not exist, even if the command does not need it. A server reports it in its own
/// document.
fn check_config(context: &Context, command: &Command) -> Option<Problem> {
    match command {
        #[cfg(feature = "serve")]
        Command::Serve(_) => None,
        _ => context.global.config.as_deref().and_then(settings::missing),
    }
}

fn dispatch(context: &Context, command: Command) -> Exit {
    if let Some(problem) = check_config(context, &command) {
        return context.report(None, &problem);
    }
    if let Some(problem) = on_a_server(context, &command) {
        return context.report(None, &problem);
    }
    match command {
        Command::Run(args) => command::run::run(context, &args),
        Command::Route(args) => command::route::route(context, &args),
        Command::Check(args) => command::check::check(context, &args),
        Command::List => command::list::list(context),
        Command::Machine(args) => command::machine::machine(context, &args),
        Command::Graph(args) => command::graph::graph(context, &args),
        Command::Test(args) => command::test::test(context, &args),
        Command::Runs(runs) => command::runs::runs(context, &runs),
        Command::Learn(learn) => command::learn::learn(context, &learn),
        Command::Cache(cache) => command::cache::cache(context, &cache),
        Command::Approve(args) => command::decide::approve(context, &args),
        Command::Deny(args) => command::decide::deny(context, &args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => command::serve::serve(context, &args),
        #[cfg(feature = "serve")]
        Command::Mcp(args) => command::serve::mcp(context, &args),
        #[cfg(feature = "serve")]
        Command::Token(token) => command::token::token(context, &token),
        #[cfg(feature = "postgres")]
        Command::Engine(engine) => command::engine::engine(context, &engine),
        #[cfg(feature = "postgres")]
        Command::Push(args) => command::push::push(context, &args),
        #[cfg(feature = "postgres")]
        Command::Bundles(bundles) => command::bundles::bundles(context, &bundles),
        #[cfg(feature = "postgres")]
        Command::Workers => command::workers::workers(context),
        #[cfg(all(feature = "postgres", feature = "serve"))]
        Command::Worker(args) => command::worker::worker(context, &args),
        Command::Apps(apps) => command::apps::apps(context, &apps),
        Command::Skill(skill) => command::skill::skill(context, &skill),
        Command::Host(host) => command::host::host(context, &host),
        Command::Trust(args) => command::trust::trust(context, &args),
        Command::Untrust(args) => command::trust::untrust(context, &args),
        Command::Model(model) => command::model::model(context, &model),
        Command::New(args) => command::new::new(context, &args),
        Command::Convert(args) => command::convert::convert(context, &args),
        Command::Import(args) => command::import::import(context, &args),
        Command::Conversion(step) => command::convert::step::conversion(context, &step),
        Command::Schema(args) => command::schema::schema(args.what),
        Command::Doctor(args) => command::doctor::doctor(context, &args),
        Command::Explain(args) => command::explain::explain(context, &args),
        Command::Help(args) => command::shell::help(context, &args.command),
        Command::Completions(args) => command::shell::completions(context, args.shell),
        Command::Man => command::shell::man(context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `etude run` alone is parsed as with all other commands; these report help and errors.
    #[test]
    fn run_alone_is_parsed_as_with_all_commands() {
        let lines = [
            "run",
            "run -C demo --pipeline hello -i name=Ada",
            "-C run run -p p -q --strict --max-cost 1.5",
            "--format json run hello there",
            "run runs list",
            "run --dry-run -v -- -x",
            "run -p",
            "run --nonsense",
            "run --help",
            "--version run",
            "help run",
            "runs list",
            "-C run runs list",
            "learn run",
            "run -C",
            "--nonsense run",
        ];
        for line in lines {
            let words: Vec<OsString> = format!("etude {line}").split(' ').map(OsString::from).collect();
            let all = parsed(Cli::command(), &words).ok().filter(|cli| matches!(cli.command, Command::Run(_)));
            let text = |cli: Option<Cli>| cli.map(|cli| format!("{cli:?}"));
            assert_eq!(text(of_run(&words)), text(all), "{line}");
        }
    }
}

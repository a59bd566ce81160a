//! Hints for command lines that cannot be parsed.

use std::ffi::OsString;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use etude_core::shell;
use etude_spec::stage_machine::{Machines, Rules};

use crate::args::{self, Cli};
use crate::render::text::visible;

mod update;

/// Options of other programs that select JSON output with the value `json`.
const OUTPUT: [&str; 2] = ["-o", "--output"];

/// Commands that take input parameters.
const WITH_INPUT: [&str; 2] = ["etude run", "etude machine run"];

/// Commands below `etude` that take a request.
const WITH_REQUEST: [&str; 2] = ["run", "route"];

/// Hint for an error of the command line `typed`. Suggestions of the parser that the hint replaces are removed from the error, and
/// internal commands as well.
pub(crate) fn hint(error: &mut clap::Error, typed: &[OsString]) -> Option<String> {
    let hint = elsewhere(error).or_else(|| option(error, typed));
    if hint.is_some() {
        // An empty list would leave an empty line.
        for kind in [ContextKind::SuggestedSubcommand, ContextKind::Suggested] {
            drop(error.remove(kind));
        }
    }
    keep_visible(error, ContextKind::SuggestedSubcommand);
    keep_visible(error, ContextKind::ValidSubcommand);
    hint
}

/// Name of the command on a command line, such as `etude runs list`.
pub(crate) fn command_of(words: &[OsString]) -> String {
    let mut name = "etude".to_owned();
    if let Ok(found) = Cli::command().ignore_errors(true).try_get_matches_from(words) {
        let mut at = &found;
        while let Some((word, below)) = at.subcommand() {
            name.push(' ');
            name.push_str(word);
            at = below;
        }
    }
    name
}

/// Hint for an unknown option: one of other programs, or a parameter of a pipeline or machine.
fn option(error: &clap::Error, typed: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument || error.get(ContextKind::SuggestedArg).is_some() {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let names_json = || typed.iter().any(|word| word.to_string_lossy().ends_with("json"));
    if option == "--json" || OUTPUT.contains(&option.as_str()) && names_json() {
        return Some("print JSON: --format json".to_owned());
    }
    if !option.starts_with('-') {
        return word(option, typed);
    }
    let name = option.strip_prefix("--").filter(|name| !name.is_empty())?;
    let takes_input = WITH_INPUT.contains(&command_of(typed).as_str());
    takes_input.then(|| format!("set an input parameter with -i: -i {name}=VALUE"))
}

/// Hint for one word too many: a parameter without `-i`, or a request without quotes.
fn word(word: &str, typed: &[OsString]) -> Option<String> {
    let command = command_of(typed);
    if word.contains('=') && WITH_INPUT.contains(&command.as_str()) {
        return Some(format!("set an input parameter with -i: -i {}", shell::word(&visible(word))));
    }
    let last = WITH_REQUEST.into_iter().find(|known| command == format!("etude {known}"))?;
    let rest: Vec<_> =
        typed.iter().skip_while(|word| *word != last).skip(1).map(|word| word.to_string_lossy()).collect();
    let request = match rest.iter().any(|word| word.starts_with('-')) {
        true => "'REQUEST'".to_owned(),
        false => shell::word(&visible(&rest.join(" "))),
    };
    Some(format!("put the request in quotes: {command} {request}"))
}

/// Commands of other programs, with the command of etude for the same purpose.
const CUSTOMARY: [(&str, &str); 12] = [
    ("init", "create an app: etude new DIR"),
    ("create", "create an app: etude new DIR"),
    ("start", "run a pipeline: etude run --pipeline NAME; start a server: etude serve"),
    ("exec", "run a pipeline: etude run --pipeline NAME"),
    ("validate", "report every error in the app: etude check"),
    ("ps", "list runs: etude runs list"),
    ("status", "list runs: etude runs list; check the environment: etude doctor"),
    ("logs", "show what the last run did: etude runs show latest"),
    ("rm", "delete runs: etude runs delete RUN; remove old ones: etude runs prune"),
    ("remove", "delete runs: etude runs delete RUN; remove old ones: etude runs prune"),
    ("config", "check the configuration: etude doctor; print its JSON Schema: etude schema config"),
    ("version", "print the version: etude --version"),
];

/// Removes internal commands from the commands that an error lists or suggests.
fn keep_visible(error: &mut clap::Error, kind: ContextKind) {
    let suggested = match error.remove(kind) {
        Some(ContextValue::String(one)) => vec![one],
        Some(ContextValue::Strings(all)) => all,
        _ => return,
    };
    let command = Cli::command();
    let is_hidden = |name: &String| command.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    let visible: Vec<String> = suggested.into_iter().filter(|name| !is_hidden(name)).collect();
    if !visible.is_empty() {
        error.insert(kind, ContextValue::Strings(visible));
    }
}

/// Hint for an unknown command: it is a command of other programs, a subcommand of another command, or a pipeline here.
fn elsewhere(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    if let Some((_, hint)) = CUSTOMARY.iter().find(|(customary, _)| customary == word) {
        return Some((*hint).to_owned());
    }
    if update::WORDS.contains(&word.as_str()) {
        return Some(update::hint());
    }
    let command = args::command();
    // A command like `etude machine list` has the word of one without a group.
    if command.find_subcommand(word).is_some_and(|known| !known.is_hide_set()) {
        return Some(format!("did you mean `etude {word}`?"));
    }
    let groups =
        command.get_subcommands().filter(|group| !group.is_hide_set() && group.find_subcommand(word).is_some());
    let below: Vec<String> = groups.map(|group| format!("`etude {} {word}`", group.get_name())).collect();
    if !below.is_empty() {
        return Some(format!("did you mean {}?", below.join(", ")));
    }
    let app = etude::app::find(&std::env::current_dir().ok()?)?;
    let disk = etude::Disk::open(&app).ok()?;
    if etude_spec::App::new(&disk).discovery().pipelines.contains(word) {
        return Some(format!("run the pipeline `{word}`: etude run --pipeline {word}"));
    }
    let is_machine = Machines::new(&disk, Rules::default()).contains(word);
    is_machine.then(|| format!("run the machine `{word}`: etude machine run {word}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::matches;

    fn refused(word: &str) -> clap::Error {
        matches(&["etude".into(), word.into()]).map(drop).expect_err("there is no such command")
    }

    /// A newcomer types the command that another program has.
    #[test]
    fn commands_of_other_programs_lead_to_those_of_etude() {
        assert_eq!(elsewhere(&refused("init")).as_deref(), Some("create an app: etude new DIR"));
        for (word, hint) in CUSTOMARY {
            assert!(Cli::command().find_subcommand(word).is_none(), "`{word}` is a command");
            let (_, line) = hint.split_once("etude ").expect("a command");
            let name = line.split([' ', ';']).next().unwrap_or_default();
            assert!(name.starts_with("--") || Cli::command().find_subcommand(name).is_some(), "{word}: {hint}");
        }
    }

    /// A newcomer wants a new version.
    #[test]
    fn an_update_is_not_a_route() {
        for line in ["etude update", "etude upgrade", "etude self-update", "etude self update"] {
            let (hint, error) = hinted(line);
            assert!(hint.is_some_and(|hint| hint.starts_with("etude does not update itself; ")), "{line}");
            assert!(!error.contains("tip:"), "{error}");
        }
    }

    #[test]
    fn an_internal_command_is_not_suggested() {
        let suggested = |word: &str| {
            let mut error = refused(word);
            keep_visible(&mut error, ContextKind::SuggestedSubcommand);
            match error.get(ContextKind::SuggestedSubcommand) {
                Some(ContextValue::Strings(all)) => all.clone(),
                _ => Vec::new(),
            }
        };
        assert!(suggested("conversions").iter().all(|name| name != "conversion"));
        let shortened = &"convert"[..6];
        assert!(suggested(shortened).contains(&"convert".to_owned()), "{:?}", suggested(shortened));
        assert!(suggested("checks").contains(&"check".to_owned()), "{:?}", suggested("checks"));
    }

    fn hinted(line: &str) -> (Option<String>, String) {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut error = matches(&words).map(drop).expect_err("it cannot be parsed");
        (hint(&mut error, &words), error.render().to_string())
    }

    /// A newcomer types an option that another program has, or a parameter as an option.
    #[test]
    fn unknown_options_lead_to_those_of_etude() {
        for (line, expected) in [
            ("etude list --json", "print JSON: --format json"),
            ("etude runs list -o json", "print JSON: --format json"),
            ("etude run -p hello --name Ada", "set an input parameter with -i: -i name=VALUE"),
            ("etude machine run triage --who=Ada", "set an input parameter with -i: -i who=VALUE"),
            ("etude run hello name=Ada", "set an input parameter with -i: -i name=Ada"),
            ("etude run sort my mail", "put the request in quotes: etude run 'sort my mail'"),
            ("etude route sort my --mode llm", "put the request in quotes: etude route 'REQUEST'"),
            ("etude machine list", "did you mean `etude list`?"),
            ("etude runs rm latest", "delete runs: etude runs delete RUN; remove old ones: etude runs prune"),
        ] {
            let (hint, error) = hinted(line);
            assert_eq!(hint.as_deref(), Some(expected), "{line}");
            assert!(!error.contains("tip:") && !error.contains("\n\n\n"), "{error}");
        }
        for line in ["etude run -p hello --max-costs 1", "etude doctor --fix", "etude import ci.yml -o ci-app"] {
            assert_eq!(hinted(line).0, None, "{line}");
        }
        let (_, listed) = hinted("etude --app list");
        assert!(listed.contains("convert,") && !listed.contains("conversion"), "{listed}");
    }
}

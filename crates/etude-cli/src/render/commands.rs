//! Commands in hints. They repeat the options with which this command line selects an app, an engine or a server, so that they work
//! as they are printed.

use std::sync::OnceLock;

use etude_core::shell;
use etude_spec::Diagnostic;
use serde_json::{Map, Value};

use super::text::visible;
use crate::args::Global;

/// Commands that use all of the options.
const ALL: [&str; 5] = ["approve", "deny", "machine", "run", "runs"];

/// Commands that use the options of the app, of the configuration and of the engine.
const OF_ENGINE: [&str; 5] = ["cache", "doctor", "learn", "push", "serve"];

/// Commands that use the options of the app and of the configuration.
const OF_APP: [&str; 8] = ["apps", "check", "graph", "list", "model", "route", "skill", "test"];

/// Commands that use the options of the configuration and of the engine: they deal with the database that machines share.
const OF_FLEET: [&str; 4] = ["bundles", "engine", "worker", "workers"];

static OPTIONS: OnceLock<Options> = OnceLock::new();

/// The options of a command line, each with a space after it.
#[derive(Debug, Default)]
struct Options {
    app: String,
    config: String,
    engine: String,
    server: String,
}

impl Options {
    fn new(global: &Global) -> Self {
        let option = |name: &str, value: Option<&str>| {
            value.map_or_else(String::new, |value| format!("{name} {} ", shell::word(&visible(value))))
        };
        let path = |path: &Option<std::path::PathBuf>| path.as_ref().and_then(|path| path.to_str()).map(str::to_owned);
        let url = |url: &Option<String>| url.clone().filter(|url| !has_secret(url));
        Self {
            app: option("-C", path(&global.app).as_deref()),
            config: option("--config", path(&global.config).as_deref()),
            engine: option("--engine", url(&global.engine).as_deref()),
            server: option("--server", url(&global.server).as_deref()),
        }
    }

    fn complete(&self, text: &str) -> String {
        const PROGRAM: &str = "etude ";
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(PROGRAM) {
            let (before, after) = rest.split_at(at + PROGRAM.len());
            out.push_str(before);
            rest = after;
            if before[..at].ends_with(|last: char| last.is_alphanumeric() || "-_./".contains(last)) {
                continue;
            }
            let end = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
            let word = &rest[..end];
            let is_of = |commands: &[&str]| commands.contains(&word);
            let (is_of_server, is_of_fleet) = (is_of(&ALL), is_of(&OF_FLEET));
            let is_of_engine = is_of_server || is_of_fleet || is_of(&OF_ENGINE);
            let is_of_app = is_of_engine && !is_of_fleet || is_of(&OF_APP);
            for (option, is_used) in [
                (&self.app, is_of_app),
                (&self.config, is_of_app || is_of_fleet),
                (&self.engine, is_of_engine),
                (&self.server, is_of_server),
            ] {
                if is_used {
                    out.push_str(option);
                }
            }
        }
        out + rest
    }
}

/// True if a URL contains a password. It is not repeated.
fn has_secret(url: &str) -> bool {
    let authority =
        url.split_once("://").map_or(url, |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) || url.contains("password")
}

/// Keeps the options of this command line for [`complete`].
pub(crate) fn keep(global: &Global) {
    let _ = OPTIONS.set(Options::new(global));
}

/// The text, in which each command has the options of this command line.
pub(crate) fn complete(text: &str) -> String {
    OPTIONS.get().map_or_else(|| text.to_owned(), |options| options.complete(text))
}

/// The diagnostic, in whose hint each command has the options of this command line.
pub(crate) fn in_hint(diagnostic: &Diagnostic) -> Diagnostic {
    let mut completed = diagnostic.clone();
    completed.hint = completed.hint.map(|hint| complete(&hint));
    completed
}

/// The reason of a run's state. The command in it that continues the run has the options of this command line; a failure's own
/// words stay as they are.
pub(crate) fn in_reason(reason: String) -> String {
    if reason.contains("`etude runs resume ") { complete(&reason) } else { reason }
}

/// The document of an effect, in which each command that prints a stream has the options of this command line.
pub(crate) fn with_options(mut effect: Value) -> Value {
    let streams = effect.get_mut("streams").and_then(Value::as_object_mut);
    for command in streams.into_iter().flat_map(Map::values_mut) {
        *command = complete(command.as_str().unwrap_or_default()).into();
    }
    effect
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    fn completed(line: &[&str], text: &str) -> String {
        let words = ["etude"].iter().chain(line).chain(&["list"]);
        Options::new(&Cli::try_parse_from(words).expect("a command line").global).complete(text)
    }

    /// cli: a command in a hint repeats the options that select the app, the engine and the server.
    #[test]
    fn a_command_in_a_hint_repeats_the_options() {
        let fix = "fix it, then run: etude runs resume 1; or: etude runs resume 1 --accept-changes";
        assert_eq!(completed(&[], fix), fix);
        assert_eq!(
            completed(&["-C", "my app", "--format", "json"], fix),
            "fix it, then run: etude -C 'my app' runs resume 1; or: etude -C 'my app' runs resume 1 --accept-changes"
        );
        let server = ["--server", "http://127.0.0.1:3883", "--config", "c.yaml"];
        assert_eq!(
            completed(&server, "list them with `etude runs list`"),
            "list them with `etude --config c.yaml --server http://127.0.0.1:3883 runs list`"
        );
        assert_eq!(completed(&server, "see it: etude learn show x"), "see it: etude --config c.yaml learn show x");
        for other in
            ["explain it: etude explain R0102", "pass it: etude -C DIR runs resume 1", "in /etude runs on", "etude"]
        {
            assert_eq!(completed(&server, other), other);
        }
    }

    /// cli: a command of a fleet has the configuration and the database, and no app.
    #[test]
    fn commands_of_a_fleet_repeat_the_database() {
        let line = ["-C", "demo", "--config", "c.yaml", "--engine", "postgres://host/db"];
        for (text, expected) in [
            ("run `etude engine migrate`", "run `etude --config c.yaml --engine postgres://host/db engine migrate`"),
            ("more: etude bundles list", "more: etude --config c.yaml --engine postgres://host/db bundles list"),
            ("see: etude workers", "see: etude --config c.yaml --engine postgres://host/db workers"),
            ("store it: etude push", "store it: etude -C demo --config c.yaml --engine postgres://host/db push"),
            ("list them: etude model list", "list them: etude -C demo --config c.yaml model list"),
        ] {
            assert_eq!(completed(&line, text), expected);
        }
    }

    /// cli: a hint shows no password.
    #[test]
    fn a_password_is_not_repeated() {
        let text = "etude runs list";
        for url in ["postgres://a:secret@host/db", "postgres://host/db?password=secret"] {
            assert_eq!(completed(&["--engine", url], text), text);
        }
        assert_eq!(
            completed(&["--engine", "postgres://a@host/db"], text),
            "etude --engine postgres://a@host/db runs list"
        );
    }
}

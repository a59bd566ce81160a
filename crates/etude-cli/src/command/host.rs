//! `etude host`: what a code tool asks of the session that runs it, from any shell.

use std::path::Path;

use clap::Subcommand;
use etude_invoke::script_host::{self as wire, Ask};
use etude_spec::cascade::overrides::parsed;
use serde_json::{Number, Value};

use crate::context::{Context, Problem};
use crate::exit::Exit;
use crate::stdout;

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Host {
    /// Call another skill and print its result
    Invoke {
        /// The skill
        name: String,
        /// The arguments as a JSON object
        #[arg(long, value_name = "JSON", default_value = "{}")]
        args: String,
    },
    /// Run the rest of the chain and print the target's result
    Next,
    /// Print a value of the target's context
    Get {
        /// The path of the value, such as `args.who` or `run.tool.metadata`
        path: String,
    },
    /// Set a value in the target's context
    Set {
        /// The path of the value, below `locals`, `nonlocals`, `run.tool` or `globals`
        path: String,
        /// The value as JSON
        json: String,
    },
    /// Add to a number in the target's context in one request and print the sum
    ///
    /// A limit of 4 calls in a run is one line of a skill's program:
    /// `etude host add globals.calls 1 --max 4 >/dev/null || exit 1`
    Add {
        /// The path of the number, as for `set`; a missing value counts as 0
        path: String,
        /// The number to add
        #[arg(default_value = "1", allow_negative_numbers = true)]
        by: Number,
        /// Refuse what would exceed this: nothing is changed, and the exit status is 1
        #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
        max: Option<Number>,
    },
    /// Emit an event on a topic
    Emit {
        /// The topic
        topic: String,
        /// The payload as JSON
        #[arg(default_value = "null")]
        json: String,
    },
    /// Ask the user a question and print the answer
    Ask {
        /// The question as JSON: a string, or `{"question", "options"}`
        json: String,
    },
    /// Write a line to the log
    Log {
        /// The level: `trace`, `debug`, `info`, `warn` or `error`
        level: String,
        /// The line
        text: String,
    },
}

pub(crate) fn host(context: &Context, host: &Host) -> Exit {
    let Some(socket) = std::env::var_os(wire::VARIABLE) else {
        let problem = Problem::usage("`ETUDE_HOST` is not set: only a code tool that `etude` runs has a host");
        return context.report(None, &problem);
    };
    let prints =
        matches!(host, Host::Invoke { .. } | Host::Next | Host::Get { .. } | Host::Add { .. } | Host::Ask { .. });
    match wire::ask(Path::new(&socket), &request(host).json()) {
        Err(error) => context.report(None, &Problem::environment(format!("the host does not answer: {error}"))),
        Ok(answer) => match wire::outcome(&answer) {
            Ok(value) => {
                if prints {
                    stdout::json(&value.unwrap_or(Value::Null));
                }
                Exit::Done
            }
            // The last line of stderr is what a code tool throws.
            Err(throw) => {
                crate::render::say!("{}", throw.message);
                Exit::Failed
            }
        },
    }
}

fn request(host: &Host) -> Ask {
    match host {
        Host::Invoke { name, args } => Ask::Invoke { name: name.clone(), args: parsed(args) },
        Host::Next => Ask::Next,
        Host::Get { path } => Ask::Get(path.clone()),
        Host::Set { path, json } => Ask::Set(path.clone(), parsed(json)),
        Host::Add { path, by, max } => Ask::Add { path: path.clone(), by: by.clone(), max: max.clone() },
        Host::Emit { topic, json } => Ask::Emit(topic.clone(), parsed(json)),
        Host::Ask { json } => Ask::Question(parsed(json)),
        Host::Log { level, text } => Ask::Log { level: level.clone(), text: text.clone() },
    }
}

//! `etude host`: requests of a code tool to its session, from any shell.

use std::path::Path;

use etude_invoke::script_host::{self as wire, Ask};
use etude_spec::cascade::overrides::parsed;
use serde_json::Value;

use crate::args::Host;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::stdout;

pub(crate) fn host(context: &Context, host: &Host) -> Exit {
    let Some(socket) = std::env::var_os(wire::VARIABLE) else {
        let problem = Problem::usage("`ETUDE_HOST` is not set: only a code tool that `etude` runs has a host");
        return context.report(None, &problem);
    };
    let prints =
        matches!(host, Host::Invoke { .. } | Host::Next | Host::Get { .. } | Host::Add { .. } | Host::Ask { .. });
    match wire::ask(Path::new(&socket), &request(host).json()) {
        Err(error) => context.report(None, &Problem::environment(format!("the host does not respond: {error}"))),
        Ok(answer) => match wire::outcome(&answer) {
            Ok(value) => {
                if prints {
                    stdout::json(&value.unwrap_or(Value::Null));
                }
                Exit::Done
            }
            // The last line of stderr is the exception that the code tool throws.
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

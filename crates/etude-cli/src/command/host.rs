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
    if let Some(problem) = given(host).and_then(Problem::of_rounded) {
        return context.report(None, &problem);
    }
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

/// The JSON of a request, which becomes a tree.
fn given(host: &Host) -> Option<&str> {
    match host {
        Host::Invoke { args: json, .. } | Host::Set { json, .. } | Host::Emit { json, .. } | Host::Ask { json } => {
            Some(json)
        }
        Host::Next | Host::Get { .. } | Host::Add { .. } | Host::Log { .. } => None,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// D-7.3: a request with a number that the session would round is refused: another id is another call.
    #[test]
    fn a_number_that_would_be_rounded_is_refused() {
        let json = r#"{"id":12345678901234567890123}"#.to_owned();
        let invoke = Host::Invoke { name: "pay".to_owned(), args: json.clone() };
        for host in [invoke, Host::Set { path: "locals.a".to_owned(), json: json.clone() }, Host::Ask { json }] {
            let problem = given(&host).and_then(Problem::of_rounded).expect("it would be another id");
            assert!(problem.message().contains("12345678901234567890123"), "{}", problem.message());
        }
        assert!(given(&Host::Ask { json: r#"{"n":1.50}"#.to_owned() }).and_then(Problem::of_rounded).is_none());
    }
}

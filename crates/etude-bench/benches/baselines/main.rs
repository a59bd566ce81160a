//! The whole program against its baselines: the same work without a runner, measured alternately in the same session, so that
//! both meet the same noise. The quoted figure is the ratio of medians.
//!
//! `baselines [SCENARIO...]` beside `etude`, or with `ETUDE_BIN`. With `--json` it prints one document a line, for `bench/run`.

#![expect(clippy::disallowed_methods, reason = "a baseline is a program without the host")]

mod apps;
mod calls;
mod client;
mod commands;
mod durable;
mod fleet;
mod learned;
mod measure;
mod processes;
mod resume;
mod runs;
mod serve;
mod server;

use std::path::Path;

// The allocator of the program, since some scenarios run in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A scenario: its name, and the function that measures it.
type Scenario = (&'static str, fn(&mut measure::Report, &Path));

const SCENARIOS: &[Scenario] = &[
    ("start", commands::start),
    ("list", commands::list),
    ("skills", commands::skills),
    ("check", commands::check),
    ("route", commands::route),
    ("one", processes::one),
    ("steps", processes::steps),
    ("data", processes::data),
    ("python", processes::python),
    ("sandbox", processes::sandbox),
    ("learned", learned::learned),
    ("resume", resume::resume),
    ("durable", durable::durable),
    ("schema", durable::schema),
    ("llm", calls::llm),
    ("llm/strict", calls::strict),
    ("concurrent", runs::concurrent),
    ("concurrent/100", runs::hundred),
    ("serve/get", serve::get),
    ("serve/list", serve::list),
    ("serve/post", serve::post),
    ("serve/starts", serve::starts),
    ("serve/tool", serve::tool),
    ("serve/listening", serve::listening),
    ("serve/idle", serve::idle),
    ("serve/streams", serve::streams),
    ("serve/catch-up", serve::catch_up),
    ("fleet/append", fleet::append),
    ("fleet/queue", fleet::queue),
    ("fleet/workers", fleet::workers),
    ("fleet/example", fleet::example),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some((child, rest)) = args.split_first()
        && child.starts_with("--child-")
    {
        return match child.as_str() {
            "--child-routes" | "--child-writer" => serve::child(child, rest),
            _ => runs::child(child, rest),
        };
    }
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    if let Some(unknown) = wanted.iter().find(|name| !SCENARIOS.iter().any(|(known, _)| *known == name.as_str())) {
        let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no scenario `{unknown}`; there are: {}", known.join(", "));
        std::process::exit(2);
    }
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let mut report = measure::Report::new(args.iter().any(|arg| arg == "--json"), is_quick);
    for (name, scenario) in SCENARIOS {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            let dir = tempfile::tempdir().expect("a temporary directory");
            scenario(&mut report, dir.path());
        }
    }
}

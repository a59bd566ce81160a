//! The binary as its users meet it: files in, exit status, stdout and stderr out.

#![expect(clippy::disallowed_methods, reason = "tests start programs to look at this one from outside")]

// What the tests are made with.
#[cfg(all(unix, feature = "postgres"))]
#[path = "../../../etude-postgres/tests/it/server.rs"]
#[allow(dead_code, reason = "the tests of the engine use more of it")]
mod database; // a PostgreSQL server for one test, as the tests of the engine have it
#[cfg(all(unix, feature = "postgres", feature = "serve"))]
#[path = "../../../etude-postgres/tests/it/moto.rs"]
#[allow(dead_code, reason = "the tests of the engine use more of it")]
mod moto; // a server of buckets, as the tests of the engine have it

mod echo_box; // a package that exercises a runtime, and its variants
#[path = "../../../etude-models/tests/it/loopback.rs"]
mod loopback; // HTTP for scripted servers, as the tests of the models crate have it
mod mcp_server; // a server on stdin and stdout around one tool
mod queue; // runs that another program has queued
mod ran; // what a process left behind, and claims about it
mod redact; // what differs from run to run is taken out of texts and documents
mod server; // a scripted model server on loopback
mod test; // an app, a home and an environment for one test

// What holds, by clause and by command.
mod accounting; // what runs cost: usage, prices, budgets
mod application_calls; // applications called from pipelines and by agents
mod applications; // packages with an APP.md: their catalog and their commands
mod approvals; // approval steps, answered from another process
mod attempts; // runs that did not succeed, and are continued
mod authoring; // check, explain, schema, list, graph, new, completions, man, help
mod caches; // outputs of earlier runs
mod canary; // keys are nowhere in what runs of all kinds leave behind
mod cancellation; // Ctrl-C, SIGTERM, and `runs cancel`
mod cascade; // skills that are tools, and the chains that their calls pass
mod cases; // tests with recorded calls and answers
mod chains; // one chain for the whole program
#[cfg(all(unix, feature = "serve"))]
mod clients; // commands that deal with the runs of a server
mod code_steps; // what code steps are given, print, and how they end
mod completions; // what shells offer while a command line is typed
mod configuration; // files, environment and flags, and who wins
mod confirmations; // what people approve before packages are read and run
mod consent; // where keys go when an app configures hosts
#[cfg(target_os = "linux")]
mod convert; // a skill becomes an app
mod crash; // kill -9 at every write, and what a resume makes of it
mod definitions; // what a pipeline.yaml may say
mod discovery; // which app is found, and which pipelines it has
mod displays; // whole texts that people read about failed runs
mod doctor; // what is wrong with the environment
mod dry_runs; // what would run
mod exits; // exit statuses, stdout and stderr of every way to end
mod extensions; // conditions, fan-out, groups, sub-pipelines, retries, time limits
#[cfg(all(unix, feature = "postgres", feature = "serve"))]
mod failover; // a fleet whose database is taken over by its standby
mod fallback; // pipelines that deviate and continue in skill mode
mod faults; // disks, journals, clocks and limits that fail around a run
#[cfg(all(unix, feature = "postgres"))]
mod fleet; // runs in a database that machines share
#[cfg(all(target_os = "linux", feature = "postgres", feature = "serve"))]
mod fleet_apart; // what runs of untrusted queues see of each other
#[cfg(all(unix, feature = "postgres", feature = "serve"))]
mod fleet_commands; // what commands do with them
#[cfg(all(unix, feature = "postgres", feature = "serve"))]
mod fleet_limits; // its queues and tenants, and what they limit
#[cfg(all(unix, feature = "postgres", feature = "serve"))]
mod fleet_tenants; // who sees them
#[cfg(all(unix, feature = "postgres", feature = "serve"))]
mod fleet_times; // runs that sleep, and schedules of several servers
#[cfg(all(unix, feature = "postgres", feature = "serve"))]
mod fleet_values; // large values in object storage
#[cfg(all(unix, feature = "postgres", feature = "serve"))]
mod fleet_workers; // who drives them
mod gone; // runs whose app or pipeline is gone
mod guards; // guards of the configuration and calls outside of machines
mod help; // help, words that are no command, and what usage errors repeat
#[cfg(unix)]
mod hostile; // how hostile tests bound what they run
#[cfg(unix)]
mod hostile_files; // bombs, pipes, devices, links and names in an app
#[cfg(unix)]
mod hostile_outputs; // what steps and models say
mod hostile_plans; // small definitions that describe very much
#[cfg(unix)]
mod hostile_programs; // programs around steps that print without end
#[cfg(unix)]
mod hostile_terminal; // what of it reaches a terminal
mod inputs; // what is given to a pipeline on the command line
mod layers; // hooks, events, schemas and skills of chains; what is observed, and what is pinned
mod learn; // what is kept of runs in skill mode to learn from
mod learned; // pipelines that are made of runs in skill mode
#[cfg(unix)]
mod learned_calls; // learned pipelines as tools of agents, and command lines
#[cfg(unix)]
mod learned_servers; // learned pipelines that call tools of MCP servers
mod llm_steps; // prompts, answers, validation and the conversation about it
#[cfg(feature = "local-model")]
mod local_model; // the model that needs no key, and `etude model`
mod looks; // what commands that only look at an app leave alone
mod machines; // stages: grants, guards, gates, fan-out, crashes
#[cfg(all(unix, feature = "serve"))]
mod mcp; // pipelines as tools of agents
mod mcp_tools; // tools of MCP servers
mod outputs; // what stdout prints of an output
mod providers; // the way to a provider, and what goes wrong on it
mod reopened; // runs that failed for what was not there, and go on when it is
mod resumes; // what a resume does again, and when it refuses
mod routing; // requests in words
mod runs; // the journal as commands show it
#[cfg(target_os = "linux")]
mod sandbox; // what keeps a step in, what a step still can, and where nothing can be enforced
#[cfg(target_os = "linux")]
mod sandbox_links; // sandboxes whose paths are swapped for links while they are made
mod scope; // constructor and destructor
mod secrets; // where keys never are
#[cfg(all(unix, feature = "serve"))]
mod serve; // the server and its tokens as commands
#[cfg(all(unix, feature = "serve"))]
mod served; // what reading leaves alone, what a full disk allows, what the configuration changes
mod skill_mode; // an app's SKILL.md, followed by an agent with tools
mod skill_runs; // how runs in skill mode end, resume, and are reported
mod skills; // SKILL.md: lists, checks, the catalog, activations
#[cfg(all(unix, feature = "postgres", feature = "serve"))]
mod soak; // a fleet under random faults
mod states; // shadow, assisted, active, demoted: learned pipelines
mod streaming; // events as they come
#[cfg(all(unix, feature = "serve"))]
mod streams; // what streams of a server cost
#[cfg(all(unix, feature = "otel", feature = "serve"))]
mod telemetry; // spans of runs, as a collector receives them
mod terminal; // what a terminal shows while a run goes on
mod tool_approvals; // tool calls that somebody has to allow
mod tool_steps; // steps that call tools
mod transfer; // runs on their way between journals and databases
#[cfg(unix)]
mod trust_changes; // what of an approved package can change

/// A file that no module names would compile nowhere, and its tests would run nowhere.
#[test]
fn every_file_of_this_directory_is_a_module() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = include_str!("main.rs");
    for entry in std::fs::read_dir(dir).expect("the directory is there") {
        let name = entry.expect("it can be read").file_name().into_string().expect("names are UTF-8");
        let module = name.trim_end_matches(".rs");
        assert!(module == "main" || main.contains(&format!("\nmod {module};")), "main.rs does not name `{name}`");
    }
}

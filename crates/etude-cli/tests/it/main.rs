//! The binary from its users' perspective: files in, exit status, stdout and stderr out.

#![expect(clippy::disallowed_methods, reason = "tests start programs to look at this one from outside")]

// Support modules of the tests.
#[cfg(feature = "postgres")]
#[path = "../../../etude-postgres/tests/it/server.rs"]
#[allow(dead_code, reason = "the tests of the engine use more of it")]
mod database; // a PostgreSQL server for one test, as the tests of the engine have it
mod middleware; // middleware of runs and skills: observers, reports, later values, parts of a definition
#[cfg(all(feature = "postgres", feature = "serve"))]
#[path = "../../../etude-postgres/tests/it/moto.rs"]
#[allow(dead_code, reason = "the tests of the engine use more of it")]
mod moto; // a bucket server, as the tests of the engine have it

mod echo_box; // a package that exercises a runtime, and its variants
#[path = "../../../etude-models/tests/it/loopback.rs"]
mod loopback; // HTTP for scripted servers, as the tests of the models crate have it
mod mcp_server; // a server on stdin and stdout around one tool
mod queue; // runs that another program has queued
mod ran; // the result of a process, and checks of it
mod redact; // removal of the parts of texts and documents that differ from run to run
mod server; // a scripted model server on loopback
mod test; // an app, a home and an environment for one test

// Tests by clause and by command.
mod accounting; // cost of runs: usage, prices, budgets
mod application_calls; // applications called from pipelines and by agents
mod applications; // packages with an APP.md: their catalog and their commands
mod approvals; // approval steps, answered from another process
mod attempts; // failed runs that are continued
mod authoring; // check, explain, schema, list, graph, new, completions, man, help
mod caches; // outputs of earlier runs
mod canary; // absence of keys from everything that runs of all kinds write
mod cancellation; // Ctrl-C, SIGTERM, and `runs cancel`
mod cascade; // skills as tools, and the chains of their calls
mod cases; // tests with recorded calls and replies
mod chains; // one chain for the whole program
#[cfg(feature = "serve")]
mod clients; // commands for the runs of a server
mod code_steps; // input, output and end of code steps
mod completions; // candidates that shells list while a command line is typed
mod configuration; // files, environment and flags, and their precedence
mod confirmations; // approvals by people before packages are read and run
mod consent; // destinations of keys when an app configures hosts
#[cfg(target_os = "linux")]
mod convert; // conversion of a skill to an app
mod crash; // kill -9 at every write, and the resume after it
mod definitions; // permitted contents of a pipeline.yaml
mod discovery; // discovery of the app and its pipelines
mod displays; // complete texts that people read about failed runs
mod doctor; // problems of the environment
mod dry_runs; // plans of runs
mod exits; // exit statuses, stdout and stderr of every way to end
mod extensions; // conditions, fan-out, groups, sub-pipelines, retries, time limits
#[cfg(all(feature = "postgres", feature = "serve"))]
mod failover; // a fleet whose standby takes over its database
mod fallback; // pipelines that deviate and continue in skill mode
mod faults; // disks, journals, clocks and limits that fail around a run
#[cfg(feature = "postgres")]
mod fleet; // runs in a database that machines share
#[cfg(all(target_os = "linux", feature = "postgres", feature = "serve"))]
mod fleet_apart; // isolation of runs in untrusted queues
#[cfg(all(feature = "postgres", feature = "serve"))]
mod fleet_commands; // commands for runs of a fleet
#[cfg(all(feature = "postgres", feature = "serve"))]
mod fleet_limits; // limits of queues and tenants
#[cfg(all(feature = "postgres", feature = "serve"))]
mod fleet_tenants; // visibility of runs to tenants
#[cfg(all(feature = "postgres", feature = "serve"))]
mod fleet_times; // runs that sleep, and schedules of several servers
#[cfg(all(feature = "postgres", feature = "serve"))]
mod fleet_values; // large values in object storage
#[cfg(all(feature = "postgres", feature = "serve"))]
mod fleet_workers; // workers that drive the runs of a fleet
mod gone; // runs whose app or pipeline is missing
mod guards; // guards of the configuration and calls outside of machines
mod help; // help, words that are not commands, and the text that usage errors repeat
mod hostile; // bounds of hostile tests
mod hostile_files; // bombs, pipes, devices, links and names in an app
mod hostile_outputs; // hostile output of steps and models
mod hostile_plans; // small definitions of very large plans
mod hostile_programs; // programs around steps that print without end
mod hostile_terminal; // hostile output at a terminal
mod inputs; // input of a pipeline on the command line
mod learn; // records of runs in skill mode for learning
mod learned; // pipelines learned from runs in skill mode
mod learned_calls; // learned pipelines as tools of agents, and command lines
mod learned_servers; // learned pipelines that call tools of MCP servers
mod llm_steps; // prompts, completions, validation and the conversation about it
#[cfg(feature = "local-model")]
mod local_model; // the model without a key, and `etude model`
mod looks; // commands that inspect an app without changing anything
mod machines; // stages: grants, guards, gates, fan-out, crashes
#[cfg(feature = "serve")]
mod mcp; // pipelines as tools of agents
mod mcp_tools; // tools of MCP servers
mod outputs; // outputs on stdout
mod providers; // requests to a provider, and their failures
mod reopened; // runs that failed for a missing dependency, and continue once it is there
mod resumes; // steps that a resume repeats, and refusals
mod routing; // requests in words
mod runs; // the journal as commands show it
#[cfg(target_os = "linux")]
mod sandbox; // limits of a step, permitted actions, and machines without enforcement
#[cfg(target_os = "linux")]
mod sandbox_links; // sandboxes whose paths are replaced with links while they are made
mod scope; // constructor and destructor
mod secrets; // places where keys never appear
#[cfg(feature = "serve")]
mod serve; // the server and its tokens as commands
#[cfg(feature = "serve")]
mod served; // reads without changes, a full disk, and the configuration
mod skill_mode; // an app's SKILL.md, followed by an agent with tools
mod skill_runs; // end, resume and reports of runs in skill mode
mod skills; // SKILL.md: lists, checks, the catalog, activations
#[cfg(all(feature = "postgres", feature = "serve"))]
mod soak; // a fleet under random faults
mod states; // shadow, assisted, active, demoted: learned pipelines
mod streaming; // events as they occur
#[cfg(feature = "serve")]
mod streams; // cost of the streams of a server
#[cfg(all(feature = "otel", feature = "serve"))]
mod telemetry; // spans of runs, as a collector receives them
mod terminal; // output at a terminal during a run
mod tool_approvals; // tool calls that need an approval
mod tool_steps; // steps that call tools
mod transfer; // runs on their way between journals and databases
mod trust_changes; // changes of an approved package

/// A file that no module names would not compile, and its tests would not run.
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

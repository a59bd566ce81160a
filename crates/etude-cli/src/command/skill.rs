//! `etude skill`: skills, one file per subcommand.

mod explain;
mod graph;
mod project;
mod run;
mod watch;

use std::ffi::OsString;

use clap::Subcommand;
use etude::cascade::around::LayerSettings;

use crate::context::Context;
use crate::exit::Exit;

/// What can be done with skills.
#[derive(Debug, Subcommand)]
pub(crate) enum Skill {
    /// Show what a skill's metadata adds up to, and the chain that its calls pass
    Explain(explain::Explain),
    /// Draw the levels and the chain of a skill
    Graph(graph::Graph),
    /// Call a skill through its chain
    Run(run::Run),
}

pub(crate) fn skill(context: &Context, skill: &Skill) -> Exit {
    let (name, done) = match skill {
        Skill::Explain(args) => (&args.name, explain::explain(context, args)),
        Skill::Graph(args) => (&args.name, graph::graph(context, args)),
        Skill::Run(args) => (&args.name, run::run(context, args)),
    };
    done.unwrap_or_else(|refused| match refused {
        project::Refused::Problem(problem) => context.report(Some(name), &problem),
        project::Refused::Invalid(diagnostics) => project::invalid(context, &diagnostics),
    })
}

/// What layers and code tools get: a place for sockets, and a `PATH` on which they find this program.
pub(crate) fn layer_settings() -> LayerSettings {
    LayerSettings { scratch: std::env::temp_dir(), extra_env: own_place().into_iter().collect() }
}

/// `PATH` with the directory of this program at its end: scripts say `etude host`.
fn own_place() -> Option<(String, OsString)> {
    let own = std::env::current_exe().ok()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).chain(own.parent().map(std::path::Path::to_owned));
    Some(("PATH".to_owned(), std::env::join_paths(all).ok()?))
}

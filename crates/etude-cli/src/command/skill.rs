//! `etude skill`: skills, one file per subcommand.

mod explain;
mod graph;
mod project;
mod run;
mod watch;

use clap::Subcommand;

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

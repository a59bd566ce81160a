//! One file per command.

pub(crate) mod check;
pub(crate) mod decide;
pub(crate) mod explain;
pub(crate) mod graph;
pub(crate) mod host;
pub(crate) mod list;
pub(crate) mod new;
pub(crate) mod route;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schema;
pub(crate) mod shell;
pub(crate) mod skill;
pub(crate) mod test;

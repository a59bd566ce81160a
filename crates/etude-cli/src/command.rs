//! Commands of the command line, one file each.

pub(crate) mod apps;
#[cfg(feature = "postgres")]
pub(crate) mod bundles;
pub(crate) mod by_path;
pub(crate) mod cache;
pub(crate) mod check;
pub(crate) mod convert;
pub(crate) mod decide;
pub(crate) mod doctor;
#[cfg(feature = "postgres")]
pub(crate) mod engine;
pub(crate) mod explain;
pub(crate) mod graph;
pub(crate) mod host;
pub(crate) mod import;
pub(crate) mod learn;
pub(crate) mod list;
pub(crate) mod machine;
pub(crate) mod model;
pub(crate) mod new;
#[cfg(feature = "postgres")]
pub(crate) mod push;
pub(crate) mod route;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schema;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod skill;
pub(crate) mod test;
#[cfg(feature = "serve")]
pub(crate) mod token;
pub(crate) mod trust;
pub(crate) mod user;
#[cfg(all(feature = "postgres", feature = "serve"))]
pub(crate) mod worker;
#[cfg(feature = "postgres")]
pub(crate) mod workers;

pub(crate) use user::name as user_name;

/// Parses a label as typed: `KEY=VALUE`.
pub(crate) fn label(text: &str) -> Result<(String, String), crate::problem::Problem> {
    let pair = text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    let none = || crate::problem::Problem::usage(format!("`--label {text}` has no `=`"));
    pair.ok_or_else(|| none().hint("write it as --label KEY=VALUE"))
}

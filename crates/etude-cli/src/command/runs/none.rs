//! The message of a list of runs that is empty: the filter that matches no run, and similar names.

use std::collections::BTreeSet;

use etude_runs::target::Target;
use etude_runtime::clock;
use etude_runtime::engine::Query;
use etude_spec::stage_machine::{Machines, Rules};
use etude_spec::{App, did_you_mean};

use super::find::app_of;
use super::list::{of_status, since_ms};
use super::remote::target_filter;
use crate::args;
use crate::context::Context;
use crate::problem::Problem;
use crate::remote::Remote;
use crate::render::stopped::of_engine;
use crate::render::text::harmless;

/// Number of the newest runs whose targets are suggested.
const SUGGESTED: u32 = 200;

/// A message, and the hint below it.
pub(super) type Said = (String, Option<String>);

/// One filter of `etude runs list`.
#[derive(Debug, Clone, Copy)]
enum Filter<'a> {
    Pipeline(&'a str),
    Tenant(&'a str),
    Status(&'a str),
    Label(&'a str),
    Since(u64),
    CreatedAfter(i64),
}

impl Filter<'_> {
    /// The filter as a part of a sentence about runs.
    fn words(&self) -> String {
        match self {
            Self::Pipeline(name) => format!("of `{}`", harmless(name)),
            Self::Tenant(name) => format!("of tenant `{}`", harmless(name)),
            Self::Status(status) => format!("with status `{status}`"),
            Self::Label(label) => format!("with label `{}`", harmless(label)),
            Self::Since(ago) => format!("that started after {}", clock::local(since_ms(*ago))),
            Self::CreatedAfter(at) => format!("that were created at or after {}", clock::rfc3339(*at)),
        }
    }
}

/// Access to the runs of the journal, or of a server.
enum Runs<'a> {
    Journal { app: Option<String> },
    Server(&'a Remote),
}

impl Runs<'_> {
    fn of<'a>(context: &Context, remote: Option<&'a Remote>, all: bool) -> Runs<'a> {
        match remote {
            Some(remote) => Runs::Server(remote),
            None => Runs::Journal { app: app_of(context, all) },
        }
    }

    /// True if no run matches the filter, or if there is no run at all.
    fn has_none(&self, context: &Context, filter: Option<Filter<'_>>) -> Result<bool, Problem> {
        match self {
            Self::Journal { app } => {
                let query = Query { apps: app.iter().cloned().collect(), limit: Some(1), ..Query::default() };
                let query = match filter {
                    None => query,
                    Some(Filter::Pipeline(name)) => Query { target: Some(name.to_owned()), ..query },
                    Some(Filter::Tenant(name)) => Query { tenant: Some(name.to_owned()), ..query },
                    Some(Filter::Status(status)) => of_status(query, Some(status)),
                    Some(Filter::Label(label)) => Query { labels: vec![crate::command::label(label)?], ..query },
                    Some(Filter::Since(ago)) => Query { created_since_ms: Some(since_ms(ago)), ..query },
                    Some(Filter::CreatedAfter(at)) => Query { created_since_ms: Some(at), ..query },
                };
                let engine = context.engine(false)?;
                Ok(engine.list(&query).map_err(|e| of_engine(&e))?.is_empty())
            }
            Self::Server(remote) => {
                let mut query = remote.of_app();
                query.push(("limit", "1".to_owned()));
                match filter {
                    Some(Filter::Pipeline(name)) => query.extend(target_filter(Some(name))?),
                    Some(Filter::Status(status)) => query.push(("status", status.to_owned())),
                    Some(Filter::Since(ago)) => query.push(("since", clock::rfc3339(since_ms(ago)))),
                    // A server has no other filter.
                    Some(Filter::Tenant(_) | Filter::Label(_) | Filter::CreatedAfter(_)) | None => {}
                }
                Ok(remote.list("/v1/runs", &query, "runs")?.0.is_empty())
            }
        }
    }

    /// The targets of runs, and those of the app's definitions.
    fn targets(&self, context: &Context) -> Result<BTreeSet<String>, Problem> {
        let mut names = BTreeSet::new();
        match self {
            Self::Journal { app } => {
                if let Ok(disk) = context.disk() {
                    let (pipelines, _) = App::new(&disk).summaries();
                    names.extend(pipelines.into_iter().map(|pipeline| pipeline.name));
                    let machines = Machines::new(&disk, Rules::default()).summaries();
                    names.extend(machines.into_iter().map(|machine| Target::Machine(machine.name).to_string()));
                }
                let apps = app.iter().cloned().collect();
                let query = Query { apps, limit: Some(SUGGESTED), ..Query::default() };
                let rows = context.engine(false)?.list(&query).map_err(|e| of_engine(&e))?;
                names.extend(rows.into_iter().map(|row| row.target));
            }
            Self::Server(remote) => {
                // Without a single app there is no list of names.
                if let Ok(app) = remote.app() {
                    names.extend(crate::command::run::remote::names(remote, &app, "pipelines")?);
                    let machines = crate::command::run::remote::names(remote, &app, "machines")?;
                    names.extend(machines.into_iter().map(|name| Target::Machine(name).to_string()));
                }
            }
        }
        Ok(names)
    }
}

/// The message of an empty list with the filters of `args`; `None` if the runs have no filter.
pub(super) fn of_list(
    context: &Context,
    remote: Option<&Remote>,
    args: &args::RunsList,
) -> Result<Option<Said>, Problem> {
    if args.after.is_some() {
        return Ok(Some(("no more runs".to_owned(), None)));
    }
    let filters: Vec<Filter<'_>> = (args.pipeline.as_deref().map(Filter::Pipeline).into_iter())
        .chain(args.tenant.as_deref().map(Filter::Tenant))
        .chain(args.status.as_deref().map(Filter::Status))
        .chain(args.labels.iter().map(|label| Filter::Label(label)))
        .chain(args.since.map(Filter::Since))
        .chain(args.created_after.map(Filter::CreatedAfter))
        .collect();
    if let Some(name) = &args.pipeline
        && let Some(said) = of_pipeline(context, remote, args.all, name)?
    {
        return Ok(Some(said));
    }
    let runs = Runs::of(context, remote, args.all);
    if filters.is_empty() || runs.has_none(context, None)? {
        return Ok(None);
    }
    let mut alone = Vec::new();
    for filter in &filters {
        if runs.has_none(context, Some(*filter))? {
            alone.push(*filter);
        }
    }
    // If each filter matches some run, none matches all of them.
    let named = if alone.is_empty() { filters } else { alone };
    let words: Vec<String> = named.iter().map(Filter::words).collect();
    Ok(Some((format!("no runs {}", words.join(" ")), None)))
}

/// The message if no run is of the pipeline `name`, with a similar name if there is no such pipeline; `None` if it has runs.
pub(super) fn of_pipeline(
    context: &Context,
    remote: Option<&Remote>,
    all: bool,
    name: &str,
) -> Result<Option<Said>, Problem> {
    let runs = Runs::of(context, remote, all);
    if !runs.has_none(context, Some(Filter::Pipeline(name)))? {
        return Ok(None);
    }
    let targets = runs.targets(context)?;
    let message = format!("no runs {}", Filter::Pipeline(name).words());
    let elsewhere = || match runs {
        Runs::Journal { app: Some(_) } => Some("runs of every app: etude runs list --all".to_owned()),
        _ => None,
    };
    Ok(Some(match similar(name, &targets) {
        _ if targets.contains(name) => (message, elsewhere()),
        Some(near) => (message, Some(format!("did you mean `{}`?", harmless(&near)))),
        None if targets.is_empty() => (message, elsewhere()),
        None => {
            let known: Vec<String> = targets.iter().map(|target| harmless(target)).collect();
            (message, Some(format!("names with runs or definitions: {}", known.join(", "))))
        }
    }))
}

/// The target that the user may have meant: the machine or skill of this name, or a similar name.
fn similar(name: &str, targets: &BTreeSet<String>) -> Option<String> {
    let kinds = [Target::Machine(name.to_owned()), Target::Skill(name.to_owned())];
    let of_kind = kinds.into_iter().map(|target| target.to_string()).find(|target| targets.contains(target));
    of_kind.or_else(|| did_you_mean(name, targets.iter().map(String::as_str)).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cli: a suggestion has the prefix of its kind.
    #[test]
    fn a_machine_is_suggested_with_its_prefix() {
        let targets = ["sort-mail", "machine:triage", "skill:desk"].map(str::to_owned).into();
        assert_eq!(similar("triage", &targets).as_deref(), Some("machine:triage"));
        assert_eq!(similar("desk", &targets).as_deref(), Some("skill:desk"));
        assert_eq!(similar("sort-mails", &targets).as_deref(), Some("sort-mail"));
        assert_eq!(similar("machine:triaeg", &targets).as_deref(), Some("machine:triage"));
        assert_eq!(similar("nope", &targets), None);
    }
}

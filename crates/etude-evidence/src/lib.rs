//! Status of an app's learned pipelines, from their files and the journal (`learn.md` 1.2, 2.10, 2.11).
//!
//! Choices of people are in learn.yaml. Evidence and demotions by the program are entries of the journal's ledger, in a book
//! per content hash. Facts about runs are read from the journal again until they have been noted, so that a crash loses
//! nothing.

mod book;
pub mod bounds;
pub mod compare;
mod demote;
pub mod details;
pub mod family;
pub mod needs;
mod observe;
pub mod rehearsal;
pub mod servers;
pub mod shadow;
mod standing;
pub mod trace;

use std::collections::BTreeSet;
use std::path::Path;

use etude_runtime::engine::{Engine, Error};
use etude_spec::config::learn::Learning;
use etude_spec::discover::PIPELINES;
use etude_spec::learned::{self, Content, Contents, LearnedState, Located};
use serde_json::Value;

use etude_tools::disk::Disk;

pub use book::{
    Accepted, Demotion, Row, RowKind, accept, begin_promotion, begun_promotion, end_promotion, is_forgotten, tested,
};
pub use demote::Settled;
pub use standing::{Standing, wrong_rate_bound};

etude_core::words! {
    /// Evidence of a run or a comparison about a pipeline.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Verdict {
        /// The same writes as the agent, or writes that were confirmed.
        Agreed = "agreed",
        /// The pipeline deviated.
        FellBack = "fell_back",
        /// Other writes than the agent, or writes that a person denied or judged bad.
        Disagreed = "disagreed",
        /// The run succeeded, and no one has judged it.
        Done = "done",
        /// A step failed.
        Failed = "failed",
        /// The run was removed, and only its row is left.
        Forgotten = "forgotten",
    }
}

/// Current status of every learned pipeline of the app.
///
/// # Errors
/// The journal cannot be read.
pub fn standings(engine: &dyn Engine, disk: &Disk) -> Result<Vec<Standing>, Error> {
    let app = (disk.root(), disk);
    with_contents(&Contents::new(disk), learned::all(disk))
        .map(|(located, content)| Standing::read(engine, app, located, content))
        .collect()
}

/// Learned pipelines with their contents.
fn with_contents(contents: &Contents<'_>, all: Vec<Located>) -> impl Iterator<Item = (Located, Content)> {
    all.into_iter().map(|located| {
        let content = contents.read(&located.dir());
        (located, content)
    })
}

/// Current status of one learned pipeline of the app, which has the path `app` in the journal.
fn standing(engine: &dyn Engine, app: &Path, disk: &Disk, located: Located) -> Result<Standing, Error> {
    let content = Contents::new(disk).read(&located.dir());
    Standing::read(engine, (app, disk), located, content)
}

/// Notes the results of runs, and demotes pipelines if they require it. Returns the demotions that have not been reported.
///
/// # Errors
/// The journal cannot be read or written.
pub async fn settle(engine: &dyn Engine, disk: &Disk, learning: &Learning) -> Result<Vec<Settled>, Error> {
    let all = learned::all(disk);
    if all.is_empty() || !learning.enabled {
        return Ok(Vec::new());
    }
    let contents = Contents::new(disk);
    let tools = contents.tools();
    let all: Vec<(Located, Content)> = with_contents(&contents, all).collect();
    let is_called = |located: &Located| !located.is_candidate() && located.state() == Some(LearnedState::Active);
    let called = all.iter().filter(|(located, _)| is_called(located));
    let called: Vec<_> = called.map(|(located, content)| (located.name.clone(), content.hash.clone())).collect();
    observe::note_calls(engine, disk.root(), &called, tools).await?;
    let mut settled = Vec::new();
    for (located, content) in all {
        if !located.is_candidate() {
            observe::note_runs(engine, disk.root(), &located.name, tools).await?;
        }
        let standing = Standing::read(engine, (disk.root(), disk), located, content)?;
        if let Some(changed) = demote::settle_tools(engine, disk.root(), &standing, tools).await? {
            settled.push(changed);
            continue;
        }
        settled.extend(demote::settle(engine, disk.root(), &standing, learning).await?);
    }
    Ok(settled)
}

/// Names of pipelines in `pipelines/` to which no request is routed: those in states before `assisted`, and demoted ones.
///
/// # Errors
/// The journal cannot be read.
pub fn unrouted(engine: &dyn Engine, disk: &Disk) -> Result<Vec<String>, Error> {
    let all = standings(engine, disk)?.into_iter().filter(|standing| !standing.located.is_candidate());
    Ok(all.filter(|standing| !standing.is_routed()).map(|standing| standing.located.name).collect())
}

/// True if requests may be routed to the pipeline `name` of `pipelines/` (L-36): always, unless it is learned and not in use.
/// Reads this pipeline alone.
///
/// # Errors
/// The journal cannot be read.
pub fn is_routed(engine: &dyn Engine, disk: &Disk, name: &str) -> Result<bool, Error> {
    match learned::find(disk, PIPELINES, name) {
        Some(located) => Ok(standing(engine, disk.root(), disk, located)?.is_routed()),
        None => Ok(true),
    }
}

/// True if an agent may call the pipeline `name` as a tool (L-77): it is learned, in `pipelines/`, and in the state `active`.
/// `app` is the app in the journal: the files of a worker are in another directory.
///
/// # Errors
/// The journal cannot be read.
pub fn is_active(engine: &dyn Engine, app: &Path, disk: &Disk, name: &str) -> Result<bool, Error> {
    match learned::find(disk, PIPELINES, name) {
        Some(located) => Ok(standing(engine, app, disk, located)?.state == Some(LearnedState::Active)),
        None => Ok(false),
    }
}

/// Stores a person's demotion, so that a promotion needs later evidence (L-81).
///
/// # Errors
/// The journal cannot be written.
pub async fn demote(engine: &dyn Engine, disk: &Disk, standing: &Standing, demotion: &Demotion) -> Result<(), Error> {
    book::demote(engine, disk.root(), &standing.located.dir(), demotion).await
}

/// Ends the demotion of a pipeline that a person has promoted, and notes its tools. `standing` is the pipeline before the
/// promotion, `dir` its directory after it. Another pipeline of that name stays demoted. The promotion ends with
/// [`end_promotion`].
///
/// # Errors
/// The journal cannot be read or written.
pub async fn promoted(
    engine: &dyn Engine,
    disk: &Disk,
    standing: &Standing,
    dir: &str,
    at_ms: i64,
) -> Result<(), Error> {
    let dirs: BTreeSet<String> = [standing.located.dir(), dir.to_owned()].into();
    for dir in dirs {
        book::clear_name(engine, disk.root(), &dir, at_ms).await?;
    }
    if dir.starts_with(PIPELINES) {
        // Changes count from the promotion on, also without an inspection in between.
        let (tools, _) = etude_spec::tool::load(disk);
        let now = demote::tools_now(engine, disk.root(), &learned::called_by(disk, dir), &tools)?;
        book::note_tools(engine, disk.root(), dir, &now, at_ms).await?;
    }
    if standing.demoted.is_some() || standing.state == Some(LearnedState::Demoted) {
        book::clear_content(engine, &standing.content, at_ms).await?;
    }
    Ok(())
}

/// Forgets the evidence of a run about learned pipelines (L-40).
///
/// # Errors
/// The journal cannot be read or written.
pub async fn forget(engine: &dyn Engine, disk: &Disk, run: &str) -> Result<(), Error> {
    for standing in standings(engine, disk)? {
        for row in standing.rows.iter().filter(|row| row.run == run) {
            let forgotten = Row {
                verdict: Verdict::Forgotten,
                step: None,
                reason: None,
                digest: String::new(),
                calls: Value::Null,
                ..row.clone()
            };
            book::add_row(engine, &standing.content, &forgotten).await?;
        }
    }
    book::forget(engine, run, etude_runtime::clock::now_ms()).await
}

/// Key of an app in books.
fn app_key(app: &Path) -> String {
    app.display().to_string()
}

#[cfg(test)]
mod tests;

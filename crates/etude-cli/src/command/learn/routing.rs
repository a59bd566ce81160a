//! Whether a promotion takes requests away from other pipelines (L-62).

use std::collections::BTreeSet;

use etude::disk::Disk;
use etude_core::verbatim::request_digest;
use etude_evidence::Standing;
use etude_evidence::trace;
use etude_request::Table;
use etude_runtime::engine::{Engine, Query};
use etude_spec::learned::TESTS;
use etude_spec::tool::AppTool;
use etude_spec::{App, Summary};
use serde_json::{Value, json};

use super::files;
use crate::problem::Problem;
use crate::render::stopped::of_engine;

/// Runs whose requests are tried.
const MAX_RUNS: u32 = 500;

/// A request that was recorded.
struct Recorded {
    request: String,
    /// It is one of the candidate's family.
    is_own: bool,
}

/// The recorded requests that another pipeline than before would answer, other than for the candidate's family.
pub(super) fn conflicts(
    engine: &dyn Engine,
    disk: &Disk,
    standing: &Standing,
    left_out: &[String],
) -> Result<Vec<Value>, Problem> {
    let name = &standing.located.name;
    let app = if standing.located.is_candidate() { App::of_candidate(disk, name) } else { App::new(disk) };
    let Some(summary) = app.summary_of(name) else { return Ok(Vec::new()) };
    let (summaries, _) = App::new(disk).summaries();
    let before: Vec<Summary> = summaries.into_iter().filter(|other| !left_out.contains(&other.name)).collect();
    let others = before.iter().filter(|other| other.name != *name).cloned();
    let after = Table::of_summaries(others.chain([summary]));
    let before = Table::of_summaries(before);
    let recorded = recorded(engine, disk, standing)?;
    Ok(recorded.iter().filter_map(|recorded| conflict(recorded, name, &before, &after)).collect())
}

fn conflict(recorded: &Recorded, name: &str, before: &Table, after: &Table) -> Option<Value> {
    let answer = |table: &Table| match table.names().next() {
        Some(_) => table.decide(&recorded.request).pipeline,
        None => None,
    };
    let (was, is) = (answer(before), answer(after));
    let is_wanted = recorded.is_own && is.as_deref() == Some(name);
    (was != is && !is_wanted).then(|| json!({"request": recorded.request, "before": was, "after": is}))
}

/// The requests of runs and cases of the app, each once.
fn recorded(engine: &dyn Engine, disk: &Disk, standing: &Standing) -> Result<Vec<Recorded>, Problem> {
    let own = own_digests(disk, standing);
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    let mut add = |request: String, is_own: bool| {
        let digest = request_digest([request.as_str()]);
        let is_own = is_own || own.contains(&digest);
        if !request.trim().is_empty() && seen.insert(digest) {
            all.push(Recorded { request, is_own });
        }
    };
    let query = Query { apps: vec![disk.root().display().to_string()], limit: Some(MAX_RUNS), ..Query::default() };
    let blobs = engine.blobs();
    let (tools, _) = etude_spec::tool::load(disk);
    for row in engine.list(&query).map_err(|error| of_engine(&error))? {
        let view = engine.view(&row.id).map_err(|error| of_engine(&error))?;
        let is_own = is_of_family(&trace::of(&view, &*blobs), standing, &tools);
        add(trace::asked(&view, &*blobs).request, is_own);
    }
    for (request, of) in requests_of_cases(disk) {
        add(request, of == standing.located.name);
    }
    Ok(all)
}

/// A run that writes with the family's tool, or that only reads with its tools.
fn is_of_family(calls: &[trace::Call], standing: &Standing, tools: &[AppTool]) -> bool {
    let Some(learned) = standing.learned() else { return false };
    let has = |tool: &str| calls.iter().any(|call| call.tool == tool);
    match learned.family.strip_prefix("read:") {
        Some(reads) => {
            reads.split('+').all(has) && calls.iter().all(|call| trace::effect_class(&call.tool, tools) == "reads")
        }
        None => has(&learned.family),
    }
}

/// The digests of the candidate's own requests.
fn own_digests(disk: &Disk, standing: &Standing) -> BTreeSet<String> {
    let listed = standing.learned().into_iter().flat_map(|learned| {
        let of = |field: &str| learned.document[field].as_array().cloned().unwrap_or_default();
        of("covers").into_iter().chain(of("not_covered").into_iter().map(|row| row["digest"].clone()))
    });
    let listed = listed.filter_map(|digest| digest.as_str().map(str::to_owned));
    listed.chain(files::digests(disk, &format!("{}/{TESTS}", standing.located.dir()))).collect()
}

/// The requests of all cases, each with its pipeline.
fn requests_of_cases(disk: &Disk) -> Vec<(String, String)> {
    let candidates = etude_spec::learned::all(disk).into_iter().map(|located| format!("{}/{TESTS}", located.dir()));
    let dirs: Vec<String> = candidates.chain([TESTS.to_owned()]).collect();
    let mut found = Vec::new();
    for dir in dirs {
        for name in files::digests(disk, &dir) {
            let path = format!("{dir}/{name}.yaml");
            let Ok(text) = files::text(disk, &path) else { continue };
            let file = etude_spec::source::SourceFile::new(path, text);
            let Ok(case) = etude_spec::test::read(&file, &name) else { continue };
            let text = |field: &str| case[field].as_str().unwrap_or_default().to_owned();
            found.push((text("request"), text("pipeline")));
        }
    }
    found
}

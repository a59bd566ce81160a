//! Routing conflicts of a promotion: requests that it takes away from other pipelines (L-62).

use std::collections::BTreeSet;

use etude::Disk;
use etude_core::verbatim::request_digest;
use etude_evidence::Standing;
use etude_evidence::trace;
use etude_request::{Mode, Table};
use etude_runtime::engine::{Engine, Query};
use etude_spec::learned::{LearnedState, TESTS};
use etude_spec::tool::AppTool;
use etude_spec::{App, Summary};
use serde_json::{Value, json};

use super::{Learnt, files};
use crate::problem::Problem;
use crate::render::stopped::of_engine;

/// Maximum number of runs whose requests are tried.
const MAX_RUNS: u32 = 500;

/// A request that was recorded.
struct Recorded {
    request: String,
    /// Names of the learned pipelines whose family the request belongs to.
    of: BTreeSet<String>,
}

/// Routing tables before and after the promotion.
struct Tables {
    /// Routing mode.
    mode: Mode,
    before: Table,
    after: Table,
    /// Table after the promotion, with the candidates of other families that may follow.
    contested: Table,
    /// Names of those candidates.
    rivals: BTreeSet<String>,
}

/// Decision of a table about a request.
struct Answer {
    pipeline: Option<String>,
    /// True if a model decides; `pipeline` is then a guess.
    by_model: bool,
}

/// Recorded requests outside of the candidate's family that the promotion routes to another pipeline. `mode` says who decides:
/// where a model does, the router's guesses do not count.
pub(super) fn conflicts(learnt: &Learnt, mode: Mode, standing: &Standing) -> Result<Vec<Value>, Problem> {
    let Learnt { disk, engine, .. } = learnt;
    let name = &standing.located.name;
    let app = if standing.located.is_candidate() { App::of_candidate(disk, name) } else { App::new(disk) };
    let Some(summary) = app.summary_of(name) else { return Ok(Vec::new()) };
    let all = learnt.standings()?;
    let is_left_out =
        |name: &str| all.iter().any(|one| one.located.name == name && !one.located.is_candidate() && !one.is_routed());
    let (summaries, _) = App::new(disk).summaries();
    let before: Vec<Summary> = summaries.into_iter().filter(|other| !is_left_out(&other.name)).collect();
    let others = before.iter().filter(|other| other.name != *name).cloned();
    let after: Vec<Summary> = others.chain([summary]).collect();
    let is_rival = |one: &&Standing| {
        one.located.is_candidate()
            && one.state.is_some_and(|state| state != LearnedState::Demoted)
            && after.iter().all(|own| own.name != one.located.name)
    };
    let rivals: Vec<Summary> = all
        .iter()
        .filter(is_rival)
        .filter_map(|one| App::of_candidate(disk, &one.located.name).summary_of(&one.located.name))
        .filter(|summary| summary.valid)
        .collect();
    let tables = Tables {
        mode,
        rivals: rivals.iter().map(|summary| summary.name.clone()).collect(),
        before: Table::of_summaries(before),
        contested: Table::of_summaries(after.iter().cloned().chain(rivals)),
        after: Table::of_summaries(after),
    };
    let recorded = recorded(&**engine, disk, &all)?;
    Ok(recorded.iter().filter_map(|recorded| conflict(recorded, name, &tables)).collect())
}

fn conflict(recorded: &Recorded, name: &str, tables: &Tables) -> Option<Value> {
    let answer = |table: &Table| match table.names().next() {
        Some(_) => {
            let routed = table.decide(&recorded.request);
            Answer { by_model: table.asks_model(&routed, tables.mode), pipeline: routed.pipeline }
        }
        None => Answer { pipeline: None, by_model: false },
    };
    let (was, is) = (answer(&tables.before), answer(&tables.after));
    let is_taken = is.pipeline.as_deref() == Some(name);
    let differs = match (was.by_model, is.by_model) {
        (false, false) => was.pipeline != is.pipeline,
        // The model may have chosen any pipeline, except one that it did not know.
        (true, false) => is_taken && tables.before.names().all(|known| known != name),
        // A certain route became uncertain.
        (false, true) => was.pipeline.is_some() && was.pipeline != is.pipeline,
        (true, true) => false,
    };
    let is_wanted = recorded.of.contains(name) && (is_taken || is.by_model);
    let before = was.pipeline.filter(|_| !was.by_model);
    let had_its_own = before.as_ref().is_some_and(|before| recorded.of.contains(before));
    // True if the candidate of the request's own family would win it once promoted.
    let goes_on = || {
        let winner = tables.contested.decide(&recorded.request).pipeline;
        winner.is_some_and(|winner| tables.rivals.contains(&winner) && recorded.of.contains(&winner))
    };
    if !differs || is_wanted || (is_taken && !had_its_own && goes_on()) {
        return None;
    }
    Some(json!({"request": recorded.request, "before": before, "after": is.pipeline}))
}

/// Requests of the app's runs and cases, each once.
fn recorded(engine: &dyn Engine, disk: &Disk, standings: &[Standing]) -> Result<Vec<Recorded>, Problem> {
    let own: Vec<(&Standing, BTreeSet<String>)> =
        standings.iter().map(|standing| (standing, own_digests(disk, standing))).collect();
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    let mut add = |request: String, of: BTreeSet<String>| {
        let digest = request_digest([request.as_str()]);
        let listed = own.iter().filter(|(_, digests)| digests.contains(&digest));
        let of = listed.map(|(standing, _)| standing.located.name.clone()).chain(of).collect();
        if !request.trim().is_empty() && seen.insert(digest) {
            all.push(Recorded { request, of });
        }
    };
    let query = Query { apps: vec![disk.root().display().to_string()], limit: Some(MAX_RUNS), ..Query::default() };
    let blobs = engine.blobs();
    let (tools, _) = etude_spec::tool::load(disk);
    for row in engine.list(&query).map_err(|error| of_engine(&error))? {
        let view = engine.view(&row.id).map_err(|error| of_engine(&error))?;
        let calls = trace::of(&view, &*blobs);
        let of = standings.iter().filter(|standing| is_of_family(&calls, standing, &tools));
        let of = of.map(|standing| standing.located.name.clone()).collect();
        add(trace::asked(&view, &*blobs).request, of);
    }
    for (request, of) in requests_of_cases(disk) {
        add(request, [of].into());
    }
    Ok(all)
}

/// True if a run writes with the family's tool, or only reads with its tools.
fn is_of_family(calls: &[trace::TracedCall], standing: &Standing, tools: &[AppTool]) -> bool {
    let Some(learned) = standing.learned() else { return false };
    let has = |tool: &str| calls.iter().any(|call| call.tool == tool);
    match learned.family.strip_prefix("read:") {
        Some(reads) => {
            reads.split('+').all(has) && calls.iter().all(|call| trace::effect_class(&call.tool, tools) == "reads")
        }
        None => has(&learned.family),
    }
}

/// Digests of the candidate's own requests.
fn own_digests(disk: &Disk, standing: &Standing) -> BTreeSet<String> {
    let listed = standing.learned().into_iter().flat_map(|learned| {
        let of = |field: &str| learned.document[field].as_array().cloned().unwrap_or_default();
        of("covers").into_iter().chain(of("not_covered").into_iter().map(|row| row["digest"].clone()))
    });
    let listed = listed.filter_map(|digest| digest.as_str().map(str::to_owned));
    listed.chain(files::digests(disk, &format!("{}/{TESTS}", standing.located.dir()))).collect()
}

/// Requests of all cases, each with its pipeline.
fn requests_of_cases(disk: &Disk) -> Vec<(String, String)> {
    let candidates = etude_spec::learned::all(disk).into_iter().map(|located| format!("{}/{TESTS}", located.dir()));
    let dirs: Vec<String> = candidates.chain([TESTS.to_owned()]).collect();
    let mut found = Vec::new();
    for dir in dirs {
        for name in files::digests(disk, &dir) {
            let path = format!("{dir}/{name}.yaml");
            let Ok(text) = files::text(disk, &path) else { continue };
            let file = etude_spec::source::SourceFile::new(path, text);
            let Some(case) = etude_spec::test::read(&file, &name).ok().and_then(|case| case.value().ok()) else {
                continue;
            };
            let text = |field: &str| case[field].as_str().unwrap_or_default().to_owned();
            found.push((text("request"), text("pipeline")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    const CANCEL: &str = "Please cancel my order ORD-4011, my mail is ed@mail4.example.";
    const RETURN: &str = "I want to return everything of my order ORD-007. I am ana@mail0.example.";

    fn table(names: &[&str]) -> Table {
        let of = |name: &str| match name {
            "cancel-order" => ("cancel_order", "Please cancel my order {order_id}, my mail is {email}."),
            _ => ("return_items", "I want to return everything of my order {order_id}. I am {email}."),
        };
        Table::of_summaries(names.iter().map(|name| summary(name, of(name))))
    }

    fn summary(name: &str, (description, trigger): (&str, &str)) -> Summary {
        Summary {
            name: name.to_owned(),
            description: description.to_owned(),
            triggers: vec![trigger.to_owned()],
            input: Default::default(),
            valid: true,
            diagnostics: Vec::new(),
        }
    }

    fn tables(mode: Mode, before: &[&str], rivals: &[&str]) -> Tables {
        let after: Vec<&str> = before.iter().copied().chain(["cancel-order"]).collect();
        let contested: Vec<&str> = after.iter().chain(rivals).copied().collect();
        let rivals = rivals.iter().map(|name| (*name).to_owned()).collect();
        Tables { mode, before: table(before), after: table(&after), contested: table(&contested), rivals }
    }

    /// True if a request of a family conflicts with the promotion of `cancel-order`.
    fn is_conflict(request: &str, of: &str, tables: &Tables) -> bool {
        let recorded = Recorded { request: request.to_owned(), of: [of.to_owned()].into() };
        conflict(&recorded, "cancel-order", tables).is_some()
    }

    /// L-62: a request that the candidate of its own family would win does not conflict; without that candidate, it does.
    #[test]
    fn a_candidate_of_another_family_keeps_its_requests() {
        let alone = tables(Mode::Embedded, &[], &[]);
        assert!(is_conflict(RETURN, "return-items", &alone));
        assert!(!is_conflict(CANCEL, "cancel-order", &alone), "its own request");
        let two = tables(Mode::Embedded, &[], &["return-items"]);
        assert!(!is_conflict(RETURN, "return-items", &two));
        assert!(is_conflict(RETURN, "look-up", &two), "a request of a third family is taken");
    }

    /// L-62: where a model decides, the router's guesses do not count.
    #[test]
    fn a_guess_is_no_answer_where_a_model_decides() {
        for mode in [Mode::Llm, Mode::Auto] {
            assert!(!is_conflict(RETURN, "return-items", &tables(mode, &[], &[])), "{mode:?}");
        }
    }

    /// L-62: a pipeline does not lose a request that was certainly its own.
    #[test]
    fn what_a_pipeline_had_is_not_taken() {
        let both = tables(Mode::Auto, &["return-items"], &[]);
        assert!(!is_conflict(RETURN, "return-items", &both));
        let after = Table::of_summaries([summary("cancel-order", ("", RETURN))]);
        let taken = Tables { after, ..both };
        assert!(is_conflict(RETURN, "return-items", &taken));
    }
}

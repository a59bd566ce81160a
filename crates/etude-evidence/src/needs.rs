//! Conditions of a promotion (`learn.md` 1.8, 2.10).

use etude_core::verbatim::request_digest;
use etude_runtime::engine::{Engine, Error, Query, RunState};
use etude_spec::config::learn::Learning;
use etude_spec::learned::{Counts, LearnedState};
use etude_spec::tool::AppTool;
use serde_json::{Value, json};

use super::standing::Standing;
use super::{Verdict, app_key, bounds};
use crate::trace;
use etude_runs::target::Target;
use etude_tools::disk::Disk;

/// Maximum number of runs in skill mode that are searched for new evidence.
const MAX_RUNS: u32 = 200;

/// Condition that does not hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// The word of the condition in documents.
    pub need: &'static str,
    /// Actual value.
    pub have: Value,
    /// Required value.
    pub want: Value,
}

impl Need {
    fn new(need: &'static str, have: impl Into<Value>, want: impl Into<Value>) -> Self {
        Self { need, have: have.into(), want: want.into() }
    }

    /// True if `--accept-risk` stands in for the condition (L-59).
    pub fn is_risk(&self) -> bool {
        ["comparisons", "live_comparisons", "wrong_rate", "writes"].contains(&self.need)
    }

    /// JSON object `{"need", "have", "want"}`.
    pub fn to_json(&self) -> Value {
        json!({"need": self.need, "have": self.have, "want": self.want})
    }
}

/// Facts besides the status of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Number of cases that passed, and of all cases; `None` if they were not run.
    pub tests: Option<(usize, usize)>,
    /// Number of recorded requests that another pipeline would answer.
    pub conflicts: usize,
    /// True if the pipeline has calls that may write.
    pub writes: bool,
    /// True if there is evidence later than the last demotion.
    pub has_new_evidence: bool,
}

/// States on the way from one to a higher one, without the first; empty if the second is not higher.
pub fn way(from: LearnedState, to: LearnedState) -> Vec<LearnedState> {
    let mut way = Vec::new();
    let mut at = from;
    while let Some(next) = at.above() {
        way.push(next);
        if next == to {
            return way;
        }
        at = next;
    }
    Vec::new()
}

/// All conditions of the states on `way` that do not hold.
pub fn missing(standing: &Standing, way: &[LearnedState], learning: &Learning, facts: Facts) -> Vec<Need> {
    let mut needs = Vec::new();
    let is_above = |state: LearnedState| way.iter().any(|step| *step >= state && *step != LearnedState::Demoted);
    if standing.demoted.is_some() || standing.state == Some(LearnedState::Demoted) {
        needs.extend((!facts.has_new_evidence).then(|| Need::new("new_evidence", false, true)));
    }
    if !is_above(LearnedState::Shadow) {
        return needs;
    }
    // A learned pipeline has cases; a person may write one without cases.
    let is_learned = standing.learned().is_some_and(|learned| learned.content.is_some());
    if let Some((passed, all)) = facts.tests.map(|(passed, all)| (passed, all.max(usize::from(is_learned))))
        && passed < all
    {
        needs.push(Need::new("tests", passed, all));
    }
    if standing.edited && !standing.is_tested {
        needs.push(Need::new("unchanged_files", false, true));
    }
    if standing.learned().is_some_and(|learned| learned.has_open_hole) {
        needs.push(Need::new("open_hole", true, false));
    }
    match too_few(standing, learning) {
        Some(have) if !is_above(LearnedState::Assisted) => {
            needs.push(Need::new("comparisons", have, learning.min_requests));
        }
        _ => {}
    }
    if is_above(LearnedState::Assisted) {
        needs.extend(of_evidence(standing, way.contains(&LearnedState::Active), learning));
        needs.extend((facts.conflicts > 0).then(|| Need::new("routing", facts.conflicts, 0)));
        let highest = way.iter().copied().max().unwrap_or(LearnedState::Proposed);
        if facts.writes && highest > learning.writes {
            needs.push(Need::new("writes", learning.writes.word(), highest.word()));
        }
    }
    needs
}

/// Number of remaining requests that it was learned from, if they are fewer than learning needs because runs were forgotten.
fn too_few(standing: &Standing, learning: &Learning) -> Option<u64> {
    let learned = standing.learned().filter(|learned| learned.content.is_some())?;
    let have = learned.document["evidence"]["requests"].as_u64()?;
    (have < learning.min_requests as u64).then_some(have)
}

/// Conditions for the bound of the wrong rate, and for the comparisons that it needs. Towards `active` at least half of them
/// are live.
fn of_evidence(standing: &Standing, is_active: bool, learning: &Learning) -> Vec<Need> {
    let (learned, live) = (standing.leave_one_out_only(), standing.live());
    let all = learned.plus(live);
    let wanted = bounds::comparisons_for(learning.wrong_rate, all.disagreed, learning.confidence);
    let n = match is_active {
        // Comparisons of the learning count at most as many times as live ones.
        true => all.disagreed + live.agreed + learned.agreed.min(live.decided()),
        false => all.decided(),
    };
    let bound = bounds::upper_wrong_rate(n, all.disagreed, learning.confidence);
    let mut needs = Vec::new();
    if bound > learning.wrong_rate {
        needs.push(Need::new("comparisons", n.min(all.decided()), wanted));
    }
    if is_active && live.decided() < wanted.div_ceil(2) {
        needs.push(Need::new("live_comparisons", live.decided(), wanted.div_ceil(2)));
    }
    if bound > learning.wrong_rate {
        needs.push(Need::new("wrong_rate", bounds::shown(bound), learning.wrong_rate));
    }
    needs
}

/// True if a run in skill mode that began after the demotion did the task of the pipeline (L-81).
///
/// # Errors
/// The journal cannot be read.
pub fn has_new_evidence(
    engine: &dyn Engine,
    disk: &Disk,
    standing: &Standing,
    tools: &[AppTool],
) -> Result<bool, Error> {
    let Some(learned) = standing.learned() else { return Ok(false) };
    // A pipeline that was learned again needs a run after the demotion: another selection of the earlier runs gives another
    // content as well.
    let is_other = standing.demoted.as_ref().is_some_and(|demotion| demotion.content != standing.content);
    let is_learned_again = is_other && learned.content.is_some() && !standing.edited;
    let covers = |request: &str| {
        let digest = request_digest([request]);
        learned.document["covers"].as_array().is_some_and(|covers| covers.iter().any(|own| *own == digest))
    };
    // A pipeline in use provides its evidence there.
    let since = standing.demoted.as_ref().map_or(i64::MIN, |demotion| demotion.at_ms);
    if standing.is_routed() && standing.rows.iter().any(|row| row.verdict == Verdict::Agreed && row.at_ms > since) {
        return Ok(true);
    }
    let wanted: Vec<&str> = match learned.family.strip_prefix("read:") {
        Some(reads) => reads.split('+').collect(),
        None => vec![learned.family.as_str()],
    };
    let query = Query {
        apps: vec![app_key(disk.root())],
        states: vec![RunState::Succeeded],
        created_since_ms: standing.demoted.as_ref().map(|demotion| demotion.at_ms),
        limit: Some(MAX_RUNS),
        ..Query::default()
    };
    let blobs = engine.blobs();
    for row in engine.list(&query)? {
        if !matches!(Target::parse(&row.target), Target::Skill(_)) {
            continue;
        }
        let view = engine.view(&row.id)?;
        if is_learned_again && !covers(&trace::asked(&view, &*blobs).request) {
            continue;
        }
        let calls = trace::of(&view, &*blobs);
        let has = |tool: &&str| {
            calls.iter().any(|call| call.tool == **tool && call.result.as_ref().is_some_and(|r| !r.is_error()))
        };
        let only_reads = || calls.iter().all(|call| trace::effect_class(&call.tool, tools) == "reads");
        if wanted.iter().all(has) && (!learned.family.starts_with("read:") || only_reads()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Counts as a JSON object.
pub fn counts_json(counts: Counts) -> Value {
    json!({"agreed": counts.agreed, "fell_back": counts.fell_back, "disagreed": counts.disagreed})
}

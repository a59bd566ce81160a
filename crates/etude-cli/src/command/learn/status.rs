//! `etude learn status`: shows each learned pipeline with its state, its evidence, and the open conditions of a promotion.

use etude_evidence::needs::{self, Facts, Need, counts_json};
use etude_evidence::{Accepted, Demotion, Standing};
use etude_runtime::clock;
use etude_spec::learned::LearnedState;
use serde_json::{Value, json};

use super::Learnt;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::stdout;

pub(super) fn status(context: &Context) -> Result<Exit, Problem> {
    let rows = rows(context, &Learnt::open(context)?)?;
    if context.is_json() {
        stdout::json(&json!({"pipelines": rows}));
        return Ok(Exit::Done);
    }
    if rows.is_empty() && !context.global.quiet {
        crate::render::say!("nothing was learned in this app: etude learn");
    }
    rows.iter().for_each(|row| stdout::line(&shown(row)));
    Ok(Exit::Done)
}

/// Status documents of all learned pipelines.
pub(super) fn rows(context: &Context, learnt: &Learnt) -> Result<Vec<Value>, Problem> {
    learnt.standings()?.iter().map(|standing| row(context, learnt, standing)).collect()
}

/// Status document of one learned pipeline.
pub(super) fn row(context: &Context, learnt: &Learnt, standing: &Standing) -> Result<Value, Problem> {
    let Learnt { disk, engine, learning } = learnt;
    let state = standing.state.map(LearnedState::word);
    let learned = standing.learned();
    let way = standing.state.and_then(LearnedState::above).into_iter().collect::<Vec<_>>();
    let (tools, _) = etude_spec::tool::load(disk);
    let is_demoted = standing.demoted.is_some() || standing.state == Some(LearnedState::Demoted);
    let has_new_evidence =
        is_demoted && needs::has_new_evidence(&**engine, disk, standing, &tools).map_err(|error| of_engine(&error))?;
    let facts = Facts {
        writes: super::promote::writes(context, disk, &standing.located),
        has_new_evidence,
        ..Facts::default()
    };
    let waits_for: Vec<Value> = needs::missing(standing, &way, learning, facts).iter().map(Need::to_json).collect();
    let deviations = standing.deviations(learning);
    let deviations: Vec<Value> = deviations
        .iter()
        .map(|(step, reason, count)| json!({"step": step, "reason": reason, "count": count}))
        .collect();
    // A step back to `proposed` does not count as a demotion: its cause is among the comparisons.
    let demoted = standing.demoted.as_ref().filter(|demotion| demotion.to != LearnedState::Proposed);
    Ok(json!({
        "name": standing.located.name, "family": learned.map(|learned| &learned.family), "state": state,
        "path": standing.located.dir(), "edited": standing.edited,
        "evidence": {
            "requests": learned.map_or(0, |learned| learned.requests), "runs": learned.map_or(0, |learned| learned.runs),
            "leave_one_out": counts_json(standing.leave_one_out()), "live": counts_json(standing.live()),
            "wrong_rate_bound": standing.wrong_rate_bound(learning),
        },
        "waits_for": waits_for, "deviations": deviations,
        "demoted": demoted.map(demotion), "accepted_risk": standing.accepted_risk.as_ref().map(accepted),
    }))
}

fn demotion(demotion: &Demotion) -> Value {
    json!({"run": demotion.run, "reason": demotion.reason, "at": clock::rfc3339(demotion.at_ms)})
}

fn accepted(accepted: &Accepted) -> Value {
    json!({"by": accepted.by, "at": clock::rfc3339(accepted.at_ms)})
}

/// Human-readable line: `return-items  shadow  4 requests, wrong rate at most 53 %; waits for comparisons (4 of 59)`.
fn shown(row: &Value) -> String {
    // Names and reasons are the words of others; each row is one line.
    let text = |at: &str| {
        let text = row.pointer(at).and_then(Value::as_str).unwrap_or_default();
        crate::render::text::harmless(text).replace('\n', " ")
    };
    let count = |at: &str| row.pointer(at).and_then(Value::as_u64).unwrap_or(0);
    let bound = row["evidence"]["wrong_rate_bound"].as_f64().unwrap_or(1.0) * 100.0;
    let mut line = format!(
        "{}  {}  {} requests, {} live comparisons, wrong rate at most {bound:.1} %",
        text("/path"),
        text("/state"),
        count("/evidence/requests"),
        count("/evidence/live/agreed") + count("/evidence/live/disagreed"),
    );
    let waits = row["waits_for"].as_array().into_iter().flatten();
    let waits: Vec<String> = waits.map(shown_need).collect();
    if !waits.is_empty() {
        line.push_str(&format!("; waits for {}", waits.join(", ")));
    }
    let disagreed = count("/evidence/live/disagreed");
    if disagreed > 0 {
        line.push_str(&format!("; {disagreed} disagreed: etude learn show {}", text("/name")));
    }
    if row["demoted"].is_object() {
        line.push_str(&format!("; demoted: {}", text("/demoted/reason")));
    }
    if row["accepted_risk"].is_object() {
        line.push_str(&format!("; risk accepted by {} at {}", text("/accepted_risk/by"), text("/accepted_risk/at")));
    }
    line
}

/// Human-readable condition: `comparisons (4, must be 59)`.
pub(super) fn shown_need(need: &Value) -> String {
    let word = need["need"].as_str().unwrap_or_default();
    match word {
        "new_evidence" => format!("{word} (an agent has not done its task since it was taken back)"),
        "unchanged_files" => format!("{word} (its files, tools or rules have changed: etude learn test)"),
        "open_hole" => format!("{word} (a write needs a value that has no source)"),
        _ => format!("{word} ({}, must be {})", need["have"], need["want"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1.8: a disagreement is in the row of its pipeline, with the command that shows where it differs.
    #[test]
    fn a_disagreement_names_the_command_that_shows_it() {
        let row = |disagreed: u64| {
            let live = json!({"agreed": 2, "fell_back": 0, "disagreed": disagreed});
            json!({
                "name": "back", "path": "learned/back", "state": "proposed", "waits_for": [], "demoted": null,
                "evidence": {"requests": 3, "live": live, "wrong_rate_bound": 0.5}, "accepted_risk": null,
            })
        };
        let plain = "learned/back  proposed  3 requests, 2 live comparisons, wrong rate at most 50.0 %";
        assert_eq!(shown(&row(0)), plain);
        assert!(shown(&row(1)).ends_with("; 1 disagreed: etude learn show back"), "{}", shown(&row(1)));
    }
}

//! The stages of a machine, each with its turns and tool calls.

use etude_runs::inspect::EffectPlace;
use serde_json::Value;

use super::blank;
use super::work::{self, Work};

/// The place of an effect in a machine: its stage, as `NAME#VISIT`, and the place inside of it. `None`: the effect belongs to no
/// stage.
pub(super) fn place(place: &EffectPlace) -> Option<(String, EffectPlace)> {
    let (segment, rest) = place.part.split_once('/').unwrap_or((&place.part, ""));
    // `NAME@RESTART#VISIT!ASIDE`: a restarted stage stays the same stage.
    let (segment, aside) = segment.split_once('!').map_or((segment, None), |(segment, aside)| (segment, Some(aside)));
    let (name, visit) = segment.split_once('#')?;
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let part = aside.map_or_else(|| rest.to_owned(), |aside| format!("!{aside}"));
    Some((format!("{name}#{visit}"), EffectPlace { part, ..place.clone() }))
}

/// The nodes of the stages of the step `step`, in the order in which they began. `rows` are those of the run's document,
/// which may have the stages of other steps as well.
pub(super) fn nodes(step: &str, phase: &str, works: &[&Work<'_>], rows: &[Value], began_at_ms: i64) -> Vec<Value> {
    let rows: Vec<&Value> = rows.iter().filter(|row| belongs(row, step)).collect();
    let mut stages: Vec<(String, Vec<Work<'_>>)> = Vec::new();
    for row in &rows {
        stages.push((last_segment(row).to_owned(), Vec::new()));
    }
    for work in works {
        let Some((stage, place)) = place(&work.place) else { continue };
        let work = Work { place, effect: work.effect };
        match stages.iter_mut().find(|(known, _)| *known == stage) {
            Some((_, own)) => own.push(work),
            None => stages.push((stage, vec![work])),
        }
    }
    let mut nodes = Vec::new();
    for (stage, own) in &stages {
        let row = rows.iter().copied().find(|row| last_segment(row) == stage);
        let own: Vec<&Work<'_>> = own.iter().collect();
        let id = format!("{step}/{stage}");
        let name = stage.strip_suffix("#1").unwrap_or(stage);
        let mut node = blank(&id, step.into(), "stage", name, phase);
        node["status"] = row.map_or("running", status).into();
        node["attempt"] = row.map(|row| row["attemptCount"].clone()).into();
        work::fill(&mut node, own.iter().copied(), began_at_ms);
        let inner = work::turns(&id, phase, &own, began_at_ms);
        node["children"] = inner.iter().filter(|turn| turn["parent"] == *id).count().into();
        nodes.push(node);
        nodes.extend(inner);
    }
    nodes
}

/// The id of the node for an effect at `at`, in the machine step `step`.
pub(super) fn node_of(step: &str, at: &EffectPlace) -> String {
    match place(at) {
        None => step.to_owned(),
        Some((stage, inner)) => format!("{step}/{stage}{}", work::turn_of(&inner)),
    }
}

/// True if the row is one of the step `step`, `PHASE/NAME`. `RUN/NAME#VISIT` does not say so: the run is for the machine, or
/// an earlier version began it.
fn belongs(row: &Value, step: &str) -> bool {
    let id = row["stageExecutionId"].as_str().unwrap_or_default();
    let (_, place) = id.split_once('/').unwrap_or_default();
    let name = step.rsplit_once('/').map_or(step, |(_, name)| name);
    !place.contains('/') || EffectPlace::of(place, name).is_some()
}

/// `NAME#VISIT` of a row.
fn last_segment(row: &Value) -> &str {
    let id = row["stageExecutionId"].as_str().unwrap_or_default();
    id.rsplit_once('/').map_or(id, |(_, last)| last)
}

/// The node status for a row.
fn status(row: &Value) -> &'static str {
    match row["status"].as_str().unwrap_or_default() {
        "completed" if row["verdict"] == "fail" => "failed",
        "completed" => "succeeded",
        "parked" | "halted" => "waiting",
        "failed" => "failed",
        "cancelled" => "cancelled",
        _ => "running",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run may have several machines: a step shows the stages of its own.
    #[test]
    fn a_step_has_the_stages_of_its_machine() {
        let rows = ["r/p/x/plan#1", "r/p/g/y/plan#1", "r/p/g/y/test#1"];
        let rows = rows.map(|id| serde_json::json!({"stageExecutionId": id, "status": "completed", "attemptCount": 1}));
        let names = |step: &str, rows: &[Value]| -> Vec<Value> {
            nodes(step, "business", &[], rows, 0).iter().map(|node| node["id"].clone()).collect()
        };
        assert_eq!(names("business/x", &rows), ["business/x/plan#1"]);
        assert_eq!(names("business/y", &rows), ["business/y/plan#1", "business/y/test#1"]);
        let target = [serde_json::json!({"stageExecutionId": "r/plan#1", "status": "completed"})];
        assert_eq!(names("business/change", &target), ["business/change/plan#1"]);
    }

    fn node(id: &str) -> String {
        node_of("business/change", &EffectPlace::of(id, "change").expect("a place"))
    }

    #[test]
    fn effects_belong_to_the_stage_that_asked_for_them() {
        assert_eq!(node("change/change/plan#1/setup"), "business/change/plan#1");
        assert_eq!(node("change/change/plan#1!scan1"), "business/change/plan#1");
        assert_eq!(node("change/change/plan@2#1/turn3"), "business/change/plan#1/turn3");
        assert_eq!(node("change/change/plan#2/turn3/Read[0]"), "business/change/plan#2/turn3/Read[0]");
        assert_eq!(node("change/change/plan#2/turn3/Read[0]/guard1"), "business/change/plan#2/turn3/Read[0]");
        assert_eq!(node("change/change/plan#1/turn2!scan"), "business/change/plan#1");
        assert_eq!(node("change/change/tools"), "business/change");
    }
}

//! Until when a question waits for its answer.

use std::collections::BTreeMap;

use etude_core::effect::EffectId;
use etude_runtime::engine::RunView;
use etude_runtime::record;
use serde_json::Value;

/// When the question of an effect ends without an answer: the first deadline of its step or of anything around it.
pub(crate) fn deadline(view: &RunView, effect: &str) -> Option<i64> {
    let is_around = |id: &str| {
        let rest = id.split('!').next().and_then(|path| effect.strip_prefix(path));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[', '#']))
    };
    let records = || record::counting(&view.records).map(|(_, record)| record);
    let is_over = |id: &str| records().any(|record| record.key == id);
    // The time budget may have a later end than when the run waited before.
    let deadlines: BTreeMap<EffectId, i64> = records().filter_map(record::to_deadline).collect();
    let around = deadlines.iter().filter(|(id, _)| is_around(id.as_str()) && !is_over(id.as_str()));
    around.map(|(_, at_ms)| *at_ms).min()
}

/// The effect that an entry of `waiting` is about.
pub(crate) fn effect_of(waiting: &Value) -> &str {
    waiting["id"].as_str().and_then(|id| id.split_once(':')).map_or("", |(_, effect)| effect)
}

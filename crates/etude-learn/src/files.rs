//! The files of a candidate (1.4, 1.5): the same bytes for the same content.

mod case;
mod pipeline;
mod provenance;
mod python;
mod redact;
mod wording;
pub mod yaml;

use std::collections::BTreeMap;

use serde_json::Value;

pub use pipeline::Wording;

use crate::Candidate;
use crate::check::Learned;
use crate::episode::Episode;
use crate::world::World;

/// The files of a pipeline, without `learn.yaml`, by their paths below its directory; and the definition. What the candidate says
/// about its values is redacted, because learn.yaml is written from it.
pub(crate) fn write(
    candidate: &mut Candidate,
    learned: &Learned<'_>,
    world: &dyn World,
) -> (BTreeMap<String, String>, Value) {
    let traces = learned.episodes.iter().map(|episode| episode.trace);
    let redaction = redact::Redaction::new(traces, world);
    redaction.candidate(candidate);
    let wording = wording::wording(&learned.program, &learned.episodes, &candidate.family);
    let definition = pipeline::definition(&candidate.name, &learned.program, &wording, world);
    let definition = redaction.value(&definition);
    let mut files = BTreeMap::new();
    files.insert("pipeline.yaml".to_owned(), yaml::document(&definition));
    if let Some(python) = python::file(&learned.program) {
        files.insert("steps/bindings.py".to_owned(), redaction.text(&python));
    }
    for (path, schema) in pipeline::schemas(&learned.program) {
        files.insert(path.to_owned(), format!("{schema:#}\n"));
    }
    for episode in one_per_request(&learned.episodes) {
        // A run without a read that the pipeline makes is no recording of the pipeline.
        let Some(case) = case::case(&candidate.name, &learned.program, episode) else { continue };
        let case = redaction.value(&case);
        files.insert(format!("tests/{}.yaml", episode.digest), yaml::document(&case));
    }
    files.insert("REPORT.md".to_owned(), redaction.text(&candidate.report()));
    (files, definition)
}

/// The first episode of each request.
fn one_per_request<'e, 't>(episodes: &'e [Episode<'t>]) -> Vec<&'e Episode<'t>> {
    let mut found: BTreeMap<&str, &Episode<'t>> = BTreeMap::new();
    for episode in episodes {
        found.entry(episode.digest.as_str()).or_insert(episode);
    }
    found.into_values().collect()
}

//! The files of a candidate (1.4, 1.5): the same bytes for the same content.

mod case;
mod pipeline;
mod provenance;
mod python;
mod redact;
mod wording;
pub mod yaml;

use std::collections::{BTreeMap, BTreeSet};

pub use pipeline::Wording;

use crate::Candidate;
use crate::check::Learned;
use crate::episode::Episode;
use crate::replay::{End, replay};
use crate::world::World;

/// Maximum number of samples of each end other than a deviation.
const MAX_SAMPLES: usize = 3;

/// Result that a step of `steps/bindings.py` computes in a case (2.8).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Evaluation {
    /// `[STEP, RUN]` as JSON: the name of the step, and the part of the run that it reads.
    pub call: String,
    /// The output as JSON, as the learner computed it.
    pub output: String,
}

/// Adds to a candidate its files without `learn.yaml`, its definition, evaluations and samples. Values in its own fields are
/// redacted, because `learn.yaml` is written from them.
pub(crate) fn write(candidate: &mut Candidate, learned: &Learned<'_>, world: &dyn World) {
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
    let mut evaluations = BTreeSet::new();
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for episode in one_per_request(&learned.episodes) {
        let replay = replay(&learned.program, episode, episode.permission(), &|_, _| None);
        let evaluated = replay.evaluations().map(|(call, output)| Evaluation {
            call: redaction.value(&call).to_string(),
            output: redaction.value(output).to_string(),
        });
        let evaluated: Vec<Evaluation> = evaluated.collect();
        let (end, most) = match &replay.end {
            End::Wrote(_) => ("wrote".to_owned(), MAX_SAMPLES),
            End::Answered => ("answered".to_owned(), MAX_SAMPLES),
            End::Deviated { step, reason } => (format!("{step}: {reason}"), 1),
        };
        // A run that lacks a read of the pipeline cannot serve as its recording.
        let Some(case) = case::case(&candidate.name, &learned.program, episode, replay) else { continue };
        evaluations.extend(evaluated);
        let count = ends.entry(end).or_default();
        *count += 1;
        if *count <= most {
            candidate.samples.push(episode.digest.clone());
        }
        let case = redaction.value(&case);
        files.insert(format!("tests/{}.yaml", episode.digest), yaml::document(&case));
    }
    candidate.evaluations = evaluations.into_iter().collect();
    files.insert("REPORT.md".to_owned(), redaction.text(&candidate.report()));
    candidate.definition = definition;
    candidate.files = files;
}

/// The first episode of each request.
fn one_per_request<'e, 't>(episodes: &'e [Episode<'t>]) -> Vec<&'e Episode<'t>> {
    let mut found: BTreeMap<&str, &Episode<'t>> = BTreeMap::new();
    for episode in episodes {
        found.entry(episode.digest.as_str()).or_insert(episode);
    }
    found.into_values().collect()
}

//! Export: writes the archive and moves its runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use etude_core::digest::Digest;
use etude_files::whole::{Access, Durability, Part};
use etude_runtime::engine::{self, Engine, Stamp};

use super::survey::{Chosen, Survey, each_part};
use super::tar::Writer;
use super::wire::{self, FORMAT, Manifest};
use super::{Error, Export, Exported, MANIFEST, Pack};

/// Reason why no whole file was written.
enum Obstacle {
    /// This run has changed since it was chosen.
    Changed(String),
    Error(Error),
}

impl From<Error> for Obstacle {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

pub(super) fn export(engine: &dyn Engine, how: Export, pack: &mut Pack<'_>, file: &Path) -> Result<Exported, Error> {
    if fs::symlink_metadata(file).is_ok() {
        return Err(Error::Exists(file.to_owned()));
    }
    let mut stayed = Vec::new();
    let exported = rounds(Survey::new(engine, how, pack), file, &mut stayed);
    exported.map_err(|error| match stayed.is_empty() {
        true => error,
        false => Error::Stale { path: file.to_owned(), runs: stayed, source: Box::new(error) },
    })
}

/// Writes the file until it holds exactly the runs that are copied or moved. Runs that are in the current file and are
/// neither are in `stayed`.
fn rounds(mut survey: Survey<'_>, file: &Path, stayed: &mut Vec<String>) -> Result<Exported, Error> {
    let mut is_written = false;
    loop {
        let chosen = survey.choose()?;
        let failed = |why: std::io::Error| Error::Write { path: file.to_owned(), why: why.to_string() };
        // An incomplete archive has no checksum, so every import refuses it.
        let part = Part::create(file, Access::Owner).map_err(failed)?;
        let bytes = match write(&mut survey, &chosen, file, &part) {
            Ok(bytes) => bytes,
            Err(Obstacle::Changed(id)) => {
                survey.skip(&id, "was continued during the export".to_owned());
                continue;
            }
            Err(Obstacle::Error(error)) => return Err(error),
        };
        // A file of an earlier round is this export's own.
        if !is_written && fs::symlink_metadata(file).is_ok() {
            return Err(Error::Exists(file.to_owned()));
        }
        part.put_in_place(Durability::Power).map_err(failed)?;
        is_written = true;
        stayed.clear();
        let leaving: Vec<&Chosen> = chosen.values().filter(|one| !one.stamp.state.is_final()).collect();
        let not_moved = |source| Error::NotMoved { path: file.to_owned(), source };
        let others = leave(&mut survey, &leaving).map_err(not_moved)?;
        if !others.is_empty() {
            // The changed runs must not be in the file, and the moved ones must.
            others.iter().for_each(|id| survey.skip(id, "was continued during the export".to_owned()));
            *stayed = others;
            continue;
        }
        let values: BTreeSet<&Digest> = chosen.values().flat_map(|one| &one.values).collect();
        return Ok(Exported {
            runs: chosen.len() as u64,
            moved: survey.gone.len() as u64,
            values: values.len() as u64,
            bytes,
            skipped: survey.skipped.into_values().collect(),
        });
    }
}

/// Moves runs that are in the file. Returns the runs that have changed and stay.
fn leave(survey: &mut Survey<'_>, leaving: &[&Chosen]) -> Result<Vec<String>, engine::Error> {
    if leaving.is_empty() {
        return Ok(Vec::new());
    }
    let stamps: Vec<Stamp> = leaving.iter().map(|one| one.stamp.clone()).collect();
    let others = survey.engine.move_away(&stamps)?;
    let gone = leaving.iter().filter(|one| !others.contains(&one.stamp.run_id));
    survey.gone.extend(gone.map(|one| (one.stamp.run_id.clone(), one.since)));
    Ok(others)
}

/// Writes the archive `file` to `part`. Returns its size in bytes.
fn write(
    survey: &mut Survey<'_>,
    chosen: &BTreeMap<String, Chosen>,
    file: &Path,
    part: &Part<'_>,
) -> Result<u64, Obstacle> {
    let failed = |why: &dyn std::fmt::Display| Error::Write { path: file.to_owned(), why: why.to_string() };
    let mut tar = Writer::new(part.file());
    let values: BTreeSet<Digest> = chosen.values().flat_map(|one| one.values.iter().copied()).collect();
    let moved = chosen.iter().filter(|(id, one)| survey.gone.contains_key(*id) || !one.stamp.state.is_final()).count();
    let manifest =
        Manifest { format: FORMAT, runs: chosen.len() as u64, moved: moved as u64, values: values.len() as u64 };
    tar.add(MANIFEST, &manifest.to_bytes()).map_err(|e| failed(&e))?;
    for (id, one) in chosen {
        let changed = || Obstacle::Changed(id.clone());
        let (run, _) = survey.run(id).map_err(Error::from)?.ok_or_else(changed)?;
        let lines = wire::to_lines(&run);
        if Digest::of(&lines) != one.digest {
            return Err(changed());
        }
        tar.add(&format!("runs/{id}.jsonl"), &lines).map_err(|e| failed(&e))?;
    }
    for value in values {
        let unreadable = |why: String| failed(&format!("the value {value} cannot be read: {why}"));
        let len = survey.len(value).map_err(unreadable)?;
        tar.begin(&format!("values/{value}"), len).map_err(|e| failed(&e))?;
        let mut written = 0;
        let copied = each_part(survey.engine, value, |bytes| {
            written += bytes.len() as u64;
            tar.write(bytes).map_err(|e| e.to_string())
        });
        copied.map_err(unreadable)?;
        if written != len {
            return Err(unreadable(format!("it has {written} bytes instead of {len}")).into());
        }
        tar.end(len).map_err(|e| failed(&e))?;
    }
    Ok(tar.finish().map_err(|e| failed(&e))?)
}

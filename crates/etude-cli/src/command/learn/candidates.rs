//! Candidates on disk: `learned/NAME/`, and pending changes to a candidate that a person has edited (L-34).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use etude::Disk;
use etude_core::digest::Digest;
use etude_files::beneath::is_unfinished;
use etude_learn::Candidate;
use etude_runtime::run_id;
use etude_spec::discover::{LEARNED, PIPELINES};
use etude_spec::learned::{self, Counts, LearnedState};
use etude_spec::source::{FileKind, Sources};
use serde_json::{Value, json};

use super::world::World;
use crate::paths;
use crate::problem::Problem;

/// Maximum number of files read of a candidate, and maximum size of each in bytes.
const MAX_FILES: usize = 1_000;
const MAX_SIZE: u64 = 1 << 20;

/// Maximum depth of a candidate's files.
const MAX_DEPTH: usize = 4;

/// Files by their paths below a directory.
pub(super) type Files = BTreeMap<String, String>;

etude_core::words! {
    /// Effect of a learning result on the existing files.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Change {
        /// There was no candidate.
        New = "new",
        /// The candidate changed and is written again.
        Updated = "updated",
        /// The candidate is the same.
        Unchanged = "unchanged",
        /// A person has edited the candidate, so it stays.
        Edited = "edited",
    }
}

impl Change {
    /// True if the candidate's directory is written.
    pub(super) fn is_written(self) -> bool {
        matches!(self, Self::New | Self::Updated)
    }
}

/// Decision about a candidate.
pub(super) struct Decided {
    pub(super) change: Change,
    pub(super) state: LearnedState,
    pub(super) files: Files,
}

/// Compares a candidate with the content of its directory. `standing` is the state in effect for that content; after a
/// disagreement it differs from the state in the file.
pub(super) fn decide(disk: &Disk, candidate: &Candidate, world: &World, standing: Option<LearnedState>) -> Decided {
    let content = {
        let bytes = candidate.files.iter().map(|(path, text)| (path.clone(), text.clone().into_bytes()));
        learned::content(&bytes.collect(), &world.tools, world.skill(), &noted(disk, &candidate.name))
    };
    let dir = format!("{LEARNED}/{}", candidate.name);
    let existing = files(disk, &dir);
    let known = learned::find(disk, LEARNED, &candidate.name).and_then(|located| located.learned);
    let eligibility = known.as_ref().map(|known| known.document["eligibility"].clone());
    let eligibility = eligibility.filter(|kept| !kept.is_null()).unwrap_or_else(|| json!("asked"));
    let state = known.as_ref().map_or(LearnedState::Proposed, |known| known.state);
    let accept_risk = known.as_ref().is_some_and(|known| known.accept_risk);
    let etude_learn::Counts { agreed, fell_back, disagreed } = candidate.leave_one_out;
    let compared = Counts { agreed: agreed as u64, fell_back: fell_back as u64, disagreed: disagreed as u64 };
    let bound = etude_evidence::wrong_rate_bound(compared, &world.learning);
    let learn_yaml = candidate.learn_yaml((&content, bound), (state.word(), accept_risk), &eligibility);
    let mut files = candidate.files.clone();
    files.insert(learned::FILE.to_owned(), learn_yaml);
    let is_own = known.is_some_and(|known| known.content == Some(learned::content_of(disk, &dir)));
    let change = match () {
        () if existing.is_empty() => Change::New,
        () if !is_own => Change::Edited,
        () if existing == files => Change::Unchanged,
        () => Change::Updated,
    };
    Decided { change, state: standing.unwrap_or(state), files }
}

/// Hashes in the learn.yaml of the candidate and of the pipeline of its name.
fn noted(disk: &Disk, name: &str) -> Vec<String> {
    let content = |base| learned::find(disk, base, name)?.learned?.content;
    [LEARNED, PIPELINES].into_iter().filter_map(content).collect()
}

/// Writes the decided files.
///
/// # Errors
/// The directory is not writable, or `learned` leads out of the app.
pub(super) fn store(disk: &Disk, name: &str, decided: &Decided) -> Result<(), Problem> {
    let pending = pending(disk, name)?;
    match decided.change {
        Change::Edited => replace(&pending, &decided.files),
        Change::New | Change::Updated => {
            forget_pending(&pending);
            let base = disk.root().join(LEARNED);
            if fs::symlink_metadata(&base).is_ok_and(|kind| kind.is_symlink()) {
                return Err(Problem::environment(format!(
                    "`{LEARNED}` is a symbolic link; candidates are written below it"
                ))
                .hint(format!("replace it with a directory: rm {LEARNED} && mkdir {LEARNED}")));
            }
            replace(&base.join(name), &decided.files)
        }
        Change::Unchanged => {
            forget_pending(&pending);
            Ok(())
        }
    }
}

/// Deletes the pending change to an edited candidate.
pub(super) fn forget_pending(dir: &Path) {
    // The directory may be missing.
    let _ = fs::remove_dir_all(dir);
}

/// Directory of the pending change to an edited candidate.
pub(super) fn pending(disk: &Disk, name: &str) -> Result<PathBuf, Problem> {
    let state = paths::state_dir().map_err(Problem::environment)?;
    let app: String = Digest::of(disk.root().display().to_string().as_bytes()).to_string().chars().take(16).collect();
    Ok(state.join(LEARNED).join(app).join(name))
}

/// Replaces a directory by files. Readers never see it half written or half removed.
fn replace(dir: &Path, files: &Files) -> Result<(), Problem> {
    let broken = |why: std::io::Error| Problem::environment(format!("`{}` cannot be written: {why}", dir.display()));
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    // A random name, since a link of the app under a known name would lead elsewhere.
    let new = dir.with_file_name(format!(".{name}.{}", run_id::new()));
    let written = files.iter().try_for_each(|(path, text)| {
        let path = new.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&path, text)
    });
    let old = written.and_then(|()| swap(&new, dir)).map_err(|why| {
        // The first error counts.
        let _ = fs::remove_dir_all(&new);
        broken(why)
    })?;
    old.map_or(Ok(()), fs::remove_dir_all).map_err(broken)
}

/// Moves the directory `new` to `dir`. Returns the hidden path of the previous directory, which is complete: a process that ends
/// during its removal leaves no candidate without some of its files, which would count as edited.
fn swap(new: &Path, dir: &Path) -> std::io::Result<Option<PathBuf>> {
    if !dir.exists() {
        return fs::rename(new, dir).map(|()| None);
    }
    // As random as the name of `new`.
    let mut old = new.as_os_str().to_owned();
    old.push(".old");
    let old = PathBuf::from(old);
    fs::rename(dir, &old)?;
    fs::rename(new, dir).inspect_err(|_| {
        let _ = fs::rename(&old, dir);
    })?;
    Ok(Some(old))
}

/// Text files below a directory of the app; empty if there is none. Links that lead out of the app are not followed.
pub(super) fn files(sources: &dyn Sources, dir: &str) -> Files {
    fn walk(sources: &dyn Sources, (dir, below): (&str, &str), depth: usize, found: &mut Files) {
        let mut entries = sources.list(dir).unwrap_or_default();
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for entry in entries.into_iter().filter(|entry| !is_unfinished(OsStr::new(&entry.name))) {
            let inner = if dir.is_empty() { entry.name.clone() } else { format!("{dir}/{}", entry.name) };
            let path = format!("{below}{}", entry.name);
            match entry.kind {
                FileKind::Dir if depth > 0 && entry.name != "__pycache__" => {
                    walk(sources, (&inner, &format!("{path}/")), depth - 1, found);
                }
                FileKind::File { .. } if found.len() < MAX_FILES => {
                    let text = sources.read(&inner, MAX_SIZE).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                    found.insert(path, text.unwrap_or_default());
                }
                _ => {}
            }
        }
    }
    let mut found = Files::new();
    walk(sources, (dir, ""), MAX_DEPTH, &mut found);
    found
}

/// Row of a candidate in the document of `learn` (1.8).
pub(super) fn row(candidate: &Candidate, decided: &Decided) -> Value {
    json!({
        "name": candidate.name, "family": candidate.family, "state": decided.state.word(), "change": decided.change.word(),
        "path": format!("{LEARNED}/{}", candidate.name), "requests": candidate.requests, "runs": candidate.runs,
        "reads": candidate.reads, "writes": candidate.writes, "parameters": candidate.parameters,
        "questions": candidate.questions, "not_covered": candidate.not_covered.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-34: an updated candidate is complete at each moment: its previous files are moved aside as a whole, then removed.
    #[test]
    fn a_candidate_is_replaced_as_a_whole() {
        let app = tempfile::tempdir().expect("a directory");
        let (dir, new) = (app.path().join("back"), app.path().join(".back.x"));
        let put = |dir: &Path, text: &str| {
            fs::create_dir_all(dir.join("tests")).expect("a directory");
            for path in ["learn.yaml", "tests/a.yaml"] {
                fs::write(dir.join(path), text).expect("written");
            }
        };
        let read =
            |dir: &Path| ["learn.yaml", "tests/a.yaml"].map(|path| fs::read_to_string(dir.join(path)).expect("read"));
        put(&new, "1");
        assert_eq!(swap(&new, &dir).expect("moved"), None);
        // A killed process has left an unfinished file behind.
        fs::write(dir.join(".etude-7-0.tmp"), "state").expect("written");
        let disk = Disk::open(&dir).expect("opened");
        let paths: Vec<String> = files(&disk, "").into_keys().collect();
        assert_eq!(paths, ["learn.yaml", "tests/a.yaml"]);
        put(&new, "2");
        let old = swap(&new, &dir).expect("moved").expect("there was one");
        assert_eq!(
            (read(&dir), read(&old), new.exists()),
            (["2", "2"].map(str::to_owned), ["1", "1"].map(str::to_owned), false)
        );
        replace(&dir, &Files::from([("learn.yaml".to_owned(), "3".to_owned())])).expect("replaced");
        fs::remove_dir_all(&old).expect("removed");
        let left = fs::read_dir(app.path()).expect("listed").count();
        assert_eq!((left, dir.join("tests").exists()), (1, false));
    }
}

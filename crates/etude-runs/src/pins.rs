//! Pinned definitions: a run records the content hashes of the files that define it. A resume after an edit is refused
//! with a diff, or takes the new definition with the user's consent.

use etude_core::digest::Digest;
use etude_core::plan::stages::SlotForms;
use etude_core::tree;
use etude_process::blob::{self, BlobStore};
use etude_runtime::engine::{self, Engine, Record};
use etude_runtime::record;
use etude_spec::source::{ReadFailure, Sources};
use serde_json::{Value, json};

use crate::lines;

/// Key of the record with the pins. The last such record counts.
pub const KEY: &str = "!definition";

/// Maximum size in bytes of a file whose content is kept for a diff. A larger file is pinned by its hash alone.
const KEPT: u64 = 1024 * 1024;

/// Maximum size in bytes of a file that can be pinned.
const LIMIT: u64 = 256 * 1024 * 1024;

/// The files that define a run, with the hashes of their contents, ordered by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins(Vec<Pin>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pin {
    path: String,
    digest: Digest,
    is_kept: bool,
}

/// A file that differs from its state at the beginning of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file, relative to the app's directory.
    pub path: String,
    /// `changed`, `added` or `removed`.
    pub what: &'static str,
    /// A unified diff, if both contents are known text. An added or removed file is compared with an empty text.
    pub diff: Option<String>,
}

/// A file that cannot be pinned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` cannot be {what}: {why}")]
pub struct Unreadable {
    /// The path of the file, relative to the app's directory.
    pub path: String,
    /// The failed operation: `read`, or `kept` with the run.
    pub what: &'static str,
    /// The error of the file system or the store, as a sentence fragment.
    pub why: String,
}

impl Pins {
    /// Hashes `files` and keeps their contents.
    ///
    /// # Errors
    /// A file cannot be read or kept.
    pub fn take(sources: &dyn Sources, files: &[String], store: &dyn BlobStore) -> Result<Self, Unreadable> {
        let keep = |bytes: &[u8], digest: Digest| {
            if bytes.len() as u64 > KEPT {
                return Ok(false);
            }
            if !store.has(digest) {
                blob::put(store, bytes).map_err(|e| e.to_string())?;
            }
            Ok(true)
        };
        Self::of(sources, files, keep)
    }

    /// Hashes `files` without keeping their contents.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn look(sources: &dyn Sources, files: &[String]) -> Result<Self, Unreadable> {
        Self::of(sources, files, |_, _| Ok(false))
    }

    /// Reads each of `files` once; `keep` returns true if it keeps the content.
    fn of(
        sources: &dyn Sources,
        files: &[String],
        keep: impl Fn(&[u8], Digest) -> Result<bool, String>,
    ) -> Result<Self, Unreadable> {
        let mut pins = Vec::with_capacity(files.len());
        for path in files {
            let cannot_be = |what, why: String| Unreadable { path: path.clone(), what, why };
            let bytes = sources.read(path, LIMIT).map_err(|e| cannot_be("read", why(&e)))?;
            let digest = Digest::of(&bytes);
            let is_kept = keep(&bytes, digest).map_err(|why| cannot_be("kept with the run", why))?;
            pins.push(Pin { path: path.clone(), digest, is_kept });
        }
        pins.sort_by(|a, b| a.path.cmp(&b.path));
        pins.dedup_by(|a, b| a.path == b.path);
        Ok(Self(pins))
    }

    /// The pins as a record of the run's journal, with the forms of the slots of the machines in them.
    pub fn to_record(&self, slots: &SlotForms) -> Record {
        let files: Vec<Value> = self
            .0
            .iter()
            .map(|pin| json!({"path": pin.path, "blake3": pin.digest.to_string(), "kept": pin.is_kept}))
            .collect();
        let mut body = json!({"v": 1, "files": files});
        if !slots.is_empty() {
            body["slots"] = record::slots_json(slots);
        }
        let body = body.to_string();
        let blobs = self.0.iter().filter(|pin| pin.is_kept).map(|pin| pin.digest).collect();
        Record { key: KEY.to_owned(), request: Digest::of(body.as_bytes()), body, blobs }
    }

    /// Number of times a run was pinned: once, and once more for every accepted change.
    pub fn count(records: &[Record]) -> usize {
        records.iter().filter(|record| record.key == KEY).count()
    }

    /// The pins in a run's records.
    pub fn of_records(records: &[Record]) -> Option<Self> {
        let record = records.iter().rev().find(|record| record.key == KEY)?;
        let body = tree::parse(&record.body).ok()?;
        let mut pins = Vec::new();
        for file in body.get("files")?.as_array()? {
            pins.push(Pin {
                path: file.get("path")?.as_str()?.to_owned(),
                digest: Digest::from_hex(file.get("blake3")?.as_str()?)?,
                is_kept: file.get("kept")?.as_bool()?,
            });
        }
        Some(Self(pins))
    }

    /// The records of a run that hold pins. The others are not kept in memory, however many there are.
    ///
    /// # Errors
    /// The journal fails or is damaged.
    pub fn records(engine: &dyn Engine, run_id: &str) -> Result<Vec<Record>, engine::Error> {
        const PAGE: u32 = 250;
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let page = engine.tail(run_id, after, PAGE)?;
            let Some(last) = page.last() else { return Ok(found) };
            after = last.position;
            found.extend(page.into_iter().map(|it| it.record).filter(|record| record.key == KEY));
        }
    }

    /// True if the files are unchanged.
    pub fn hold(&self, sources: &dyn Sources) -> bool {
        let files: Vec<String> = self.0.iter().map(|pin| pin.path.clone()).collect();
        Self::look(sources, &files).is_ok_and(|now| {
            self.0.iter().zip(&now.0).all(|(old, new)| old.path == new.path && old.digest == new.digest)
        })
    }

    /// The files with their contents; `None` if one is not kept.
    pub fn kept(&self, store: &dyn BlobStore) -> Option<Vec<(String, Vec<u8>)>> {
        let kept = |pin: &Pin| Some((pin.path.clone(), pin.is_kept.then(|| kept_bytes(store, pin.digest))??));
        self.0.iter().map(kept).collect()
    }

    /// The files with their hashes, as a document.
    pub fn to_json(&self) -> Value {
        self.0.iter().map(|pin| json!({"path": pin.path, "blake3": pin.digest.to_string()})).collect()
    }

    /// True if `now` has files that these pins do not have.
    pub fn lacks(&self, now: &Self) -> bool {
        now.0.iter().any(|new| !self.has(&new.path))
    }

    fn has(&self, path: &str) -> bool {
        self.0.iter().any(|pin| pin.path == path)
    }

    /// Differences of `now` from these pins. A new file does not count: the run itself may have written it, and a
    /// definition that needs one names it in a pinned file. Files that are used without being named do count: a
    /// destructor, and those of `unnamed`, such as middleware and the tools of an agent.
    pub fn changes(&self, now: &Self, unnamed: &[String], sources: &dyn Sources, store: &dyn BlobStore) -> Vec<Change> {
        let text_now = |path: &str| String::from_utf8(sources.read(path, KEPT).ok()?).ok();
        let mut changes = Vec::new();
        for old in &self.0 {
            let new = now.0.iter().find(|new| new.path == old.path);
            let what = match new {
                Some(new) if new.digest == old.digest => continue,
                Some(_) => "changed",
                None => "removed",
            };
            let before = old.is_kept.then(|| kept_text(store, old.digest)).flatten();
            let after = match new {
                Some(_) => text_now(&old.path),
                None => Some(String::new()),
            };
            let diff = before.zip(after).map(|(before, after)| unified(&old.path, &before, &after));
            changes.push(Change { path: old.path.clone(), what, diff });
        }
        let is_found = |path: &String| is_pipeline(path) || unnamed.contains(path);
        for new in now.0.iter().filter(|new| !self.has(&new.path) && is_found(&new.path)) {
            let diff = text_now(&new.path).map(|after| unified(&new.path, "", &after));
            changes.push(Change { path: new.path.clone(), what: "added", diff });
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        changes
    }
}

/// True for a pipeline's file: constructor and destructor are named nowhere.
fn is_pipeline(path: &str) -> bool {
    ["/pipeline.yaml", "/pipeline.yml"].iter().any(|name| path.ends_with(name))
}

/// The forms of the machines' slots at the beginning of the run; empty if it has no machine.
pub fn first_slots(records: &[Record]) -> SlotForms {
    records.iter().find(|record| record.key == KEY).map(slots_of).unwrap_or_default()
}

/// The forms of the machines' slots at the last continuation.
pub fn last_slots(records: &[Record]) -> SlotForms {
    records.iter().rfind(|record| record.key == KEY).map(slots_of).unwrap_or_default()
}

fn slots_of(record: &Record) -> SlotForms {
    let body = tree::parse(&record.body).unwrap_or_default();
    record::to_slots(&body["slots"])
}

fn kept_text(store: &dyn BlobStore, digest: Digest) -> Option<String> {
    String::from_utf8(kept_bytes(store, digest)?).ok()
}

fn kept_bytes(store: &dyn BlobStore, digest: Digest) -> Option<Vec<u8>> {
    blob::bytes(&*store.open(digest).ok()?).ok()
}

fn unified(path: &str, before: &str, after: &str) -> String {
    let (from, to) = (format!("{path} (when the run began)"), format!("{path} (now)"));
    lines::unified(before, after, [&from, &to], 2)
}

fn why(failure: &ReadFailure) -> String {
    match failure {
        ReadFailure::Missing => "there is no such file".to_owned(),
        ReadFailure::Outside => "a symbolic link leads out of the app".to_owned(),
        ReadFailure::WrongKind => "it is not a regular file".to_owned(),
        ReadFailure::TooLarge { len } => format!("it has {len} bytes"),
        ReadFailure::Other(why) => why.clone(),
    }
}

#[cfg(test)]
mod tests {
    use etude_process::blob::FileBlobs;

    use super::*;

    fn pins(files: &[(&str, &str)]) -> Pins {
        let pin = |(path, text): &(&str, &str)| Pin {
            path: (*path).to_owned(),
            digest: Digest::of(text.as_bytes()),
            is_kept: false,
        };
        Pins(files.iter().map(pin).collect())
    }

    /// a new file is not a change, unless it belongs to the definition without being named.
    #[test]
    fn new_files_are_no_change() {
        let dir = tempfile::tempdir().unwrap();
        let (sources, store) =
            (etude_tools::disk::Disk::open(dir.path()).unwrap(), FileBlobs::new(dir.path().join("blobs"), false));
        let before = pins(&[("pipelines/p/pipeline.yaml", "1"), ("pipelines/p/steps/a.sh", "1")]);
        let now = pins(&[
            ("pipelines/_destructor/pipeline.yaml", "1"),
            ("pipelines/p/calls.txt", "1"),
            ("pipelines/p/pipeline.yaml", "2"),
            ("pipelines/p/steps/b.sh", "1"),
            ("skills/layer.md", "1"),
        ]);
        assert!(before.lacks(&now) && !before.lacks(&before));
        let changes = before.changes(&now, &["skills/layer.md".to_owned()], &sources, &store);
        let found: Vec<_> = changes.iter().map(|change| (change.what, change.path.as_str())).collect();
        assert_eq!(
            found,
            [
                ("added", "pipelines/_destructor/pipeline.yaml"),
                ("changed", "pipelines/p/pipeline.yaml"),
                ("removed", "pipelines/p/steps/a.sh"),
                ("added", "skills/layer.md"),
            ]
        );
    }

    /// Section 16.3: a user who accepts a change sees all of it, including new and removed files.
    #[test]
    fn added_and_removed_files_are_compared_with_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [("pipelines/p/pipeline.yaml", "steps: []\n"), ("skills/gone.md", "Hello\n")] {
            std::fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(path), text).unwrap();
        }
        let (sources, store) =
            (etude_tools::disk::Disk::open(dir.path()).unwrap(), FileBlobs::new(dir.path().join("blobs"), false));
        let take = |path: &str| Pins::take(&sources, &[path.to_owned()], &store).unwrap();
        let (before, now) = (take("skills/gone.md"), take("pipelines/p/pipeline.yaml"));
        let changes = before.changes(&now, &[], &sources, &store);
        let diffs: Vec<&str> = changes.iter().map(|change| change.diff.as_deref().expect("a diff")).collect();
        assert!(diffs[0].ends_with("@@ -0,0 +1 @@\n+steps: []\n"), "{diffs:?}");
        assert!(diffs[1].ends_with("@@ -1 +0,0 @@\n-Hello\n"), "{diffs:?}");
    }
}

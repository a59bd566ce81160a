//! Bundles of apps in the shared database.

pub(crate) mod commit;
pub(crate) mod left_out;
pub(crate) mod workspace;

use std::io;
use std::path::{Path, PathBuf};

use etude::Disk;
use etude_core::digest::Digest;
use etude_core::failure::FailureKind;
use etude_models::Redactor;
use etude_process::blob::{self, Unavailable};
use etude_runs::target::Target;
use etude_runtime::engine::{Boxed, Engine, Entry, EntryQuery, Error, Expected, Write, Written};
use etude_tools::bundle::{Bundle, BundleError, MAX_BYTES};
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;

/// Name of the ledger book that lists bundles.
const BOOK: &str = "bundles";

/// Ledger word of a bundle that is available.
const PUSHED: &str = "pushed";

/// Minimum number of hash digits that may name a bundle.
const MIN_PREFIX: usize = 8;

/// A bundle in the database.
pub(crate) struct Kept {
    pub(crate) digest: Digest,
    /// Name of the last push, or the name that found the bundle.
    pub(crate) name: String,
    /// All names, each with the time of its last push.
    names: Vec<(String, i64)>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Time of the push, in milliseconds since 1970.
    pub(crate) pushed_at_ms: i64,
}

/// Problem for an app or an archive that cannot be a bundle. The message names the refused entry (K-52).
pub(crate) fn refused(error: &BundleError) -> Problem {
    match error {
        BundleError::Refused { .. } | BundleError::TooLarge => {
            Problem::new(Exit::Definition, FailureKind::DefinitionInvalid, error.to_string())
        }
        BundleError::Unreadable { .. } | BundleError::Write { .. } => Problem::usage(error.to_string()),
    }
}

/// Name of a directory, or of an archive without its extension.
pub(crate) fn name_of(source: &Path) -> String {
    let whole = source.canonicalize().unwrap_or_else(|_| PathBuf::from(source));
    let name = if whole.is_file() { whole.file_stem() } else { whole.file_name() };
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Refuses a bundle that contains a known key (K-53). The keys come from the settings of the app or the archive in `dir`.
pub(crate) fn refuse_keys(context: &Context, bundle: &Bundle, dir: &Path) -> Result<(), Problem> {
    let redactor = Redactor::for_data(context.settings(dir)?.grants.secrets.iter());
    let has_key = |bytes: &[u8]| redactor.finds_in(&String::from_utf8_lossy(bytes));
    match bundle.find(has_key).map_err(|error| refused(&error))? {
        None => Ok(()),
        Some(path) => Err(Problem::usage(format!(
            "`{path}` contains one of your keys, and every worker can read a bundle"
        ))
        .hint("exclude the file with `.gitignore`, or read the key from an environment variable of the workers")),
    }
}

/// Problem for a bundle that is too large for the database. The message names its largest file.
fn too_large(bundle: &Bundle) -> Problem {
    const MIB: u64 = 1024 * 1024;
    let largest = bundle.entries().iter().max_by_key(|entry| entry.bytes);
    let file = largest.map(|entry| format!("; the largest file is `{}` with {} MiB", entry.path, entry.bytes / MIB));
    let message = format!(
        "the bundle has {} MiB; a bundle in the database has at most 64 MiB{}",
        (bundle.bytes().len() as u64).div_ceil(MIB),
        file.unwrap_or_default()
    );
    Problem::new(Exit::Definition, FailureKind::DefinitionInvalid, message)
        .hint("exclude what runs do not need with `.gitignore`, or keep bundles in object storage (`engine.blobs`)")
}

/// Packs an app and stores it under the name of its directory. `target` will run; without it, the caller loads the definition
/// from the bundle.
pub(crate) fn push_app(
    context: &Context,
    engine: &dyn Engine,
    disk: &Disk,
    target: Option<&Target>,
) -> Result<Digest, Problem> {
    let bundle = Bundle::pack(disk.root()).map_err(|error| refused(&error))?;
    if let Some(target) = target {
        left_out::check(disk, &bundle, Some(target))?;
    }
    push(context, engine, &bundle, disk.root(), &name_of(disk.root()))?;
    Ok(bundle.digest())
}

/// Stores the bundle of the app or archive in `dir` in the database under `name`. Returns true if it was not there before.
///
/// The bundle is always uploaded, because this machine's cache may have it from another database. The store writes no value
/// twice.
pub(crate) fn push(
    context: &Context,
    engine: &dyn Engine,
    bundle: &Bundle,
    dir: &Path,
    name: &str,
) -> Result<bool, Problem> {
    refuse_keys(context, bundle, dir)?;
    let failed = |why: &dyn std::fmt::Display| Problem::environment(format!("cannot store the bundle: {why}"));
    blob::put(&*engine.bundles(), bundle.bytes()).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => too_large(bundle),
        _ => failed(&error),
    })?;
    let facts = json!({"files": bundle.entries().len(), "bytes": bundle.bytes().len()});
    let now = etude_runtime::clock::now_ms();
    enter(engine, bundle.digest(), name, &facts, now)
}

/// Adds `name` to the names of a bundle in the ledger; its other names stay. Returns true if the bundle was not listed before.
fn enter(engine: &dyn Engine, digest: Digest, name: &str, facts: &Value, now: i64) -> Result<bool, Problem> {
    let query = EntryQuery { book: BOOK.to_owned(), key: Some(digest.to_string()), ..EntryQuery::default() };
    let mut found = engine.entries(&query).map_err(|error| of_engine(&error))?.pop();
    loop {
        let mut names = found.as_ref().and_then(kept).map(|kept| kept.names).unwrap_or_default();
        names.retain(|(other, _)| other != name);
        names.push((name.to_owned(), now));
        let names: Map<String, Value> = names.into_iter().map(|(name, at_ms)| (name, at_ms.into())).collect();
        let mut body = facts.clone();
        body["name"] = name.into();
        body["names"] = names.into();
        let entry = Entry {
            book: BOOK.to_owned(),
            key: digest.to_string(),
            at_ms: now,
            state: PUSHED.to_owned(),
            body: body.to_string(),
            ..Entry::default()
        };
        let is_new = found.is_none();
        let expected = found.map_or(Expected::Nothing, |found| Expected::Exactly(Box::new(found)));
        let write = Write { entry, expected, submission: None, is_alone: false };
        let written: Boxed<'_, Result<_, Error>> = engine.write(&write);
        match crate::runtime::block_on(written)?.map_err(|error| of_engine(&error))? {
            // The reply of an earlier attempt may be lost: then the present entry is this one.
            Written::Other(other) if other.as_deref() != Some(&write.entry) => found = other.map(|other| *other),
            _ => return Ok(is_new),
        }
        // Another process has pushed the same bundle under the same name meanwhile.
        if found.as_ref().and_then(kept).is_some_and(|kept| kept.pushed_as(name).is_some_and(|at_ms| at_ms >= now)) {
            return Ok(false);
        }
    }
}

/// One page of bundles after a cursor, newest push first, and the cursor of the next page.
pub(crate) fn list(
    engine: &dyn Engine,
    after: Option<&str>,
    limit: u32,
) -> Result<(Vec<Kept>, Option<String>), Problem> {
    let position = |text: &str| {
        let (at, key) = text.split_once('-')?;
        Some((at.parse().ok()?, key.to_owned()))
    };
    let after = after.map(|text| {
        let none =
            || Problem::usage(format!("`--after {text}` is not a cursor")).hint("use `next` of the previous page");
        position(text).ok_or_else(none)
    });
    let query = EntryQuery {
        book: BOOK.to_owned(),
        after: after.transpose()?,
        limit: Some(limit.saturating_add(1)),
        ..EntryQuery::default()
    };
    let mut found = engine.entries(&query).map_err(|error| of_engine(&error))?;
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| has_more).map(|entry| format!("{}-{}", entry.at_ms, entry.key));
    Ok((found.iter().filter_map(kept).collect(), next))
}

fn kept(entry: &Entry) -> Option<Kept> {
    let body: Value = serde_json::from_str(&entry.body).ok()?;
    let name = body["name"].as_str().unwrap_or_default().to_owned();
    let of_names = |names: &Map<String, Value>| {
        names.iter().filter_map(|(name, at_ms)| Some((name.clone(), at_ms.as_i64()?))).collect()
    };
    Some(Kept {
        digest: Digest::from_hex(&entry.key)?,
        // Earlier versions kept only the last name.
        names: body["names"].as_object().map_or_else(|| vec![(name.clone(), entry.at_ms)], of_names),
        name,
        files: body["files"].as_u64().unwrap_or(0),
        bytes: body["bytes"].as_u64().unwrap_or(0),
        pushed_at_ms: entry.at_ms,
    })
}

impl Kept {
    /// Time of the last push under `name`, in milliseconds since 1970.
    fn pushed_as(&self, name: &str) -> Option<i64> {
        self.names.iter().find(|(own, _)| own == name).map(|(_, at_ms)| *at_ms)
    }

    /// All names, that of the last push first.
    pub(crate) fn all_names(&self) -> String {
        let others = self.names.iter().rev().map(|(name, _)| name.as_str()).filter(|name| *name != self.name);
        [self.name.as_str()].into_iter().chain(others).collect::<Vec<_>>().join(", ")
    }
}

/// The bundle that `named` means: a full hash, a unique hash prefix, or a name. Of several bundles with the name, the newest
/// push under that name counts.
pub(crate) fn find(engine: &dyn Engine, named: &str) -> Result<Kept, Problem> {
    let query = EntryQuery { book: BOOK.to_owned(), ..EntryQuery::default() };
    let all = engine.entries(&query).map_err(|error| of_engine(&error))?;
    let mut of_hash: Vec<Kept> = all.iter().filter(|entry| entry.key.starts_with(named)).filter_map(kept).collect();
    let is_long = named.len() >= MIN_PREFIX;
    let is_short = !named.is_empty() && !is_long && !of_hash.is_empty();
    if let (Some(found), true) = (of_hash.pop().filter(|_| is_long), of_hash.is_empty()) {
        return Ok(found);
    }
    let of_name = all.iter().filter_map(kept).filter(|kept| kept.pushed_as(named).is_some());
    let newest = of_name.max_by_key(|kept| kept.pushed_as(named)).map(|kept| Kept { name: named.to_owned(), ..kept });
    newest.ok_or_else(|| match is_short {
        true => Problem::usage(format!("`{named}` is too short to be the hash of a bundle"))
            .hint(format!("give {MIN_PREFIX} digits or more of it: `etude bundles list`")),
        false => Problem::usage(format!("there is no bundle `{named}`")).hint("list them with `etude bundles list`"),
    })
}

/// Reads the bytes of a bundle (K-46).
///
/// # Errors
/// The bundle is not stored, or its content does not match its digest.
pub(crate) fn bytes(engine: &dyn Engine, digest: Digest) -> Result<Vec<u8>, Unusable> {
    let failed = |why: &dyn std::fmt::Display| format!("the bundle {digest} cannot be used: {why}");
    let mut bytes = Vec::new();
    let blob = engine.blobs().open(digest).map_err(|error| match Unavailable::of(&error) {
        Some(_) => Unusable::Unreachable(failed(&error)),
        None => Unusable::Damaged(failed(&error)),
    })?;
    let mut part = vec![0; 64 * 1024];
    loop {
        let count = blob.read_at(bytes.len() as u64, &mut part).map_err(|error| failed(&error))?;
        if count == 0 || bytes.len() as u64 > MAX_BYTES {
            break;
        }
        bytes.extend_from_slice(&part[..count]);
    }
    match Digest::of(&bytes) == digest {
        true => Ok(bytes),
        false => Err(failed(&"its content does not match its hash").into()),
    }
}

/// Reason why the app of a bundle cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The bundle is missing, its content does not match its digest, or it cannot be unpacked here.
    Damaged(String),
    /// The database does not respond.
    Unreachable(String),
}

impl From<String> for Unusable {
    fn from(why: String) -> Self {
        Self::Damaged(why)
    }
}

impl From<Unusable> for Problem {
    fn from(unusable: Unusable) -> Self {
        let (Unusable::Damaged(why) | Unusable::Unreachable(why)) = unusable;
        Self::environment(why)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use etude_runtime::blob::FileBlobs;
    use etude_runtime::memory::MemoryEngine;

    use super::*;

    fn enter_at(engine: &dyn Engine, content: &str, name: &str, now: i64) -> bool {
        let facts = json!({"files": 1, "bytes": content.len()});
        enter(engine, Digest::of(content.as_bytes()), name, &facts, now).expect("it is written")
    }

    fn lookup(engine: &dyn Engine, name: &str) -> Option<(Digest, String)> {
        find(engine, name).ok().map(|kept| (kept.digest, kept.name))
    }

    /// A push under another name, as by `etude run` in a directory with another name, takes no name away.
    #[test]
    fn a_bundle_keeps_all_its_names_and_a_name_means_its_newest_push() {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = MemoryEngine::new(Arc::new(FileBlobs::new(dir.path().to_owned(), false)));
        assert!(enter_at(&engine, "old", "prod", 1));
        assert!(enter_at(&engine, "new", "prod", 2));
        assert!(!enter_at(&engine, "new", "demo", 3));
        let new = Digest::of(b"new");
        for name in ["prod", "demo"] {
            assert_eq!(lookup(&engine, name), Some((new, name.to_owned())));
        }
        assert!(!enter_at(&engine, "old", "prod", 4));
        assert_eq!(lookup(&engine, "prod"), Some((Digest::of(b"old"), "prod".to_owned())));
        assert_eq!(lookup(&engine, "demo"), Some((new, "demo".to_owned())));
        assert_eq!(lookup(&engine, "nowhere"), None);
        let (listed, _) = list(&engine, None, 9).expect("a page");
        assert_eq!(listed.iter().map(Kept::all_names).collect::<Vec<_>>(), ["prod", "demo, prod"]);
    }

    /// Entries of earlier versions have one name.
    #[test]
    fn an_entry_without_names_has_its_last_name() {
        let body = json!({"name": "prod", "files": 1, "bytes": 2}).to_string();
        let entry = Entry { key: Digest::of(b"x").to_string(), at_ms: 7, body, ..Entry::default() };
        let kept = kept(&entry).expect("a bundle");
        assert_eq!((kept.pushed_as("prod"), kept.all_names().as_str()), (Some(7), "prod"));
    }
}

//! Files of learned pipelines: writes states, and moves candidates.
//!
//! A move leaves the pipeline unrouted until its last step, so that an interrupted move can be repeated.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use etude::Disk;
use etude_files::beneath::{self, Dir, Root, Spot, Unresolved};
use etude_spec::discover::{LEARNED, PIPELINES};
use etude_spec::learned::{self, FILE, LearnedState, Located, TESTS};
use etude_spec::source::{FileKind, Sources};

use crate::problem::Problem;

/// Maximum size of a learn.yaml and of a case, in bytes.
const MAX_SIZE: u64 = 1 << 20;

fn broken(path: &str, error: &io::Error) -> Problem {
    Problem::environment(format!("`{path}` cannot be changed: {error}"))
}

/// Reads a file of the app as text.
pub(super) fn text(disk: &Disk, path: &str) -> Result<String, Problem> {
    let bytes = disk.read(path, MAX_SIZE);
    let bytes = bytes.map_err(|why| Problem::environment(format!("`{path}` cannot be read: {why:?}")))?;
    String::from_utf8(bytes).map_err(|_| Problem::environment(format!("`{path}` is not UTF-8")))
}

/// Resolves `path` in the app. Links that lead out of the app are not followed.
fn find(root: &Root, path: &str) -> Result<Spot, Problem> {
    beneath::resolve(std::slice::from_ref(root), &root.real().join(path)).map_err(|why| match why {
        Unresolved::Outside(to) => Problem::usage(format!("`{path}` leads out of the app, to `{}`", to.display()))
            .hint("replace the symbolic link in this path with a directory"),
        why => Problem::environment(format!("`{path}` cannot be changed: {why}")),
    })
}

fn root(disk: &Disk) -> Result<Root, Problem> {
    Root::open(disk.root()).map_err(|error| broken(".", &error))
}

/// Opens a directory of the app, and creates it if it is missing.
pub(super) fn dir(disk: &Disk, path: &str) -> Result<Arc<Dir>, Problem> {
    find(&root(disk)?, path)?.make_dir().map_err(|error| broken(path, &error))
}

/// Parent directory of `path`, and its name in there.
fn place<'p>(disk: &Disk, path: &'p str) -> Result<(Arc<Dir>, &'p OsStr), Problem> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    Ok((dir(disk, above)?, OsStr::new(name)))
}

/// Replaces a file of the app atomically.
pub(super) fn replace(disk: &Disk, path: &str, text: &str) -> Result<(), Problem> {
    let (dir, name) = place(disk, path)?;
    dir.replace(name, text.as_bytes()).map_err(|error| broken(path, &error))
}

/// Writes the state of a learned pipeline. Returns the path of the file.
pub(super) fn set_state(disk: &Disk, located: &Located, state: LearnedState) -> Result<String, Problem> {
    edit(disk, located, |text| learned::with_state(text, state))
}

/// Changes a learn.yaml. Returns the path of the file.
pub(super) fn edit(disk: &Disk, located: &Located, change: impl Fn(&str) -> Option<String>) -> Result<String, Problem> {
    let path = format!("{}/{FILE}", located.dir());
    let changed = change(&text(disk, &path)?);
    let changed = changed.ok_or_else(|| Problem::usage(format!("`{path}` has no `state`")))?;
    replace(disk, &path, &changed)?;
    Ok(path)
}

/// Moves a candidate to `pipelines/` and its cases to `tests/`. Returns the new paths.
pub(super) fn to_pipelines(disk: &Disk, located: &Located) -> Result<Vec<String>, Problem> {
    let mut paths = Vec::new();
    let target = format!("{PIPELINES}/{}", located.name);
    if located.is_candidate() {
        let is_there = matches!(disk.kind(&target), Ok(FileKind::Dir));
        if is_there {
            check_replaced(disk, located, &target)?;
        }
        // Conflicting paths are found before anything moves.
        dir(disk, PIPELINES)?;
        for digest in digests(disk, &format!("{}/{TESTS}", located.dir())) {
            dir(disk, TESTS)?;
            let case = case_path(&located.name, &digest);
            if disk.kind(&case).is_ok_and(|kind| !matches!(kind, FileKind::File { .. })) {
                return Err(Problem::usage(format!("`{case}` is not a regular file, so the case cannot be written"))
                    .hint(format!("rename or remove `{case}`")));
            }
        }
        if is_there {
            // The cases of the replaced pipeline do not apply to the new one.
            for case in cases_of(disk, &located.name).into_iter().filter(|path| is_learned_case(disk, path)) {
                remove(disk, &case)?;
            }
            remove(disk, &target)?;
        }
        rename(disk, &located.dir(), &target)?;
    }
    let cases = format!("{target}/{TESTS}");
    for digest in digests(disk, &cases) {
        let path = case_path(&located.name, &digest);
        rename(disk, &format!("{cases}/{digest}.yaml"), &path)?;
        paths.push(path);
    }
    // Removes the directory of cases if it is empty; otherwise it stays.
    let _ = fs::remove_dir(disk.root().join(cases));
    paths.insert(0, target);
    Ok(paths)
}

/// Path of a promoted case.
fn case_path(name: &str, digest: &str) -> String {
    format!("{TESTS}/{name}-{digest}.yaml")
}

/// Refuses to replace a pipeline that was edited since it was learned, so that a person's work is not deleted. Without a
/// recorded hash, edits are not detected.
fn check_replaced(disk: &Disk, located: &Located, target: &str) -> Result<(), Problem> {
    let Some(replaced) = learned::find(disk, PIPELINES, &located.name) else {
        return Err(Problem::usage(format!("`{target}` exists, and was not learned"))
            .hint(format!("rename it, or the candidate `{}`", located.dir())));
    };
    let content = replaced.learned.and_then(|learned| learned.content);
    let refused = match (content, other_file(disk, target)) {
        (_, Some(file)) => format!("`{file}` was not learned, but would be deleted with `{target}`"),
        (Some(content), _) if content != learned::content_of(disk, target) => {
            format!(
                "`{target}`, its tools or its rules have changed since it was learned; replacing it would delete the changes"
            )
        }
        _ => return Ok(()),
    };
    Err(Problem::usage(refused).hint(format!("compare it with `{}`, keep what you need, and delete it", located.dir())))
}

/// A file of a learned pipeline that the learner has not written and the content hash does not cover.
fn other_file(disk: &Disk, dir: &str) -> Option<String> {
    let is_hidden = |name: &str| name.starts_with('.') && !beneath::is_unfinished(OsStr::new(name));
    let hidden = disk.list(dir).unwrap_or_default().into_iter().map(|entry| entry.name).find(|name| is_hidden(name));
    let cases = disk.list(&format!("{dir}/{TESTS}")).unwrap_or_default().into_iter().map(|entry| entry.name);
    let is_own = |name: &String| name.strip_suffix(".yaml").is_some_and(is_digest);
    let case = cases.into_iter().find(|name| !is_own(name)).map(|name| format!("{TESTS}/{name}"));
    hidden.or(case).map(|name| format!("{dir}/{name}"))
}

/// Moves a demoted pipeline back to `learned/`, with its cases. Returns the new paths.
pub(super) fn to_learned(disk: &Disk, located: &Located) -> Result<Vec<String>, Problem> {
    let target = format!("{LEARNED}/{}", located.name);
    if located.is_candidate() {
        return Ok(vec![target]);
    }
    if disk.kind(&target).is_ok() {
        return Err(Problem::usage(format!("`{target}` exists: the family was learned again"))
            .hint(format!("promote the new candidate, or delete it first: etude learn forget {}", located.name)));
    }
    dir(disk, LEARNED)?;
    let mut paths = vec![target.clone()];
    for path in cases_of(disk, &located.name) {
        let digest = path.trim_end_matches(".yaml").rsplit('-').next().unwrap_or_default().to_owned();
        rename(disk, &path, &format!("{}/{TESTS}/{digest}.yaml", located.dir()))?;
        paths.push(format!("{target}/{TESTS}/{digest}.yaml"));
    }
    rename(disk, &located.dir(), &target)?;
    Ok(paths)
}

/// Cases of a promoted pipeline: `tests/NAME-DIGEST.yaml`.
pub(super) fn cases_of(disk: &Disk, name: &str) -> Vec<String> {
    let own = digests(disk, TESTS)
        .into_iter()
        .filter(|stem| stem.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_digest));
    own.map(|stem| format!("{TESTS}/{stem}.yaml")).collect()
}

/// True if a test is a learned case: it has the digest of its request; a hand-written test has none.
fn is_learned_case(disk: &Disk, path: &str) -> bool {
    text(disk, path).is_ok_and(|text| text.lines().any(|line| line.starts_with("digest:")))
}

fn is_digest(text: &str) -> bool {
    text.len() == 16 && text.chars().all(|c| c.is_ascii_hexdigit())
}

/// Names of the YAML files in a directory, without the extension.
pub(super) fn digests(disk: &Disk, dir: &str) -> Vec<String> {
    let entries = disk.list(dir).unwrap_or_default().into_iter();
    let files = entries.filter(|entry| matches!(entry.kind, FileKind::File { .. }));
    let mut names: Vec<String> =
        files.filter_map(|entry| entry.name.strip_suffix(".yaml").map(str::to_owned)).collect();
    names.sort_unstable();
    names
}

fn rename(disk: &Disk, from: &str, to: &str) -> Result<(), Problem> {
    let ((source, old), (target, new)) = (place(disk, from)?, place(disk, to)?);
    source.rename_to(old, &target, new).map_err(|error| broken(from, &error))
}

/// Removes a file or directory of the app. A link is removed, not followed.
pub(super) fn remove(disk: &Disk, path: &str) -> Result<(), Problem> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let root = root(disk)?;
    let target = root.real().join(find(&root, above)?.below()).join(name);
    let is_dir = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let done = if is_dir(&target) { fs::remove_dir_all(&target) } else { fs::remove_file(&target) };
    done.map_err(|error| broken(path, &error))
}

//! Cache of built routers. A file's name is the hash of everything that its router depends on, so a file never changes.
//! It is written to a temporary name and renamed. A damaged or unreadable file, or one of another version, is built
//! again.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use etude_core::digest::Digest;
use etude_files::private;
use etude_files::whole::{self, Access, Durability};
use etude_route::{FORMAT, Route, Router};

/// Minimum number of texts in all routes; below it, building a router costs less than reading one.
const SMALL: usize = 400;
/// Number of routers that are kept; the oldest go first.
const KEPT: usize = 12;
/// Age at which an unfinished file counts as abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Extension of a finished file.
const SUFFIX: &str = "router";

/// Returns the router of `routes` and of the sentence model `model`, if there is one. It comes from the directory
/// `dir`; otherwise `build` makes it and it is stored there. A small table of words is not stored.
pub(super) fn router(
    dir: Option<&Path>,
    routes: &[Route],
    model: Option<&str>,
    build: impl FnOnce() -> Router,
) -> Router {
    let texts: usize = routes.iter().map(|route| route.triggers.len() + 2).sum();
    let Some(dir) = dir.filter(|_| model.is_some() || texts >= SMALL) else { return build() };
    let name = format!("{}.{SUFFIX}", key(routes, model));
    if let Some(router) = read(&dir.join(&name)) {
        return router;
    }
    let router = build();
    // If the write fails, the next run builds the router again.
    drop(write(dir, &name, &router.to_bytes()));
    router
}

fn key(routes: &[Route], model: Option<&str>) -> Digest {
    let mut text = String::new();
    let mut put = |field: &str| text.push_str(&format!("{}:{field}", field.len()));
    put(&FORMAT.to_string());
    put(model.unwrap_or_default());
    for route in routes {
        put(&route.name);
        put(&route.description);
        put(&route.triggers.len().to_string());
        route.triggers.iter().for_each(|trigger| put(trigger));
    }
    Digest::of(text.as_bytes())
}

/// Reads a router; the file holds its hash and then its bytes.
fn read(path: &Path) -> Option<Router> {
    let bytes = fs::read(path).ok()?;
    let (hash, body) = bytes.split_first_chunk::<32>()?;
    (blake3::hash(body).as_bytes() == hash).then(|| Router::from_bytes(body))?
}

fn write(dir: &Path, name: &str, body: &[u8]) -> io::Result<()> {
    private::create_dir_all(dir)?;
    let bytes = [blake3::hash(body).as_bytes().as_slice(), body].concat();
    whole::replace(&dir.join(name), &bytes, Access::Owner, Durability::Process)?;
    prune(dir)
}

/// Removes all but the newest routers, and abandoned temporary files.
fn prune(dir: &Path) -> io::Result<()> {
    let mut whole = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Ok(changed) = entry.metadata().and_then(|found| found.modified()) else { continue };
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            whole.push((changed, path));
        } else if path.to_string_lossy().contains(&format!(".{SUFFIX}."))
            && SystemTime::now().duration_since(changed).is_ok_and(|age| age > ABANDONED)
        {
            drop(fs::remove_file(path));
        }
    }
    whole.sort();
    let surplus = whole.len().saturating_sub(KEPT);
    // Another process may be removing the same files.
    whole.into_iter().take(surplus).for_each(|(_, path)| drop(fs::remove_file(path)));
    Ok(())
}

#[cfg(test)]
mod tests;

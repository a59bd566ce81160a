//! npm packages: a launcher that all users install, and a package with the program for each platform, of which npm picks one.

use serde_json::{Value, json};

use super::archive::{self, Entry};
use super::contents::Contents;
use super::release::{Release, SUMMARY};
use super::target::{TARGETS, Target};
use super::{Error, Package};

/// npm scope of the platform packages.
const SCOPE: &str = "@etude-dev";

const LAUNCHER: &str = "packaging/npm/etude.js";

/// Platform package of a target, and the launcher, which is the same for all.
pub(super) fn packages(release: &Release, target: &Target, contents: &Contents) -> Result<Vec<Package>, Error> {
    Ok(vec![platform(release, target, contents)?, launcher(release, contents)?])
}

fn platform(release: &Release, target: &Target, contents: &Contents) -> Result<Package, Error> {
    let npm = &target.npm;
    let mut manifest = manifest(release, &format!("{SCOPE}/{}", npm.name));
    manifest["os"] = json!([npm.os]);
    manifest["cpu"] = json!([npm.cpu]);
    if let Some(libc) = npm.libc {
        manifest["libc"] = json!([libc]);
    }
    // The launcher needs the file itself, not the version in a bundle or in Yarn's zip archives.
    manifest["preferUnplugged"] = json!(true);
    let readme = format!("The program of `etude` for {}. Install the package `etude` instead.\n", target.triple);
    let entries = vec![Entry::program("bin/etude", contents.program.clone()), Entry::file("README.md", readme)];
    archive(release, contents, &format!("etude-dev-{}", npm.name), manifest, entries)
}

fn launcher(release: &Release, contents: &Contents) -> Result<Package, Error> {
    let mut manifest = manifest(release, "etude");
    manifest["bin"] = json!({"etude": "bin/etude.js"});
    manifest["engines"] = json!({"node": ">=18"});
    let platforms = TARGETS.iter().map(|target| (format!("{SCOPE}/{}", target.npm.name), json!(release.version)));
    manifest["optionalDependencies"] = Value::Object(platforms.collect());
    let path = release.root.join(LAUNCHER);
    let script = std::fs::read(&path).map_err(Error::at(&path))?;
    let entries = vec![Entry::program("bin/etude.js", script), Entry::file("README.md", release.readme()?)];
    archive(release, contents, "etude", manifest, entries)
}

fn manifest(release: &Release, name: &str) -> Value {
    json!({
        "name": name,
        "version": release.version,
        "description": SUMMARY,
        "keywords": ["agents", "llm", "pipeline", "workflow", "durable", "mcp"],
        "homepage": release.repository,
        "repository": {"type": "git", "url": format!("git+{}.git", release.repository)},
        "license": format!("({})", release.licence),
    })
}

/// Builds an archive with the names and layout of `npm pack`.
fn archive(
    release: &Release,
    contents: &Contents,
    stem: &str,
    manifest: Value,
    mut entries: Vec<Entry>,
) -> Result<Package, Error> {
    entries.insert(0, Entry::file("package.json", format!("{manifest:#}\n")));
    entries.extend(contents.licences().map(|(name, text)| Entry::file(*name, text.clone())));
    entries.iter_mut().for_each(|entry| entry.path = format!("package/{}", entry.path));
    let name = format!("{stem}-{}.tgz", release.version);
    Ok(Package { name, bytes: archive::tar_gz(&entries, release.epoch)? })
}

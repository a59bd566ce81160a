//! Python wheel, with which `pip`, `pipx` and `uvx` put the program on the path.
//!
//! It is a zip archive with fixed metadata, so a tested program is packaged unchanged. `pyproject.toml` has the same facts for
//! builds from source with maturin.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::archive::{self, Entry};
use super::contents::Contents;
use super::release::{Release, SUMMARY};
use super::target::Target;
use super::{Error, Package, binary};

/// Builds the wheel of a program for a platform.
pub(super) fn package(release: &Release, target: &Target, contents: &Contents) -> Result<Package, Error> {
    let version = release.python_version()?;
    let minor = binary::glibc(&contents.program).unwrap_or(OLDEST_GLIBC).max(OLDEST_GLIBC);
    let tag = format!("py3-none-{}", target.wheel.replace("{glibc}", &format!("2_{minor}")));
    let info = format!("etude-{version}.dist-info");
    let mut entries = vec![Entry::program(format!("etude-{version}.data/scripts/etude"), contents.program.clone())];
    let licences = contents.licences().map(|(name, text)| Entry::file(format!("{info}/licenses/{name}"), text.clone()));
    entries.extend(licences);
    entries.push(Entry::file(format!("{info}/METADATA"), metadata(release, &version)?));
    let wheel = format!("Wheel-Version: 1.0\nGenerator: etude-package\nRoot-Is-Purelib: false\nTag: {tag}\n");
    entries.push(Entry::file(format!("{info}/WHEEL"), wheel));
    let record = record(&entries, &format!("{info}/RECORD"));
    entries.push(Entry::file(format!("{info}/RECORD"), record));
    Ok(Package { name: format!("etude-{version}-{tag}.whl"), bytes: archive::zip(&entries)? })
}

/// Minor version of the oldest glibc that wheel tags support.
const OLDEST_GLIBC: u32 = 17;

/// List of all files with their hashes, with which installers check a wheel.
fn record(entries: &[Entry], own: &str) -> String {
    let line = |entry: &Entry| {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(&entry.bytes));
        format!("{},sha256={hash},{}\n", entry.path, entry.bytes.len())
    };
    entries.iter().map(line).collect::<String>() + own + ",,\n"
}

fn metadata(release: &Release, version: &str) -> Result<String, Error> {
    let Release { licence, repository, version: tag, .. } = release;
    Ok(format!(
        "Metadata-Version: 2.4\n\
         Name: etude\n\
         Version: {version}\n\
         Summary: {SUMMARY}\n\
         Keywords: agents,llm,pipeline,workflow,durable,mcp\n\
         License-Expression: {licence}\n\
         License-File: LICENSE-APACHE\n\
         License-File: LICENSE-MIT\n\
         Requires-Python: >=3.8\n\
         Project-URL: Repository, {repository}\n\
         Project-URL: Changelog, {repository}/blob/v{tag}/CHANGELOG.md\n\
         Description-Content-Type: text/markdown; charset=UTF-8; variant=GFM\n\
         \n\
         {}",
        release.readme()?
    ))
}

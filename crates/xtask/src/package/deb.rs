//! Package for Debian and its derivatives.

use super::archive::{self, Entry};
use super::contents::Contents;
use super::release::{Release, SUMMARY};
use super::target::Target;
use super::{Error, Package, binary};

/// Builds the package of a target that Debian has.
pub(super) fn package(release: &Release, target: &Target, contents: &Contents) -> Result<Package, Error> {
    let architecture = target.deb.unwrap_or_default();
    let files = files(release, contents)?;
    // dpkg creates the list of checksums when it unpacks a package without one.
    let control = [Entry::file("./control", control(release, architecture, contents, &files))];
    let data: Vec<Entry> =
        files.into_iter().map(|entry| Entry { path: format!("./{}", entry.path), ..entry }).collect();
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", archive::tar_gz(&control, release.epoch)?),
        ("data.tar.gz", archive::tar_gz(&data, release.epoch)?),
    ];
    // The release host replaces a `~` in the name of a file by a dot.
    let name = format!("etude_{}_{architecture}.deb", release.debian_version().replace('~', "."));
    Ok(Package { name, bytes: archive::ar(&members, release.epoch) })
}

fn files(release: &Release, contents: &Contents) -> Result<Vec<Entry>, Error> {
    let mut files = vec![
        Entry::program("usr/bin/etude", contents.program.clone()),
        Entry::file("usr/share/man/man1/etude.1.gz", archive::gzip(&contents.manual)?),
        Entry::file("usr/share/doc/etude/copyright", copyright(release, contents)),
        Entry::file("usr/share/doc/etude/changelog.gz", archive::gzip(contents.document("CHANGELOG.md"))?),
    ];
    files.extend(contents.completions.iter().map(|(shell, script)| Entry::file(shell.deb, script.clone())));
    Ok(files)
}

fn control(release: &Release, architecture: &str, contents: &Contents, files: &[Entry]) -> String {
    let kibibytes: usize = files.iter().map(|entry| entry.bytes.len().div_ceil(1024)).sum();
    let depends = binary::glibc(&contents.program).map(|minor| format!("Depends: libc6 (>= 2.{minor}), libgcc-s1\n"));
    format!(
        "Package: etude\n\
         Version: {}\n\
         Architecture: {architecture}\n\
         Maintainer: The etude project <maintainers@etude.dev>\n\
         Installed-Size: {kibibytes}\n\
         {}\
         Recommends: ca-certificates, python3\n\
         Section: utils\n\
         Priority: optional\n\
         Homepage: {}\n\
         Description: {SUMMARY}\n \
         A run survives the death of its process: each step is journaled before\n \
         the next one starts, and a completed model call is never repeated.\n",
        release.debian_version(),
        depends.unwrap_or_default(),
        release.repository,
    )
}

fn copyright(release: &Release, contents: &Contents) -> String {
    let mit: String = String::from_utf8_lossy(contents.document("LICENSE-MIT"))
        .lines()
        .map(|line| if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect();
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: etude\n\
         Source: {}\n\n\
         Files: *\n\
         Copyright: 2026 the etude developers\n\
         License: MIT or Apache-2.0\n\n\
         License: MIT\n{mit}\n\
         License: Apache-2.0\n \
         The text is in /usr/share/common-licenses/Apache-2.0.\n",
        release.repository
    )
}

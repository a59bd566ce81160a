//! The program to package, and the C library that it needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;
use super::options::Options;
use super::target::Target;

/// Path of the program: the given one, or one that is built with the profile `dist`.
///
/// # Errors
/// The program does not suit the target, or this machine cannot build it.
pub(super) fn read_or_build(options: &Options, target: &'static Target) -> Result<PathBuf, Error> {
    let binary = match &options.binary {
        Some(binary) => fs::canonicalize(binary).map_err(Error::at(binary))?,
        None => build(options, target)?,
    };
    if target.is_static() {
        let program = fs::read(&binary).map_err(Error::at(&binary))?;
        if let Some(interpreter) = interpreter(&program) {
            return Err(Error::Dynamic { target: target.triple, interpreter });
        }
    }
    Ok(binary)
}

fn build(options: &Options, target: &'static Target) -> Result<PathBuf, Error> {
    target.check_toolchain()?;
    let words = ["build", "--locked", "--profile", "dist", "-p", "etude-cli", "--target", &options.target];
    let status = Command::new(env!("CARGO")).args(words).current_dir(crate::tree::root()).status();
    let failed = |reason: String| Error::Command { command: format!("cargo {}", words.join(" ")), reason };
    let status = status.map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    Ok(crate::tree::root().join("target").join(&options.target).join("dist/etude"))
}

/// Runs the program and returns its stdout. It must be a program for this machine.
pub(super) fn output(binary: &Path, arguments: &[&str]) -> Result<Vec<u8>, Error> {
    let failed = |reason: String| {
        let command = [&[&*binary.to_string_lossy()], arguments].concat().join(" ");
        Error::Command { command, reason }
    };
    let done = Command::new(binary).args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let stderr = String::from_utf8_lossy(&done.stderr);
    Err(failed(stderr.lines().last().map_or_else(|| done.status.to_string(), str::to_owned)))
}

/// Loader that a Linux program names, such as `/lib64/ld-linux-x86-64.so.2`; `None` if it is static, or not a 64-bit ELF file.
pub(super) fn interpreter(program: &[u8]) -> Option<String> {
    const INTERPRETER: u64 = 3;
    // All supported platforms are little-endian.
    let number = |at: usize, length: usize| {
        let bytes = program.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    if !program.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
    let headers = (0..count).map(|index| usize::try_from(table.saturating_add(index * size)).unwrap_or(usize::MAX));
    let header = headers.into_iter().find(|at| number(*at, 4) == Some(INTERPRETER))?;
    let start = usize::try_from(number(header.checked_add(8)?, 8)?).ok()?;
    let path = program.get(start..)?.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(path).into_owned())
}

/// Oldest glibc that has all symbols of the program, as minor version of 2; `None` if the program names none.
///
/// A linked program lists the versions of its symbols as strings such as `GLIBC_2.34`. `GLIBC_ABI_DT_RELR` stands for packed
/// relocations, which glibc reads from 2.36 on.
pub(super) fn glibc(program: &[u8]) -> Option<u32> {
    const PREFIX: &[u8] = b"\0GLIBC_2.";
    let mut newest = None;
    for at in positions(program, PREFIX) {
        let digits = program[at + PREFIX.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        let minor = digits.fold(0u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
        newest = newest.max(Some(minor));
    }
    let is_packed = positions(program, b"\0GLIBC_ABI_DT_RELR\0").next().is_some();
    newest.map(|minor| if is_packed { minor.max(36) } else { minor })
}

fn positions<'p>(program: &'p [u8], wanted: &'p [u8]) -> impl Iterator<Item = usize> + 'p {
    program.windows(wanted.len()).enumerate().filter(move |(_, window)| *window == wanted).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_loader() {
        let own = std::env::current_exe().unwrap();
        let found = interpreter(&fs::read(own).unwrap());
        assert_eq!(
            found.is_some_and(|path| path.contains("/ld-linux")),
            cfg!(all(target_os = "linux", target_env = "gnu"))
        );
        assert_eq!(interpreter(b"#!/bin/sh\n"), None);
        assert_eq!(interpreter(b"\x7fELF\x02\x01"), None, "a file may end anywhere");
    }

    #[test]
    fn the_newest_symbol_decides_about_the_c_library() {
        assert_eq!(glibc(b"\x7fELF\0GLIBC_2.17\0GLIBC_2.34\0GLIBC_2.4\0"), Some(34));
        assert_eq!(glibc(b"\0GLIBC_2.2.5\0"), Some(2));
        assert_eq!(glibc(b"\0GLIBC_2.2.5\0GLIBC_ABI_DT_RELR\0"), Some(36));
        assert_eq!(glibc(b"a static program mentions GLIBC_2.99"), None);
    }
}

//! The command `skill check`: one skill with all its faults (C-2.9).

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use etude_spec::skill::{self, LOWER_FILE, Profile, SKILL_FILE, Skill, findings};
use etude_spec::{Diagnostic, Severity};

use super::read_head;

/// The result of a check.
#[derive(Debug, Clone)]
pub struct Checked {
    /// True if the profile finds no error.
    pub is_valid: bool,
    /// The skill, with every part that could be read.
    pub skill: Option<Skill>,
    /// All findings about the skill.
    pub diagnostics: Vec<Diagnostic>,
}

/// Checks the skill at `path`, its directory or its file.
///
/// # Errors
/// Nothing exists at `path`.
pub fn check(path: &Path, profile: Profile) -> io::Result<Checked> {
    let (file, directory) = locate(path)?;
    let shown = file.display().to_string();
    let (skill, mut diagnostics) = match read_head(&file) {
        Ok((head, mut open)) => {
            let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let reading = skill::read(&head, name, profile);
            let mut diagnostics = reading.diagnostics;
            if head.fault.is_none()
                && let Err(fault) = decode(&mut open, head.body as u64, &shown)
            {
                diagnostics.push(*fault);
            }
            (reading.skill, diagnostics)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (None, vec![findings::not_a_skill(&shown)]),
        Err(error) => (None, vec![findings::unreadable(&shown, &error.to_string())]),
    };
    etude_spec::diagnostic::sort(&mut diagnostics);
    let is_valid = skill.is_some() && !diagnostics.iter().any(|fault| fault.severity == Severity::Error);
    Ok(Checked { is_valid, skill, diagnostics })
}

/// The file of the skill at `path`, and the directory that must match its name. A link keeps its own path.
fn locate(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    if !fs::symlink_metadata(path)?.is_dir() && !fs::metadata(path).is_ok_and(|meta| meta.is_dir()) {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = named(directory)?;
        let name = path.file_name().unwrap_or_default();
        return Ok((directory.join(name), directory));
    }
    let directory = named(path)?;
    let upper = directory.join(SKILL_FILE);
    let lower = directory.join(LOWER_FILE);
    let file = if !upper.exists() && lower.exists() { lower } else { upper };
    Ok((file, directory))
}

/// The directory as a path that ends in its name: `.` and `..` are resolved.
fn named(directory: &Path) -> io::Result<PathBuf> {
    match directory.components().next_back() {
        Some(std::path::Component::Normal(_)) => std::path::absolute(directory),
        _ => fs::canonicalize(directory),
    }
}

/// Reads the rest of a file and finds the first byte that is not UTF-8.
fn decode(file: &mut fs::File, from: u64, shown: &str) -> Result<(), Box<Diagnostic>> {
    let unreadable = |error: io::Error| Box::new(findings::unreadable(shown, &error.to_string()));
    file.seek(SeekFrom::Start(from)).map_err(unreadable)?;
    let (mut buffer, mut kept, mut at) = (vec![0; 64 * 1024], 0, from);
    loop {
        let got = file.read(&mut buffer[kept..]).map_err(unreadable)?;
        let filled = kept + got;
        let valid = match std::str::from_utf8(&buffer[..filled]) {
            Ok(_) => filled,
            // A character may be cut at the end of the buffer.
            Err(error) if error.error_len().is_none() && got > 0 => error.valid_up_to(),
            Err(error) => return Err(Box::new(findings::body_not_utf8(shown, at + error.valid_up_to() as u64))),
        };
        if got == 0 {
            return Ok(());
        }
        at += valid as u64;
        buffer.copy_within(valid..filled, 0);
        kept = filled - valid;
    }
}

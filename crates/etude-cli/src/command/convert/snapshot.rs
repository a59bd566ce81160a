//! Snapshot of a skill's files at the start of a conversion; the files are read and never changed (L-93).

use std::fs;
use std::path::{Path, PathBuf};

use etude::Disk;
use etude_convert::skill::{Skill, SkillFile};
use etude_core::digest::Digest;
use etude_spec::skill::SKILL_FILE;
use etude_spec::source::{FileKind, ReadFailure, Sources};

use crate::paths;
use crate::problem::Problem;

/// Maximum number of files of a skill, and maximum total size in bytes.
const MAX_FILES: usize = 2_000;
const MAX_BYTES: u64 = 64 << 20;

/// Maximum depth of nested directories.
const MAX_DEPTH: usize = 32;

/// Maximum size of a file whose text is read, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// Contents of a skill's directory.
#[derive(Debug)]
pub(super) struct Snapshot {
    root: PathBuf,
    files: Vec<Taken>,
}

#[derive(Debug)]
struct Taken {
    path: String,
    is_executable: bool,
    bytes: Vec<u8>,
}

impl Snapshot {
    /// Reads the files of the skill in `dir`. A link to a file inside is read as that file; `.git` is left out.
    pub(super) fn take(dir: &Path) -> Result<Self, Problem> {
        let shown = dir.display();
        let root = dir.canonicalize().ok().filter(|root| root.is_dir()).ok_or_else(|| paths::no_directory(dir))?;
        if !root.join(SKILL_FILE).is_file() {
            return Err(Problem::usage(format!("`{shown}` has no `{SKILL_FILE}`"))
                .hint("name the folder of a skill: etude convert DIR"));
        }
        let disk = Disk::open(&root).map_err(|e| Problem::environment(format!("`{shown}` cannot be opened: {e}")))?;
        let mut taken = Self { root, files: Vec::new() };
        let mut left = MAX_BYTES;
        taken.add(&disk, "", (0, &mut left))?;
        taken.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(taken)
    }

    fn add(&mut self, disk: &Disk, dir: &str, (depth, left): (usize, &mut u64)) -> Result<(), Problem> {
        let unusable =
            |path: &str, why: &str| Problem::usage(format!("`{path}` of the skill cannot be converted: {why}"));
        if depth > MAX_DEPTH {
            return Err(unusable(dir, "it is nested too deeply"));
        }
        let place = self.root.join(dir);
        let entries = fs::read_dir(&place).map_err(|e| unusable(dir, &e.to_string()))?;
        for entry in entries {
            let entry = entry.map_err(|e| unusable(dir, &e.to_string()))?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(unusable(dir, "a name in it is not UTF-8"));
            };
            let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            match disk.kind(&path) {
                _ if path == ".git" => {}
                Ok(FileKind::Dir) if is_link => return Err(unusable(&path, "it is a link to a directory")),
                Ok(FileKind::Dir) => self.add(disk, &path, (depth + 1, left))?,
                Ok(FileKind::File { executable: is_executable }) => {
                    let bytes = disk.read(&path, *left).map_err(|failure| match failure {
                        ReadFailure::TooLarge { .. } => unusable(&path, "the skill has more than 64 MiB"),
                        other => unusable(&path, &format!("{other:?}")),
                    })?;
                    *left = left.saturating_sub(bytes.len() as u64);
                    self.files.push(Taken { path, is_executable, bytes });
                }
                Ok(FileKind::Other) => return Err(unusable(&path, "it is not a regular file")),
                Err(ReadFailure::Outside) => {
                    return Err(unusable(&path, "it is a symbolic link that leads out of the skill"));
                }
                Err(other) => return Err(unusable(&path, &format!("{other:?}"))),
            }
            if self.files.len() > MAX_FILES {
                return Err(unusable(dir, "the skill has more than 2,000 files"));
            }
        }
        Ok(())
    }

    /// Path of the skill's directory, absolute and without links.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Paths of the files, relative to the skill's directory.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.path.as_str())
    }

    /// Hash of all names, modes and contents.
    pub(super) fn digest(&self) -> String {
        let list = self
            .files
            .iter()
            .map(|file| format!("{} {} {}\n", Digest::of(&file.bytes), u8::from(file.is_executable), file.path));
        Digest::of(list.collect::<String>().as_bytes()).to_string()
    }

    /// Parses the skill for the conversion.
    pub(super) fn skill(&self) -> Result<Skill, Problem> {
        let text = |file: &Taken| {
            let is_small = file.bytes.len() <= MAX_TEXT;
            is_small.then(|| String::from_utf8(file.bytes.clone()).ok()).flatten()
        };
        let own = self.files.iter().find(|file| file.path == SKILL_FILE).and_then(text);
        let own = own.ok_or_else(|| Problem::usage(format!("`{SKILL_FILE}` is not UTF-8, or has more than 1 MiB")))?;
        let file =
            |file: &Taken| SkillFile { path: file.path.clone(), is_executable: file.is_executable, text: text(file) };
        Skill::read(&own, self.files.iter().map(file).collect())
            .map_err(|why| Problem::usage(format!("the skill cannot be converted: {why}")))
    }

    /// Writes the files below `to`, byte for byte and with their modes (L-84).
    pub(super) fn copy(&self, to: &Path) -> std::io::Result<()> {
        for file in &self.files {
            let place = to.join(&file.path);
            if let Some(parent) = place.parent() {
                fs::create_dir_all(parent)?;
            }
            // Copied from the bytes that were hashed, then given the mode of the original.
            fs::write(&place, &file.bytes)?;
            fs::set_permissions(&place, fs::metadata(self.root.join(&file.path))?.permissions())?;
        }
        Ok(())
    }
}

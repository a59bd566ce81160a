//! Skill as the conversion sees it: name, description, statements and files.

use std::collections::BTreeSet;

use etude_spec::Diagnostic;
use etude_spec::skill::{APP_ROOT, Instructions, ROOTS, SKILL_FILE};
use etude_spec::source::SourceFile;

use crate::command;
use crate::statement::{self, MAX_STATEMENTS, Statement};

/// A skill and its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Name; empty if the frontmatter has none.
    pub name: String,
    /// Tools that the skill allows, as patterns; `None` allows all.
    pub allowed: Option<Vec<String>>,
    /// Statements, numbered in the order of the file.
    pub statements: Vec<Statement>,
    /// Files with `SKILL.md`, ordered by path.
    pub files: Vec<SkillFile>,
    /// Files of the caller that the commands name as examples.
    pub examples: BTreeSet<String>,
}

/// A file below the skill's directory, read with the skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFile {
    /// Path below the skill's directory, with `/` between its parts.
    pub path: String,
    /// True if one of its execute bits is set.
    pub is_executable: bool,
    /// Text of the file; `None` if it is not text or too large.
    pub text: Option<String>,
}

impl Skill {
    /// Reads a skill from the text of its `SKILL.md` and its files.
    ///
    /// # Errors
    /// The frontmatter has errors, or there are too many statements: a sentence without a full stop.
    pub fn read(text: &str, files: Vec<SkillFile>) -> Result<Self, String> {
        let read = Instructions::parse(&SourceFile::new(SKILL_FILE, text));
        let Instructions { name, allowed, body_start, .. } = read.map_err(|found| {
            let errors = found.into_iter().filter(Diagnostic::is_error).map(|error| error.message);
            errors.collect::<Vec<_>>().join("; ")
        })?;
        let statements = statement::split(text, body_start).map_err(|found| {
            format!("`{SKILL_FILE}` has {found} statements; at most {MAX_STATEMENTS} are converted")
        })?;
        let examples = command::example_files(&statements, &files);
        Ok(Self { name: name.unwrap_or_default(), allowed, statements, files, examples })
    }

    /// Statement with this number, from 1.
    pub fn statement(&self, id: u32) -> Option<&Statement> {
        self.statements.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    /// File at `path`, which is relative to the skill's directory.
    pub fn file(&self, path: &str) -> Option<&SkillFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// True if any skills directory of an app has a skill of this name.
    pub fn has_skill(&self, name: &str) -> bool {
        let directories = self.directories();
        let mut roots = std::iter::once(APP_ROOT).chain(ROOTS);
        roots.any(|root| directories.contains(format!("{root}/{name}").as_str()))
    }

    /// Directories that hold files of the skill.
    pub fn directories(&self) -> BTreeSet<&str> {
        let above = |path| std::iter::successors(Some(path), |path: &&str| Some(path.rsplit_once('/')?.0)).skip(1);
        self.files.iter().flat_map(|file| above(file.path.as_str())).collect()
    }
}

impl SkillFile {
    /// Program that runs the file as a script: an interpreter by extension, empty for an executable file. `None` if the file
    /// is not a script.
    pub fn interpreter(&self) -> Option<&'static str> {
        match self.path.rsplit_once('.').map(|(_, extension)| extension) {
            Some("py") => Some("python3"),
            Some("sh") => Some("sh"),
            Some("bash") => Some("bash"),
            Some("js" | "mjs" | "cjs") => Some("node"),
            Some("rb") => Some("ruby"),
            Some("pl") => Some("perl"),
            _ if self.is_executable => Some(""),
            _ => None,
        }
    }
}

//! Discovery of a project's main skill (D-4.2).

use std::sync::Arc;

use crate::cascade::search::text;
use crate::cascade::skill::{SUFFIX, Skill};
use crate::diagnose::cascade as diagnose;
use crate::diagnostic::Diagnostic;
use crate::skill::SKILL_FILE;
use crate::source::{FileKind, Sources};

/// Main skill of a project, as found in one directory.
#[derive(Debug, Clone, Default)]
pub struct ProjectMain {
    /// The skill, if there is exactly one candidate.
    pub skill: Option<Arc<Skill>>,
    /// True if the skill is marked as main.
    pub is_marked: bool,
    /// Diagnostics if several files are candidates, or are unreadable.
    pub diagnostics: Vec<Diagnostic>,
}

/// Finds the main skill among the files directly in `dir`: the only one, or else the marked one.
pub fn project_main(sources: &dyn Sources, dir: &str) -> ProjectMain {
    let mut found = ProjectMain::default();
    let Ok(mut entries) = sources.list("") else { return found };
    entries.retain(|entry| matches!(entry.kind, FileKind::File { .. }));
    entries.retain(|entry| entry.name == SKILL_FILE || entry.name.ends_with(SUFFIX));
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let mut skills = Vec::new();
    let dir: Arc<str> = dir.into();
    for entry in &entries {
        match text(sources, &entry.name, &entry.name) {
            Ok(file) => {
                let (skill, faults) = Skill::read(&file, &dir);
                found.diagnostics.extend(faults);
                skills.extend(skill.map(Arc::new));
            }
            Err(fault) => found.diagnostics.push(*fault),
        }
    }
    let marked: Vec<&Arc<Skill>> = skills.iter().filter(|skill| skill.is_main()).collect();
    match (marked.as_slice(), skills.as_slice()) {
        ([one], _) => {
            found.skill = Some(Arc::clone(one));
            found.is_marked = true;
        }
        ([], [one]) => found.skill = Some(Arc::clone(one)),
        ([], []) => {}
        ([], [first, ..]) => {
            let paths: Vec<&str> = skills.iter().map(|skill| skill.file.path()).collect();
            found.diagnostics.push(diagnose::no_main(&first.file, &paths));
        }
        ([first, second, ..], _) => {
            let paths: Vec<&str> = marked.iter().map(|skill| skill.file.path()).collect();
            found.diagnostics.push(diagnose::several_mains(&second.file, second.place("/role"), &paths));
            found.skill = Some(Arc::clone(first));
            found.is_marked = true;
        }
    }
    found
}

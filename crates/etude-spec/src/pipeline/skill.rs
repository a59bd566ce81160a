//! The skill that a step follows: found in the app, so that it is pinned with the pipeline.

use std::sync::Arc;

use crate::diagnose::references;
use crate::diagnostic::Diagnostic;
use crate::frontmatter;
use crate::pipeline::definition::Text;
use crate::source::{FileKind, SourceFile, Sources};

/// Where skills of an app are looked for, the first one wins (`c-applications` 2.6).
const FOLDERS: &[&str] = &["skills", ".agents/skills", ".etude/skills", ".claude/skills"];

/// A skill as a step needs it.
pub(crate) struct Skill {
    pub(crate) name: String,
    /// Its `SKILL.md`, relative to the app.
    pub(crate) file: String,
    /// Its directory, relative to the app.
    pub(crate) dir: String,
    /// Its instructions.
    pub(crate) body: String,
    /// What it allows itself.
    pub(crate) allowed: Option<Vec<String>>,
}

/// Finds and reads the skill that `name` names in `file`.
pub(crate) fn find(sources: &dyn Sources, file: &Arc<SourceFile>, name: Text<'_>) -> Result<Skill, Vec<Diagnostic>> {
    let is_name = !name.text.is_empty() && !name.text.contains(['/', '\\']) && !name.text.starts_with('.');
    let paths = FOLDERS.iter().map(|folder| format!("{folder}/{}", name.text));
    let is_there = |dir: &String| matches!(sources.kind(&format!("{dir}/SKILL.md")), Ok(FileKind::File { .. }));
    let Some(dir) = paths.filter(|_| is_name).find(is_there) else {
        let known = known(sources);
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        return Err(vec![references::unknown_skill(file, name.at, name.text, &known)]);
    };
    let path = format!("{dir}/SKILL.md");
    let text = frontmatter::open(sources, &path).map_err(|diagnostic| vec![*diagnostic])?;
    let parts = frontmatter::split(&text).map_err(|diagnostic| vec![*diagnostic])?;
    let (root, diagnostics) = frontmatter::parse(&text, &parts);
    if diagnostics.iter().any(Diagnostic::is_error) {
        return Err(diagnostics);
    }
    let allowed = root.as_ref().and_then(|root| root.as_map()?.get("allowed-tools")).map(|node| match node.as_seq() {
        Some(items) => items.iter().filter_map(|item| item.as_text().map(str::to_owned)).collect(),
        None => vec![node.as_text().unwrap_or_default().to_owned()],
    });
    let body = text.slice(parts.body).trim().to_owned();
    Ok(Skill { name: name.text.to_owned(), file: path, dir, body, allowed })
}

/// The names of the app's skills.
fn known(sources: &dyn Sources) -> Vec<String> {
    let mut names = Vec::new();
    for folder in FOLDERS {
        let entries = sources.list(folder).unwrap_or_default().into_iter().map(|entry| entry.name);
        names.extend(entries.filter(|name| sources.kind(&format!("{folder}/{name}/SKILL.md")).is_ok()));
    }
    names.sort();
    names.dedup();
    names
}

//! Discovery of an app's pipelines.

use crate::diagnose::files as diagnose;
use crate::diagnostic::Diagnostic;
use crate::files::{entries_of, misnamed};
use crate::source::{FileKind, ReadFailure, Sources};

/// The directory that holds the pipelines.
pub const PIPELINES: &str = "pipelines";

/// The directory of candidates: learned pipelines that receive no routed requests.
pub const LEARNED: &str = "learned";

/// The file that makes a directory a pipeline.
pub const PIPELINE_FILE: &str = "pipeline.yaml";

/// Name of the pipeline that runs before every other one.
pub const CONSTRUCTOR: &str = "_constructor";

/// Name of the pipeline that runs after every other one.
pub const DESTRUCTOR: &str = "_destructor";

/// Contents of `pipelines/`.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    /// Names of the business pipelines, sorted. A missing `pipeline.yaml` is noticed only when the pipeline is read.
    pub pipelines: Vec<String>,
    /// True if there is a constructor.
    pub constructor: bool,
    /// True if there is a destructor.
    pub destructor: bool,
    /// The pipeline that is read from `learned/`, where candidates are.
    pub candidate: Option<String>,
    /// Faults of the directory itself.
    pub diagnostics: Vec<Diagnostic>,
}

/// Discovers the pipelines with a single directory listing.
pub fn discover(sources: &dyn Sources) -> Discovery {
    let mut found = Discovery::default();
    let entries = match entries_of(sources, PIPELINES) {
        Ok(entries) => entries,
        Err(unreadable) => {
            found.diagnostics.push(unreadable);
            return found;
        }
    };
    for entry in entries {
        if entry.kind != FileKind::Dir {
            let stem = entry.name.strip_suffix(".yaml").or_else(|| entry.name.strip_suffix(".yml"));
            if let Some(stem) = stem.filter(|stem| !stem.is_empty() && !stem.starts_with(['_', '.'])) {
                let path = format!("{PIPELINES}/{}", entry.name);
                found.diagnostics.push(diagnose::pipeline_without_directory(&path, stem));
            } else if entry.kind == FileKind::Other && !entry.name.starts_with(['_', '.']) {
                found.diagnostics.extend(broken_link(sources, &format!("{PIPELINES}/{}", entry.name)));
            }
            continue;
        }
        match entry.name.as_str() {
            CONSTRUCTOR => found.constructor = found.has_file(sources, CONSTRUCTOR),
            DESTRUCTOR => found.destructor = found.has_file(sources, DESTRUCTOR),
            name if name.starts_with(['_', '.']) => {}
            _ => found.pipelines.push(entry.name),
        }
    }
    found.pipelines.sort_unstable();
    found
}

/// Warning about a link that leads to nothing which can be read; `None` for other special files.
fn broken_link(sources: &dyn Sources, path: &str) -> Option<Diagnostic> {
    let why = match sources.kind(path) {
        Ok(_) => return None,
        Err(ReadFailure::Missing) => "its symbolic link has no target".to_owned(),
        Err(ReadFailure::Outside) => "its symbolic link leads out of the app's directory".to_owned(),
        Err(ReadFailure::Other(why)) => why,
        Err(ReadFailure::WrongKind | ReadFailure::TooLarge { .. }) => "it cannot be read".to_owned(),
    };
    Some(diagnose::unread_pipeline(path, &why))
}

/// Path of the definition of `name` in `pipelines/`.
fn file_of(name: &str) -> String {
    format!("{PIPELINES}/{name}/{PIPELINE_FILE}")
}

impl Discovery {
    /// False, with a warning, if the directory of a constructor or destructor has no definition.
    fn has_file(&mut self, sources: &dyn Sources, name: &str) -> bool {
        let is_there = sources.kind(&file_of(name)) != Err(ReadFailure::Missing);
        if !is_there {
            let misnamed = misnamed(sources, &file_of(name));
            self.diagnostics.push(diagnose::no_pipeline_file(&format!("{PIPELINES}/{name}"), misnamed.as_deref()));
        }
        is_there
    }

    /// Adds the candidate `name`, in place of a pipeline of that name.
    pub(crate) fn with_candidate(mut self, name: &str) -> Self {
        if !self.contains(name) {
            self.pipelines.push(name.to_owned());
            self.pipelines.sort_unstable();
        }
        self.candidate = Some(name.to_owned());
        self
    }

    /// The directory of the pipeline `name`.
    pub fn dir_of(&self, name: &str) -> String {
        let base = if self.candidate.as_deref() == Some(name) { LEARNED } else { PIPELINES };
        format!("{base}/{name}")
    }

    /// The file of the pipeline `name`.
    pub fn file_of(&self, name: &str) -> String {
        format!("{}/{PIPELINE_FILE}", self.dir_of(name))
    }

    /// True if `name` is a business pipeline's directory.
    pub fn contains(&self, name: &str) -> bool {
        self.pipelines.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
    }

    /// All names whose definitions belong to the app: business pipelines, constructor, destructor.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        let constructor = self.constructor.then_some(CONSTRUCTOR);
        let destructor = self.destructor.then_some(DESTRUCTOR);
        constructor.into_iter().chain(destructor).chain(self.pipelines.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MemorySources;

    /// a definition beside the directories is a warning with its place; files with other names are left alone.
    #[test]
    fn a_definition_without_a_directory_is_a_warning() {
        let files = MemorySources::new()
            .with("pipelines/a/pipeline.yaml", "name: a")
            .with("pipelines/greet.yml", "name: greet")
            .with("pipelines/_shared.yaml", "x: 1")
            .with("pipelines/README.md", "Pipelines.");
        let found = discover(&files);
        assert_eq!(found.pipelines, ["a"]);
        let seen: Vec<_> = found.diagnostics.iter().map(|d| (d.is_error(), d.file.path(), d.hint.as_deref())).collect();
        let hint = "move it to `pipelines/greet/pipeline.yaml`; a name that begins with `_` is ignored";
        assert_eq!(seen, [(false, "pipelines/greet.yml", Some(hint))]);
    }
}

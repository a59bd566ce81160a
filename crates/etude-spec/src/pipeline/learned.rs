//! Checks of the learned pipelines of an app: their states, their content and their steps.

use std::sync::Arc;

use crate::diagnose::learn as diagnose;
use crate::diagnostic::{Diagnostic, Severity};
use crate::discover::LEARNED;
use crate::files::{entries_of, source_text};
use crate::learned::{FILE, LearnedState, Located, all, content_of, has_other_rules};
use crate::pipeline::App;
use crate::source::{SourceFile, Sources, Span};
use crate::yaml::{self, Node};

/// Checks all learned pipelines of an app. A fault of a candidate is a warning (L-37); one of a pipeline in
/// `pipelines/` keeps its severity.
pub fn check(sources: &dyn Sources) -> Vec<Diagnostic> {
    let unlisted = entries_of(sources, LEARNED).err().map(|fault| fault.severity(Severity::Warning));
    unlisted.into_iter().chain(all(sources).into_iter().flat_map(|located| diagnostics_of(sources, located))).collect()
}

fn diagnostics_of(sources: &dyn Sources, located: Located) -> Vec<Diagnostic> {
    let mut found = located.diagnostics.clone();
    if located.is_candidate() {
        found.extend(App::of_candidate(sources, &located.name).pipeline(&located.name).1);
    }
    if let Some(learned) = &located.learned
        && located.state() != Some(LearnedState::Demoted)
        && learned.content.as_ref().is_some_and(|known| *known != content_of(sources, &located.dir()))
        && let Ok(file) = source_text(sources, &format!("{}/{FILE}", located.dir()))
    {
        let place = place_of(&file, "content");
        found.push(diagnose::edited(&file, place, &located.name));
    }
    if let Some(learned) = &located.learned
        && located.state() != Some(LearnedState::Demoted)
        && has_other_rules(sources, &located.dir(), &learned.family)
        && let Ok(file) = source_text(sources, &format!("{}/{FILE}", located.dir()))
    {
        found.push(diagnose::other_rules(&file, place_of(&file, "content"), &located.name));
    }
    match located.is_candidate() {
        true => found.into_iter().map(|fault| fault.at_most(Severity::Warning)).collect(),
        false => found,
    }
}

/// Reports that the program has demoted a pipeline; `None` if learn.yaml already says so.
pub fn demoted_by_program(sources: &dyn Sources, located: &Located) -> Option<Diagnostic> {
    if located.state().is_none_or(|state| state == LearnedState::Demoted) {
        return None;
    }
    let file = source_text(sources, &format!("{}/{FILE}", located.dir())).ok()?;
    Some(diagnose::demoted(&file, place_of(&file, "state"), &located.name))
}

fn place_of(file: &Arc<SourceFile>, field: &str) -> Span {
    let root = yaml::parse(file).0;
    let entries = root.as_ref().and_then(Node::as_map);
    entries.and_then(|entries| entries.get(field)).map_or(Span::default(), |node| node.span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MemorySources;

    fn app(files: &[(&str, &str)]) -> MemorySources {
        files.iter().fold(MemorySources::new(), |sources, (path, text)| sources.with(path, *text))
    }

    /// L-37: a broken candidate is a warning; a broken learn.yaml in `pipelines/` is an error.
    #[test]
    fn a_broken_candidate_is_a_warning() {
        let broken = "name: p\ndescription: d\nsteps: [{name: a, type: tol}]\n";
        let files = [
            ("learned/p/learn.yaml", "learn: 1\nstate: shadow\nfamily: x\n"),
            ("learned/p/pipeline.yaml", broken),
            ("pipelines/q/learn.yaml", "learn: 1\n"),
            ("pipelines/q/pipeline.yaml", "name: q\ndescription: d\nsteps: [{name: a, type: llm, prompt: x}]\n"),
        ];
        let found = check(&app(&files));
        let of = |base: &str| {
            found.iter().filter(|d| d.file.path().starts_with(base)).map(|d| d.severity).collect::<Vec<_>>()
        };
        assert_eq!(of("learned/"), [Severity::Warning]);
        assert_eq!(of("pipelines/"), [Severity::Error, Severity::Error]);
    }

    /// L-65: an edited pipeline has lost its evidence.
    #[test]
    fn an_edited_pipeline_is_reported() {
        let edited = [
            ("learned/p/pipeline.yaml", "name: p\ndescription: d\nsteps: [{name: a, type: llm, prompt: x}]\n"),
            ("learned/p/learn.yaml", "learn: 1\nstate: shadow\nfamily: x\ncontent: abc\n"),
        ];
        let found = check(&app(&edited));
        assert_eq!(found.iter().map(|d| d.code.as_str()).collect::<Vec<_>>(), ["P0902"]);
        assert_eq!(found[0].position(), Some((4, 10)));
    }
}

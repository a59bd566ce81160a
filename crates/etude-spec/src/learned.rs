//! Learned pipelines: their state and provenance in learn.yaml (`learn.md` 1.2, 1.5), and the hash of their content.
//!
//! A candidate lies in `learned/NAME/`, a promoted pipeline in `pipelines/NAME/`. A pipeline without learn.yaml has no state.

mod content;
mod edit;
mod pinned;
mod rules;

use std::sync::Arc;

use serde_json::Value;

use crate::check::{Findings, Subject, object};
use crate::diagnose::{learn as diagnose, values};
use crate::diagnostic::{self, Diagnostic};
use crate::discover::{LEARNED, PIPELINES};
use crate::fields::learn::{COUNTS, LEARN_FILE};
use crate::files::source_text;
use crate::source::{FileKind, ReadFailure, SourceFile, Sources, Span};
use crate::wording::quoted;
use crate::yaml::{self, Entries, Node, boolean, text};

pub use content::{Content, Contents, called_by, content, content_of, has_other_rules, hash_of_tool, tools_of};
pub use edit::{with_accepted_risk, with_content, with_evidence, with_state, without_request};
pub use pinned::Pinned;
pub use rules::rules_of;

/// File that holds the state.
pub const FILE: &str = "learn.yaml";

/// Report for people, stored next to a candidate.
pub const REPORT: &str = "REPORT.md";

/// The directory of a candidate's cases, and of an app's tests.
pub const TESTS: &str = "tests";

etude_core::words! {
    /// States of a learned pipeline; each is one step above the previous one, except the last.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum LearnedState {
        /// Learned, without any effect yet.
        Proposed = "proposed",
        /// Runs beside the agent, without effect.
        Shadow = "shadow",
        /// Receives routed requests; every write must be confirmed.
        Assisted = "assisted",
        /// Receives routed requests.
        Active = "active",
        /// Removed from the routing table.
        Demoted = "demoted",
    }
}

impl LearnedState {
    /// True if requests are routed to the pipeline.
    pub const fn is_routed(self) -> bool {
        matches!(self, Self::Assisted | Self::Active)
    }

    /// The next higher state; `None` above `active`. `demoted` is followed by `proposed`.
    pub const fn above(self) -> Option<Self> {
        match self {
            Self::Demoted => Some(Self::Proposed),
            Self::Proposed => Some(Self::Shadow),
            Self::Shadow => Some(Self::Assisted),
            Self::Assisted => Some(Self::Active),
            Self::Active => None,
        }
    }
}

/// Counts of comparisons between pipeline and agent, by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Comparisons with the same writes.
    pub agreed: u64,
    /// Comparisons in which the pipeline deviated before a write.
    pub fell_back: u64,
    /// Comparisons with different writes.
    pub disagreed: u64,
}

impl Counts {
    /// Comparisons that did not fall back.
    pub const fn decided(self) -> u64 {
        self.agreed + self.disagreed
    }

    /// The sum of both counts, field by field.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            agreed: self.agreed + other.agreed,
            fell_back: self.fell_back + other.fell_back,
            disagreed: self.disagreed + other.disagreed,
        }
    }
}

/// Contents of a learn.yaml.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// State chosen by a person.
    pub state: LearnedState,
    /// Name of the family of runs.
    pub family: String,
    /// Hash of the learned content.
    pub content: Option<String>,
    /// True if a promotion was accepted without its evidence.
    pub accept_risk: bool,
    /// Number of distinct requests that it was learned from.
    pub requests: u64,
    /// Number of runs that it was learned from.
    pub runs: u64,
    /// Results of the checks that leave out one request each.
    pub leave_one_out: Counts,
    /// True if a hole has no closed set: the pipeline always deviates there (L-22).
    pub has_open_hole: bool,
    /// The whole file as JSON.
    pub document: Value,
}

/// A learned pipeline with its location.
#[derive(Debug, Clone, PartialEq)]
pub struct Located {
    /// Name of the pipeline and of its directory.
    pub name: String,
    /// Parent directory: `learned` or `pipelines`.
    pub base: &'static str,
    /// Contents of its learn.yaml; `None` if the file has errors.
    pub learned: Option<Learned>,
    /// Faults of learn.yaml.
    pub diagnostics: Vec<Diagnostic>,
}

impl Located {
    /// Directory of the pipeline, relative to the app.
    pub fn dir(&self) -> String {
        format!("{}/{}", self.base, self.name)
    }

    /// True if the pipeline lies in `learned/`.
    pub fn is_candidate(&self) -> bool {
        self.base == LEARNED
    }

    /// The recorded state; `None` if learn.yaml has errors.
    pub fn state(&self) -> Option<LearnedState> {
        Some(self.learned.as_ref()?.state)
    }
}

/// Every directory with a learn.yaml in `learned/` and `pipelines/`, by name. A candidate comes before the pipeline of
/// the same name.
pub fn all(sources: &dyn Sources) -> Vec<Located> {
    let mut found: Vec<Located> = [LEARNED, PIPELINES]
        .into_iter()
        .flat_map(|base| names(sources, base).filter_map(move |name| find(sources, base, &name)))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// True if the app has a learned pipeline: [`all`] is not empty. Reads no file.
pub fn is_any(sources: &dyn Sources) -> bool {
    let is_learned = |base: &str, name: &str| has_state(sources, &format!("{base}/{name}/{FILE}"));
    [LEARNED, PIPELINES].into_iter().any(|base| names(sources, base).any(|name| is_learned(base, &name)))
}

/// True if there is an entry at the path of a learn.yaml. One that is not a file is a fault: without its state, nothing may be
/// routed to the pipeline.
fn has_state(sources: &dyn Sources, path: &str) -> bool {
    !matches!(sources.kind(path), Err(ReadFailure::Missing | ReadFailure::Other(_)))
}

/// The learned pipeline in one directory; `None` without a learn.yaml.
pub fn find(sources: &dyn Sources, base: &'static str, name: &str) -> Option<Located> {
    let path = format!("{base}/{name}/{FILE}");
    if !has_state(sources, &path) {
        return None;
    }
    let (learned, diagnostics) = match source_text(sources, &path) {
        Ok(file) => read(&file, name, base == LEARNED),
        Err(diagnostic) => (None, vec![diagnostic]),
    };
    Some(Located { name: name.to_owned(), base, learned, diagnostics })
}

/// True if the files of pipeline `name` in `pipelines/` allow routing to it (L-36).
pub fn is_routable(sources: &dyn Sources, name: &str) -> bool {
    find(sources, PIPELINES, name).is_none_or(|located| located.state().is_some_and(LearnedState::is_routed))
}

fn names(sources: &dyn Sources, base: &str) -> impl Iterator<Item = String> + use<> {
    let entries = sources.list(base).unwrap_or_default();
    let dirs = entries.into_iter().filter(|entry| entry.kind == FileKind::Dir && !entry.name.starts_with(['.', '_']));
    dirs.map(|entry| entry.name)
}

/// Reads the learn.yaml of the pipeline `name`; `is_candidate` is true for one in `learned/`.
pub fn read(file: &Arc<SourceFile>, name: &str, is_candidate: bool) -> (Option<Learned>, Vec<Diagnostic>) {
    let (root, diagnostics) = yaml::parse(file);
    let mut found = Findings::new(file);
    found.list = diagnostics;
    let Some(root) = root else { return (None, found.list) };
    let Some(entries) = root.as_map() else {
        if !root.is_invalid() {
            found.push(values::top_level(file, root.span, LEARN_FILE.name, root.kind()));
        }
        return (None, found.list);
    };
    let at = entries.0.first().map_or(root.span, |(key, _)| key.span);
    object(&mut found, entries, &LEARN_FILE, Subject { name: &format!("the learn.yaml of {}", quoted(name)), at }, &[]);
    counts(&mut found, entries);
    let document = match root.to_json() {
        Ok(text) => serde_json::from_str(&text).unwrap_or_default(),
        Err(at) => {
            found.push(values::not_json(file, at, "the learn.yaml"));
            Value::Null
        }
    };
    let learned = from_entries(entries, document);
    let place = entries.get("state").map_or(Span::default(), |node| node.span);
    match &learned {
        Some(learned) if learned.state == LearnedState::Demoted => found.push(diagnose::demoted(file, place, name)),
        Some(learned) if is_candidate && learned.state.is_routed() => {
            found.push(diagnose::misplaced(file, place, name, learned.state.word()));
        }
        _ => {}
    }
    diagnostic::sort(&mut found.list);
    let is_sound = !found.list.iter().any(Diagnostic::is_error);
    (learned.filter(|_| is_sound), found.list)
}

fn counts(found: &mut Findings<'_>, root: &Entries<'_>) {
    let evidence = root.get("evidence").and_then(Node::as_map);
    if let Some((key, node)) = evidence.and_then(|evidence| evidence.entry("leave_one_out"))
        && let Some(entries) = node.as_map()
    {
        object(found, entries, &COUNTS, Subject { name: "`leave_one_out`", at: key.span }, &[]);
    }
}

fn from_entries(entries: &Entries<'_>, document: Value) -> Option<Learned> {
    let count = |from: &Value, field: &str| from[field].as_u64().unwrap_or(0);
    let evidence = &document["evidence"];
    let of_checks = &evidence["leave_one_out"];
    let holes = document["holes"].as_array();
    Some(Learned {
        state: LearnedState::from_word(text(entries, "state")?.text)?,
        family: text(entries, "family")?.text.to_owned(),
        content: text(entries, "content").map(|content| content.text.to_owned()),
        accept_risk: boolean(entries, "accept_risk").unwrap_or(false),
        requests: count(evidence, "requests"),
        runs: count(evidence, "runs"),
        leave_one_out: Counts {
            agreed: count(of_checks, "agreed"),
            fell_back: count(of_checks, "fell_back"),
            disagreed: count(of_checks, "disagreed"),
        },
        has_open_hole: holes.into_iter().flatten().any(|hole| hole.get("set").is_some_and(Value::is_null)),
        document,
    })
}

#[cfg(test)]
mod tests;

//! `learn` of a configuration: settings of learning and limits of promotion (`learn.md` 1.7).

use crate::check::Findings;
use crate::diagnose::learn as diagnose;
use crate::learned::LearnedState;
use crate::yaml::{Entries, Node, boolean, integer, number, text, texts};

/// The `learn` settings of one file; a missing setting is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Learn {
    enabled: Option<bool>,
    notice: Option<bool>,
    min_requests: Option<usize>,
    writes: Option<LearnedState>,
    shadow: Option<f64>,
    confirm: Option<Confirm>,
    wrong_rate: Option<f64>,
    confidence: Option<f64>,
    demote_after: Option<usize>,
    demote_window: Option<usize>,
    exclude: Vec<String>,
    redact: Vec<String>,
}

etude_core::words! {
    /// Confirmation of writes of pipelines in the state `assisted`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Confirm {
        /// A person, as for any other question of a run.
        #[default]
        Person = "person",
        /// A question to a model.
        Model = "model",
    }
}

/// Merged settings of all files, with the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Learning {
    /// True if traces are read and evidence is counted.
    pub enabled: bool,
    /// True if a run in skill mode reports that its family can be learned.
    pub notice: bool,
    /// Minimum number of distinct requests before a family is learned.
    pub min_requests: usize,
    /// Highest state that a pipeline with writes reaches without `--accept-risk`.
    pub writes: LearnedState,
    /// Share of the runs in skill mode that candidates shadow, from 0 to 1.
    pub shadow: f64,
    /// Confirmation of writes in `assisted`.
    pub confirm: Confirm,
    /// Maximum upper bound of the rate of wrong writes.
    pub wrong_rate: f64,
    /// Confidence of that bound.
    pub confidence: f64,
    /// Number of deviations of the same kind within the window that demote a pipeline.
    pub demote_after: usize,
    /// Size of that window, in runs.
    pub demote_window: usize,
    /// Tools that are never learned: patterns as in `allowed-tools`.
    pub exclude: Vec<String>,
    /// Fields whose values are never written to files: regular expressions on the whole name.
    pub redact: Vec<String>,
}

impl Default for Learning {
    fn default() -> Self {
        Self::of(std::iter::empty())
    }
}

impl Learning {
    /// Merges `files`, the nearest first. Lists of all files are joined.
    pub fn of<'f>(files: impl Iterator<Item = &'f Learn> + Clone) -> Self {
        fn first<'f, T>(files: impl Iterator<Item = &'f Learn>, field: impl Fn(&Learn) -> Option<T>) -> Option<T> {
            files.into_iter().find_map(field)
        }
        let all = |field: fn(&Learn) -> &Vec<String>| files.clone().flat_map(|file| field(file).clone()).collect();
        Self {
            enabled: first(files.clone(), |f| f.enabled).unwrap_or(true),
            notice: first(files.clone(), |f| f.notice).unwrap_or(true),
            min_requests: first(files.clone(), |f| f.min_requests).unwrap_or(3),
            writes: first(files.clone(), |f| f.writes).unwrap_or(LearnedState::Assisted),
            shadow: first(files.clone(), |f| f.shadow).unwrap_or(0.2),
            confirm: first(files.clone(), |f| f.confirm).unwrap_or_default(),
            wrong_rate: first(files.clone(), |f| f.wrong_rate).unwrap_or(0.05),
            confidence: first(files.clone(), |f| f.confidence).unwrap_or(0.95),
            demote_after: first(files.clone(), |f| f.demote_after).unwrap_or(2),
            demote_window: first(files.clone(), |f| f.demote_window).unwrap_or(20),
            exclude: all(|file| &file.exclude),
            redact: all(|file| &file.redact),
        }
    }
}

/// Regular expression for the whole name, from an entry of `redact`; `None` if it is invalid.
pub fn redacted_name(pattern: &str) -> Option<regex::Regex> {
    regex::Regex::new(&format!("^(?:{pattern})$")).ok()
}

/// Reads `learn` of a configuration file, whose types have been checked.
pub(super) fn read(root: &Entries<'_>) -> Learn {
    let Some(entries) = root.get("learn").and_then(Node::as_map) else { return Learn::default() };
    let map = |field: &str| entries.get(field).and_then(Node::as_map);
    let count = |entries: &Entries<'_>, field: &str| integer(entries, field).and_then(|n| usize::try_from(n).ok());
    let word = |field: &str| text(entries, field).map(|word| word.text);
    Learn {
        enabled: boolean(entries, "enabled"),
        notice: boolean(entries, "notice"),
        min_requests: count(entries, "min_requests"),
        writes: word("writes").and_then(LearnedState::from_word),
        shadow: number(entries, "shadow"),
        confirm: word("confirm").and_then(Confirm::from_word),
        wrong_rate: map("promote").and_then(|promote| number(promote, "wrong_rate")),
        confidence: map("promote").and_then(|promote| number(promote, "confidence")),
        demote_after: map("demote").and_then(|demote| count(demote, "after")),
        demote_window: map("demote").and_then(|demote| count(demote, "window")),
        exclude: texts(entries, "exclude"),
        redact: texts(entries, "redact"),
    }
}

/// Reports faults that the field table does not express: invalid regular expressions in `redact`.
pub(super) fn check(found: &mut Findings<'_>, root: &Entries<'_>) {
    let Some(redact) = root.get("learn").and_then(Node::as_map).and_then(|learn| learn.get("redact")) else { return };
    for (node, pattern) in redact.as_seq().into_iter().flatten().filter_map(|node| Some((node, node.as_text()?))) {
        if let Err(why) = regex::Regex::new(&format!("^(?:{pattern})$")) {
            found.push(diagnose::bad_field_pattern(found.file, node.span, pattern, &why.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::diagnostic::Diagnostic;
    use crate::source::SourceFile;

    fn parse(text: &str) -> (Learn, Vec<String>) {
        let (config, found) = config::read(&SourceFile::new("etude.yaml", text));
        let shown = |d: &Diagnostic| {
            let (line, column) = d.position().unwrap_or_default();
            format!("{line}:{column} {} {}", d.message, d.hint.as_deref().unwrap_or_default())
        };
        (config.learn, found.iter().map(shown).collect())
    }

    /// 1.7: the defaults apply; the nearest file wins, and lists of all files are joined.
    #[test]
    fn files_come_to_one_setting() {
        let known = Learning::default();
        assert!(known.enabled && known.notice);
        assert_eq!((known.min_requests, known.writes, known.shadow), (3, LearnedState::Assisted, 0.2));
        assert_eq!((known.confirm, known.wrong_rate, known.confidence), (Confirm::Person, 0.05, 0.95));
        assert_eq!((known.demote_after, known.demote_window), (2, 20));
        let (near, found) = parse("learn: {enabled: false, shadow: 1, exclude: [Bash], promote: {wrong_rate: 0.1}}\n");
        assert_eq!(found, [""; 0]);
        let far = parse("learn: {shadow: 0.5, confirm: model, exclude: [\"mcp__bank__*\"], demote: {after: 3}}\n").0;
        let both = Learning::of([&near, &far].into_iter());
        assert_eq!((both.enabled, both.shadow, both.confirm), (false, 1.0, Confirm::Model));
        assert_eq!((both.wrong_rate, both.demote_after, both.exclude.len()), (0.1, 3, 2));
    }

    /// mistakes have a place and a hint.
    #[test]
    fn mistakes_are_located() {
        let (_, found) = parse("learn:\n  writs: active\n  shadow: 2\n  redact: [\"(\"]\n  promote: {confidence: 0}\n");
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].starts_with("2:3 unknown field `writs`") && found[0].contains("`writes`"), "{found:?}");
        assert!(found[1].starts_with("3:11 `shadow`"), "{found:?}");
        assert!(found[2].starts_with("4:12 `(` in `redact` is not a regular expression"), "{found:?}");
        assert!(found[3].starts_with("5:25 `confidence`"), "{found:?}");
    }

    /// 1.7: an entry of `redact` is matched with the whole name.
    #[test]
    fn redact_means_whole_names() {
        let pattern = redacted_name("card_.*|email").expect("a pattern");
        assert!(pattern.is_match("email") && pattern.is_match("card_id"));
        assert!(!pattern.is_match("email_of") && !pattern.is_match("my_card_id"));
    }
}

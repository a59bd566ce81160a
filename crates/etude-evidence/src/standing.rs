//! Current status of one learned pipeline.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use etude_runtime::engine::{Engine, Error};
use etude_spec::config::learn::Learning;
use etude_spec::learned::{Content, Counts, Learned, LearnedState, Located};

use serde_json::Value;

use super::book::{self, Accepted, Demotion, Row, RowKind};
use super::{Verdict, bounds, demote};
use etude_tools::disk::Disk;

/// A learned pipeline: its files, its evidence, its state.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Place of the pipeline, and the content of its learn.yaml.
    pub located: Located,
    /// Current hash of its content.
    pub content: String,
    /// Names of the tools that it calls.
    pub called: BTreeSet<String>,
    /// Effective state; `None` if learn.yaml has errors.
    pub state: Option<LearnedState>,
    /// True if the content differs from that of learn.yaml.
    pub edited: bool,
    /// Its runs and comparisons with this content, newest first.
    pub rows: Vec<Row>,
    /// Current demotion.
    pub demoted: Option<Demotion>,
    /// Risk that a person has accepted for this content at this place (L-59); `None` if there is none. A candidate that was
    /// learned again with the same content has no `accept_risk`: its risk is not accepted.
    pub accepted_risk: Option<Accepted>,
    /// True if its cases have passed with this content.
    pub is_tested: bool,
}

/// Rows of a content. Comparisons with runs that were judged bad are left out, because they prove nothing (L-55).
fn rows(engine: &dyn Engine, content: &str) -> Result<Vec<Row>, Error> {
    let mut rows = book::rows(engine, content)?;
    let bad = demote::bad_runs(engine, &rows)?;
    rows.retain(|row| row.kind == RowKind::Run || !bad.contains_key(&row.run));
    Ok(rows)
}

/// Upper bound of the rate of wrong writes after these comparisons, in the form of documents (`learn.md` 2.10).
pub fn wrong_rate_bound(all: Counts, learning: &Learning) -> f64 {
    bounds::shown(bounds::upper_wrong_rate(all.decided(), all.disagreed, learning.confidence))
}

impl Standing {
    /// Reads the status of a pipeline with this content from the journal. `app` is the app in the journal.
    pub(super) fn read(
        engine: &dyn Engine,
        (app, disk): (&Path, &Disk),
        located: Located,
        content: Content,
    ) -> Result<Self, Error> {
        let Content { hash: content, called } = content;
        let demoted = book::demotion(engine, (app, disk), &located, &content)?;
        let learned = located.learned.as_ref();
        let is_accepted = learned.is_some_and(|learned| learned.accept_risk);
        let edited = learned.is_some_and(|learned| learned.content.as_deref().is_some_and(|known| known != content));
        let state = located.state_with(&content).map(|state| match &demoted {
            // A person's own demotion, or a lower state, stays.
            Some(demotion) if state != LearnedState::Demoted && state != LearnedState::Proposed => demotion.to,
            _ => state,
        });
        // A candidate with the content that was demoted needs later evidence as well (L-81).
        let demoted = demoted.filter(|demotion| state == Some(demotion.to) || state == Some(LearnedState::Proposed));
        Ok(Self {
            rows: rows(engine, &content)?,
            accepted_risk: if is_accepted { book::accepted(engine, &content)? } else { None },
            is_tested: book::is_tested(engine, &content)?,
            located,
            content,
            called,
            state,
            edited,
            demoted,
        })
    }

    /// Content of its learn.yaml; `None` if the file has errors.
    pub fn learned(&self) -> Option<&Learned> {
        self.located.learned.as_ref()
    }

    /// True if requests are routed to it.
    pub fn is_routed(&self) -> bool {
        !self.located.is_candidate() && self.state.is_some_and(LearnedState::is_routed)
    }

    /// Comparisons of the learning; none after an edit.
    pub fn leave_one_out(&self) -> Counts {
        let counts = self.learned().map(|learned| learned.leave_one_out).unwrap_or_default();
        if self.edited { Counts::default() } else { counts }
    }

    /// The same without requests that have live comparisons, so that each request counts once.
    pub(super) fn leave_one_out_only(&self) -> Counts {
        let mut counts = self.leave_one_out();
        let document = self.learned().map(|learned| &learned.document);
        let rows = |member: &str| document.and_then(|document| document[member].as_array()).into_iter().flatten();
        let live = self.live_verdicts();
        let is_live = |digest: &Value| digest.as_str().is_some_and(|digest| live.contains_key(digest));
        let covered = rows("covers").filter(|digest| is_live(digest)).count() as u64;
        let others = rows("not_covered").filter(|row| is_live(&row["digest"])).count() as u64;
        counts.agreed = counts.agreed.saturating_sub(covered);
        counts.fell_back = counts.fell_back.saturating_sub(others);
        counts
    }

    /// Comparisons with people and agents by request, each with its worst verdict.
    fn live_verdicts(&self) -> BTreeMap<&str, Verdict> {
        let mut by_request: BTreeMap<&str, Verdict> = BTreeMap::new();
        let rank = |verdict: Verdict| match verdict {
            Verdict::Disagreed => 3,
            Verdict::Agreed => 2,
            Verdict::FellBack => 1,
            Verdict::Done | Verdict::Failed | Verdict::Forgotten => 0,
        };
        for row in self.rows.iter().filter(|row| rank(row.verdict) > 0) {
            let known = by_request.entry(&row.digest).or_insert(row.verdict);
            if rank(row.verdict) > rank(*known) {
                *known = row.verdict;
            }
        }
        by_request
    }

    /// Counts of comparisons with people and agents; each request counts once, with its worst verdict.
    pub fn live(&self) -> Counts {
        let by_request = self.live_verdicts();
        let count = |wanted: Verdict| by_request.values().filter(|verdict| **verdict == wanted).count() as u64;
        Counts {
            agreed: count(Verdict::Agreed),
            fell_back: count(Verdict::FellBack),
            disagreed: count(Verdict::Disagreed),
        }
    }

    /// Upper bound of the rate of wrong writes, from all comparisons.
    pub fn wrong_rate_bound(&self, learning: &Learning) -> f64 {
        wrong_rate_bound(self.leave_one_out_only().plus(self.live()), learning)
    }

    /// Deviations of the last runs by kind: step, reason, number.
    pub fn deviations(&self, learning: &Learning) -> Vec<(String, String, u64)> {
        let mut kinds: BTreeMap<(String, String), u64> = BTreeMap::new();
        let runs = self.rows.iter().filter(|row| row.kind == RowKind::Run).take(learning.demote_window);
        for row in runs.filter(|row| matches!(row.verdict, Verdict::FellBack | Verdict::Failed)) {
            let kind = (row.step.clone().unwrap_or_default(), row.reason.clone().unwrap_or_default());
            *kinds.entry(kind).or_default() += 1;
        }
        kinds.into_iter().map(|((step, reason), count)| (step, reason, count)).collect()
    }
}

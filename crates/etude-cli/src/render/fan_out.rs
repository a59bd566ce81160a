//! Display of a fan-out: active and failed elements. Its size is bounded for any number of elements.

use std::collections::BTreeMap;

use etude_core::report::{Item, StepStatus};

use super::text::harmless;

/// Maximum number of active elements named.
const NAMED: usize = 3;

/// Maximum number of lines of a step about failed elements, and again about repeated attempts.
const MAX_LINES: u32 = 20;

/// Minimum number of elements for progress lines without a terminal.
const MANY: usize = 20;

/// State of one step's elements.
#[derive(Debug, Default)]
pub(super) struct Elements {
    active: BTreeMap<usize, Item>,
    failures: u32,
    repeats: u32,
}

impl Elements {
    pub(super) fn begin(&mut self, item: &Item) {
        self.active.insert(item.index, item.clone());
    }

    /// Text beside the spinner: `3 of 51, [3] a.pdf, [4] b.pdf and 2 more`.
    pub(super) fn message(&self, done: usize, total: usize) -> String {
        let named: Vec<String> = self.active.values().take(NAMED).map(|item| harmless(&item.to_string())).collect();
        let more = match self.active.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = if named.is_empty() { String::new() } else { format!(", {}{more}", named.join(", ")) };
        format!("{done} of {total}{named}")
    }

    /// Line about an element that has ended, if it gets one: a failure, or with `is_verbose` any element.
    pub(super) fn end(
        &mut self,
        item: &Item,
        status: StepStatus,
        error: Option<&str>,
        is_cached: bool,
        is_verbose: bool,
    ) -> Option<String> {
        self.active.remove(&item.index);
        let name = harmless(&item.to_string());
        let cached = if is_cached { ", cached" } else { "" };
        match error {
            _ if is_verbose => {
                let why = error.map(|why| format!(": {}", super::layout::clip(why, 300))).unwrap_or_default();
                Some(format!("{name} {}{cached}{why}", status.word()))
            }
            Some(why) => counted(&mut self.failures, "failed elements", || {
                format!("{name} failed: {}", super::layout::clip(why, 300))
            }),
            None => None,
        }
    }

    /// Line about a repeated attempt, if it gets one.
    pub(super) fn repeat(&mut self, is_verbose: bool, line: impl FnOnce() -> String) -> Option<String> {
        if is_verbose { Some(line()) } else { counted(&mut self.repeats, "repeated attempts", line) }
    }

    /// True if the progress of the fan-out gets a line without a spinner: at every tenth of many elements.
    pub(super) fn is_milestone(done: usize, total: usize) -> bool {
        total >= MANY && done < total && done * 10 / total != (done - 1) * 10 / total
    }
}

pub(super) fn counted(shown: &mut u32, what: &str, line: impl FnOnce() -> String) -> Option<String> {
    *shown = shown.saturating_add(1);
    match *shown {
        1..MAX_LINES => Some(line()),
        MAX_LINES => Some(format!("{} (further {what} are counted, not listed)", line())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(index: usize, label: &str) -> Item {
        Item { index, label: Some(label.into()) }
    }

    /// a few active elements are named.
    #[test]
    fn elements_at_work_are_named_in_bounds() {
        let mut elements = Elements::default();
        assert_eq!(elements.message(0, 51), "0 of 51");
        (0..20_000).for_each(|index| elements.begin(&item(index, "x\u{1b}[31m")));
        assert_eq!(elements.message(0, 20_000), "0 of 20000, [0] x, [1] x, [2] x and 19997 more");
        let end = |elements: &mut Elements, n| elements.end(&item(n, "x"), StepStatus::Succeeded, None, false, false);
        (2..20_000).for_each(|index| assert_eq!(end(&mut elements, index), None));
        assert_eq!(elements.message(19_998, 20_000), "19998 of 20000, [0] x, [1] x");
    }

    /// 20,000 failing elements write a screen, not 20,000 lines.
    #[test]
    fn failed_elements_and_repeated_attempts_get_few_lines() {
        let mut elements = Elements::default();
        let mut failed = |n| elements.end(&item(n, "x"), StepStatus::Failed, Some("boom"), false, false);
        assert_eq!(failed(0).as_deref(), Some("[0] x failed: boom"));
        let lines: Vec<String> = (1..20_000).filter_map(failed).collect();
        assert_eq!(lines.len(), MAX_LINES as usize - 1);
        assert!(lines.last().unwrap().ends_with("(further failed elements are counted, not listed)"), "{lines:?}");
        let repeats = (0..20_000).filter_map(|_| elements.repeat(false, || "again".to_owned())).count();
        assert_eq!(repeats, MAX_LINES as usize);
        assert_eq!((1..=20_000).filter(|done| Elements::is_milestone(*done, 20_000)).count(), 9);
        assert!(!(1..=5).any(|done| Elements::is_milestone(done, 5)));
    }
}

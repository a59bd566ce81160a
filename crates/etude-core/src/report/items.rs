//! Elements of a `for_each` in reports: their labels and their states.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::data::Json;
use crate::report::StepStatus;

/// Maximum length of an element's label, in characters.
const MAX_LABEL: usize = 40;

/// Maximum size of an element that is searched for a name, in bytes.
const MAX_NAMED: usize = 64 * 1024;

/// Members that can name an element, in order of preference.
const NAMING: [&str; 4] = ["name", "id", "path", "title"];

/// An element of a `for_each`, with its label for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Index in the array, from 0.
    pub index: usize,
    /// The element's own name: a short string, a number, or its `name`, `id`, `path` or `title`.
    pub label: Option<Arc<str>>,
}

impl Item {
    /// The label of the element `value` at `index`.
    pub fn of(index: usize, value: &Json) -> Self {
        let text = value.inline().filter(|text| text.len() <= MAX_NAMED);
        Self { index, label: text.and_then(label).map(Arc::from) }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.index)?;
        self.label.as_ref().map_or(Ok(()), |label| write!(f, " {label}"))
    }
}

fn label(text: &str) -> Option<String> {
    let text = text.trim_start();
    if !text.starts_with('{') {
        return scalar(text);
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    NAMING.iter().find_map(|name| scalar(members.get(*name)?.get()))
}

/// The label of a scalar: a string of one line, shortened, or a number.
fn scalar(text: &str) -> Option<String> {
    if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return Some(text.trim_end().to_owned());
    }
    let string: String = serde_json::from_str(text).ok()?;
    let string = string.trim();
    let count = string.chars().count();
    if string.is_empty() || string.contains('\n') || count > 10 * MAX_LABEL {
        return None;
    }
    Some(match count {
        0..=MAX_LABEL => string.to_owned(),
        // The end of a path says more than its beginning.
        _ if string.contains('/') => "…".chars().chain(string.chars().skip(count - MAX_LABEL + 1)).collect(),
        _ => super::clip(string, MAX_LABEL),
    })
}

/// Progress of the elements of a `for_each`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Items {
    /// Number of elements of the array.
    pub total: usize,
    /// Number of elements that ended without a failure.
    pub succeeded: usize,
    /// Number of succeeded elements that used the output of an earlier run.
    pub cached: usize,
    /// Indexes of the failed elements, in order.
    pub failed: Vec<usize>,
}

impl Items {
    /// Counts an element that is over.
    pub(crate) fn count(&mut self, index: usize, status: StepStatus, is_cached: bool) {
        match status {
            StepStatus::Succeeded => {
                self.succeeded += 1;
                self.cached += usize::from(is_cached);
            }
            StepStatus::Failed => {
                let at = self.failed.partition_point(|failed| *failed < index);
                self.failed.insert(at, index);
            }
            _ => {}
        }
    }
}

impl fmt::Display for Items {
    /// Formats as `50 of 51, 1 failed: [7]`, with the indexes of the first failed elements.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        write!(f, "{} of {}", self.succeeded, self.total)?;
        if self.failed.is_empty() {
            return Ok(());
        }
        let places: Vec<String> = self.failed.iter().take(SHOWN).map(usize::to_string).collect();
        let more = if self.failed.len() > SHOWN { ", …" } else { "" };
        write!(f, ", {} failed: [{}{more}]", self.failed.len(), places.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// an element is named by itself if it is short, or by a member with its name.
    #[test]
    fn elements_are_named_by_what_they_hold() {
        let long_path = format!("\"a/{}/invoice-7.pdf\"", "b".repeat(60));
        let cases = [
            ("7", "[3] 7"),
            ("\"two\"", "[3] two"),
            ("\"two\\nlines\"", "[3]"),
            ("null", "[3]"),
            ("[1]", "[3]"),
            ("{\"x\":1}", "[3]"),
            ("{\"title\":\"T\",\"path\":\"a/b.pdf\"}", "[3] a/b.pdf"),
            ("{\"id\":12,\"name\":null}", "[3] 12"),
            ("{\"name\":\"N\",\"id\":12}", "[3] N"),
        ];
        for (element, named) in cases {
            assert_eq!(Item::of(3, &Json::trusted(element)).to_string(), named, "{element}");
        }
        let shown = Item::of(0, &Json::trusted(long_path)).to_string();
        assert!(shown.starts_with("[0] …b") && shown.ends_with("/invoice-7.pdf"), "{shown}");
        assert_eq!(Item::of(0, &Json::string(&"x".repeat(1000))).label, None);
    }

    /// a collected fan-out reports the number of failed elements, and their indexes.
    #[test]
    fn failed_elements_are_listed_in_order_and_in_bounds() {
        let mut items = Items { total: 51, ..Items::default() };
        items.count(7, StepStatus::Failed, false);
        (0..50).for_each(|index| items.count(index, StepStatus::Succeeded, index < 2));
        assert_eq!((items.to_string().as_str(), items.cached), ("50 of 51, 1 failed: [7]", 2));
        [40, 3].into_iter().for_each(|index| items.count(index, StepStatus::Failed, false));
        assert_eq!(items.failed, [3, 7, 40]);
        (100..120).for_each(|index| items.count(index, StepStatus::Failed, false));
        let shown = items.to_string();
        assert!(shown.ends_with("23 failed: [3, 7, 40, 100, 101, 102, 103, 104, 105, 106, …]"), "{shown}");
    }
}

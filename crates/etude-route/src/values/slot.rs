//! Slots: parameters with the words and values that their declarations allow.

use std::collections::BTreeSet;

use super::pieces::folded;
use super::{Parameter, Type, dates, lexicon};
use crate::stem;

/// Sort of values that a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Number,
    Boolean,
    Choice,
    Date,
    Moment,
    Path,
    Link,
    Address,
    Text,
    /// Lists of numbers.
    Numbers,
    Other,
}

/// End of a range that a parameter names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Low,
    High,
    Neither,
}

/// Parameter with its words.
pub(super) struct Slot<'a> {
    pub(super) parameter: Parameter<'a>,
    pub(super) sort: Sort,
    /// Words of the name, folded.
    pub(super) name: Vec<String>,
    /// Stems of the name, without words that carry no meaning.
    pub(super) name_stems: BTreeSet<String>,
    /// Stems of the things that it counts or measures: from its description, and from the pipeline's words if that names
    /// none.
    pub(super) subject: BTreeSet<String>,
    /// True if it is a count.
    pub(super) is_count: bool,
    /// Units in its name and description.
    pub(super) units: Vec<&'static str>,
    pub(super) end: End,
    /// True if it is a target.
    pub(super) is_target: bool,
}

/// Folded words of a name with any separators: `maxItems`, `max_items`, `max-items`.
fn words_of_name(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() && was_lower {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("there is one").push(c);
        }
        was_lower = c.is_lowercase();
    }
    words.iter().map(|word| folded(word)).filter(|word| !word.is_empty()).collect()
}

fn words_of(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '%' | '€' | '$' | '°'));
    let words = words.map(folded).filter(|word| !word.is_empty());
    // Without blanks, every sign is a word.
    words
        .flat_map(|word| match word.chars().next().is_some_and(crate::text::is_spaceless) {
            true => word.chars().map(|c| c.to_string()).collect(),
            false => vec![word],
        })
        .collect()
}

/// Stems of a text that name its subject.
pub(super) fn subject_of(text: &str) -> BTreeSet<String> {
    let words = words_of(text).into_iter();
    let forwarding = words.filter(|word| {
        !stem::is_stop(word) && !lexicon::GENERIC.contains(&word.as_str()) && !lexicon::RANK.contains(&word.as_str())
    });
    forwarding.map(|word| stem::stem(&word)).collect()
}

impl<'a> Slot<'a> {
    pub(super) fn new(parameter: Parameter<'a>, pipeline: &BTreeSet<String>) -> Self {
        let name = words_of_name(parameter.name);
        let described = words_of(parameter.description);
        let has = |list: &[&str]| name.iter().any(|word| list.contains(&word.as_str()));
        let sort = sort(&parameter, &name, &described);
        let own: BTreeSet<String> = subject_of(parameter.description);
        let says_of_its_own = own.iter().any(|word| !pipeline.contains(word));
        let counts = [
            "how many", "number of", "at most", "anzahl", "wie viele", "combien", "nombre de", "cuantos", "数量",
            "多少",
        ];
        let description = parameter.description.to_lowercase();
        let mut units: Vec<&'static str> =
            name.iter().chain(&described).filter_map(|word| lexicon::unit(word)).collect();
        // A single letter of a sentence is not a unit.
        units.retain(|unit| {
            unit.len() > 1
                || *unit == "%"
                || name.iter().any(|word| lexicon::unit(word) == Some(unit))
                || described.iter().any(|word| word.len() > 1 && lexicon::unit(word) == Some(unit))
        });
        let counts_things = has(lexicon::COUNTS) || counts.iter().any(|words| description.contains(words));
        let is_count = counts_things && units.is_empty();
        let end = match (has(lexicon::LOW), has(lexicon::HIGH)) {
            (true, false) => End::Low,
            (false, true) => End::High,
            _ => End::Neither,
        };
        let name_stems = name.iter().filter(|word| !stem::is_stop(word)).map(|word| stem::stem(word)).collect();
        let subject = if says_of_its_own { own } else { own.union(pipeline).cloned().collect() };
        let is_target = has(lexicon::TARGETS);
        Self { parameter, sort, name, name_stems, subject, is_count, units, end, is_target }
    }

    /// Default of the parameter, as JSON text.
    pub(super) fn default_text(&self) -> Option<&str> {
        self.parameter.default.as_deref()
    }
}

fn sort(parameter: &Parameter<'_>, name: &[String], described: &[String]) -> Sort {
    let named = |list: &[&str]| name.iter().any(|word| list.contains(&word.as_str()));
    let says = |list: &[&str]| described.iter().any(|word| list.contains(&word.as_str()));
    match (parameter.kind, parameter.format) {
        (Type::Integer | Type::Number, _) => Sort::Number,
        (Type::Boolean, _) => Sort::Boolean,
        (Type::Numbers, _) => Sort::Numbers,
        (Type::Other, _) => Sort::Other,
        _ if !parameter.choices.is_empty() => Sort::Choice,
        (_, Some("date")) => Sort::Date,
        (_, Some("date-time")) => Sort::Moment,
        (_, Some("uri" | "url" | "iri")) => Sort::Link,
        (_, Some("email")) => Sort::Address,
        _ if named(&["date", "deadline", "datum", "fecha", "birthday", "since", "until"])
            || says(&["date", "dates", "datum", "fecha", "iso", "yyyy"]) && !named(lexicon::PATHS) =>
        {
            Sort::Date
        }
        _ if name.len() > 1 && name[0] == "as" && name[1] == "of" => Sort::Date,
        _ if named(lexicon::PATHS)
            || says(&["path", "file", "folder", "directory", "datei", "ordner", "fichier", "archivo"])
            || is_path(parameter.default.as_deref()) =>
        {
            Sort::Path
        }
        _ if named(lexicon::LINKS) || says(&["url", "link"]) => Sort::Link,
        _ if named(&["email", "mailto"]) || named(lexicon::ADDRESSES) && says(&["email", "address"]) => Sort::Address,
        _ if named(lexicon::DATES) && is_date(parameter.default.as_deref()) => Sort::Date,
        _ => Sort::Text,
    }
}

fn is_path(default: Option<&str>) -> bool {
    default.is_some_and(|text| {
        text.contains('/') && !text.contains("://")
            || text.trim_matches('"').rsplit_once('.').is_some_and(|(name, end)| {
                !name.is_empty()
                    && !name.contains(' ')
                    && (2..5).contains(&end.len())
                    && end.bytes().all(|b| b.is_ascii_lowercase())
            })
    })
}

fn is_date(default: Option<&str>) -> bool {
    default.is_some_and(|text| matches!(dates::written(text.trim_matches('"')), Some(dates::Written::Day(_))))
}

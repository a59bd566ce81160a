//! Assignment of the values in a request to parameters.

use std::collections::BTreeSet;
use std::ops::Range;

use super::grade::{self, Grade, admits};
use super::pieces::{Piece, pieces};
use super::slot::{End, Slot, Sort, subject_of};
use super::{About, Mention, Parameter, What, lexicon, pieces::folded};
use super::{context, phrase};
use crate::stem;

/// Parameters and values of a request.
pub struct Reading<'a> {
    pub(super) request: &'a str,
    pub(super) slots: Vec<Slot<'a>>,
    pub(super) pieces: Vec<Piece>,
    pub(super) mentions: Vec<Mention>,
    /// Value of each slot.
    pub(super) taken: Vec<Option<Taken>>,
    /// For each mention, true if a parameter has it.
    pub(super) received: Vec<bool>,
    /// For each slot, the places of two of its choices, or of a statement and its opposite.
    torn: Vec<Vec<Range<usize>>>,
}

/// Value in a request, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Value as JSON.
    pub json: String,
    /// Byte range in the request; empty for a declared value that a model chose.
    pub span: Range<usize>,
}

/// Parameter that would take its default although the request has a value that may be meant for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unclear {
    /// Name of the parameter.
    pub name: String,
    /// Byte ranges of the values that may be meant.
    pub spans: Vec<Range<usize>>,
    /// Possible value as JSON, for an example.
    pub example: Option<String>,
}

impl<'a> Reading<'a> {
    /// Reads `request`, without its parts in `masked`, for `parameters` of the pipeline that `about` describes.
    pub fn new(request: &'a str, about: About<'_>, parameters: Vec<Parameter<'a>>, masked: &[Range<usize>]) -> Self {
        let (found, shown) = pieces(request, masked);
        let pieces = phrase::joined(found, shown);
        let mentions = context::mentions(&pieces);
        let mut words = subject_of(about.description);
        words.extend(subject_of(&about.name.replace(['-', '_'], " ")));
        words.extend(about.triggers.iter().flat_map(|trigger| subject_of(trigger)));
        let slots: Vec<Slot<'a>> = parameters.into_iter().map(|parameter| Slot::new(parameter, &words)).collect();
        let (of_slots, of_mentions) = (slots.len(), mentions.len());
        let mut reading = Self {
            request,
            slots,
            pieces,
            mentions,
            taken: vec![None; of_slots],
            received: vec![false; of_mentions],
            torn: vec![Vec::new(); of_slots],
        };
        reading.take_ranges();
        reading.take_cued();
        reading.take_choices();
        reading.take_switches();
        reading.take_bare();
        reading
    }

    /// Values from code and accepted values from a model, with their names, in the order of the parameters.
    pub fn taken(&self) -> impl Iterator<Item = (&str, &Taken)> {
        let pairs = self.slots.iter().zip(&self.taken).filter(|(slot, _)| !slot.parameter.is_given);
        pairs.filter_map(|(slot, taken)| Some((slot.parameter.name, taken.as_ref()?)))
    }

    pub(super) fn give(&mut self, slot: usize, mention: usize, json: String) {
        let span = self.mentions[mention].span.clone();
        self.taken[slot] = Some(Taken { json, span });
        self.received[mention] = true;
    }

    pub(super) fn grade(&self, slot: usize, mention: usize) -> Grade {
        grade::grade(&self.slots[slot], &self.mentions[mention], &self.pieces, self.request)
    }

    fn option(&self, slot: usize, mention: usize) -> Option<String> {
        grade::option(&self.slots[slot], &self.mentions[mention], self.request)
    }

    /// Takes ranges such as "from 5 to 10" for parameters of either end.
    fn take_ranges(&mut self) {
        for at in 0..self.mentions.len() {
            let (low, high, sort) = match &self.mentions[at].what {
                _ if self.mentions[at].is_denied => continue,
                What::Range(low, high) => (low.clone(), high.clone(), Sort::Number),
                What::Dates(low, high) => (grade::quoted(low), grade::quoted(high), Sort::Date),
                _ => continue,
            };
            let unit = self.mentions[at].unit;
            let of_end = |end: End| {
                let fits = |slot: &&(usize, &Slot<'_>)| {
                    let (_, slot) = slot;
                    slot.sort == sort && slot.end == end && unit.is_none_or(|unit| slot.units.contains(&unit))
                };
                let slots: Vec<(usize, &Slot<'_>)> = self.slots.iter().enumerate().collect();
                let mut found = slots.iter().filter(fits).map(|(at, _)| *at);
                found.next().filter(|_| found.next().is_none())
            };
            if let (Some(lower), Some(upper)) = (of_end(End::Low), of_end(End::High))
                && (self.slots[lower].parameter.accepts)(&low)
                && (self.slots[upper].parameter.accepts)(&high)
                && self.taken[lower].is_none()
                && self.taken[upper].is_none()
            {
                self.give(lower, at, low);
                self.give(upper, at, high);
            }
        }
    }

    /// Takes values whose words name their parameter.
    fn take_cued(&mut self) {
        let grades: Vec<Vec<Grade>> = (0..self.slots.len())
            .map(|slot| (0..self.mentions.len()).map(|at| self.grade(slot, at)).collect())
            .collect();
        let best = |at: usize| grades.iter().map(|of| of[at]).max().unwrap_or(Grade::Never);
        let holders = |at: usize| (0..grades.len()).filter(|slot| grades[*slot][at] == best(at)).collect::<Vec<_>>();
        for (slot, of) in grades.iter().enumerate() {
            if self.taken[slot].is_some() {
                continue;
            }
            let is_elsewhere = |at: usize| best(at) >= Grade::Counted && best(at) > of[at];
            let meant: Vec<usize> = (0..of.len())
                .filter(|at| !self.received[*at] && of[*at] >= Grade::Bare && !is_elsewhere(*at))
                .collect();
            let mut values: Vec<Option<String>> = meant.iter().map(|at| self.option(slot, *at)).collect();
            values.dedup();
            let cued = meant.iter().find(|at| of[**at] >= Grade::Counted && holders(**at) == [slot]);
            if let (Some(at), [Some(json)]) = (cued, &values[..]) {
                let json = json.clone();
                for other in &meant {
                    self.received[*other] = true;
                }
                self.give(slot, *at, json);
            }
        }
    }

    /// Takes values that are the only ones of their form, for the only parameter of that form.
    fn take_bare(&mut self) {
        for slot in 0..self.slots.len() {
            if self.taken[slot].is_some() {
                continue;
            }
            let left = self.left_for(slot);
            let [at] = left[..] else { continue };
            let is_open = |other: usize| self.taken[other].is_none() && self.grade(other, at) >= Grade::Bare;
            let others = (0..self.slots.len()).filter(|other| *other != slot && is_open(*other)).count();
            if others == 0
                && self.grade(slot, at) == Grade::Bare
                && let Some(json) = self.option(slot, at)
            {
                self.give(slot, at, json);
            }
        }
    }

    /// Mentions that no parameter has and that may be meant for this one.
    pub(super) fn left_for(&self, slot: usize) -> Vec<usize> {
        let is_left = |at: &usize| {
            let mention = &self.mentions[*at];
            admits(&self.slots[slot], mention) && !self.received[*at] && !self.is_contrast(*at)
        };
        (0..self.mentions.len()).filter(is_left).collect()
    }

    /// True for a denied mention if the request also has the actual value: "3, not 5".
    fn is_contrast(&self, at: usize) -> bool {
        let same = |slot: &Slot<'_>| admits(slot, &self.mentions[at]);
        let holds = self.slots.iter().zip(&self.taken).any(|(slot, taken)| taken.is_some() && same(slot));
        self.mentions[at].is_denied && holds
    }

    /// Takes members of an enum that the request names.
    fn take_choices(&mut self) {
        let found: Vec<Vec<Named>> = (0..self.slots.len()).map(|slot| self.choices_named(slot)).collect();
        for (slot, named) in found.iter().enumerate() {
            let is_better_elsewhere = |one: &Named| {
                found.iter().enumerate().any(|(other, theirs)| {
                    other != slot
                        && theirs
                            .iter()
                            .any(|their| their.pieces == one.pieces && (their.is_explicit && !one.is_explicit))
                })
            };
            let is_shared = |one: &Named| {
                !one.is_explicit
                    && found.iter().enumerate().any(|(other, theirs)| {
                        other != slot
                            && theirs
                                .iter()
                                .any(|their| their.pieces == one.pieces && their.is_explicit == one.is_explicit)
                    })
            };
            let mut meant: Vec<&Named> =
                named.iter().filter(|one| !one.is_denied && !is_better_elsewhere(one)).collect();
            if meant.iter().any(|one| one.is_explicit) {
                let explicit: Vec<&Named> = meant.iter().copied().filter(|one| one.is_explicit).collect();
                meant.retain(|one| one.is_explicit || explicit.iter().any(|other| self.are_alternatives(one, other)));
            }
            let mut choices: Vec<&String> = meant.iter().map(|one| &one.json).collect();
            choices.dedup();
            let spans = |named: &[&Named]| named.iter().map(|one| self.pieces_span(&one.pieces)).collect::<Vec<_>>();
            match (&choices[..], &meant[..]) {
                ([], _) => {
                    let default = self.slots[slot].default_text();
                    let denied: Vec<&Named> =
                        named.iter().filter(|one| one.is_denied && Some(one.json.as_str()) == default).collect();
                    self.torn[slot] = spans(&denied);
                }
                ([json], [one, ..]) if !is_shared(one) => {
                    self.taken[slot] = Some(Taken { json: (*json).clone(), span: self.pieces_span(&one.pieces) });
                }
                _ => self.torn[slot] = spans(&meant),
            }
        }
    }

    /// True for "the red or the blue room": the word for the parameter is next to one of them, and applies to both.
    fn are_alternatives(&self, one: &Named, other: &Named) -> bool {
        let between = one.pieces.end.min(other.pieces.end)..one.pieces.start.max(other.pieces.start);
        let Some(pieces) = self.pieces.get(between) else { return false };
        let words: Vec<&str> = pieces.iter().filter_map(Piece::word).collect();
        let is_or = |word: &&str| lexicon::ALTERNATIVES.contains(word);
        words.iter().any(is_or) && words.iter().all(|word| is_or(word) || lexicon::ARTICLES.contains(word))
    }

    pub(super) fn pieces_span(&self, pieces: &Range<usize>) -> Range<usize> {
        self.pieces[pieces.start].span.start..self.pieces[pieces.end - 1].span.end
    }

    /// Choices of a slot that the request names; the longest if one is part of another.
    pub(super) fn choices_named(&self, slot: usize) -> Vec<Named> {
        let slot = &self.slots[slot];
        if slot.sort != Sort::Choice {
            return Vec::new();
        }
        let mut found: Vec<Named> = Vec::new();
        for choice in &slot.parameter.choices {
            let words: Vec<String> =
                choice.split(|c: char| !c.is_alphanumeric()).map(folded).filter(|word| !word.is_empty()).collect();
            for pieces in context::places(&self.pieces, &words) {
                let is_explicit =
                    grade::follows_name(slot, &self.pieces, pieces.start) || self.precedes_name(slot, pieces.end);
                // Short and common words are choices only next to the name.
                if (choice.len() < 3 || words.len() == 1 && stem::is_stop(&words[0])) && !is_explicit {
                    continue;
                }
                let is_denied = context::is_denied(&self.pieces, pieces.start);
                found.push(Named { json: grade::quoted(choice), pieces, is_denied, is_explicit });
            }
        }
        let all = found.clone();
        found.retain(|one| {
            !all.iter().any(|other| {
                other.pieces.len() > one.pieces.len()
                    && other.pieces.start <= one.pieces.start
                    && one.pieces.end <= other.pieces.end
            })
        });
        found
    }

    /// True for "the archive folder" and a parameter `folder`.
    fn precedes_name(&self, slot: &Slot<'_>, at: usize) -> bool {
        self.pieces.get(at).and_then(Piece::word).is_some_and(|word| slot.name_stems.contains(&stem::stem(word)))
    }

    /// Takes parameters that are on or off.
    fn take_switches(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].sort != Sort::Boolean || self.taken[slot].is_some() {
                continue;
            }
            let found = self.switched(slot);
            let mut values: Vec<bool> = found.iter().map(|(value, _)| *value).collect();
            values.dedup();
            match (&values[..], &found[..]) {
                ([value], [(_, span), ..]) => {
                    self.taken[slot] = Some(Taken { json: value.to_string(), span: span.clone() })
                }
                ([], _) => {}
                _ => self.torn[slot] = found.into_iter().map(|(_, span)| span).collect(),
            }
        }
    }

    /// States of a switch in the request, with their places: all words of its name, or the last one denied.
    pub(super) fn switched(&self, slot: usize) -> Vec<(bool, Range<usize>)> {
        let slot = &self.slots[slot];
        let is_negative = slot
            .name
            .iter()
            .any(|word| lexicon::NEGATORS.contains(&word.as_str()) || matches!(word.as_str(), "disable" | "hide"));
        let says_nothing = |word: &&String| {
            matches!(
                word.as_str(),
                "is" | "has"
                    | "with"
                    | "do"
                    | "use"
                    | "enable"
                    | "enabled"
                    | "include"
                    | "should"
                    | "allow"
                    | "show"
                    | "add"
                    | "disable"
                    | "hide"
                    | "the"
                    | "only"
            ) || lexicon::NEGATORS.contains(&word.as_str())
        };
        let core: Vec<String> = slot.name.iter().filter(|word| !says_nothing(word)).cloned().collect();
        let is_off = |pieces: &Range<usize>| {
            let after = self.pieces.get(pieces.end).and_then(Piece::word).unwrap_or_default();
            let disabling = pieces.start.checked_sub(1).and_then(|at| self.pieces[at].word()).unwrap_or_default();
            let is_disabled = matches!(after, "off" | "disabled" | "false") || matches!(disabling, "disable" | "hide");
            is_disabled || context::is_denied(&self.pieces, pieces.start)
        };
        let mut found: Vec<(bool, Range<usize>)> = Vec::new();
        for pieces in context::places(&self.pieces, &core) {
            let is_on = !is_off(&pieces);
            let is_subject = core.len() == 1
                && slot.subject.contains(&stem::stem(&core[0]))
                && slot.parameter.description.is_empty();
            if !is_subject || !is_on {
                found.push((is_on != is_negative, self.pieces_span(&pieces)));
            }
        }
        if let (true, [_, .., last]) = (found.is_empty(), &core[..]) {
            for pieces in context::places(&self.pieces, std::slice::from_ref(last)) {
                if is_off(&pieces) {
                    found.push((is_negative, self.pieces_span(&pieces)));
                }
            }
        }
        found
    }

    /// Parameters that would take their default, or be left out, although the request has a value for them.
    pub fn unclear(&self) -> Vec<Unclear> {
        let open = (0..self.slots.len()).filter(|slot| {
            self.taken[*slot].is_none()
                && !self.slots[*slot].parameter.is_given
                && !self.slots[*slot].parameter.is_required
        });
        let unclear = open.filter_map(|slot| {
            let mut left = self.left_for(slot);
            if self.slots[slot].parameter.default.is_none() {
                // Without a default, nothing replaces a value that was not meant for the parameter.
                left.retain(|at| self.grade(slot, *at) > Grade::Unsaid);
            }
            let mut spans: Vec<Range<usize>> = left.iter().map(|at| self.mentions[*at].span.clone()).collect();
            spans.extend(self.torn[slot].iter().cloned());
            spans.dedup();
            if spans.is_empty() {
                return None;
            }
            let example = self.choices_for(slot).into_iter().next();
            Some(Unclear { name: self.slots[slot].parameter.name.to_owned(), spans, example })
        });
        unclear.collect()
    }

    /// Values, as JSON, that the request has for a parameter and that no other one has.
    pub(super) fn choices_for(&self, slot: usize) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for at in self.left_for(slot).into_iter().filter(|at| self.grade(slot, *at) > Grade::Never) {
            let option = self.option(slot, at).filter(|option| !found.contains(option));
            found.extend(option);
        }
        let denied: BTreeSet<String> =
            self.choices_named(slot).into_iter().filter(|one| one.is_denied).map(|one| one.json).collect();
        for one in self.choices_named(slot) {
            if !one.is_denied && !found.contains(&one.json) && !denied.contains(&one.json) {
                found.push(one.json);
            }
        }
        found
    }
}

/// Choice that the request names.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) json: String,
    /// Pieces of the request that name it.
    pub(super) pieces: Range<usize>,
    pub(super) is_denied: bool,
    is_explicit: bool,
}

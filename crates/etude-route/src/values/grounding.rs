//! Values from a model: they count if the request shows them.

use std::ops::Range;

use super::assign::{Reading, Taken};
use super::grade::Grade;
use super::pieces::{Piece, folded};
use super::slot::Sort;
use super::{Bound, What, context, lexicon, numerals};
use crate::{stem, text};

/// Value that a model gives for a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelValue {
    /// A number in its written form.
    Number(String),
    /// A string of the model, which need not be in the request.
    Text(String),
    /// On or off.
    Bool(bool),
    /// The values of a list or an object.
    Many(Vec<ModelValue>),
    /// The model found no value in the request.
    Null,
}

/// Question to a model: a parameter for which the request may have a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Name of the parameter.
    pub name: String,
    /// The only values, as JSON, that are accepted; empty if they cannot be listed.
    pub choices: Vec<String>,
}

impl Reading<'_> {
    /// Questions that need an understanding of the request.
    pub fn questions(&self) -> Vec<Question> {
        let open = (0..self.slots.len()).filter(|slot| self.is_open(*slot));
        let asked = open.filter_map(|slot| {
            let choices = self.choices_for(slot);
            let has_range =
                || self.mentions.iter().any(|mention| matches!(mention.what, What::Range(..)) && !mention.is_denied);
            let (is_asked, choices) = match self.slots[slot].sort {
                Sort::Number => (!choices.is_empty() || has_range(), if has_range() { Vec::new() } else { choices }),
                Sort::Date | Sort::Moment => (!choices.is_empty(), choices),
                Sort::Boolean => (self.switch_shown(slot).is_some(), Vec::new()),
                Sort::Choice => (self.supported(slot).next().is_some(), self.supported(slot).collect()),
                Sort::Numbers => (
                    self.mentions.iter().any(|mention| matches!(mention.what, What::Number(_) | What::Range(..))),
                    Vec::new(),
                ),
                Sort::Path | Sort::Link | Sort::Address | Sort::Text | Sort::Other => {
                    (self.pieces.iter().any(|piece| piece.word().is_some()) || !choices.is_empty(), Vec::new())
                }
            };
            // A required parameter is also asked for if the request states it in other words: "into French" for `fr`.
            let is_asked = is_asked || self.is_chosen_freely(slot);
            is_asked.then(|| Question { name: self.slots[slot].parameter.name.to_owned(), choices })
        });
        asked.collect()
    }

    /// True for a required choice or switch without a value in the request: a model decides among the declared values.
    fn is_chosen_freely(&self, slot: usize) -> bool {
        let of = &self.slots[slot];
        of.parameter.is_required
            && match of.sort {
                // "anything but German" names a value only to exclude it.
                Sort::Choice => self.choices_named(slot).is_empty() && self.supported(slot).next().is_none(),
                Sort::Boolean => self.switched(slot).is_empty() && self.switch_shown(slot).is_none(),
                _ => false,
            }
    }

    fn is_open(&self, slot: usize) -> bool {
        self.taken[slot].is_none() && !self.slots[slot].parameter.is_given
    }

    /// Takes those of `values` (names, values, and these as JSON) that the request shows. Returns the names of the others.
    pub fn believe(&mut self, values: &[(String, ModelValue, String)]) -> Vec<String> {
        let mut refused = Vec::new();
        let mut ends: Vec<(usize, String, String)> = Vec::new();
        for (name, model_value, json) in values {
            let Some(slot) = self.slots.iter().position(|slot| slot.parameter.name == name) else { continue };
            if self.taken[slot].is_some() {
                // The value from code takes precedence.
                continue;
            }
            if !self.is_open(slot) || *model_value == ModelValue::Null || !(self.slots[slot].parameter.accepts)(json) {
                refused.push(name.clone());
            } else if let Some(number) = self.end_of_range(slot, model_value) {
                ends.push((slot, number, json.clone()));
            } else if !self.believe_one(slot, model_value, json) {
                refused.push(name.clone());
            }
        }
        for (slot, number, json) in &ends {
            let is_other_end = |other: &(usize, String, String)| other.0 != *slot && other.1 != *number;
            let range = self.range_with(number).filter(|_| ends.iter().any(is_other_end));
            match range {
                Some(at) => self.give(*slot, at, json.clone()),
                None => refused.push(self.slots[*slot].parameter.name.to_owned()),
            }
        }
        refused
    }

    /// The number of `model_value`, if the request has it only as an end of a range.
    fn end_of_range(&self, slot: usize, model_value: &ModelValue) -> Option<String> {
        let ModelValue::Number(number) = model_value else { return None };
        let number = numerals::canonical(number);
        let is_alone = self.number_mention(slot, &number).is_some();
        (self.slots[slot].sort == Sort::Number && !is_alone && self.range_with(&number).is_some()).then_some(number)
    }

    fn range_with(&self, number: &str) -> Option<usize> {
        let has = |what: &What| matches!(what, What::Range(low, high) if low == number || high == number);
        self.mentions.iter().position(|mention| has(&mention.what) && !mention.is_denied)
    }

    /// Mention of `number` that no parameter has and this one may have.
    fn number_mention(&self, slot: usize, number: &str) -> Option<usize> {
        (0..self.mentions.len()).find(|at| {
            let mention = &self.mentions[*at];
            let is_it =
                matches!(&mention.what, What::Number(readings) if readings.iter().any(|reading| reading == number));
            let is_bound_away = matches!(mention.bound, Bound::Over | Bound::Under) && self.slots[slot].is_count;
            is_it && !self.received[*at] && !mention.is_denied && !is_bound_away && self.grade(slot, *at) > Grade::Never
        })
    }

    fn believe_one(&mut self, slot: usize, model_value: &ModelValue, json: &str) -> bool {
        match (self.slots[slot].sort, model_value) {
            (Sort::Number, ModelValue::Number(number)) => {
                let mention = self.number_mention(slot, &numerals::canonical(number));
                mention.map(|at| self.give(slot, at, json.to_owned())).is_some()
            }
            (Sort::Boolean, ModelValue::Bool(_)) | (Sort::Choice, ModelValue::Text(_))
                if self.is_chosen_freely(slot) =>
            {
                self.keep(slot, json, 0..0);
                true
            }
            (Sort::Boolean, ModelValue::Bool(value)) => {
                let shown = self.switch_shown(slot).filter(|(shown, _)| shown == value);
                shown.map(|(_, span)| self.keep(slot, json, span)).is_some()
            }
            (Sort::Choice, ModelValue::Text(_)) => {
                let is_shown = self.supported(slot).any(|choice| choice == json);
                let span = self.choice_span(slot, json);
                span.filter(|_| is_shown).map(|span| self.keep(slot, json, span)).is_some()
            }
            (Sort::Date | Sort::Moment, ModelValue::Text(text)) => {
                let wanted = folded(text);
                let found = (0..self.mentions.len()).find(|at| {
                    let is_it = matches!(&self.mentions[*at].what, What::Date(Some(day)) | What::Moment(day) if folded(day) == wanted);
                    is_it && !self.mentions[*at].is_denied && !self.received[*at]
                });
                match found {
                    Some(at) => {
                        self.give(slot, at, json.to_owned());
                        true
                    }
                    None => false,
                }
            }
            (Sort::Path | Sort::Link | Sort::Address | Sort::Text, ModelValue::Text(text)) => match self.verbatim(text)
            {
                Some(span) if self.slots[slot].parameter.is_required || !self.is_all(&span) => {
                    self.keep(slot, json, span);
                    true
                }
                None if self.slots[slot].parameter.is_required && self.has_words_of(text) => {
                    self.keep(slot, json, 0..0);
                    true
                }
                _ => false,
            },
            (Sort::Numbers | Sort::Other, model_value) => match self.shown(model_value) {
                Some(spans) if !spans.is_empty() => {
                    let (start, end) =
                        (spans.iter().map(|span| span.start).min(), spans.iter().map(|span| span.end).max());
                    for span in &spans {
                        self.receive(span);
                    }
                    self.taken[slot] =
                        Some(Taken { json: json.to_owned(), span: start.unwrap_or(0)..end.unwrap_or(0) });
                    true
                }
                _ => false,
            },
            _ => false,
        }
    }

    fn keep(&mut self, slot: usize, json: &str, span: Range<usize>) {
        self.receive(&span);
        self.taken[slot] = Some(Taken { json: json.to_owned(), span });
    }

    /// Marks the mentions within a taken text as received, because they are part of it.
    fn receive(&mut self, span: &Range<usize>) {
        for (mention, received) in self.mentions.iter().zip(&mut self.received) {
            *received |= span.start <= mention.span.start && mention.span.end <= span.end;
        }
    }

    /// Places of every part of a value; `None` if one is missing.
    fn shown(&self, model_value: &ModelValue) -> Option<Vec<Range<usize>>> {
        match model_value {
            ModelValue::Number(number) => {
                let number = numerals::canonical(number);
                let found = self.mentions.iter().find(|mention| {
                    let is_it = match &mention.what {
                        What::Number(readings) => readings.contains(&number),
                        What::Range(low, high) => *low == number || *high == number,
                        _ => false,
                    };
                    is_it && !mention.is_denied
                });
                found.map(|mention| vec![mention.span.clone()])
            }
            ModelValue::Text(text) => self.verbatim(text).map(|span| vec![span]),
            ModelValue::Many(all) => {
                all.iter().map(|one| self.shown(one)).collect::<Option<Vec<_>>>().map(|found| found.concat())
            }
            ModelValue::Bool(_) => None,
            ModelValue::Null => Some(Vec::new()),
        }
    }

    /// Place of a text in the request, as a whole and not denied, in any case.
    fn verbatim(&self, text: &str) -> Option<Range<usize>> {
        let wanted: Vec<char> = text.trim().chars().flat_map(text::fold).filter(|c| !c.is_whitespace()).collect();
        let (first, last) = (*wanted.first()?, *wanted.last()?);
        let letters: Vec<(usize, usize, char)> = self
            .request
            .char_indices()
            .filter(|(_, c)| !c.is_whitespace())
            .flat_map(|(at, c)| text::fold(c).map(move |folded| (at, at + c.len_utf8(), folded)))
            .collect();
        let is_word = |c: char| c.is_alphanumeric() && !text::bounds_values(c);
        let joins = |inside: char, outside: Option<char>| is_word(inside) && outside.is_some_and(is_word);
        letters.windows(wanted.len()).find_map(|window| {
            if !window.iter().map(|(_, _, c)| c).eq(wanted.iter()) {
                return None;
            }
            let span = window[0].0..window[window.len() - 1].1;
            let before = self.request[..span.start].chars().next_back();
            let behind = self.request[span.end..].chars().next();
            let is_whole = !joins(first, before) && !joins(last, behind);
            let piece = self.pieces.iter().position(|piece| piece.span.end > span.start)?;
            (is_whole && !context::is_denied(&self.pieces, piece)).then_some(span)
        })
    }

    /// True if every word of a text is in the request and not denied, in any order: `feature-login` for "the login feature".
    fn has_words_of(&self, text: &str) -> bool {
        let words: Vec<String> =
            text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(folded).collect();
        let stands = |word: &String| {
            let is_it = |piece: &Piece| piece.word().is_some_and(|known| folded(known) == *word);
            self.pieces.iter().position(is_it).is_some_and(|at| !context::is_denied(&self.pieces, at))
        };
        !words.is_empty() && words.iter().all(stands)
    }

    /// True if a part of the request has all its words.
    fn is_all(&self, span: &Range<usize>) -> bool {
        self.pieces
            .iter()
            .filter(|piece| piece.word().is_some())
            .all(|piece| span.start <= piece.span.start && piece.span.end <= span.end)
    }

    /// State of a switch in the request, if it is unambiguous; a part of the name suffices.
    fn switch_shown(&self, slot: usize) -> Option<(bool, Range<usize>)> {
        let model_value = self.switched(slot);
        if let Some((value, span)) = model_value.first() {
            return model_value.iter().all(|(other, _)| other == value).then(|| (*value, span.clone()));
        }
        let of = &self.slots[slot];
        let is_negative = of.name.iter().any(|word| lexicon::NEGATORS.contains(&word.as_str()));
        let is_part = |piece: &Piece| {
            piece.word().is_some_and(|word| {
                word.len() > 2 && !stem::is_stop(word) && word != "only" && of.name_stems.contains(&stem::stem(word))
            })
        };
        let at = self.pieces.iter().position(is_part)?;
        let is_on = !context::is_denied(&self.pieces, at);
        Some((is_on != is_negative, self.pieces[at].span.clone()))
    }

    /// Choices, as JSON, with a word in the request that is not denied.
    fn supported(&self, slot: usize) -> impl Iterator<Item = String> {
        let choices = self.slots[slot].parameter.choices.iter().map(|choice| super::grade::quoted(choice));
        choices.filter(move |choice| self.choice_span(slot, choice).is_some())
    }

    fn choice_span(&self, slot: usize, json: &str) -> Option<Range<usize>> {
        let named = self.choices_named(slot);
        if let Some(one) = named.iter().find(|one| one.json == json) {
            return (!one.is_denied).then(|| self.pieces_span(&one.pieces));
        }
        let choice = self.slots[slot].parameter.choices.iter().find(|choice| super::grade::quoted(choice) == json)?;
        let words: Vec<String> = choice
            .split(|c: char| !c.is_alphanumeric())
            .map(folded)
            .filter(|word| word.chars().count() > 2 && !stem::is_stop(word))
            .collect();
        let is_part = |piece: &Piece| {
            piece.word().is_some_and(|known| words.iter().any(|word| stem::stem(word) == stem::stem(known)))
        };
        let at = self.pieces.iter().position(is_part)?;
        (!context::is_denied(&self.pieces, at)).then(|| self.pieces[at].span.clone())
    }
}

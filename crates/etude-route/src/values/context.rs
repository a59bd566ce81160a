//! Context of a value: negations, comparisons, the words before and after it.

use std::ops::Range;

use super::lexicon;
use super::pieces::{Piece, PieceKind};
use super::{Bound, Mention};
use crate::stem;

fn word(pieces: &[Piece], at: usize) -> &str {
    pieces.get(at).and_then(Piece::word).unwrap_or_default()
}

/// Values in `pieces`, with their negation and comparison.
pub(super) fn mentions(pieces: &[Piece]) -> Vec<Mention> {
    let found = pieces.iter().enumerate().filter_map(|(at, piece)| match &piece.kind {
        PieceKind::Value(what, unit) => {
            let (bound, from) = bound(pieces, at);
            let is_denied = is_denied(pieces, from);
            Some(Mention { span: piece.span.clone(), what: what.clone(), unit: *unit, is_denied, bound, at })
        }
        _ => None,
    });
    found.collect()
}

/// True if the words before `at` in its clause deny it.
pub(super) fn is_denied(pieces: &[Piece], at: usize) -> bool {
    let mut back = at;
    for _ in 0..4 {
        let Some(before) = back.checked_sub(1) else { return false };
        let this = word(pieces, before);
        if lexicon::NEGATORS.contains(&this) {
            return true;
        }
        if before > 0 && lexicon::NEGATING_PAIRS.contains(&(word(pieces, before - 1), this)) {
            return true;
        }
        // "any room but the red one".
        if this == "but" && (before.saturating_sub(3)..before).any(|at| lexicon::ALL.contains(&word(pieces, at))) {
            return true;
        }
        if !lexicon::AFTER_NEGATION.contains(&this) {
            return false;
        }
        back = before;
    }
    false
}

/// Words in front of a value that state its comparison, without accents.
const BOUNDS: &[(&[&[&str]], Bound)] = &[
    (
        &[
            &["no", "more", "than"],
            &["not", "more", "than"],
            &["never", "more", "than"],
            &["at", "most"],
            &["at", "the", "most"],
            &["up", "to"],
            &["max"],
            &["maximum"],
            &["maximal"],
            &["hochstens"],
            &["bis", "zu"],
            &["au", "plus"],
            &["como", "maximo"],
            &["nicht", "mehr", "als"],
        ],
        Bound::AtMost,
    ),
    (
        &[
            &["no", "fewer", "than"],
            &["no", "less", "than"],
            &["not", "less", "than"],
            &["at", "least"],
            &["min"],
            &["minimum"],
            &["mindestens"],
            &["au", "moins"],
            &["al", "menos"],
            &["por", "lo", "menos"],
            &["≥"],
        ],
        Bound::AtLeast,
    ),
    (
        &[
            &["more", "than"],
            &["over"],
            &["above"],
            &["greater", "than"],
            &["larger", "than"],
            &["bigger", "than"],
            &["older", "than"],
            &["longer", "than"],
            &["higher", "than"],
            &["exceeding"],
            &["mehr", "als"],
            &["plus", "de"],
            &["mas", "de"],
            &[">"],
        ],
        Bound::Over,
    ),
    (
        &[
            &["less", "than"],
            &["fewer", "than"],
            &["under"],
            &["below"],
            &["smaller", "than"],
            &["shorter", "than"],
            &["younger", "than"],
            &["lower", "than"],
            &["weniger", "als"],
            &["moins", "de"],
            &["menos", "de"],
            &["<"],
            &["≤"],
        ],
        Bound::Under,
    ),
];

/// Comparison of the value at `at`, and the index of the first word that states it.
fn bound(pieces: &[Piece], at: usize) -> (Bound, usize) {
    let after = (word(pieces, at + 1), word(pieces, at + 2));
    match after {
        ("or", "more") | ("or", "above") | ("oder", "mehr") | ("+", _) => return (Bound::AtLeast, at),
        ("or", "fewer" | "less" | "below") | ("oder", "weniger") => return (Bound::AtMost, at),
        _ => {}
    }
    let mut words: Vec<&str> = pieces[at.saturating_sub(4)..at].iter().rev().map_while(Piece::word).collect();
    words.reverse();
    let ends = |tail: &[&str]| words.ends_with(tail);
    for (tails, bound) in BOUNDS {
        if let Some(tail) = tails.iter().find(|tail| ends(tail)) {
            return (*bound, at - tail.len());
        }
    }
    (Bound::Exact, at)
}

/// Words before a place, the nearest first, up to the start of the clause.
pub(super) fn before(pieces: &[Piece], at: usize) -> impl Iterator<Item = &str> {
    pieces[..at].iter().rev().map_while(Piece::word)
}

/// Words after a place, up to the end of the clause.
pub(super) fn behind(pieces: &[Piece], at: usize) -> impl Iterator<Item = &str> {
    pieces[(at + 1).min(pieces.len())..].iter().map_while(Piece::word)
}

/// Occurrences of `words` in a row, compared by stems, as ranges of pieces. One stop word may be between two of them.
pub(super) fn places(pieces: &[Piece], words: &[String]) -> Vec<Range<usize>> {
    let is_word = |at: usize, word: &str| {
        pieces.get(at).and_then(Piece::word).is_some_and(|known| known == word || stem::stem(known) == stem::stem(word))
    };
    let end = |start: usize| {
        let mut at = start;
        for (nth, word) in words.iter().enumerate() {
            // A stop word between two of them: "keep the ratio".
            at += usize::from(
                nth > 0 && !is_word(at, word) && pieces.get(at).and_then(Piece::word).is_some_and(stem::is_stop),
            );
            if !is_word(at, word) {
                return None;
            }
            at += 1;
        }
        (at > start).then_some(start..at)
    };
    (0..pieces.len()).filter_map(end).collect()
}

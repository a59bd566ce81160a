//! Grades of confidence that a value of a request is meant for a parameter: by name, unit, noun, and the words around it.

use super::context::{before, behind};
use super::lexicon;
use super::pieces::{Piece, PieceKind};
use super::slot::{End, Slot, Sort};
use super::{Bound, Mention, What};
use crate::stem;

/// Confidence that a value is meant for a parameter. From `Bare` on code may take the value, if nothing contradicts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Grade {
    /// The parameter cannot have it.
    Never,
    /// The words neither say so nor deny it: a model may take it.
    Unsaid,
    /// Its form fits, and no words give it to another parameter.
    Bare,
    /// It counts the items that the parameter counts: "2 mails".
    Counted,
    /// It has the unit or the noun of the parameter: "3 retries".
    Named,
    /// It is next to the name: "count 2".
    Explicit,
}

/// True if a value of this form may be meant for the parameter.
pub(super) fn admits(slot: &Slot<'_>, mention: &Mention) -> bool {
    match mention.what {
        What::Number(_) | What::Range(..) | What::Ordinal => matches!(slot.sort, Sort::Number | Sort::Numbers),
        What::Date(_) | What::Dates(..) | What::Moment(_) => matches!(slot.sort, Sort::Date | Sort::Moment),
        What::Path(_) => slot.sort == Sort::Path,
        What::Link(_) => slot.sort == Sort::Link,
        What::Address(_) => slot.sort == Sort::Address,
        What::Quoted(_) => slot.sort == Sort::Text,
        What::Other => false,
    }
}

/// Value as JSON that `slot` could get from `mention`.
pub(super) fn option(slot: &Slot<'_>, mention: &Mention, request: &str) -> Option<String> {
    let said = || quoted(&request[mention.span.clone()]);
    let found: String = match (&mention.what, slot.sort) {
        _ if mention.is_denied => return None,
        // An ambiguous value is left to people, not to a model.
        (What::Number(readings), Sort::Number) if readings.len() == 1 => readings[0].clone(),
        (What::Number(readings), Sort::Text) if readings.len() == 1 && mention.unit.is_none() => said(),
        (What::Date(Some(iso)), Sort::Date) => quoted(iso),
        (What::Moment(moment), Sort::Moment | Sort::Date) => quoted(moment),
        (What::Date(Some(_)) | What::Moment(_) | What::Path(_) | What::Link(_) | What::Address(_), Sort::Text) => {
            said()
        }
        (What::Path(text), Sort::Path)
        | (What::Link(text), Sort::Link)
        | (What::Address(text), Sort::Address)
        | (What::Quoted(text), Sort::Text | Sort::Path | Sort::Link | Sort::Address) => quoted(text),
        _ => return None,
    };
    (slot.parameter.accepts)(&found).then_some(found)
}

/// JSON string of `text`.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Confidence that `mention` is meant for `slot`.
pub(super) fn grade(slot: &Slot<'_>, mention: &Mention, pieces: &[Piece], request: &str) -> Grade {
    if option(slot, mention, request).is_none() {
        return Grade::Never;
    }
    if slot.sort == Sort::Number {
        return of_number(slot, mention, pieces);
    }
    let is_named = follows_name(slot, pieces, mention.at);
    if is_named {
        return match (slot.sort, &mention.what) {
            // In "the mail 5 times" the number does not name a mail.
            (Sort::Text, What::Number(_)) if !nouns(pieces, mention.at).is_empty() => Grade::Unsaid,
            _ => Grade::Explicit,
        };
    }
    let mut words = before(pieces, mention.at).skip_while(|word| lexicon::ARTICLES.contains(word));
    let previous = words.next().unwrap_or_default();
    let end = match previous {
        word if lexicon::LOW.contains(&word) => End::Low,
        word if lexicon::HIGH.contains(&word) => End::High,
        _ => End::Neither,
    };
    match slot.sort {
        Sort::Date | Sort::Moment | Sort::Address if end != End::Neither => match slot.end {
            this if this == end => Grade::Explicit,
            End::Neither if slot.sort == Sort::Address && end == End::High => Grade::Bare,
            End::Neither => Grade::Unsaid,
            _ => Grade::Never,
        },
        Sort::Date | Sort::Moment if slot.end != End::Neither => Grade::Unsaid,
        Sort::Path => of_path(slot, mention, previous),
        Sort::Text if !matches!(mention.what, What::Quoted(_)) => Grade::Unsaid,
        Sort::Text if has_names(pieces, mention.at) => Grade::Unsaid,
        _ => Grade::Bare,
    }
}

/// True if the request has capitalized words besides the first: they may be the value of a text as well as the quoted one.
fn has_names(pieces: &[Piece], except: usize) -> bool {
    let is_name = |(at, piece): (usize, &Piece)| {
        at > 0 && at != except && matches!(&piece.kind, PieceKind::Word(word, true) if word != "i")
    };
    pieces.iter().enumerate().any(is_name)
}

fn of_number(slot: &Slot<'_>, mention: &Mention, pieces: &[Piece]) -> Grade {
    let fits_bound = match mention.bound {
        Bound::Exact => true,
        Bound::AtMost => slot.end != End::Low,
        Bound::AtLeast => slot.end == End::Low,
        Bound::Over | Bound::Under => false,
    };
    let is_named = follows_name(slot, pieces, mention.at);
    let grade = match mention.unit {
        Some("clock") => return Grade::Never,
        Some(unit) if slot.units.contains(&unit) => {
            if is_named {
                Grade::Explicit
            } else {
                Grade::Named
            }
        }
        Some(_) if !slot.units.is_empty() => return Grade::Never,
        Some(_) => Grade::Unsaid,
        None if is_named => Grade::Explicit,
        None => by_noun(slot, mention, pieces),
    };
    if fits_bound { grade } else { Grade::Unsaid }
}

fn by_noun(slot: &Slot<'_>, mention: &Mention, pieces: &[Piece]) -> Grade {
    let nouns = nouns(pieces, mention.at);
    let What::Number(readings) = &mention.what else { return Grade::Never };
    let is_year = readings[0].parse().is_ok_and(|value: u32| (1900..=2100).contains(&value));
    let Some(head) = nouns.last() else {
        let is_alone = is_alone(slot, pieces, mention.at);
        let is_clear = slot.is_count || slot.units.is_empty();
        return if is_alone && is_clear && !is_year { Grade::Bare } else { Grade::Unsaid };
    };
    let is_sign = head.chars().next().is_some_and(crate::text::is_spaceless);
    let is_of = |known: &std::collections::BTreeSet<String>| match is_sign {
        true => {
            let counter = usize::from("封条篇份张件项页次".contains(nouns[0]));
            nouns.get(counter..counter + 2).is_some_and(|noun| noun.iter().all(|sign| known.contains(*sign)))
        }
        false => known.contains(&stem::stem(head)),
    };
    match () {
        () if is_year => Grade::Unsaid,
        () if is_of(&slot.name_stems) => Grade::Named,
        () if slot.is_count && is_of(&slot.subject) => Grade::Counted,
        () => Grade::Unsaid,
    }
}

/// Words after a number that name the counted things: up to the end of the phrase, without those that only rank.
fn nouns(pieces: &[Piece], at: usize) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    let words = behind(pieces, at).skip_while(|word| lexicon::THROUGH.contains(word));
    for word in words.take(8) {
        let is_participle = !found.is_empty() && (word.ends_with("ed") || word.ends_with("ing"));
        if word != "times" && lexicon::ENDS.contains(&word) || is_participle {
            break;
        }
        let says_nothing = lexicon::RANK.contains(&word)
            || stem::is_stop(word)
            || matches!(word, "only" | "max" | "maximum" | "total" | "exactly" | "instead" | "thanks");
        if !says_nothing {
            found.push(word);
        }
    }
    found
}

/// True if the word before a number does not attach it to another thing.
fn is_alone(slot: &Slot<'_>, pieces: &[Piece], at: usize) -> bool {
    let Some(before) = at.checked_sub(1) else { return true };
    let Some(word) = pieces[before].word() else {
        return !matches!(pieces[before].kind, PieceKind::Break(':' | '=') | PieceKind::Value(..));
    };
    let stem = stem::stem(word);
    before == 0
        || lexicon::BEFORE_BARE.contains(&word)
        || lexicon::RANK.contains(&word)
        || matches!(word, "most" | "to" | "max" | "maximum") && slot.is_count
        || slot.subject.contains(&stem)
}

fn of_path(slot: &Slot<'_>, mention: &Mention, previous: &str) -> Grade {
    let (What::Path(path) | What::Quoted(path)) = &mention.what else { return Grade::Never };
    let leads = lexicon::TOWARDS.contains(&previous);
    let named = |words: &[&str]| slot.name.iter().any(|word| words.contains(&word.as_str()));
    let is_folder = named(&["folder", "dir", "directory", "ordner"]);
    let has_ending = path.rsplit(['/', '\\']).next().is_some_and(|last| last.trim_start_matches('.').contains('.'));
    if is_folder && has_ending || named(&["file", "filename", "csv"]) && path.ends_with(['/', '\\']) {
        return Grade::Unsaid;
    }
    match (leads, slot.is_target) {
        (true, true) => Grade::Named,
        (true, false) | (false, true) => Grade::Unsaid,
        (false, false) if lexicon::BESIDE.contains(&previous) => Grade::Unsaid,
        (false, false) => Grade::Bare,
    }
}

/// True if the name of `slot` is right before `at`: `count 2`, `count: 2`, `count of 2`.
pub(super) fn follows_name(slot: &Slot<'_>, pieces: &[Piece], at: usize) -> bool {
    let colon = at > 0 && matches!(pieces[at - 1].kind, PieceKind::Break(':' | '='));
    let at = at - usize::from(colon);
    let is_name = |word: &str| match slot.name_stems.is_empty() {
        true => slot.name.iter().any(|name| name == word),
        false => slot.name_stems.contains(&stem::stem(word)),
    };
    let mut words = before(pieces, at).peekable();
    // A word that may be in between may also be the name itself.
    for _ in 0..3 {
        match words.next() {
            Some(word) if is_name(word) => return true,
            Some(word) if lexicon::BETWEEN.contains(&word) => {}
            _ => return false,
        }
    }
    false
}

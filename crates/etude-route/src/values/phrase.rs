//! Values of several pieces: numbers in words, dates with the names of months, ranges, units.

use super::lexicon;
use super::pieces::{Piece, PieceKind};
use super::spelled::{self, Language};
use super::{What, dates};
use PieceKind::{Break, Value, Word};

/// Pieces of a request with each value as a single piece.
pub(super) fn joined(pieces: Vec<Piece>, shown: Option<Language>) -> Vec<Piece> {
    let pieces = rewritten(pieces, |pieces, at| chinese_date(pieces, at).or_else(|| spelled_number(pieces, at, shown)));
    let pieces = rewritten(pieces, |pieces, at| {
        named_date(pieces, at).or_else(|| grouped(pieces, at)).or_else(|| with_unit(pieces, at))
    });
    rewritten(pieces, range)
}

/// Replaces pieces by the values that `read` finds there, with the number of pieces that it returns.
fn rewritten(pieces: Vec<Piece>, read: impl Fn(&[Piece], usize) -> Option<(usize, PieceKind)>) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::with_capacity(pieces.len());
    let mut at = 0;
    while at < pieces.len() {
        match read(&pieces, at) {
            Some((used, kind)) => {
                found.push(Piece { span: pieces[at].span.start..pieces[at + used - 1].span.end, kind });
                at += used;
            }
            None => {
                found.push(pieces[at].clone());
                at += 1;
            }
        }
    }
    found
}

fn number(value: impl ToString) -> PieceKind {
    Value(What::Number(vec![value.to_string()]), None)
}

fn word(pieces: &[Piece], at: usize) -> &str {
    pieces.get(at).and_then(Piece::word).unwrap_or_default()
}

/// Number without a unit that has only one reading.
fn plain(pieces: &[Piece], at: usize) -> Option<u32> {
    match &pieces.get(at)?.kind {
        Value(What::Number(readings), None) if readings.len() == 1 => readings[0].parse().ok(),
        _ => None,
    }
}

fn chinese_date(pieces: &[Piece], at: usize) -> Option<(usize, PieceKind)> {
    let (year, month, day) = (plain(pieces, at)?, plain(pieces, at + 2)?, plain(pieces, at + 4)?);
    let is_date =
        word(pieces, at + 1) == "年" && word(pieces, at + 3) == "月" && matches!(word(pieces, at + 5), "日" | "号");
    is_date.then(|| (6, Value(What::Date(dates::iso(year, month, day)), None)))
}

fn spelled_number(pieces: &[Piece], at: usize, shown: Option<Language>) -> Option<(usize, PieceKind)> {
    let first = word(pieces, at);
    let before = if at > 0 { word(pieces, at - 1) } else { "" };
    if let (Some(Value(What::Number(readings), None)), Some(zeros)) =
        (pieces.get(at).map(|piece| &piece.kind), magnitude(word(pieces, at + 1)))
        && let [reading] = &readings[..]
    {
        return Some((2, number(super::numerals::canonical(&format!("{reading}e{zeros}")))));
    }
    if first.chars().next().is_some_and(crate::text::is_spaceless) {
        return in_signs(pieces, at);
    }
    let dozens = |at: usize, used: usize, times: u64| match word(pieces, at) {
        "dozen" | "dozens" | "dutzend" | "douzaine" | "docena" => Some((used + 1, number(times * 12))),
        _ => None,
    };
    match first {
        "" => return None,
        "half" => {
            let a = usize::from(word(pieces, at + 1) == "a");
            let is_six = word(pieces, at + 1 + a) == "dozen";
            return Some(if is_six { (2 + a, number(6)) } else { (1, Value(What::Number(Vec::new()), None)) });
        }
        "couple" | "pair" | "both" | "beide" | "beiden" | "twice" => return Some((1, number(2))),
        "thrice" => return Some((1, number(3))),
        "single" | "einzige" => return Some((1, number(1))),
        "minus" => {
            let (used, kind) =
                spelled_number(pieces, at + 1, shown).or_else(|| Some((1, pieces.get(at + 1)?.kind.clone())))?;
            let Value(What::Number(readings), unit) = kind else { return None };
            let readings = readings.iter().map(|reading| super::numerals::canonical(&format!("-{reading}"))).collect();
            return Some((used + 1, Value(What::Number(readings), unit)));
        }
        // A person or thing, and not a number: "this one", "the red ones".
        "one" if matches!(word(pieces, at + 1), "who" | "that" | "which" | "whose") => return None,
        "one"
            if matches!(
                before,
                "this" | "that" | "which" | "no" | "every" | "each" | "another" | "any" | "some" | "the"
            ) && !has_noun(pieces, at + 1) =>
        {
            return None;
        }
        _ => {}
    }
    if let Some(found) = dozens(at, 0, 1) {
        return Some(found);
    }
    if is_ordinal(first) {
        let is_time = first == "second"
            && (matches!(before, "a" | "per" | "every" | "each") || at > 0 && matches!(pieces[at - 1].kind, Value(..)));
        return (!is_time).then_some((1, Value(What::Ordinal, None)));
    }
    let run: Vec<&str> = pieces[at..].iter().map_while(Piece::word).take(12).collect();
    let (value, used) = spelled::number(&run, shown)?;
    Some(dozens(at + used, used, value).unwrap_or((used, number(value))))
}

/// Number of zeros of a word after digits: `2 million`.
fn magnitude(word: &str) -> Option<u32> {
    match word {
        "hundred" | "hundert" => Some(2),
        "thousand" | "tausend" | "mille" | "mil" | "千" => Some(3),
        "万" => Some(4),
        "million" | "millions" | "millionen" | "millones" | "mio" => Some(6),
        "billion" | "billions" => Some(9),
        _ => None,
    }
}

fn has_noun(pieces: &[Piece], at: usize) -> bool {
    !word(pieces, at).is_empty() && !lexicon::ENDS.contains(&word(pieces, at))
}

fn is_ordinal(word: &str) -> bool {
    [
        "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "zweite", "zweiten",
        "dritte", "dritten", "deuxieme", "troisieme", "segundo", "segunda", "tercero", "tercera",
    ]
    .contains(&word)
}

/// Number in Chinese signs. A single sign is often an article, unless a counted thing follows.
fn in_signs(pieces: &[Piece], at: usize) -> Option<(usize, PieceKind)> {
    let is_sign = |piece: &&Piece| piece.word().is_some_and(|word| "零一二两俩三四五六七八九十百千万".contains(word));
    let run: Vec<&Piece> = pieces[at..].iter().take_while(is_sign).collect();
    let signs: String = run.iter().filter_map(|piece| piece.word()).collect();
    if signs.is_empty() {
        return None;
    }
    let next = word(pieces, at + run.len());
    let is_counted = !next.is_empty() && "封条篇份张件项页次".contains(next);
    if signs == "一" && !is_counted {
        return None;
    }
    let is_ordinal = at > 0 && word(pieces, at - 1) == "第";
    let value = spelled::chinese(&signs).filter(|_| !is_ordinal);
    Some((run.len(), value.map_or(Value(What::Ordinal, None), number)))
}

/// Date with the name of a month, or a day that depends on today.
fn named_date(pieces: &[Piece], at: usize) -> Option<(usize, PieceKind)> {
    let date = |iso: Option<String>| Value(What::Date(iso), None);
    let first = word(pieces, at);
    if dates::RELATIVE.contains(&first) {
        return Some((1, date(None)));
    }
    if matches!(first, "last" | "next" | "this" | "past" | "previous")
        && matches!(word(pieces, at + 1), "week" | "month" | "year" | "night" | "quarter")
    {
        return Some((2, date(None)));
    }
    if matches!(first, "今" | "昨" | "明") && matches!(word(pieces, at + 1), "天" | "日") {
        return Some((2, date(None)));
    }
    // A comma or a point, and `of`, may be between the parts.
    let skipped = |at: usize| {
        let is_joint = matches!(pieces.get(at).map(|piece| &piece.kind), Some(Break('.' | ',')))
            || matches!(word(pieces, at), "of" | "de" | "del");
        at + usize::from(is_joint)
    };
    let day_at = |at: usize| match &pieces.get(at)?.kind {
        Value(What::Number(readings), None) if readings.len() == 1 => {
            readings[0].parse::<u32>().ok().filter(|day| (1..=31).contains(day))
        }
        _ => None,
    };
    let year_at = |at: usize| plain(pieces, at).filter(|year| (1900..=2199).contains(year));
    if let Some(month) = dates::month(first) {
        let (day, after) = match day_at(at + 1) {
            Some(day) => (Some(day), at + 2),
            None if matches!(pieces.get(at + 1).map(|piece| &piece.kind), Some(Value(What::Ordinal, None))) => {
                (None, at + 2)
            }
            None => (None, at + 1),
        };
        if let Some(year) = year_at(skipped(after)) {
            return Some((skipped(after) + 1 - at, date(day.and_then(|day| dates::iso(year, month, day)))));
        }
        let before = if at > 0 { word(pieces, at - 1) } else { "" };
        let is_led = matches!(
            before,
            "in" | "since"
                | "until"
                | "till"
                | "from"
                | "before"
                | "after"
                | "of"
                | "seit"
                | "im"
                | "depuis"
                | "en"
                | "desde"
        );
        let is_sure = after > at + 1 || is_led || !dates::is_doubtful(first);
        return is_sure.then(|| (after - at, date(None)));
    }
    let month_at = skipped(at + 1);
    let month = dates::month(word(pieces, month_at))?;
    let is_ordinal = matches!(pieces[at].kind, Value(What::Ordinal, None));
    let day = day_at(at);
    if day.is_none() && !is_ordinal {
        return None;
    }
    let year = year_at(skipped(month_at + 1));
    let used = year.map_or(month_at + 1, |_| skipped(month_at + 1) + 1) - at;
    Some((used, date(year.zip(day).and_then(|(year, day)| dates::iso(year, month, day)))))
}

/// Ambiguous number such as `1 000`: a thousand, or two numbers.
fn grouped(pieces: &[Piece], at: usize) -> Option<(usize, PieceKind)> {
    plain(pieces, at).filter(|first| (1..1000).contains(first))?;
    plain(pieces, at + 1)?;
    let is_group = pieces[at + 1].span.len() == 3
        && pieces[at + 1].span.start == pieces[at].span.end + 1
        && pieces[at].span.len() <= 3;
    is_group.then(|| (2, Value(What::Number(Vec::new()), None)))
}

/// Number with its unit; with `ago` after it, a day that depends on today.
fn with_unit(pieces: &[Piece], at: usize) -> Option<(usize, PieceKind)> {
    if let (Some("usd" | "eur" | "gbp" | "yen"), Some(Piece { kind: Value(What::Number(readings), None), .. })) =
        (lexicon::unit(word(pieces, at)).filter(|_| word(pieces, at).chars().count() == 1), pieces.get(at + 1))
    {
        return Some((2, Value(What::Number(readings.clone()), lexicon::unit(word(pieces, at)))));
    }
    let Value(What::Number(readings), None) = &pieces[at].kind else { return None };
    let next = word(pieces, at + 1);
    let unit = match (next, word(pieces, at + 2)) {
        ("小", "时") => return Some((3, Value(What::Number(readings.clone()), Some("h")))),
        ("分", "钟") => return Some((3, Value(What::Number(readings.clone()), Some("min")))),
        ("个", "月") => return Some((3, Value(What::Number(readings.clone()), Some("month")))),
        // `mes` is a month and a pronoun; `m` and `s` are rarely units after a blank.
        _ => lexicon::unit(next).filter(|_| next != "mes"),
    }?;
    let used = if word(pieces, at + 2) == "ago" { 3 } else { 2 };
    let what = if used == 3 { What::Date(None) } else { What::Number(readings.clone()) };
    Some((used, Value(what, (used == 2).then_some(unit))))
}

/// Two numbers or dates with `to` between them.
fn range(pieces: &[Piece], at: usize) -> Option<(usize, PieceKind)> {
    let value = |at: usize| match &pieces.get(at)?.kind {
        Value(what, unit) => Some((what, *unit)),
        _ => None,
    };
    let before = if at > 0 { word(pieces, at - 1) } else { "" };
    let is_between = matches!(before, "between" | "zwischen" | "entre");
    let (low, low_unit) = value(at)?;
    let (high, unit) = value(at + 2)?;
    let is_joined = match &pieces[at + 1].kind {
        Word(word, _) => match word.as_str() {
            "to" | "till" | "until" | "through" | "thru" | "bis" | "hasta" | "到" | "至" => true,
            "and" | "und" | "et" | "y" => is_between,
            "a" => matches!(before, "de" | "from"),
            _ => false,
        },
        Break(sign) => matches!(sign, '-' | '–' | '—' | '…'),
        Value(..) => false,
    };
    if !is_joined || low_unit.is_some() && low_unit != unit {
        return None;
    }
    let what = match (low, high) {
        (What::Number(low), What::Number(high)) if low.len() == 1 && high.len() == 1 => {
            What::Range(low[0].clone(), high[0].clone())
        }
        (What::Number(_), What::Number(_)) => What::Number(Vec::new()),
        (What::Date(Some(low)), What::Date(Some(high))) => What::Dates(low.clone(), high.clone()),
        (What::Date(_), What::Date(_)) => What::Date(None),
        _ => return None,
    };
    Some((3, Value(what, unit)))
}

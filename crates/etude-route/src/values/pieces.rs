//! Division of a request into words, breaks, and values that are recognized by their form.

use std::ops::Range;

use super::What;
use super::dates::{self, Written};
use super::lexicon;
use super::numerals::{self, Decimals};
use super::spelled::{self, Language};
use crate::text;

/// Piece of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    /// Byte range in the request.
    pub span: Range<usize>,
    /// Word, sign, or value with its unit.
    pub kind: PieceKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum PieceKind {
    /// A folded word or sign, and true if it begins with a capital.
    Word(String, bool),
    /// A sign that ends a clause.
    Break(char),
    /// A value, and the unit that is attached to it.
    Value(What, Option<&'static str>),
}

impl Piece {
    /// The folded word; `None` for other pieces.
    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            PieceKind::Word(word, _) => Some(word),
            _ => None,
        }
    }
}

/// Folds a word: lower case, no accents, no apostrophes.
pub(super) fn folded(word: &str) -> String {
    let letters = word.chars().filter(|c| !matches!(c, '\'' | '’')).flat_map(text::fold);
    letters.filter(|c| !text::is_mark(*c)).collect()
}

/// Pieces of `request` outside of `masked`, and the language of its words.
pub(super) fn pieces(request: &str, masked: &[Range<usize>]) -> (Vec<Piece>, Option<Language>) {
    let words: Vec<String> =
        request.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|w| !w.is_empty()).map(folded).collect();
    let shown = spelled::language(words.iter().map(String::as_str));
    let decimals = if shown.is_some() { Decimals::Comma } else { Decimals::Point };
    let mut lexer = Lexer { request, at: 0, decimals, found: Vec::new() };
    while lexer.at < request.len() {
        match masked.iter().find(|span| span.contains(&lexer.at)) {
            Some(span) => {
                lexer.push(lexer.at..span.end, PieceKind::Break('='));
                lexer.at = span.end.max(lexer.at + 1);
            }
            None => lexer.step(),
        }
    }
    (lexer.found, shown)
}

struct Lexer<'a> {
    request: &'a str,
    at: usize,
    decimals: Decimals,
    found: Vec<Piece>,
}

impl<'a> Lexer<'a> {
    fn push(&mut self, span: Range<usize>, kind: PieceKind) {
        self.found.push(Piece { span, kind });
    }

    fn rest(&self) -> &'a str {
        &self.request[self.at..]
    }

    fn before(&self) -> Option<char> {
        self.request[..self.at].chars().next_back()
    }

    fn step(&mut self) {
        let rest = self.rest();
        let Some(c) = rest.chars().next() else { return };
        let next = rest[c.len_utf8()..].chars().next();
        let is_word_before = self.before().is_some_and(|c| c.is_alphanumeric() && !text::is_spaceless(c));
        if c == '\n' {
            self.push(self.at..self.at + 1, PieceKind::Break(c));
            self.at += 1;
        } else if c.is_whitespace() {
            self.at += c.len_utf8();
        } else if let Some(end) = quoted_end(rest, is_word_before) {
            self.quoted(c, end);
        } else if numerals::digit(c).is_some()
            || matches!(c, '-' | '+' | '−') && next.and_then(numerals::digit).is_some() && !is_word_before
        {
            self.numeric(c);
        } else if text::is_spaceless(c) {
            self.push(self.at..self.at + c.len_utf8(), PieceKind::Word(c.to_string(), false));
            self.at += c.len_utf8();
        } else if c.is_alphanumeric()
            || matches!(c, '.' | '/' | '~' | '*' | '\\') && !is_word_before && next.is_some_and(is_in_path)
        {
            self.chunk();
        } else {
            let kind = match c {
                '%' | '€' | '$' | '£' | '¥' | '°' | '#' | '<' | '>' | '≤' | '≥' | '/' | '&' | '+' => {
                    PieceKind::Word(c.to_string(), false)
                }
                '-' if next.is_some_and(char::is_alphanumeric) && is_word_before => {
                    self.at += 1;
                    return;
                }
                c => PieceKind::Break(c),
            };
            self.push(self.at..self.at + c.len_utf8(), kind);
            self.at += c.len_utf8();
        }
    }

    fn quoted(&mut self, open: char, end: usize) {
        let span = self.at..self.at + end;
        let close = self.request[span.clone()].chars().next_back().map_or(1, char::len_utf8);
        let inner = &self.request[span.start + open.len_utf8()..span.end - close];
        let readings = numerals::readings(&numerals::ascii(inner.trim()), self.decimals);
        let what = match readings.len() {
            0 if is_path(inner) => What::Path(inner.to_owned()),
            0 => What::Quoted(inner.to_owned()),
            _ => What::Number(readings),
        };
        self.push(span.clone(), PieceKind::Value(what, None));
        self.at = span.end;
    }

    /// Reads text that begins with a digit.
    fn numeric(&mut self, first: char) {
        let rest = self.rest();
        let mut end = first.len_utf8();
        let mut chars = rest[end..].chars().peekable();
        while let Some(c) = chars.next() {
            let is_joint = matches!(
                c,
                '.' | ',' | ':' | '/' | '-' | '–' | '_' | '\'' | '’' | '٫' | '٬' | '\\' | '\u{a0}' | '\u{202f}'
            );
            let is_digit_next = chars.peek().is_some_and(|c| numerals::digit(*c).is_some());
            let goes_on = match c {
                ',' | '\'' | '’' | '\u{a0}' | '\u{202f}' | '٫' | '٬' | '–' => is_digit_next,
                '.' => {
                    chars.peek().is_some_and(|c| c.is_alphanumeric() && !text::is_spaceless(*c))
                        || rest[end + 1..].starts_with(".")
                }
                _ if is_joint => chars.peek().is_some_and(|c| c.is_alphanumeric() && !text::is_spaceless(*c)),
                c => c.is_alphanumeric() && !text::is_spaceless(c),
            };
            if !goes_on {
                break;
            }
            end += c.len_utf8();
        }
        let span = self.at..self.at + end;
        self.at = span.end;
        let text = numerals::ascii(&self.request[span.clone()]);
        for (within, kind) in self.classified(&text) {
            // Digits of other scripts are longer than their ASCII form.
            let within = within.filter(|_| text.len() == span.len());
            let span = within.map_or(span.clone(), |within| span.start + within.start..span.start + within.end);
            self.push(span, kind);
        }
    }

    /// Pieces of a run that begins with a digit; several if it is a list.
    fn classified(&self, text: &str) -> Vec<(Option<Range<usize>>, PieceKind)> {
        let value = |what| PieceKind::Value(what, None);
        let one = |kind| vec![(None, kind)];
        match dates::written(text) {
            Some(Written::Day(iso)) => return one(value(What::Date(Some(iso)))),
            Some(Written::Moment(moment)) => return one(value(What::Moment(moment))),
            Some(Written::Unclear) => return one(value(What::Date(None))),
            None => {}
        }
        let readings = numerals::readings(text, self.decimals);
        if !readings.is_empty() {
            return one(value(What::Number(readings)));
        }
        let clear = |text: &str| {
            Some(numerals::readings(text, self.decimals)).filter(|r| r.len() == 1).map(|mut r| r.remove(0))
        };
        for separator in ["..", "–", "-"] {
            if let Some((low, high)) = text.split_once(separator)
                && let (Some(low), Some(high)) = (clear(low), clear(high.trim_start_matches(['.', '='])))
            {
                return one(value(What::Range(low, high)));
            }
        }
        let digits =
            text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-')).len();
        let (number, suffix) = text.split_at(digits);
        let suffix = suffix.to_lowercase();
        if let Some(number) = clear(number).filter(|_| !suffix.is_empty() && suffix.chars().all(char::is_alphabetic)) {
            return one(match suffix.as_str() {
                "st" | "nd" | "rd" | "th" | "er" | "eme" | "º" | "ª" => value(What::Ordinal),
                "k" => value(What::Number(vec![numerals::canonical(&format!("{number}e3")), number])),
                suffix => match lexicon::unit(suffix) {
                    Some(unit) => PieceKind::Value(What::Number(vec![number]), Some(unit)),
                    None if suffix.len() > 2 || number.len() > 2 => value(What::Other),
                    None => value(What::Number(Vec::new())),
                },
            });
        }
        if text.contains(['/', '\\']) && text.contains(char::is_alphabetic) || has_extension(text) {
            return one(value(What::Path(text.to_owned())));
        }
        let is_time = text.contains(':') && text.bytes().all(|b| b.is_ascii_digit() || b == b':');
        if is_time {
            return one(PieceKind::Value(What::Number(Vec::new()), Some("clock")));
        }
        let parts: Vec<&str> = text.split(',').collect();
        if parts.len() > 1 && parts.iter().all(|part| clear(part).is_some()) {
            return list(text);
        }
        let is_fraction = text.split('/').count() == 2 && text.bytes().all(|b| b.is_ascii_digit() || b == b'/');
        let is_short = text.len() <= 6 && text.contains(char::is_alphabetic);
        one(value(if is_fraction || is_short { What::Number(Vec::new()) } else { What::Other }))
    }

    /// Reads text that begins with a letter, a point or a slash.
    fn chunk(&mut self) {
        let rest = self.rest();
        let whole: usize = rest.chars().take_while(|c| is_in_path(*c)).map(char::len_utf8).sum();
        let has_scheme = rest[whole..].starts_with("://");
        let length = match has_scheme || rest[whole..].starts_with(":\\") {
            true => rest.find(char::is_whitespace).unwrap_or(rest.len()),
            false => whole,
        };
        let text = rest[..length].trim_end_matches(['.', ',', ';', '!', '?', ')', ':', '*', '\'', '’', '+', '&', '=']);
        let text = if text.is_empty() { &rest[..length] } else { text };
        let span = self.at..self.at + text.len();
        let what = if has_scheme || text.starts_with("www.") {
            Some(What::Link(text.to_owned()))
        } else if text.split('@').count() == 2 && text.rsplit('@').next().is_some_and(|host| host.contains('.')) {
            Some(What::Address(text.to_owned()))
        } else if is_path(text) {
            Some(What::Path(text.to_owned()))
        } else if is_host(text) || is_label(text) {
            Some(What::Other)
        } else {
            None
        };
        match what {
            Some(what) => {
                self.at = span.end;
                self.push(span, PieceKind::Value(what, None));
            }
            None => self.words(),
        }
    }

    /// Reads one word; digits after a word of rank are a piece of their own: `top10`.
    fn words(&mut self) {
        let rest = self.rest();
        let is_in_word = |c: char| (c.is_alphanumeric() || text::is_mark(c)) && !text::is_spaceless(c);
        let mut end = 0;
        let mut chars = rest.chars().peekable();
        while let Some(c) = chars.next() {
            let is_apostrophe = matches!(c, '\'' | '’') && end > 0 && chars.peek().is_some_and(|c| is_in_word(*c));
            if !is_in_word(c) && !is_apostrophe {
                break;
            }
            end += c.len_utf8();
        }
        if end == 0 {
            let length = rest.chars().next().map_or(1, char::len_utf8);
            self.push(self.at..self.at + length, PieceKind::Word(rest[..length].to_owned(), false));
            self.at += length;
            return;
        }
        let word = &rest[..end];
        let letters = word.trim_end_matches(|c| numerals::digit(c).is_some()).len();
        let rank = folded(&word[..letters]);
        let length = if letters < end && lexicon::RANK.contains(&rank.as_str()) { letters } else { end };
        let is_capital = word.chars().next().is_some_and(char::is_uppercase);
        self.push(self.at..self.at + length, PieceKind::Word(folded(&word[..length]), is_capital));
        self.at += length;
    }
}

/// Numbers of a list without blanks, with breaks between them.
fn list(text: &str) -> Vec<(Option<Range<usize>>, PieceKind)> {
    let mut found = Vec::new();
    let mut at = 0;
    for part in text.split(',') {
        if at > 0 {
            found.push((Some(at - 1..at), PieceKind::Break(',')));
        }
        let readings = numerals::readings(part, Decimals::Point);
        found.push((Some(at..at + part.len()), PieceKind::Value(What::Number(readings), None)));
        at += part.len() + 1;
    }
    found
}

/// End of a quotation that begins here, in bytes.
fn quoted_end(rest: &str, is_word_before: bool) -> Option<usize> {
    let open = rest.chars().next()?;
    let closes: &[char] = match open {
        '"' | '`' => &[open],
        '“' => &['”', '“'],
        '„' => &['“', '”'],
        '«' => &['»'],
        '»' => &['«'],
        '「' => &['」'],
        '『' => &['』'],
        '\'' | '‘' if !is_word_before => &['\'', '’'],
        _ => return None,
    };
    let is_single = closes.contains(&'\'');
    let from = open.len_utf8();
    let ends = rest[from..].char_indices().filter(|(_, c)| closes.contains(c));
    let mut ends = ends.map(|(at, c)| (from + at, from + at + c.len_utf8()));
    let is_outside = |end: usize| !rest[end..].starts_with(char::is_alphanumeric);
    let (start, end) = ends.find(|(_, end)| !is_single || is_outside(*end))?;
    (start > from && !rest[..end].contains('\n')).then_some(end)
}

fn is_in_path(c: char) -> bool {
    (c.is_alphanumeric() && !text::is_spaceless(c))
        || matches!(c, '.' | '_' | '-' | '/' | '\\' | '~' | '*' | '@' | '+' | '\'' | '’')
}

/// True for a name with an extension, or a path through directories; `and/or` is not a path.
fn is_path(text: &str) -> bool {
    let slashes = text.matches(['/', '\\']).count();
    let starts = ["/", "./", "../", "~/", ".\\", "..\\"].iter().any(|start| text.starts_with(start))
        || text.get(1..3) == Some(":\\");
    let letters = text.chars().any(char::is_alphanumeric);
    letters
        && (starts
            || slashes > 1
            || slashes == 1 && (text.ends_with('/') || text.contains(['.', '_', '*']))
            || slashes == 0 && has_extension(text))
}

fn has_extension(text: &str) -> bool {
    let Some((name, ending)) = text.rsplit_once('.') else { return false };
    let is_ending = (1..=5).contains(&ending.len())
        && ending.bytes().all(|b| b.is_ascii_alphanumeric())
        && ending.bytes().any(|b| b.is_ascii_alphabetic());
    let is_short = !name.is_empty() && name.split('.').all(|part| part.len() == 1 && ending.len() == 1);
    is_ending
        && !is_short
        && !is_host(text)
        && (name.is_empty()
            || name.chars().next_back().is_some_and(|c| c.is_alphanumeric() || matches!(c, '*' | '_' | '-')))
}

/// True for a version or an identifier: `v2.0.1`, `ABC-123`.
fn is_label(text: &str) -> bool {
    let first = text.split(['.', '-', '_', '/']).next().unwrap_or_default();
    let letters = first.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_version = letters.len() < first.len() && letters.len() < 4;
    let is_key = letters == first
        && letters.len() < text.len()
        && letters.chars().all(char::is_uppercase)
        && text.contains(|c: char| c.is_ascii_digit());
    !letters.is_empty()
        && first.len() < text.len()
        && (is_version || is_key)
        && !lexicon::RANK.contains(&folded(letters).as_str())
}

fn is_host(text: &str) -> bool {
    !text.contains(['/', '\\'])
        && ["com", "org", "net", "io", "dev", "de", "fr", "co", "ai"]
            .iter()
            .any(|end| text.rsplit_once('.').is_some_and(|(_, ending)| ending == *end))
}

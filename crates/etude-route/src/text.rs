//! Tokens of a text: folding, word boundaries, scripts without spaces, a light stem.

use crate::stem;

/// Number of bytes that are read from the start of a text. A pasted log must not cost more than a sentence.
const HEAD: usize = 3 * 1024;
/// Number of bytes that are read from the end of a longer text, where people put the question after pasted text.
const TAIL: usize = 1024;
/// Maximum number of letters of a token. Longer ones are hashes, keys or noise.
const TOKEN_CHARS: usize = 40;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word of a script with spaces.
    Word,
    /// A run of digits.
    Number,
    /// One sign of a script without spaces.
    Sign,
}

/// Token of a text.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    /// The text in lower case, without accents.
    pub text: String,
    /// Stem; equal to `text` for signs and numbers.
    pub stem: String,
    /// Word, number or sign.
    pub kind: Kind,
    /// True if only blanks or a hyphen separate it from the token before.
    pub adjacent: bool,
}

/// Part of `text` that is read, at most two pieces.
fn pieces(text: &str) -> (&str, &str) {
    if text.len() <= HEAD + TAIL {
        return (text, "");
    }
    (&text[..text.floor_char_boundary(HEAD)], &text[text.ceil_char_boundary(text.len() - TAIL)..])
}

/// Splits `text` into tokens.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut reader = Reader::default();
    let (head, tail) = pieces(text);
    for c in head.chars() {
        reader.read(c);
    }
    reader.read('\n');
    for c in tail.chars() {
        reader.read(c);
    }
    reader.end_word();
    reader.found
}

#[derive(Default)]
struct Reader {
    found: Vec<Token>,
    word: String,
    length: usize,
    broken: bool,
}

impl Reader {
    fn read(&mut self, c: char) {
        for c in fold(c) {
            if is_mark(c) || matches!(c, '\'' | '\u{2019}' | '\u{200b}'..='\u{200f}' | '\u{feff}') {
                continue;
            }
            if is_spaceless(c) {
                self.end_word();
                self.push(c.to_string(), Kind::Sign);
            } else if c.is_alphanumeric() {
                if self.length < TOKEN_CHARS {
                    self.word.push(c);
                    self.length += 1;
                }
            } else {
                self.end_word();
                self.broken |= !c.is_whitespace() && !matches!(c, '-' | '_');
            }
        }
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        self.length = 0;
        let kind = if word.chars().all(char::is_numeric) { Kind::Number } else { Kind::Word };
        self.push(word, kind);
    }

    fn push(&mut self, text: String, kind: Kind) {
        let stem = match kind {
            Kind::Word => stem::stem(&text),
            Kind::Number => "0".to_owned(),
            Kind::Sign => text.clone(),
        };
        self.found.push(Token { text, stem, kind, adjacent: !self.broken });
        self.broken = false;
    }
}

/// Folds a character: lower case, half width, without the accents of Latin letters.
pub(crate) fn fold(c: char) -> impl Iterator<Item = char> {
    let c = match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xfee0).unwrap_or(c),
        '\u{3000}' => ' ',
        other => other,
    };
    c.to_lowercase().map(unaccented)
}

fn unaccented(c: char) -> char {
    match c {
        'à'..='å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'ć' | 'č' => 'c',
        'è'..='ë' | 'ē' | 'ė' | 'ę' | 'ě' => 'e',
        'ì'..='ï' | 'ī' | 'į' | 'ı' => 'i',
        'ñ' | 'ń' | 'ň' => 'n',
        'ò'..='ö' | 'ø' | 'ō' | 'ő' => 'o',
        'ù'..='ü' | 'ū' | 'ů' | 'ű' => 'u',
        'ý' | 'ÿ' => 'y',
        'ś' | 'š' => 's',
        'ź' | 'ż' | 'ž' => 'z',
        'ł' => 'l',
        'ď' | 'đ' => 'd',
        'ř' => 'r',
        'ť' => 't',
        'ğ' => 'g',
        'ё' => 'е',
        other => other,
    }
}

pub(crate) fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{64b}'..='\u{65f}' | '\u{591}'..='\u{5bd}')
}

/// True for a letter beside which a value of the request may begin or end. Hangul belongs to them for values: particles follow a
/// value without a blank (`A-17을`). It does not belong to [`is_spaceless`], because Korean writes blanks between words, and words
/// tell routes apart better than single syllables do. `etude_core::verbatim` has the same letters for the origins of values; this
/// crate depends on no other.
pub(crate) fn bounds_values(c: char) -> bool {
    is_spaceless(c) || matches!(c, '\u{ac00}'..='\u{d7a3}')
}

/// True for scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Chinese characters.
pub(crate) fn is_spaceless(c: char) -> bool {
    matches!(c,
        '\u{e01}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3041}'..='\u{30ff}'
        | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

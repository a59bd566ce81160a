//! Numbers in words: English, and small ones in German, French, Spanish and Chinese.

/// Language of number words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// English.
    En,
    /// German.
    De,
    /// French.
    Fr,
    /// Spanish.
    Es,
}

use Language::{De, En, Es, Fr};

/// Language, the word that joins its numbers, and words with their values.
type Numerals = (Language, &'static str, &'static str);

/// Words of each language with their values. Tens, hundred and thousand multiply or add by the rules of the language.
const WORDS: &[Numerals] = &[
    (
        En,
        "and",
        "zero 0, one 1, two 2, three 3, four 4, five 5, six 6, seven 7, eight 8, nine 9, ten 10, eleven 11, \
         twelve 12, thirteen 13, fourteen 14, fifteen 15, sixteen 16, seventeen 17, eighteen 18, nineteen 19, \
         twenty 20, thirty 30, forty 40, fifty 50, sixty 60, seventy 70, eighty 80, ninety 90, hundred 100, \
         thousand 1000, million 1000000",
    ),
    (
        De,
        "und",
        "eins 1, zwei 2, zwo 2, drei 3, vier 4, funf 5, fuenf 5, sechs 6, sieben 7, acht 8, neun 9, zehn 10, \
         elf 11, zwolf 12, zwoelf 12, dreizehn 13, vierzehn 14, funfzehn 15, sechzehn 16, siebzehn 17, \
         achtzehn 18, neunzehn 19, zwanzig 20, dreissig 30, dreißig 30, vierzig 40, funfzig 50, sechzig 60, \
         siebzig 70, achtzig 80, neunzig 90, hundert 100, tausend 1000",
    ),
    (
        Fr,
        "et",
        "un 1, deux 2, trois 3, quatre 4, cinq 5, six 6, sept 7, huit 8, neuf 9, dix 10, onze 11, douze 12, \
         treize 13, quatorze 14, quinze 15, seize 16, vingt 20, trente 30, quarante 40, cinquante 50, \
         soixante 60, cent 100, mille 1000",
    ),
    (
        Es,
        "y",
        "uno 1, dos 2, tres 3, cuatro 4, cinco 5, seis 6, siete 7, ocho 8, nueve 9, diez 10, once 11, doce 12, \
         trece 13, catorce 14, quince 15, dieciseis 16, diecisiete 17, dieciocho 18, diecinueve 19, veinte 20, \
         veintiuno 21, veintidos 22, veintitres 23, veinticuatro 24, veinticinco 25, treinta 30, cuarenta 40, \
         cincuenta 50, sesenta 60, setenta 70, ochenta 80, noventa 90, cien 100, ciento 100, mil 1000",
    ),
];

/// Value of a word among `known`.
fn value_of(known: &str, word: &str) -> Option<u64> {
    known.split(", ").find_map(|entry| entry.strip_prefix(word)?.strip_prefix(' ')?.parse().ok())
}

/// Words with another meaning in another language: they count if another word shows the language.
const DOUBTFUL: &[&str] = &["once", "elf", "sept", "dos", "cent", "seize", "quince", "neuf", "mil", "mille", "acht"];

/// Words that show a language.
const SHOWN_BY: &[(Language, &[&str])] = &[
    (
        De,
        &[
            "der", "die", "das", "den", "dem", "und", "mit", "aus", "von", "bitte", "nur", "ich", "meine", "meinen",
            "fur", "nicht", "ein", "eine",
        ],
    ),
    (Fr, &["le", "les", "du", "des", "et", "avec", "pour", "mes", "mon", "ma", "dans", "aux", "un", "une", "sur"]),
    (
        Es,
        &["el", "los", "las", "del", "y", "con", "mis", "mi", "por", "para", "una", "por favor", "ultimos", "ultimas"],
    ),
];

/// Language, other than English, that most words of a request show.
pub(super) fn language<'w>(words: impl Iterator<Item = &'w str> + Clone) -> Option<Language> {
    let counts = SHOWN_BY.iter().map(|(language, known)| {
        let count = words.clone().filter(|word| known.contains(word)).count();
        (count, *language)
    });
    counts.filter(|(count, _)| *count > 0).max_by_key(|(count, _)| *count).map(|(_, language)| language)
}

/// Number at the start of `words`, and the number of words that belong to it.
pub(super) fn number(words: &[&str], shown: Option<Language>) -> Option<(u64, usize)> {
    let first = words.first()?;
    let in_language = |(language, and, known): &Numerals| {
        if DOUBTFUL.contains(first) && shown != Some(*language) {
            return None;
        }
        match language {
            De => german(first, known).map(|value| (value, 1)),
            _ => composed(words, *language, and, known),
        }
    };
    WORDS.iter().filter_map(in_language).max_by_key(|(_, used)| *used)
}

fn composed(words: &[&str], language: Language, and: &str, known: &str) -> Option<(u64, usize)> {
    let value_of = |word: &str| {
        let singular = word.strip_suffix('s').filter(|stem| matches!(*stem, "cent" | "vingt"));
        value_of(known, singular.unwrap_or(word))
    };
    let (mut total, mut current, mut last, mut used) = (0u64, None::<u64>, None::<u64>, 0);
    let mut at = 0;
    while at < words.len() {
        // `and` joins parts that could also follow each other: "one hundred and five", "treinta y dos".
        let joined = at > 0
            && words[at] == and
            && match language {
                En => last.is_some_and(|last| last >= 100),
                _ => last.is_some_and(|last| (20..100).contains(&last)),
            };
        let word = words.get(at + usize::from(joined)).copied().unwrap_or_default();
        // Alone, one is an article in these languages.
        let Some(value) = value_of(word).filter(|value| language == En || *value != 1 || at > 0) else { break };
        let below = current.unwrap_or(0) % 100;
        let next = match value {
            0..20 if current.is_none() => value,
            // Seventy and ninety are sixty-ten and eighty-ten in French.
            1..20
                if below == 0 && last.is_some_and(|last| last >= 100)
                    || below >= 20 && below % 10 == 0 && (value < 10 || language == Fr && matches!(below, 60 | 80)) =>
            {
                current.unwrap_or(0) + value
            }
            20 if language == Fr && below == 4 && last == Some(4) => current.unwrap_or(0) + 76,
            20..100 if current.is_none() || below == 0 && last.is_some_and(|last| last >= 100) => {
                current.unwrap_or(0) + value
            }
            100 if last.is_none_or(|last| last < 100) && current.unwrap_or(1) < 100 => current.unwrap_or(1) * 100,
            1000 | 1_000_000 if last.is_none_or(|last| last < 1000) => {
                total += current.unwrap_or(1) * value;
                0
            }
            _ => break,
        };
        current = if next == 0 && value >= 1000 { None } else { Some(next) };
        last = Some(value);
        at += 1 + usize::from(joined);
        used = at;
    }
    (used > 0).then(|| (total + current.unwrap_or(0), used))
}

/// Number in German, which writes it as one word.
fn german(word: &str, known: &str) -> Option<u64> {
    let value_of = |word: &str| value_of(known, word);
    let one = |word: &str| if word == "ein" { Some(1) } else { value_of(word).filter(|value| *value < 20) };
    if let Some(value) = value_of(word) {
        return Some(value);
    }
    if let Some((hundreds, rest)) = word.split_once("hundert") {
        let hundreds = if hundreds.is_empty() { 1 } else { one(hundreds).filter(|value| *value < 10)? };
        let rest = if rest.is_empty() { 0 } else { german(rest, known).filter(|value| *value < 100)? };
        return Some(hundreds * 100 + rest);
    }
    let (ones, tens) = word.split_once("und")?;
    let tens = value_of(tens).filter(|value| (20..100).contains(value))?;
    Some(one(ones).filter(|value| *value < 10)? + tens)
}

/// Number in Chinese signs; `None` if they are not a number.
pub(super) fn chinese(signs: &str) -> Option<u64> {
    let (mut total, mut section, mut digit) = (0u64, 0u64, None::<u64>);
    for sign in signs.chars() {
        let unit = match sign {
            '十' => 10,
            '百' => 100,
            '千' => 1000,
            '万' => 10_000,
            _ => {
                let value = "零一二三四五六七八九".chars().position(|known| known == sign);
                let value = value.or(matches!(sign, '两' | '俩').then_some(2))? as u64;
                if digit.is_some_and(|digit| digit > 0) {
                    return None;
                }
                digit = Some(value);
                continue;
            }
        };
        if unit == 10_000 {
            total = (total + section + digit.take().unwrap_or(0)) * unit;
            section = 0;
        } else {
            section += digit.take().unwrap_or(1) * unit;
        }
    }
    Some(total + section + digit.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, wanted: Option<(u64, usize)>) {
        let words: Vec<&str> = text.split(' ').collect();
        let shown = language(words.iter().copied());
        assert_eq!(number(&words, shown), wanted, "{text}");
    }

    #[test]
    fn number_words_of_four_languages_are_read() {
        for (text, value) in [
            ("two", 2),
            ("twenty five", 25),
            ("one hundred and five", 105),
            ("three thousand two hundred", 3200),
            ("two million", 2_000_000),
            ("hundred", 100),
            ("zwei", 2),
            ("funfundzwanzig", 25),
            ("hundert", 100),
            ("dreihundertvierzig", 340),
            ("deux", 2),
            ("vingt et trois", 23),
            ("soixante dix sept", 77),
            ("quatre vingt dix", 90),
            ("tres", 3),
            ("treinta y dos", 32),
            ("ciento", 100),
        ] {
            reads(text, Some((value, text.split(' ').count())));
        }
    }

    #[test]
    fn two_numbers_are_not_made_one() {
        reads("two and three", Some((2, 1)));
        reads("five six", Some((5, 1)));
        reads("twenty thirty", Some((20, 1)));
        reads("one two hundred", Some((1, 1)));
    }

    #[test]
    fn words_of_other_languages_need_a_sign_of_the_language() {
        reads("once a day", None);
        reads("elf", None);
        reads("quince", None);
        reads("once correos con los", Some((11, 1)));
        reads("elf aus der", Some((11, 1)));
    }

    #[test]
    fn chinese_numbers_are_read() {
        for (text, value) in [
            ("三", Some(3)),
            ("两", Some(2)),
            ("十", Some(10)),
            ("二十五", Some(25)),
            ("一百零五", Some(105)),
            ("三千", Some(3000)),
            ("两万", Some(20_000)),
            ("三四", None),
            ("大", None),
        ] {
            assert_eq!(chinese(text), value, "{text}");
        }
    }
}

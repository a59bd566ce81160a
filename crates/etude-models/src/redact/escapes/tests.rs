use std::fmt::Write as _;

use serde_json::Value;

use super::*;
use crate::redact::{Redactor, Secret};

/// Reproducible numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).expect("it is below `end`")
    }

    /// A secret of 8 to 40 characters, many of which are escaped by some program.
    fn secret(&mut self) -> String {
        const SPECIAL: [char; 24] = [
            '"', '\\', '/', '\n', '\t', '\u{8}', '\u{c}', '\r', '\u{1}', '\u{7f}', 'u', 'n', '0', 'é', 'ß', '€',
            '\u{2028}', '\u{feff}', '\u{ffff}', '😀', '\u{10ffff}', ' ', '<', '&',
        ];
        let len = 8 + self.below(33);
        let mut c = || match self.below(4) {
            0 => SPECIAL[self.below(SPECIAL.len())],
            1 => char::from_u32(u32::try_from(self.below(0x11_0000)).expect("a code point")).unwrap_or('é'),
            _ => char::from(b'!' + u8::try_from(self.below(94)).expect("a byte")),
        };
        // Blanks around a secret do not belong to it.
        format!("k{}y", (2..len).map(|_| c()).collect::<String>())
    }
}

/// The programs that write JSON: `serde_json`, `JSON.stringify`, `json.dumps`, one with more escapes than JSON requires, the
/// same as `json.dumps` in upper case, Go, and .NET.
const PROGRAMS: usize = 7;

fn json(text: &str, program: usize) -> String {
    let is_foreign = |c: char| !(' '..='~').contains(&c);
    let is_escaped = |c: char| match program {
        0 | 1 => false,
        2 | 4 => is_foreign(c),
        3 => !c.is_ascii_alphanumeric() && !"\\\"".contains(c),
        5 => "<>&\u{2028}\u{2029}".contains(c),
        _ => is_foreign(c) || "<>&'\"+`".contains(c),
    };
    let is_lower = matches!(program, 0 | 1 | 2 | 5);
    let text = text.chars().fold(String::new(), |mut out, c| {
        let needed = Value::from(c.to_string()).to_string();
        let is_short = c < ' ' && needed.len() == 4;
        match c {
            '/' if program == 3 => out.push_str("\\/"),
            c if c < ' ' && !is_short || c >= ' ' && is_escaped(c) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| match is_lower {
                    true => write!(out, "\\u{unit:04x}").expect("a string"),
                    false => write!(out, "\\u{unit:04X}").expect("a string"),
                });
            }
            _ => out.push_str(&needed[1..needed.len() - 1]),
        }
        out
    });
    format!("\"{text}\"")
}

/// L-4, A-3.7: a secret of eight characters or more is found in JSON in JSON in JSON, whichever programs wrote each of them, in
/// whole texts and in streams.
#[test]
fn no_secret_passes_in_nested_json() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for _ in 0..400 {
        let secret = numbers.secret();
        let redactor = Redactor::new([Secret::new(secret.as_str())].iter());
        let mut text = format!("is {secret}!");
        let mut is_usual = true;
        for depth in 0..=3 {
            if depth > 0 {
                let program = numbers.below(PROGRAMS);
                is_usual &= program != 3;
                text = format!("{{\"k\":{}}}", json(&text, program));
            }
            let redacted = redactor.redact(&text);
            let mut plain = redacted.clone();
            for _ in 0..depth {
                let value: Value = serde_json::from_str(&plain).expect("it is still JSON");
                plain = value["k"].as_str().expect("a text").to_owned();
            }
            assert_eq!(plain, "is ***!", "{secret:?} in {text}");
            assert!(redactor.finds_in(&text), "{secret:?} in {text}");
            if is_usual {
                let mut held = Vec::new();
                let mut streamed = redactor.redact_piece(&mut held, text.as_bytes(), false).into_owned();
                streamed.extend_from_slice(&redactor.redact_piece(&mut held, &[], true));
                assert!(!redactor.finds_in(&String::from_utf8_lossy(&streamed)), "{secret:?} in a stream of {text}");
            }
        }
    }
}

#[test]
fn an_unescaped_text_has_each_escape_as_its_character() {
    for (text, expected) in [
        (r#"a\u00e9b \\u00E9 \\\\\u00e9"#, "aéb é é"),
        (r#"\ud83d\ude00 \\ud83d\\ude00"#, "😀 😀"),
        (r#"\ud83d \ude00 \ud83dx"#, "ud83d ude00 ud83dx"),
        (r#"\u005cn \\u005C\u0025\u005c"#, "\n %"),
        (r#"\" \\ \/ \n\t"#, "\"  / \n\t"),
        (r#"\u12 \u00é1 \u+061 é\é \"#, "u12 u00é1 u+061 éé "),
    ] {
        assert_eq!(unescaped(text), expected, "{text}");
    }
}

#[test]
fn the_rest_of_a_text_stays_as_it_is() {
    let secrets = [unescaped("aéb\n"), "zz".to_owned()];
    for (text, expected) in [
        (r#"\"\u00e9 a\u00e9b\n\" \\"#, Some(r#"\"\u00e9 ***\" \\"#)),
        (r#"\"a\\u00e9b\\n\\n"#, Some(r#"\"***\\n"#)),
        (r#"\\zz zz\zz"#, Some("*** ******")),
        (r#"\u00e9"#, None),
        ("zz", None),
    ] {
        assert_eq!(cleaned(text, &secrets).as_deref(), expected, "{text}");
        assert_eq!(has_one(text, &secrets), expected.is_some());
    }
}

/// Backslashes without end take no more time than other text.
#[test]
fn backslashes_are_read_once() {
    let text = "\\".repeat(1 << 20);
    assert_eq!(unescaped(&text), "");
    assert_eq!(unescaped(&format!("{text}u00e9{text}")), "é");
    assert_eq!(unescaped(&"\\ud83d".repeat(100_000)).len(), 500_000);
}

/// L-4: a secret is found if the characters of its escapes are escapes themselves, up to three times.
#[test]
fn escapes_of_escapes_are_read() {
    let secret = "sk-live/Zq+7\\Tt9";
    let redactor = Redactor::new([Secret::new(secret)].iter());
    let all = |text: &str| text.chars().fold(String::new(), |out, c| format!("{out}\\u{:04X}", u32::from(c)));
    let mut text = format!("is {secret}!");
    for depth in 1..=3 {
        text = all(&text);
        for wrapped in [text.clone(), Value::from(text.as_str()).to_string()] {
            assert!(redactor.finds_in(&wrapped), "{depth}: {wrapped}");
            let mut plain = redactor.redact(&wrapped);
            while let Ok(value) = serde_json::from_str::<String>(&format!("\"{}\"", plain.trim_matches('"'))) {
                if value == plain {
                    break;
                }
                plain = value;
            }
            assert_eq!(plain, "is ***!", "{depth}: {wrapped}");
        }
    }
    assert!(!redactor.finds_in(r"\u0075\u0030"));
}

/// A-3.7: a stream has no secret that a program of .NET, Java or Go has escaped, wherever it is cut.
#[test]
fn streams_are_searched_for_escapes_of_either_case() {
    let redactor = Redactor::new([Secret::new("sk<é>+'0815/x\u{1f}")].iter());
    for written in [
        r"sk<\u00E9>+'0815/x\u001F",
        r"sk<\u00e9>+'0815\/x\u001f",
        r"sk\u003cé\u003e+'0815/x\u001f",
        r"sk\u003C\u00E9\u003E\u002B\u00270815/x\u001F",
        r"sk\\u003C\\u00E9\\u003E\\u002B\\u00270815/x\\u001F",
    ] {
        let text = format!("is {written}!");
        for cut in 0..=text.len() {
            let mut held = Vec::new();
            let mut seen = redactor.redact_piece(&mut held, &text.as_bytes()[..cut], false).into_owned();
            seen.extend_from_slice(&redactor.redact_piece(&mut held, &text.as_bytes()[cut..], true));
            assert_eq!(String::from_utf8_lossy(&seen), "is ***!", "{written} at {cut}");
        }
    }
}

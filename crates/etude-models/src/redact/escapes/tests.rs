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

/// The programs that write JSON: `serde_json`, `JSON.stringify`, `json.dumps`, and one with more escapes than JSON requires.
fn json(text: &str, program: usize) -> String {
    let needed = Value::from(text).to_string();
    let escapes = |c: char| match program {
        0 | 1 => false,
        2 => !(' '..='~').contains(&c),
        _ => !c.is_ascii_alphanumeric() && !"\\\"".contains(c),
    };
    needed.chars().enumerate().fold(String::new(), |mut out, (n, c)| {
        let is_quote = n == 0 || n == needed.chars().count() - 1;
        match c {
            '/' if program == 3 => out.push_str("\\/"),
            c if escapes(c) && !is_quote => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| match program {
                    2 => write!(out, "\\u{unit:04x}").expect("a string"),
                    _ => write!(out, "\\u{unit:04X}").expect("a string"),
                });
            }
            c => out.push(c),
        }
        out
    })
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
                let program = numbers.below(4);
                is_usual &= program < 3;
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

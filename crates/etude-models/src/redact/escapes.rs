//! Unnecessary escapes in JSON.

/// Decodes the escapes in `text` that JSON does not require, such as `\u0061` and `\/`. A JSON reader reads the same from both
/// texts.
pub(super) fn needed_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let written = rest.get(2..6).filter(|_| rest.as_bytes().get(1) == Some(&b'u'));
        let written = written.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let written = written.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        let len = match (rest.as_bytes().get(1), written) {
            (_, Some(c)) if !c.is_control() => {
                if matches!(c, '"' | '\\') {
                    out.push('\\');
                }
                out.push(c);
                6
            }
            (Some(b'/'), _) => {
                out.push('/');
                2
            }
            // A backslash and the escaped character, which may be a backslash.
            (Some(byte), _) if byte.is_ascii() => {
                out.push_str(&rest[..2]);
                2
            }
            _ => {
                out.push('\\');
                1
            }
        };
        rest = &rest[len..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_is_read_stays_the_same() {
        for (text, expected) in [
            (r#"["\u0061\/b"]"#, r#"["a/b"]"#),
            (r#"["\u0022\u005c\u005cu0061"]"#, r#"["\"\\\\u0061"]"#),
            (r#"["\\u0061\n\"\\"]"#, r#"["\\u0061\n\"\\"]"#),
            (r#"["\u0000\u00e9\ud83d\ude00"]"#, r#"["\u0000é\ud83d\ude00"]"#),
        ] {
            assert_eq!(needed_only(text), expected);
            let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(read(text), read(expected));
        }
    }

    #[test]
    fn what_is_no_escape_stays() {
        for text in [r"\", r"a \é \u", r"\u12", r"\u00é1", r"\u+061 \uzzzz"] {
            assert_eq!(needed_only(text), text);
        }
    }
}

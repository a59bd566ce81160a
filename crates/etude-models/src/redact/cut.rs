//! Texts that were cut before their secrets were redacted.

use super::{MIN_REDACTED, Redactor};

/// Marks the end that was cut off.
const CUT: char = '…';

impl Redactor {
    /// `text` without secrets, where `…` at its start or end stands for a part that was cut off: a part of a secret beside
    /// it is redacted as well.
    pub fn clean_cut(&self, text: &str) -> String {
        let redact = self.redact(text);
        let (start, body) = redact.strip_prefix(CUT).map_or(("", &*redact), |body| ("…", body));
        let (body, end) = body.strip_suffix(CUT).map_or((body, ""), |body| (body, "…"));
        let is_long = |part: &str| part.len() >= MIN_REDACTED;
        let ends_one = |part: &str| is_long(part) && self.secrets.iter().any(|secret| secret.ends_with(part));
        let begins_one = |part: &str| is_long(part) && self.secrets.iter().any(|secret| secret.starts_with(part));
        let places = || body.char_indices().map(|(at, _)| at).chain([body.len()]);
        let from = (!start.is_empty()).then(|| places().rev().find(|at| ends_one(&body[..*at]))).flatten();
        let to = (!end.is_empty()).then(|| places().find(|at| begins_one(&body[*at..]))).flatten();
        let (from, to) = (from.unwrap_or(0), to.unwrap_or(body.len()));
        let mask = |is_cut: bool| if is_cut { "***" } else { "" };
        let kept = body.get(from..to).unwrap_or_default();
        format!("{start}{}{kept}{}{end}", mask(from > 0), mask(to < body.len()))
    }
}

#[cfg(test)]
mod tests {
    use crate::redact::{Redactor, Secret};

    /// half a key is still a leak.
    #[test]
    fn parts_of_secrets_beside_a_cut_are_redacted() {
        let redactor = Redactor::new([Secret::new("sk-live-0123456789")].iter());
        for (text, expected) in [
            ("the account of sk-live-01234…", "the account of ***…"),
            ("the account of sk-live-01234", "the account of sk-live-01234"),
            ("…-0123456789/report.txt", "…***/report.txt"),
            ("…in/sk-live-0123456789/report.txt", "…in/***/report.txt"),
            ("sk-live-0…", "***…"),
            ("…-0123456789", "…***"),
            ("…", "…"),
            ("a plain name, é…", "a plain name, é…"),
            ("…/a/plain/path", "…/a/plain/path"),
        ] {
            assert_eq!(redactor.clean_cut(text), expected);
        }
    }
}

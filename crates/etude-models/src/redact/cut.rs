//! Redaction of texts that were cut before.

use super::{MIN_REDACTED, Redactor};

/// Mark of a cut.
const CUT: char = '…';

/// Maximum number of marks that are checked: a text of nothing but marks would take long, and etude's cuts leave few.
const MAX_MARKS: usize = 1_000;

/// Characters that may stand between a text and the mark: `[… 12 bytes …]`.
const AROUND: [char; 4] = ['[', ']', ' ', '\n'];

impl Redactor {
    /// `text` without parts of secrets beside a cut: half a key is still a leak. `None` if there are none.
    pub(super) fn cleaned_cuts(&self, text: &str) -> Option<String> {
        if self.secrets.is_empty() || !text.contains(CUT) {
            return None;
        }
        let mut parts = Vec::new();
        for (at, _) in text.match_indices(CUT).take(MAX_MARKS) {
            let before = text[..at].trim_end_matches(AROUND);
            let after = text[at + CUT.len_utf8()..].trim_start_matches(AROUND);
            let begun = self.longest(|secret, length| before.ends_with(secret.get(..length)?).then_some(length));
            let ended = self
                .longest(|secret, length| after.starts_with(secret.get(secret.len() - length..)?).then_some(length));
            let from = text.len() - after.len();
            parts.extend(begun.map(|length| before.len() - length..before.len()));
            parts.extend(ended.map(|length| from..from + length));
        }
        let mut kept = 0;
        let mut out = String::new();
        for part in parts {
            // Between two marks, the end of one secret may overlap the beginning of another.
            if part.start >= kept {
                out.push_str(&text[kept..part.start]);
                out.push_str("***");
            }
            kept = kept.max(part.end);
        }
        (kept > 0).then(|| out + &text[kept..])
    }

    /// Length in bytes of the longest part of a secret for which `is_there` returns a length.
    fn longest(&self, is_there: impl Fn(&str, usize) -> Option<usize>) -> Option<usize> {
        let of = |secret: &String| (MIN_REDACTED..secret.len()).rev().find_map(|length| is_there(secret, length));
        self.secrets.iter().filter_map(of).max()
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
            ("key=sk-live-01… [line cut]\nnext", "key=***… [line cut]\nnext"),
            ("a sk-live-01[… 4,000 bytes …]3456789 b", "a ***[… 4,000 bytes …]*** b"),
            ("one… sk-live-0… 56789 two", "one… ***… *** two"),
            ("…", "…"),
            ("a plain name, é…", "a plain name, é…"),
            ("…/a/plain/path", "…/a/plain/path"),
        ] {
            assert_eq!(redactor.redact(text), expected);
        }
    }
}

//! The part of a text that can be shown before the rest arrives.

use super::Redactor;

impl Redactor {
    /// Number of bytes of `text` that do not depend on the rest: those before its last beginning of a secret. Nothing else is
    /// held back, so that observers see everything else at once.
    pub(super) fn settled(&self, text: &[u8]) -> usize {
        let longest = self.secrets.first().map_or(0, String::len);
        let from = text.len().saturating_sub(longest.saturating_sub(1));
        let begins = |at: &usize| {
            let rest = &text[*at..];
            let is_one = |secret: &String| secret.as_bytes()[0] == rest[0] && secret.as_bytes().starts_with(rest);
            self.secrets.iter().any(|secret| secret.len() > rest.len() && is_one(secret))
        };
        let Some(mut end) = (from..text.len()).find(begins) else { return text.len() };
        // A whole secret across this position must not be cut: half of one is still a leak.
        while let Some(start) = self.secrets.iter().filter_map(|secret| across(text, secret, end)).min() {
            end = start;
        }
        end
    }
}

/// Start of `secret` in `text`, if it extends from before `place` to behind it.
fn across(text: &[u8], secret: &str, place: usize) -> Option<usize> {
    let reach = secret.len() - 1;
    let from = place.saturating_sub(reach);
    let window = &text[from..(place + reach).min(text.len())];
    window.windows(secret.len()).position(|found| found == secret.as_bytes()).map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use crate::redact::Secret;

    use super::*;

    fn settled(secrets: &[&str], text: &str) -> String {
        let secrets: Vec<Secret> = secrets.iter().map(|secret| Secret::new(*secret)).collect();
        text[..Redactor::new(secrets.iter()).settled(text.as_bytes())].to_owned()
    }

    #[test]
    fn only_the_beginning_of_a_secret_waits() {
        assert_eq!(settled(&[], "a s"), "a s");
        assert_eq!(settled(&["sk-1"], "a s"), "a ");
        assert_eq!(settled(&["sk-1"], "a sk-"), "a ");
        assert_eq!(settled(&["sk-1"], "a sk-1"), "a sk-1");
        assert_eq!(settled(&["sk-1"], "a sk-2"), "a sk-2");
        assert_eq!(settled(&["sk-1"], "é sk-1 é"), "é sk-1 é");
    }

    #[test]
    fn a_secret_that_may_be_the_beginning_of_a_longer_one_waits() {
        assert_eq!(settled(&["sk-1", "sk-1-long"], "a sk-1"), "a ");
        assert_eq!(settled(&["sk-1", "sk-1-long"], "a sk-1 b"), "a sk-1 b");
    }

    #[test]
    fn a_secret_is_not_cut_where_another_may_begin() {
        assert_eq!(settled(&["abcab", "abxyz"], "- abcab"), "- ");
        assert_eq!(settled(&["abcab", "abxyz"], "- abcab!"), "- abcab!");
    }
}

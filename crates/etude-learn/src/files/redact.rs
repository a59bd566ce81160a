//! Redaction of values in files of the app (L-32): placeholders of the same form replace them.

use std::collections::BTreeSet;

use etude_core::verbatim::{holds, is_one_word, is_spaceless, normal};
use serde_json::Value;

use crate::Candidate;
use crate::trace::Trace;
use crate::world::World;

/// Minimum length of a redacted text, in characters: shorter ones look like words.
const MIN_CHARS: usize = 3;

/// Minimum number of letters and digits of a grouped value: with fewer, other words and numbers would match.
const MIN_GROUPED: usize = 6;
/// Separators between groups of letters and digits, besides blanks.
const SEPARATORS: [char; 6] = [' ', '-', '.', '/', '(', ')'];
/// Maximum number of separators in a row.
const MAX_GAP: usize = 3;

/// Value to redact, in the forms in which it is found.
#[derive(Debug)]
struct Secret {
    text: String,
    /// The value in the form in which texts are compared (2.1).
    normal: String,
    placeholder: String,
    /// Its letters and digits, if people group the value in several ways; otherwise empty.
    grouped: String,
}

/// The values of redacted fields in some traces, the longest first.
#[derive(Debug, Default)]
pub(super) struct Redaction(Vec<Secret>);

impl Redaction {
    pub(super) fn new<'t>(traces: impl Iterator<Item = &'t Trace>, world: &dyn World) -> Self {
        let mut values = Values::default();
        for trace in traces {
            trace.input.iter().for_each(|(name, value)| collect(value, world.is_redacted(name), world, &mut values));
            for call in trace.calls() {
                collect(&call.arguments, false, world, &mut values);
                collect(&call.result, false, world, &mut values);
            }
        }
        let mut secrets: Vec<Secret> = Vec::new();
        let mut taken = BTreeSet::new();
        for text in values.0 {
            let placeholder = placeholder(&text, &mut taken);
            let normal = normal(&text);
            // In code a text is written as JSON.
            let (quoted, instead) = (quoted(&text), quoted(&placeholder));
            if quoted != text {
                secrets.push(Secret {
                    text: quoted,
                    normal: String::new(),
                    placeholder: instead,
                    grouped: String::new(),
                });
            }
            secrets.extend(in_addresses(&text, &placeholder));
            let grouped = grouped(&text);
            secrets.push(Secret { text, normal, placeholder, grouped });
        }
        secrets.sort_by(|a, b| b.text.len().cmp(&a.text.len()).then_with(|| a.text.cmp(&b.text)));
        Self(secrets)
    }

    /// Text with the values replaced: byte for byte, as texts are compared, and in any grouping.
    pub(super) fn text(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        let compared = normal(text);
        let is_in = |secret: &&Secret| {
            text.contains(&secret.text) || secret.is_in(&compared) || secret.find_grouped(text, 0).is_some()
        };
        self.0.iter().filter(is_in).fold(text.to_owned(), |text, secret| {
            secret.regrouped(&secret.replaced(&text.replace(&secret.text, &secret.placeholder)))
        })
    }

    /// Redacts the values in a candidate's bindings, holes, guards and `not_covered`.
    pub(super) fn candidate(&self, candidate: &mut Candidate) {
        for row in &mut candidate.bindings {
            row.expression = self.text(&row.expression);
            row.alternatives.iter_mut().for_each(|one| *one = self.text(one));
        }
        candidate.holes.iter_mut().for_each(|hole| hole.set = self.value(&hole.set));
        candidate.guards.iter_mut().for_each(|guard| guard.condition = self.value(&guard.condition));
        candidate.not_covered.iter_mut().for_each(|row| row["difference"] = self.value(&row["difference"]));
    }

    /// Value with all of its texts redacted; a number is replaced only as a whole.
    pub(super) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Number(number) => {
                let text = number.to_string();
                let found = self.0.iter().find(|secret| secret.text == text || secret.grouped == text);
                let instead = |secret: &Secret| match secret.text == text {
                    true => serde_json::from_str(&secret.placeholder).ok(),
                    false => serde_json::from_str(&digits_of(&secret.placeholder)).ok(),
                };
                found.and_then(instead).unwrap_or_else(|| value.clone())
            }
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, inner)| (self.text(name), self.value(inner))).collect()
            }
            other => other.clone(),
        }
    }
}

impl Secret {
    /// True if a text in compared form has the value.
    fn is_in(&self, compared: &str) -> bool {
        !self.normal.is_empty() && holds(compared, &self.normal)
    }

    /// Byte range of the letters and digits in a text from offset `from` on, in any grouping.
    fn find_grouped(&self, text: &str, from: usize) -> Option<(usize, usize)> {
        let (mut wanted, mut start, mut gap) = (self.grouped.chars(), None, 0);
        let first = self.grouped.chars().next()?;
        // A letter beside a number bounds it, unless the value has letters itself.
        let is_number = self.grouped.chars().all(|c| c.is_ascii_digit());
        let joins = |c: char| c.is_ascii_digit() || !is_number && c.is_alphanumeric() && !is_spaceless(c);
        let mut at = from;
        while let Some(c) = text[at..].chars().next() {
            let end = at + c.len_utf8();
            let is_next = wanted.clone().next().is_some_and(|next| next.eq_ignore_ascii_case(&c));
            let is_bound = start.is_some() || !text[..at].ends_with(joins);
            if is_next && is_bound {
                wanted.next();
                let begin = *start.get_or_insert(at);
                gap = 0;
                if wanted.clone().next().is_none() && !text[end..].starts_with(joins) {
                    return Some((begin, end));
                }
            } else if start.is_some() && is_separator(c) && gap < MAX_GAP {
                gap += 1;
            } else if let Some(begin) = start.take() {
                // Restart behind the first character, where another number may begin.
                (wanted, gap, at) = (self.grouped.chars(), 0, begin + first.len_utf8());
                continue;
            }
            at = end;
        }
        None
    }

    /// Text with every grouped occurrence replaced, character by character; separators stay.
    fn regrouped(&self, text: &str) -> String {
        let (mut out, mut done) = (String::new(), 0);
        while let Some((start, end)) = self.find_grouped(text, done) {
            let mut instead = self.placeholder.chars().filter(char::is_ascii_alphanumeric);
            out.push_str(&text[done..start]);
            out.extend(
                text[start..end].chars().map(|c| if is_separator(c) { c } else { instead.next().unwrap_or('x') }),
            );
            done = end;
        }
        out + &text[done..]
    }

    /// Text with every run of words replaced that is the value in compared form.
    fn replaced(&self, text: &str) -> String {
        if !self.is_in(&normal(text)) {
            return text.to_owned();
        }
        let (letters, places) = with_places(text);
        let is_bound = |at: usize| {
            let left = at.checked_sub(1).and_then(|before| letters.get(before));
            left.zip(letters.get(at)).is_none_or(|(left, right)| !is_one_word(*left, *right))
        };
        let (mut out, mut done, mut at) = (String::new(), 0, 0);
        let wanted: Vec<char> = self.normal.chars().collect();
        while at + wanted.len() <= letters.len() {
            let end = at + wanted.len();
            if letters[at..end] == wanted[..] && is_bound(at) && is_bound(end) && places[at].0 >= done {
                out.push_str(&text[done..places[at].0]);
                out.push_str(&self.placeholder);
                done = places[end - 1].1;
                at = end;
            } else {
                at += 1;
            }
        }
        out + &text[done..]
    }
}

/// Letters and digits of a value that people group in several ways, such as a card, telephone or account number; otherwise
/// empty.
fn grouped(text: &str) -> String {
    let is_grouped = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '+' || is_separator(c));
    let all: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
    let has_digit = all.contains(|c: char| c.is_ascii_digit());
    Some(all).filter(|all| is_grouped && has_digit && all.len() >= MIN_GROUPED).unwrap_or_default()
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || SEPARATORS.contains(&c)
}

fn digits_of(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

/// Percent-encoded forms of a value, as in paths and form data, if they differ from the text.
fn in_addresses(text: &str, placeholder: &str) -> impl Iterator<Item = Secret> {
    let of = |blank: &str| (percent_encoded(text, blank), percent_encoded(placeholder, blank));
    let (path, form) = (of("%20"), of("+"));
    let is_other = path.0 != text;
    let is_twice = path.0 != form.0;
    let secrets = [(is_other, path), (is_twice, form)].into_iter().filter(|(is_new, _)| *is_new);
    secrets.map(|(_, (text, placeholder))| Secret { normal: normal(&text), text, placeholder, grouped: String::new() })
}

fn percent_encoded(text: &str, blank: &str) -> String {
    let of = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(*byte).to_string(),
        b' ' => blank.to_owned(),
        byte => format!("%{byte:02X}"),
    };
    text.as_bytes().iter().map(of).collect()
}

/// Characters of a text in compared form, each with the byte range that it stands for.
fn with_places(text: &str) -> (Vec<char>, Vec<(usize, usize)>) {
    let (mut letters, mut places): (Vec<char>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        let is_blank = matches!(c, '_' | '#') || c.is_whitespace();
        if is_blank && letters.last() == Some(&' ') {
            places.iter_mut().last().into_iter().for_each(|place| place.1 = end);
            continue;
        }
        for letter in c.to_lowercase() {
            letters.push(if is_blank { ' ' } else { letter });
            places.push((at, end));
        }
    }
    (letters, places)
}

/// Text in JSON notation, without its quotes.
fn quoted(text: &str) -> String {
    let json = Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}

fn collect(value: &Value, is_redacted: bool, world: &dyn World, values: &mut Values) {
    match value {
        Value::Object(members) => {
            members
                .iter()
                .for_each(|(name, inner)| collect(inner, is_redacted || world.is_redacted(name), world, values));
        }
        Value::Array(items) => items.iter().for_each(|inner| collect(inner, is_redacted, world, values)),
        Value::String(text) if is_redacted && text.trim().chars().count() >= MIN_CHARS => {
            values.add(text.clone());
        }
        Value::Number(number) if is_redacted && number.to_string().len() >= MIN_CHARS => {
            values.add(number.to_string());
        }
        _ => {}
    }
}

/// Distinct values in order of first appearance.
#[derive(Debug, Default)]
struct Values(Vec<String>, BTreeSet<String>);

impl Values {
    fn add(&mut self, text: String) {
        if self.1.insert(text.clone()) {
            self.0.push(text);
        }
    }
}

/// Maximum number of placeholders that are tried for a value: three digits have only 729.
const TRIES: u64 = 1_000;

/// Placeholder with letters for letters and digits for digits, unlike those in `taken`. It reveals only the form of the
/// value: a hash of a value with few possibilities could be searched for.
fn placeholder(value: &str, taken: &mut BTreeSet<String>) -> String {
    let of = |number: u64| {
        let mut bytes = blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof();
        let mut next = |of: u8| {
            let mut byte = [0];
            bytes.fill(&mut byte);
            byte[0] % of
        };
        let replaced = value.chars().map(|c| match c {
            c if c.is_uppercase() => char::from(b'A' + next(26)),
            c if c.is_alphabetic() => char::from(b'a' + next(26)),
            // Never a zero, which a number must not begin with.
            c if c.is_numeric() => char::from(b'1' + next(9)),
            c => c,
        });
        replaced.collect::<String>()
    };
    let first = taken.len() as u64;
    let free = (first..first + TRIES).map(of).find(|one| one != value && !taken.contains(one));
    let free = free.unwrap_or_else(|| of(first));
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-32: a value is replaced in every form in which the learner finds it, and as code writes it.
    #[test]
    fn values_are_replaced_as_they_are_compared() {
        let secret = |text: &str| Secret {
            text: text.to_owned(),
            normal: normal(text),
            placeholder: "XX".to_owned(),
            grouped: String::new(),
        };
        let one = Redaction(vec![secret("Ana Berg_7")]);
        assert_eq!(
            one.text("I am ANA  BERG#7, not Anana Berg 7 or Ana Berg 71."),
            "I am XX, not Anana Berg 7 or Ana Berg 71."
        );
        assert_eq!(one.text("私はAna Berg_7です。"), "私はXXです。");
        assert_eq!(one.text("{{x}} Ana Berg_7"), "{{x}} XX");
        assert_eq!(quoted("a\"b\n"), "a\\\"b\\n");
    }

    /// L-32: a placeholder has the form of its value, and nothing else of it.
    #[test]
    fn placeholders_have_the_form_and_nothing_else() {
        let first = |value: &str| placeholder(value, &mut BTreeSet::new());
        let one = first("ana.b@mail7.example");
        assert_eq!(one, first("bob.c@home3.example"));
        let mut taken = BTreeSet::new();
        let all: BTreeSet<String> = (0..300).map(|n| placeholder(&format!("{n:03}"), &mut taken)).collect();
        assert_eq!(all.len(), 300);
        assert!(one.len() == 19 && one.as_bytes()[3] == b'.' && one.as_bytes()[5] == b'@', "{one}");
        assert!(!one.contains("ana") && !one.contains("example"), "{one}");
        assert!(first("4417").parse::<u64>().is_ok());
    }

    /// L-32: a number is replaced in every grouping, and a value also in its percent-encoded form.
    #[test]
    fn values_are_replaced_in_every_grouping_and_in_addresses() {
        let secret = |text: &str, placeholder: &str| Secret {
            text: text.to_owned(),
            normal: normal(text),
            placeholder: placeholder.to_owned(),
            grouped: grouped(text),
        };
        let card = Redaction(vec![secret("4242424242424242", "1111222233334444")]);
        assert_eq!(card.text("4242 4242-4242.4242, 4242  42424242 4242"), "1111 2222-3333.4444, 1111  22223333 4444");
        for other in ["4242 4242 4242 42421", "14242 4242 4242 4242", "4242 4242 4242 424", "4242:4242:4242:4242"] {
            assert_eq!(card.text(other), other);
        }
        assert_eq!(card.text("42 4242 4242 4242 4242"), "42 1111 2222 3333 4444");
        let phone = Redaction(vec![secret("+49 (171) 555-0011", "+11 (222) 333-4444")]);
        assert_eq!(phone.text("call +491715550011 or 49/171/5550011"), "call +112223334444 or 11/222/3334444");
        assert_eq!(phone.value(&serde_json::json!(491_715_550_011_u64)), serde_json::json!(112_223_334_444_u64));
        assert!(["12-345", "Ana Berg", "ana@b7.example", "é123456"].into_iter().all(|other| grouped(other).is_empty()));
        let account = Redaction(vec![secret("DE89370400440532013000", "XA11222233334444555566")]);
        for own in ["DE89 3704 0044 0532 0130 00", "de89-3704-0044-0532-0130-00", "DE89\u{a0}37040044 0532013000"] {
            let said = account.text(&format!("Pay to {own}, please"));
            assert!(
                said.starts_with("Pay to XA11") && said.ends_with("66, please") && !said.contains("3704"),
                "{said}"
            );
        }
        for other in ["DE89 3704 0044 0532 0130 001", "XDE89 3704 0044 0532 0130 00", "DE89 3704 0044 0532 0130 0"] {
            assert_eq!(account.text(other), other);
        }
        let spaced = Redaction(vec![secret("DE89 3704 0044", "XA11 2222 3333")]);
        assert_eq!(spaced.text("DE8937040044"), "XA1122223333");
        let mail = Redaction(in_addresses("ana b@x.org", "eva c@y.net").collect());
        assert_eq!(
            mail.text("mailto:ana%20b%40x.org?q=ANA+B%40x.org&r=ana%20b%40X.org"),
            "mailto:eva%20c%40y.net?q=eva+c%40y.net&r=eva%20c%40y.net"
        );
    }
}

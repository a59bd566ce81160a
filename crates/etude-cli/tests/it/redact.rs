//! Replacement of text that differs from run to run: paths, ids, times, ports.

use std::path::Path;

use serde_json::Value;

/// A text with the placeholders `[APP]`, `[ROOT]`, `[RUN]`, `[TIME]`, `[WHEN]` and `[PORT]`.
pub(crate) fn text(text: &str, root: &Path) -> String {
    let root = root.display().to_string();
    let root = root.trim_end_matches('/');
    let text = text.replace(&format!("{root}/app"), "[APP]").replace(root, "[ROOT]");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let word = &rest[..rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())];
        if word.is_empty() {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let mut taken = word.len();
        if is_run_id(word) || (names_a_run(&out) && is_short_id(word)) {
            out.push_str("[RUN]");
        } else if let Some(len) = duration(rest) {
            // Columns are aligned by the width of their content.
            let trimmed = out.trim_end_matches(' ').len();
            if out.len() - trimmed > 1 && !out[..trimmed].ends_with('\n') {
                out.truncate(trimmed + 1);
            }
            out.push_str("[TIME]");
            taken = len;
        } else if let Some(len) = moment(rest) {
            out.push_str("[WHEN]");
            taken = len;
        } else if out.ends_with("127.0.0.1:") {
            out.push_str("[PORT]");
        } else {
            out.push_str(word);
        }
        rest = &rest[taken..];
    }
    out
}

/// A document with 0 for durations and words for times.
pub(crate) fn document(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                *member = match name.as_str() {
                    "duration_ms" => 0.into(),
                    _ => document(member.take()),
                };
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| *element = document(element.take())),
        _ => {}
    }
    value
}

/// True if a run's short id comes next.
fn names_a_run(text: &str) -> bool {
    text.ends_with(" runs show ") || text.ends_with(" runs resume ")
}

const fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// True for sixteen characters of the ids' alphabet.
fn is_run_id(word: &str) -> bool {
    word.len() == 16 && is_of_alphabet(word)
}

fn is_short_id(word: &str) -> bool {
    word.len() == 6 && is_of_alphabet(word)
}

fn is_of_alphabet(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit() || (b.is_ascii_lowercase() && !b"ilou".contains(&b)))
}

/// Length of a duration such as `12 ms` or `4.2 s` at the beginning of `text`.
fn duration(text: &str) -> Option<usize> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let unit = text[digits..].strip_prefix(' ')?;
    let unit = &unit[..unit.find(|c: char| !is_word(c)).unwrap_or(unit.len())];
    (text[..digits].parse::<f64>().is_ok() && ["ms", "s", "min"].contains(&unit)).then_some(digits + 1 + unit.len())
}

/// Length of a date with a time at the beginning of `text`.
fn moment(text: &str) -> Option<usize> {
    let shape = |text: &str| text.bytes().map(|b| if b.is_ascii_digit() { b'0' } else { b }).collect::<Vec<_>>();
    let head = text.get(..16)?;
    if !["0000-00-00T00:00", "0000-00-00 00:00"].iter().any(|form| shape(head) == form.as_bytes()) {
        return None;
    }
    let rest = &text[16..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && !":.Z".contains(c)).unwrap_or(rest.len());
    Some(16 + end)
}

/// Ids, times and paths are found in running text, and nothing else is.
#[test]
fn what_differs_is_found_and_the_rest_is_left() {
    let root = Path::new("/tmp/r");
    let cases = [
        ("run 0123456789abcdef, 12 ms", "run [RUN], [TIME]"),
        ("in /tmp/r/app/x and /tmp/r/home", "in [APP]/x and [ROOT]/home"),
        ("etude runs show 01abcd", "etude runs show [RUN]"),
        ("a     4.2 s  7", "a [TIME]  7"),
        ("http://127.0.0.1:4711/v1", "http://127.0.0.1:[PORT]/v1"),
        ("at 2026-11-21T08:00:00.123Z.", "at [WHEN]"),
        ("2 steps, 12 samples", "2 steps, 12 samples"),
    ];
    for (given, expected) in cases {
        assert_eq!(text(given, root), expected);
    }
}

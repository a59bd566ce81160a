//! Extraction of JSON from a model's response (A-4.3): strict if the whole text is JSON, else tolerant.

use serde_json::value::RawValue;

/// The JSON value in `text`, as written: the whole text, the content of a code fence, or the first object or array
/// after leading prose. `None` if there is none.
pub fn json(text: &str) -> Option<&str> {
    let text = text.trim_start_matches('\u{feff}').trim();
    whole(text).or_else(|| fenced(text)).or_else(|| embedded(text))
}

/// The last JSON value in `text` that `fits`, because models reason first and answer last. If none fits, the result of
/// [`json`].
pub fn fitting(text: &str, fits: impl Fn(&str) -> bool) -> Option<&str> {
    let text = text.trim_start_matches('\u{feff}').trim();
    whole(text)
        .or_else(|| fences(text).into_iter().rev().find(|value| fits(value)))
        .or_else(|| values(text).into_iter().rev().find(|value| fits(value)))
        .or_else(|| json(text))
}

fn whole(text: &str) -> Option<&str> {
    serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get)
}

/// The last fence wins: models reason first and answer last.
fn fenced(text: &str) -> Option<&str> {
    fences(text).pop()
}

/// The JSON values that fill a code fence, in order.
fn fences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("```") {
        let after = &rest[open + 3..];
        let Some(line_end) = after.find('\n') else { break };
        let body = &after[line_end + 1..];
        let Some(close) = body.find("```") else { break };
        found.extend(whole(body[..close].trim()));
        rest = &body[close + 3..];
    }
    found
}

/// The longest object or array; the first of several with that length.
fn embedded(text: &str) -> Option<&str> {
    values(text).into_iter().reduce(|best, value| if value.len() > best.len() { value } else { best })
}

/// The objects and arrays in `text`, in order; brackets in prose that do not parse are skipped.
fn values(text: &str) -> Vec<&str> {
    // Every start costs a parse up to its first error; the bound keeps hostile responses from costing quadratic time.
    const MAX_STARTS: usize = 64;
    let mut found = Vec::new();
    let mut skip_to = 0;
    for (at, _) in text.char_indices().filter(|(_, c)| matches!(c, '{' | '[')).take(MAX_STARTS) {
        if at < skip_to {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<&RawValue>();
        if let Some(Ok(value)) = values.next() {
            skip_to = at + value.get().len();
            found.push(value.get());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{fitting, json};

    /// A-4.3: fences and leading prose are tolerated.
    #[test]
    fn json_is_found_in_fences_and_prose() {
        for (text, want) in [
            (r#"{"n": 1}"#, Some(r#"{"n": 1}"#)),
            (" [1] \n", Some("[1]")),
            ("\u{feff}5", Some("5")),
            ("Here you are:\n```json\n{\"n\": 1}\n```\nDone.", Some("{\"n\": 1}")),
            ("```\n{\"draft\": 1}\n```\nbetter:\n```\n{\"n\": 2}\n```", Some("{\"n\": 2}")),
            ("The answer [see below] is {\"n\": {\"k\": []}} as asked", Some("{\"n\": {\"k\": []}}")),
            ("no json", None),
            ("", None),
            ("{'n': 1}", None),
            ("{\"n\": ", None),
        ] {
            assert_eq!(json(text), want, "{text}");
        }
    }

    /// A-4.3: a draft before the answer is not taken for the answer, even if it is longer.
    #[test]
    fn the_last_value_that_fits_is_the_answer() {
        let draft = r#"Maybe {"a": 1, "note": "a first draft"} but no. {"a": 2} as [1] says."#;
        let is_object = |text: &str| text.starts_with('{');
        assert_eq!(fitting(draft, is_object), Some(r#"{"a": 2}"#));
        assert_eq!(fitting(draft, |_| false), json(draft));
        assert_eq!(fitting("```\n{\"a\": 1}\n```\n```\n[1]\n```", is_object), Some("{\"a\": 1}"));
        assert_eq!(fitting("[1]", is_object), Some("[1]"), "a whole text is what is judged");
    }

    #[test]
    fn digits_survive() {
        assert_eq!(json("x {\"n\": 123456789012345678901234567890}"), Some("{\"n\": 123456789012345678901234567890}"));
    }

    #[test]
    fn many_open_brackets_do_not_cost_a_square() {
        assert_eq!(json(&"[".repeat(200_000)), None);
    }
}

//! Finds the JSON in a model's answer (A-4.3): strictly if it is JSON, else tolerantly.

use serde_json::value::RawValue;

/// The JSON value in `text`, as written: the whole text, the content of a code fence, or the first object or array
/// after leading prose. `None` if there is none.
pub fn json(text: &str) -> Option<&str> {
    let text = text.trim_start_matches('\u{feff}').trim();
    whole(text).or_else(|| fenced(text)).or_else(|| embedded(text))
}

fn whole(text: &str) -> Option<&str> {
    serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get)
}

/// The last fence wins: models reason first and answer last.
fn fenced(text: &str) -> Option<&str> {
    let mut found = None;
    let mut rest = text;
    while let Some(open) = rest.find("```") {
        let after = &rest[open + 3..];
        let Some(line_end) = after.find('\n') else { break };
        let body = &after[line_end + 1..];
        let Some(close) = body.find("```") else { break };
        found = whole(body[..close].trim()).or(found);
        rest = &body[close + 3..];
    }
    found
}

/// The longest object or array that starts where one can start; brackets in prose that do not parse are skipped.
fn embedded(text: &str) -> Option<&str> {
    // Every start costs a parse up to its first error; the bound keeps hostile answers from costing a square.
    const MAX_STARTS: usize = 64;
    let mut best: Option<&str> = None;
    let mut skip_to = 0;
    for (at, _) in text.char_indices().filter(|(_, c)| matches!(c, '{' | '[')).take(MAX_STARTS) {
        if at < skip_to {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<&RawValue>();
        if let Some(Ok(value)) = values.next() {
            skip_to = at + value.get().len();
            if best.is_none_or(|b| value.get().len() > b.len()) {
                best = Some(value.get());
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::json;

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

    #[test]
    fn digits_survive() {
        assert_eq!(json("x {\"n\": 123456789012345678901234567890}"), Some("{\"n\": 123456789012345678901234567890}"));
    }

    #[test]
    fn many_open_brackets_do_not_cost_a_square() {
        assert_eq!(json(&"[".repeat(200_000)), None);
    }
}

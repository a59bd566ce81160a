//! Interpolation of `${path}` and `${path:-text}` in metadata (D-5).

use etude_core::data::bare;
use serde_json::{Map, Value};

use crate::cascade::path;
use crate::cascade::strategy::{EmptyFallback, Strategy, UndefinedInterpolation};

/// Interpolates every text in `value`, keys included; paths begin at `context`.
pub fn value(value: &Value, context: &Value, strategy: &Strategy) -> Value {
    match value {
        Value::String(text) => self::text(text, context, strategy),
        Value::Array(items) => items.iter().map(|item| self::value(item, context, strategy)).collect(),
        Value::Object(members) => Value::Object(object(members, context, strategy)),
        other => other.clone(),
    }
}

/// Interpolates all members of an object.
pub fn object(members: &Map<String, Value>, context: &Value, strategy: &Strategy) -> Map<String, Value> {
    object_of(members.iter(), context, strategy)
}

/// Interpolates some members of an object.
pub fn object_of<'m>(
    members: impl Iterator<Item = (&'m String, &'m Value)>,
    context: &Value,
    strategy: &Strategy,
) -> Map<String, Value> {
    members.map(|(name, member)| (key(name, context, strategy), value(member, context, strategy))).collect()
}

/// Interpolates the name of a member.
pub fn key(name: &str, context: &Value, strategy: &Strategy) -> String {
    if name.contains('$') { bare(&text(name, context, strategy)).into_owned() } else { name.to_owned() }
}

/// Maximum nesting depth of fallbacks; a deeper one stays as written.
const MAX_DEPTH: usize = 32;

/// Maximum length of an interpolated text, in bytes; an expression that would exceed it stays as written. A text that
/// names a large value a thousand times must not fill the memory.
const MAX_LENGTH: usize = 16 << 20;

/// Interpolates one text. A text that is exactly one expression becomes its value, of any type. In a longer text, any
/// value but a text is inserted as JSON. `\${` is a literal `${`; an unclosed expression stays as written.
pub fn text(text: &str, context: &Value, strategy: &Strategy) -> Value {
    text_below(text, context, strategy, 0)
}

fn text_below(text: &str, context: &Value, strategy: &Strategy, depth: usize) -> Value {
    if depth > MAX_DEPTH || !text.contains("${") {
        return Value::from(text);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let Some(end) = closing(&rest[at + 2..]) else { break };
        let (inner, after) = (&rest[at + 2..at + 2 + end], &rest[at + 3 + end..]);
        if let Some(before) = rest[..at].strip_suffix('\\') {
            out.push_str(before);
            out.push_str(&rest[at..at + 3 + end]);
        } else {
            let found = expression(inner, context, strategy, depth);
            if rest.len() == text.len() && at == 0 && after.is_empty() {
                return found.unwrap_or_else(|| undefined_alone(text, strategy));
            }
            out.push_str(&rest[..at]);
            match found {
                Some(value) => {
                    let shown = bare(&value);
                    let fits = out.len() + shown.len() + after.len() <= MAX_LENGTH;
                    out.push_str(if fits { &shown } else { &rest[at..at + 3 + end] });
                }
                None if strategy.undefined_interpolation == UndefinedInterpolation::Literal => {
                    out.push_str(&rest[at..at + 3 + end]);
                }
                None => {}
            }
        }
        rest = after;
    }
    out.push_str(rest);
    Value::from(out)
}

fn undefined_alone(text: &str, strategy: &Strategy) -> Value {
    match strategy.undefined_interpolation {
        UndefinedInterpolation::NullOrEmpty => Value::Null,
        UndefinedInterpolation::Literal => Value::from(text),
    }
}

/// Position of the brace that closes the one before `text`, skipping nested braces.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Value of an expression; `None` if it has neither a value nor a fallback.
fn expression(inner: &str, context: &Value, strategy: &Strategy, depth: usize) -> Option<Value> {
    let (path, fallback) = match inner.split_once(":-") {
        Some((path, fallback)) => (path, Some(fallback)),
        None => (inner, None),
    };
    let found = Some(path.trim()).filter(|path| !path.is_empty()).and_then(|path| path::get(context, path));
    let Some(fallback) = fallback else { return found.cloned() };
    let is_empty = |value: &Value| value.is_null() || value.as_str() == Some("");
    match found {
        Some(value) if strategy.empty_fallback == EmptyFallback::UndefinedOnly || !is_empty(value) => {
            Some(value.clone())
        }
        _ => Some(text_below(fallback, context, strategy, depth + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn interpolated(text: &str, strategy: &Strategy) -> Value {
        let context = json!({"locals": {"config": {"cwd": "/p", "n": 3, "empty": "", "none": null, "o": {"a": [1]}}}});
        self::text(text, &context, strategy)
    }

    /// D-5: the fallback replaces a missing value, null and the empty text, and is interpolated itself
    /// (`EmptyFallback`).
    #[test]
    fn fallbacks_are_texts_of_their_own() {
        let strategy = Strategy::default();
        let of = |text: &str| interpolated(text, &strategy);
        assert_eq!(of("${a:-${locals.config.cwd}/x:-y}"), json!("/p/x:-y"));
        assert_eq!(of("${locals.config.empty:-e}"), json!("e"));
        assert_eq!(of("${locals.config.none:-e}"), json!("e"));
        assert_eq!(of("<${locals.config.o}> ${locals.config.o.a[0]}"), json!("<{\"a\":[1]}> 1"));
        assert_eq!(of("$HOME ${abc"), json!("$HOME ${abc"));
        let strict = Strategy { empty_fallback: EmptyFallback::UndefinedOnly, ..strategy };
        assert_eq!(interpolated("${locals.config.empty:-e}", &strict), json!(""));
        assert_eq!(interpolated("${a:-e}", &strict), json!("e"));
    }

    /// D-5: a missing value is null when alone and empty inside a text; or it stays as written
    /// (`UndefinedInterpolation`).
    #[test]
    fn what_is_not_there_is_null_or_nothing() {
        let strategy = Strategy::default();
        assert_eq!(interpolated("${a.b}", &strategy), json!(null));
        assert_eq!(interpolated("x${a.b}y", &strategy), json!("xy"));
        let literal = Strategy { undefined_interpolation: UndefinedInterpolation::Literal, ..strategy };
        assert_eq!(interpolated("${a.b}", &literal), json!("${a.b}"));
        assert_eq!(interpolated("x${a.b}y", &literal), json!("x${a.b}y"));
    }

    /// D-5: expressions beyond the limits of depth or length stay as written.
    #[test]
    fn bombs_stay_as_they_are_written() {
        let deep = interpolated(&("${a:-".repeat(100_000) + &"}".repeat(100_000)), &Strategy::default());
        assert!(deep.as_str().is_some_and(|text| text.starts_with("${a:-${a:-")), "the rest of it");
        let context = json!({"large": "x".repeat(1 << 20)});
        let many = self::text(&"${large} ".repeat(1000), &context, &Strategy::default());
        assert!(many.as_str().is_some_and(|text| text.len() <= MAX_LENGTH + 10_000 && text.ends_with("${large} ")));
    }

    /// D-5: keys are interpolated as well.
    #[test]
    fn keys_are_interpolated() {
        let members = json!({"$.paths[?(@ == '${w:-./workspace}')]": {"before": ["${c}"]}, "$order": 1});
        let found = value(&members, &json!({"c": 1}), &Strategy::default());
        assert_eq!(found, json!({"$.paths[?(@ == './workspace')]": {"before": [1]}, "$order": 1}));
        let found = key("$.paths[?(@ == '${w}')].x", &json!({"w": "./it's"}), &Strategy::default());
        let path = path::parse(&found);
        let [path::Part::Key(paths), path::Part::Filter(filter), path::Part::Key(x)] = &path[..] else {
            panic!("{path:?}")
        };
        assert_eq!((paths.as_str(), x.as_str(), filter.equals.as_ref()), ("paths", "x", Some(&json!("./it's"))));
    }
}

//! Arguments from the command line, converted to the types in `params` (D-16).

use etude_core::exact::rounded_whole;
use serde_json::{Map, Value};

/// Merges `KEY=VALUE` pairs over the arguments of a JSON document. Texts become the declared type: numbers, booleans,
/// and JSON for lists and objects. A text that does not parse as its type, or has a number that a tree would round, stays
/// text, for the validation to refuse. A key given several times is a list. An object with numbers as keys is a list where
/// the schema says so.
pub fn coerce(pairs: &[(String, String)], json: Option<Value>, params: Option<&Value>) -> Value {
    let mut args = match json {
        Some(Value::Object(members)) => members,
        Some(other) if pairs.is_empty() => return other,
        _ => Map::new(),
    };
    let mut keys: Vec<&str> = pairs.iter().map(|(key, _)| key.as_str()).collect();
    keys.dedup();
    for key in keys {
        let texts: Vec<&str> = pairs.iter().filter(|(other, _)| other == key).map(|(_, text)| text.as_str()).collect();
        let schema = params.and_then(|params| params.get("properties")?.get(key));
        let value = match texts.as_slice() {
            [one] => typed(one, schema),
            many => {
                let items = schema.and_then(|schema| schema.get("items"));
                many.iter().map(|text| typed(text, items)).collect()
            }
        };
        args.insert(key.to_owned(), value);
    }
    let is_list = params.is_some_and(|params| is(params, "array"));
    if is_list && !args.is_empty() && args.keys().all(|key| key.parse::<usize>().is_ok()) {
        let items = params.and_then(|params| params.get("items"));
        let mut list: Vec<(usize, Value)> =
            args.into_iter().filter_map(|(key, value)| Some((key.parse().ok()?, value))).collect();
        list.sort_by_key(|(at, _)| *at);
        let again = |value: Value| value.as_str().map_or(value.clone(), |text| typed(text, items));
        return list.into_iter().map(|(_, value)| again(value)).collect();
    }
    Value::Object(args)
}

fn is(schema: &Value, word: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == word,
        Some(Value::Array(many)) => many.iter().any(|one| one == word),
        _ => false,
    }
}

fn typed(text: &str, schema: Option<&Value>) -> Value {
    let Some(schema) = schema else { return Value::from(text) };
    // Arguments are a tree, which would be another id.
    if rounded_whole(text).is_some() {
        return Value::from(text);
    }
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    let fits = |value: &Value| match value {
        Value::Number(number) => is(schema, "number") || (is(schema, "integer") && !number.is_f64()),
        Value::Bool(_) => is(schema, "boolean"),
        Value::Array(_) => is(schema, "array"),
        Value::Object(_) => is(schema, "object"),
        Value::Null => is(schema, "null"),
        Value::String(_) => false,
    };
    match parsed.filter(fits) {
        Some(value) => value,
        // A single element of a list may be given alone.
        None if is(schema, "array") && !is(schema, "string") => Value::Array(vec![typed(text, schema.get("items"))]),
        None => Value::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn coerced(pairs: &[(&str, &str)], params: Value) -> Value {
        let pairs: Vec<(String, String)> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        coerce(&pairs, None, Some(&params))
    }

    /// D-16, D-L01 to D-L03: repeated keys, declared types, and lists by number.
    #[test]
    fn what_is_typed_becomes_what_is_declared() {
        assert_eq!(coerced(&[("ref", "a"), ("ref", "b")], json!({})), json!({"ref": ["a", "b"]}));
        let params =
            json!({"properties": {"n": {"type": "number"}, "ok": {"type": "boolean"}, "l": {"type": "array"}}});
        assert_eq!(
            coerced(&[("n", "42"), ("ok", "true"), ("l", "[1]")], params),
            json!({"n": 42, "ok": true, "l": [1]})
        );
        assert_eq!(coerced(&[("1", "b"), ("0", "a")], json!({"type": "array"})), json!(["a", "b"]));
    }

    /// D-16: a value that does not parse as its type stays text; undeclared values are never guessed; pairs win over
    /// the document.
    #[test]
    fn nothing_is_guessed() {
        let params = json!({"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}});
        assert_eq!(coerced(&[("n", "4.5"), ("s", "42"), ("x", "7")], params), json!({"n": "4.5", "s": "42", "x": "7"}));
        let pairs = [("a".to_owned(), "2".to_owned())];
        assert_eq!(coerce(&pairs, Some(json!({"a": 1, "b": 1})), None), json!({"a": "2", "b": 1}));
        assert_eq!(coerce(&[], Some(json!([1])), None), json!([1]));
        let params = json!({"properties": {"n": {"type": "number"}, "l": {"type": "array"}}});
        let id = "12345678901234567890123";
        let list = format!("[{id}]");
        assert_eq!(coerced(&[("n", id), ("l", &list)], params), json!({"n": id, "l": list}));
    }
}

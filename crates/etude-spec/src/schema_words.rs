//! Misspelled keywords of JSON Schemas, which a validator ignores without a message.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::diagnose::values;
use crate::diagnostic::Diagnostic;
use crate::json_text;
use crate::source::{SourceFile, Span};
use crate::yaml::{Node, place_in};

/// Keywords of all drafts, and those that OpenAPI adds.
const KEYWORDS: &[&str] = &[
    "$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef",
    "$ref", "$schema", "$vocabulary", "additionalItems", "additionalProperties", "allOf", "anyOf", "const", "contains",
    "contentEncoding", "contentMediaType", "contentSchema", "default", "definitions", "dependencies",
    "dependentRequired", "dependentSchemas", "deprecated", "description", "discriminator", "divisibleBy", "else",
    "enum", "example", "examples", "exclusiveMaximum", "exclusiveMinimum", "extends", "externalDocs", "format", "id",
    "if", "items", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems",
    "minLength", "minProperties", "minimum", "multipleOf", "not", "nullable", "oneOf", "pattern", "patternProperties",
    "prefixItems", "properties", "propertyNames", "readOnly", "required", "then", "title", "type", "unevaluatedItems",
    "unevaluatedProperties", "uniqueItems", "writeOnly", "xml",
];

/// Maximum number of misspelled keywords that are reported for a schema.
const MAX_COUNT: usize = 20;

/// Maximum number of schemas inside a schema that are searched.
const MAX_PARTS: usize = 10_000;

/// A misspelled keyword.
struct Slip {
    /// JSON pointer of its value.
    pointer: String,
    word: String,
    meant: &'static str,
}

/// Warnings about misspelled keywords in the schema `document`, written as `node` of `file`.
pub(crate) fn in_yaml(file: &Arc<SourceFile>, node: &Node<'_>, document: &Value) -> Vec<Diagnostic> {
    let place = |slip: &Slip| {
        let parent = slip.pointer.rsplit_once('/').map_or("", |(parent, _)| parent);
        key_in(node, parent, &slip.word).unwrap_or_else(|| place_in(node, &slip.pointer))
    };
    warnings(file, document, place)
}

/// Warnings about misspelled keywords in the schema `document`, the content of the JSON file `file`.
pub(crate) fn in_json(file: &Arc<SourceFile>, document: &Value) -> Vec<Diagnostic> {
    let place = |slip: &Slip| {
        let value = json_text::locate(file.text(), &slip.pointer);
        let key = Value::from(slip.word.as_str()).to_string();
        let at = file.text()[..value.start].rfind(&key);
        at.map_or(Span::new(value.start, value.end), |at| Span::new(at, at + key.len()))
    };
    warnings(file, document, place)
}

fn warnings(file: &Arc<SourceFile>, document: &Value, place: impl Fn(&Slip) -> Span) -> Vec<Diagnostic> {
    let slips = slips(document);
    slips.iter().map(|slip| values::misspelled_keyword(file, place(slip), &slip.word, slip.meant)).collect()
}

/// Place of the key `word` in the mapping at the JSON pointer `parent`.
fn key_in(node: &Node<'_>, parent: &str, word: &str) -> Option<Span> {
    let mut node = node;
    for token in parent.split('/').skip(1) {
        let token = etude_core::pointer::unescaped(token);
        node = match (node.as_map(), node.as_seq()) {
            (Some(entries), _) => entries.get(&token)?,
            (_, Some(items)) => items.get(token.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(node.as_map()?.entry(word)?.0.span)
}

fn slips(document: &Value) -> Vec<Slip> {
    let dialect = document.get("$schema").and_then(Value::as_str);
    if dialect.is_some_and(|dialect| !dialect.contains("json-schema.org/")) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let (mut parts, mut waiting) = (0, vec![(String::new(), document)]);
    while let Some((pointer, part)) = waiting.pop() {
        parts += 1;
        let Some(members) = part.as_object().filter(|_| parts <= MAX_PARTS) else { continue };
        let unknown = members.keys().filter(|key| !KEYWORDS.contains(&key.as_str()));
        let slips = unknown.filter_map(|word| Some((word, meant(word).filter(|meant| !members.contains_key(*meant))?)));
        found.extend(slips.map(|(word, meant)| Slip { pointer: below(&pointer, word), word: word.clone(), meant }));
        if found.len() >= MAX_COUNT {
            break;
        }
        let from = waiting.len();
        schemas_in(&pointer, members, &mut waiting);
        waiting[from..].reverse();
    }
    found.truncate(MAX_COUNT);
    found
}

/// Adds the schemas in the keywords of a schema. Other values are data.
fn schemas_in<'v>(pointer: &str, members: &'v Map<String, Value>, found: &mut Vec<(String, &'v Value)>) {
    for (key, value) in members {
        let at = below(pointer, key);
        match (key.as_str(), value) {
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies",
                Value::Object(all),
            ) => found.extend(all.iter().map(|(name, value)| (below(&at, name), value))),
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(all)) => {
                found.extend(all.iter().enumerate().map(|(index, value)| (format!("{at}/{index}"), value)));
            }
            (
                "items"
                | "additionalItems"
                | "additionalProperties"
                | "contains"
                | "contentSchema"
                | "else"
                | "if"
                | "not"
                | "propertyNames"
                | "then"
                | "unevaluatedItems"
                | "unevaluatedProperties",
                Value::Object(_),
            ) => found.push((at, value)),
            _ => {}
        }
    }
}

fn below(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The keyword that an unknown word was probably meant to be. Stricter than a hint on an error, because unknown words are
/// allowed: short words and abbreviations are annotations.
fn meant(word: &str) -> Option<&'static str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', '$'], "");
    let (folded, length) = (plain(word), word.chars().count());
    if word.starts_with("x-") || !(3..=30).contains(&length) {
        return None;
    }
    let distance = |keyword: &str| {
        let other = plain(keyword);
        match (folded == other, keyword.len()) {
            // `comment`, `schema` and `anchor` are plausible annotations.
            (true, _) if keyword.starts_with('$') => ["$ref", "$defs"].contains(&keyword).then_some(0),
            (true, _) => Some(0),
            (false, 0..4) => None,
            (false, _) if keyword.starts_with('$') || length < 4 => None,
            (false, len) => {
                let limit = if len < 8 { 1 } else { 2 };
                Some(strsim::damerau_levenshtein(&folded, &other)).filter(|distance| *distance <= limit)
            }
        }
    };
    let near = KEYWORDS.iter().filter_map(|keyword| Some((distance(keyword)?, *keyword)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, keyword)| keyword)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::App;
    use crate::source::MemorySources;

    /// A-2.4: near misses of keywords are found; annotations and words of other vocabularies are left alone.
    #[test]
    fn near_misses_of_keywords_are_found() {
        for (word, keyword) in [
            ("minlength", "minLength"),
            ("maxlength", "maxLength"),
            ("min_items", "minItems"),
            ("requierd", "required"),
            ("propertys", "properties"),
            ("item", "items"),
            ("types", "type"),
            ("ref", "$ref"),
            ("additionalPropertys", "additionalProperties"),
            ("anyof", "anyOf"),
        ] {
            assert_eq!(meant(word), Some(keyword), "{word}");
        }
        for word in
            ["x-minlength", "note", "notes", "unit", "min", "label", "comment", "schema", "value", "widget", "ui:order"]
        {
            assert_eq!(meant(word), None, "{word}");
        }
    }

    /// A-2.4: names of properties and data are not keywords, and a schema of another vocabulary is not searched.
    #[test]
    fn only_keywords_are_compared() {
        let found = |text: &str| {
            let document: Value = serde_json::from_str(text).unwrap();
            slips(&document).into_iter().map(|slip| slip.pointer).collect::<Vec<_>>()
        };
        assert_eq!(found(r#"{"properties": {"titel": {"enum": [{"typ_e": 1}], "default": {"tipe": 1}}}}"#), [""; 0]);
        assert_eq!(found(r#"{"$schema": "https://example.com/own", "tipe": 1}"#), [""; 0]);
        // The keyword is there, so the other word is an annotation.
        assert_eq!(found(r#"{"type": "string", "types": "text"}"#), [""; 0]);
        let nested = r#"{"properties": {"a/b": {"items": {"anyOf": [{"patern": "x"}]}}}, "tipe": 1}"#;
        assert_eq!(found(nested), ["/tipe", "/properties/a~1b/items/anyOf/0/patern"]);
    }

    /// A-2.2, A-2.4: the warnings are at the words, in inputs, in schemas of steps and in schema files.
    #[test]
    fn misspelled_keywords_are_warnings_at_their_places() {
        let text = "name: p\ndescription: d\ninput:\n  c: {type: string, minlength: 3}\nsteps:\n  \
                    - {name: a, type: llm, prompt: x, schema: {type: object, propertys: {}}}\n  \
                    - {name: b, type: llm, prompt: x, schema: schemas/b.json}\n";
        let files = MemorySources::new()
            .with("pipelines/p/pipeline.yaml", text)
            .with("pipelines/p/schemas/b.json", "{\"type\": \"string\",\n  \"maxLenth\": 3}");
        let (pipeline, found) = App::new(&files).pipeline("p");
        assert!(pipeline.is_some());
        let found: Vec<_> = found
            .iter()
            .map(|d| (d.is_error(), d.file.path(), d.position().unwrap(), d.hint.as_deref().unwrap()))
            .collect();
        let file = "pipelines/p/pipeline.yaml";
        assert_eq!(
            found,
            [
                (false, file, (4, 21), "did you mean `minLength`?"),
                (false, file, (6, 60), "did you mean `properties`?"),
                (false, "pipelines/p/schemas/b.json", (2, 3), "did you mean `maxLength`?"),
            ]
        );
    }
}

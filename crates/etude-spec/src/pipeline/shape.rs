//! Static shapes of values, and checks of paths into them.

use std::sync::Arc;

use etude_core::template::Segment;
use serde_json::Value;

use crate::value_types::ValueTypes;

/// Static knowledge about a value. A clone is cheap, because pipelines pass their shapes to each other.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// Any value: there is no schema.
    Any,
    /// A value without members: `a string`.
    Leaf(&'static str),
    /// A list with elements of this shape.
    Array(Arc<Self>),
    /// An element of a collected fan-out: `{"output": …}` with a value of this shape, or `{"error": …}`.
    Collected(Arc<Self>),
    /// An object with exactly these members.
    Object(Arc<[(String, Self)]>),
    /// A value described by a JSON Schema: the document, the parts of it that may apply, and the file for messages.
    Schema { root: Arc<Value>, parts: Vec<Arc<Value>>, file: Arc<str> },
}

/// Reason why a path leads nowhere.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Miss {
    /// Number of valid segments.
    pub(crate) depth: usize,
    pub(crate) why: Why,
    /// Name of the schema that rules the path out; empty if there is none.
    pub(crate) schema: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A closed object, with its members.
    NoMember(Vec<String>),
    /// A value without members.
    Leaf(&'static str),
    /// An array, accessed by a member name.
    Array,
    /// The list of a collected fan-out, accessed by a member name.
    CollectedArray,
    /// An element of a collected fan-out, accessed by a member of its output.
    Collected,
}

impl Shape {
    /// Shape of the values that a schema accepts.
    pub(crate) fn of_schema(document: &Arc<Value>, file: &str) -> Self {
        Self::Schema { root: Arc::clone(document), parts: vec![Arc::clone(document)], file: file.into() }
    }

    /// The kind of the value, if it is never an array.
    pub(crate) fn no_list(&self) -> Option<&'static str> {
        match self {
            Self::Leaf(kind) => Some(kind),
            Self::Object(_) | Self::Collected(_) => Some("an object"),
            Self::Any | Self::Array(_) | Self::Schema { .. } => None,
        }
    }

    /// Types that the value may have, if they are known.
    pub(crate) fn types(&self) -> Option<ValueTypes> {
        match self {
            Self::Leaf(kind) => ValueTypes::of_word(kind),
            Self::Array(_) => ValueTypes::of_word("array"),
            Self::Object(_) | Self::Collected(_) => ValueTypes::of_word("object"),
            Self::Schema { parts, .. } => ValueTypes::any(parts.iter().map(|part| ValueTypes::of_schema(part))),
            Self::Any => None,
        }
    }

    /// Shape of an element; [`Self::Any`] if the value is not an array.
    pub(crate) fn element(&self) -> Self {
        match self {
            Self::Array(element) => (**element).clone(),
            Self::Schema { .. } => self.walk(&[Segment::Index(usize::MAX)]).unwrap_or(Self::Any),
            _ => Self::Any,
        }
    }

    /// Shape of the value at the end of a path.
    ///
    /// # Errors
    /// The path cannot lead anywhere.
    pub(crate) fn walk(&self, path: &[Segment]) -> Result<Self, Miss> {
        let mut shape = self.clone();
        for (depth, segment) in path.iter().enumerate() {
            let miss = |why| Err(Miss { depth, why, schema: shape.file() });
            shape = match (&shape, segment) {
                (Self::Any, _) => return Ok(Self::Any),
                (Self::Leaf(kind), _) => return miss(Why::Leaf(kind)),
                (Self::Array(element), Segment::Index(_)) => (**element).clone(),
                (Self::Array(element), Segment::Field(name)) => {
                    let is_wrapped = matches!(**element, Self::Collected(_)) && name != "output" && name != "error";
                    return miss(if is_wrapped { Why::CollectedArray } else { Why::Array });
                }
                (Self::Collected(output), segment) => match segment.to_string().as_str() {
                    "output" => (**output).clone(),
                    "error" => Self::Any,
                    _ => return miss(Why::Collected),
                },
                (Self::Object(members), segment) => {
                    let name = segment.to_string();
                    match members.iter().find(|(member, _)| *member == name) {
                        Some((_, shape)) => shape.clone(),
                        None => return miss(Why::NoMember(members.iter().map(|(name, _)| name.clone()).collect())),
                    }
                }
                (Self::Schema { root, parts, file }, segment) => match enter_all(root, parts, segment) {
                    Ok(None) => return Ok(Self::Any),
                    Ok(Some(parts)) => Self::Schema {
                        root: Arc::clone(root),
                        parts: parts.into_iter().cloned().map(Arc::new).collect(),
                        file: Arc::clone(file),
                    },
                    Err(why) => return miss(why),
                },
            };
        }
        Ok(shape)
    }

    fn file(&self) -> String {
        match self {
            Self::Schema { file, .. } => file.to_string(),
            _ => String::new(),
        }
    }
}

/// Statement of one schema about a member or element.
enum Says<'v> {
    /// The schema does not restrict it.
    Nothing,
    /// These schemas describe it.
    Found(Vec<&'v Value>),
    /// The schema excludes it.
    No(Why),
}

/// Enters alternatives: `Ok(None)` if one of them does not restrict the member.
fn enter_all<'v>(root: &'v Value, parts: &'v [Arc<Value>], segment: &Segment) -> Result<Option<Vec<&'v Value>>, Why> {
    match any_of(root, parts.iter().map(|part| &**part), segment, 0) {
        Says::Nothing => Ok(None),
        Says::Found(parts) => Ok(Some(parts)),
        Says::No(why) => Err(why),
    }
}

/// Maximum number of references and combinations followed into one value: a bound against cycles.
const MAX_DEPTH: usize = 32;

fn any_of<'v>(root: &'v Value, schemas: impl Iterator<Item = &'v Value>, segment: &Segment, depth: usize) -> Says<'v> {
    let mut found = Vec::new();
    let mut refused: Option<Why> = None;
    for schema in schemas {
        match enter(root, schema, segment, depth) {
            Says::Nothing => return Says::Nothing,
            Says::Found(more) => found.extend(more),
            Says::No(Why::NoMember(more)) => match &mut refused {
                Some(Why::NoMember(known)) => {
                    let new: Vec<_> = more.into_iter().filter(|name| !known.contains(name)).collect();
                    known.extend(new);
                }
                _ => refused = Some(Why::NoMember(more)),
            },
            // `null` next to an object needs no mention.
            Says::No(why) => drop(refused.get_or_insert(why)),
        }
    }
    match refused {
        Some(why) if found.is_empty() => Says::No(why),
        _ if found.is_empty() => Says::Nothing,
        _ => Says::Found(found),
    }
}

fn enter<'v>(root: &'v Value, schema: &'v Value, segment: &Segment, depth: usize) -> Says<'v> {
    let Value::Object(members) = schema else {
        return Says::Nothing;
    };
    if depth > MAX_DEPTH {
        return Says::Nothing;
    }
    let target = members.get("$ref").and_then(Value::as_str);
    let referred = || {
        let target = target?.strip_prefix('#').and_then(|pointer| root.pointer(pointer))?;
        Some(enter(root, target, segment, depth + 1))
    };
    if target.is_some() && is_before_2019(root) {
        return referred().unwrap_or(Says::Nothing);
    }
    // All parts of a schema apply: a part that refuses decides first, then one that describes.
    let mut parts = vec![own(members, segment)];
    parts.extend(referred());
    for all in members.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        parts.push(enter(root, all, segment, depth + 1));
    }
    for word in ["anyOf", "oneOf"] {
        if let Some(any) = members.get(word).and_then(Value::as_array) {
            parts.push(any_of(root, any.iter(), segment, depth + 1));
        }
    }
    let mut found = Vec::new();
    for part in parts {
        match part {
            Says::No(why) => return Says::No(why),
            Says::Found(more) => found.extend(more),
            Says::Nothing => {}
        }
    }
    if found.is_empty() { Says::Nothing } else { Says::Found(found) }
}

/// True for a schema of draft 7 or earlier, where `$ref` replaces all keywords beside it.
fn is_before_2019(root: &Value) -> bool {
    let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
    ["/draft-03/", "/draft-04/", "/draft-06/", "/draft-07/"].iter().any(|draft| dialect.contains(draft))
}

type Members = serde_json::Map<String, Value>;

/// Statement of one schema's own keywords, without references and combinations.
fn own<'v>(members: &'v Members, segment: &Segment) -> Says<'v> {
    let types: Vec<&str> = match members.get("type") {
        Some(Value::String(word)) => vec![word],
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
        _ => match (members.get("const"), members.get("enum").and_then(Value::as_array)) {
            (Some(constant), _) => vec![type_of(constant)],
            (None, choices) => choices.into_iter().flatten().map(type_of).collect(),
        },
    };
    let may_be = |word: &str| types.is_empty() || types.contains(&word);
    if let Segment::Index(index) = segment
        && may_be("array")
    {
        let says = element(members, *index);
        if !(matches!(says, Says::No(_)) && may_be("object")) {
            return says;
        }
    }
    if may_be("object") {
        return member(members, &segment.to_string());
    }
    if may_be("array") {
        return Says::No(Why::Array);
    }
    let leaf = types.iter().find(|word| **word != "null").copied().unwrap_or("null");
    Says::No(Why::Leaf(with_article(leaf)))
}

fn member<'v>(members: &'v Members, name: &str) -> Says<'v> {
    let properties = members.get("properties").and_then(Value::as_object);
    if let Some(found) = properties.and_then(|all| all.get(name)) {
        return if *found == Value::Bool(false) { no_member(properties) } else { Says::Found(vec![found]) };
    }
    if members.contains_key("patternProperties") {
        return Says::Nothing;
    }
    let composed = ["$ref", "allOf", "anyOf", "oneOf", "if"].iter().any(|word| members.contains_key(*word));
    match (members.get("additionalProperties"), members.get("unevaluatedProperties")) {
        (Some(Value::Bool(false)), _) => no_member(properties),
        (None, Some(Value::Bool(false))) if !composed => no_member(properties),
        (Some(rest @ Value::Object(_)), _) => Says::Found(vec![rest]),
        _ => Says::Nothing,
    }
}

fn no_member<'v>(properties: Option<&Members>) -> Says<'v> {
    Says::No(Why::NoMember(properties.map(|all| all.keys().cloned().collect()).unwrap_or_default()))
}

fn element(members: &Members, index: usize) -> Says<'_> {
    if let Some(found) = members.get("prefixItems").and_then(Value::as_array).and_then(|all| all.get(index)) {
        return Says::Found(vec![found]);
    }
    match members.get("items") {
        Some(items @ Value::Object(_)) => Says::Found(vec![items]),
        _ => Says::Nothing,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A JSON type with its article.
pub(crate) fn with_article(word: &str) -> &'static str {
    match word {
        "string" => "a string",
        "integer" => "an integer",
        "number" => "a number",
        "boolean" => "a boolean",
        "array" => "an array",
        "object" => "an object",
        _ => "null",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn walk(schema: Value, path: &str) -> Result<(), (usize, Why)> {
        let reference: etude_core::template::Reference = format!("a.output.{path}").parse().unwrap();
        let shape = Shape::of_schema(&Arc::new(schema), "s.json");
        shape.walk(reference.path()).map(drop).map_err(|miss| (miss.depth, miss.why))
    }

    fn closed(properties: Value) -> Value {
        json!({"type": "object", "properties": properties, "additionalProperties": false})
    }

    fn no_member(depth: usize, known: &[&str]) -> Result<(), (usize, Why)> {
        Err((depth, Why::NoMember(known.iter().map(ToString::to_string).collect())))
    }

    #[test]
    fn closed_objects_have_only_their_members() {
        let schema = closed(json!({"issues": {"type": "array", "items": closed(json!({"file": {"type": "string"}}))}}));
        assert_eq!(walk(schema.clone(), "issues.0.file"), Ok(()));
        assert_eq!(walk(schema.clone(), "issus"), no_member(0, &["issues"]));
        assert_eq!(walk(schema.clone(), "issues.0.line"), no_member(2, &["file"]));
        assert_eq!(walk(schema.clone(), "issues.file"), Err((1, Why::Array)));
        assert_eq!(walk(schema, "issues.0.file.x"), Err((3, Why::Leaf("a string"))));
    }

    #[test]
    fn open_objects_say_nothing() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        assert_eq!(walk(schema.clone(), "b.c"), Ok(()));
        assert_eq!(walk(schema, "a.c"), Err((1, Why::Leaf("a string"))));
        assert_eq!(walk(json!({"patternProperties": {"^x": {}}, "additionalProperties": false}), "x1"), Ok(()));
    }

    #[test]
    fn any_value_of_an_enumeration_may_have_members() {
        assert_eq!(walk(json!({"enum": [null, {"a": 1}]}), "a"), Ok(()));
        assert_eq!(walk(json!({"enum": [null, 1, "x"]}), "a"), Err((0, Why::Leaf("a number"))));
    }

    #[test]
    fn references_and_combinations_are_followed() {
        let schema = json!({
            "$defs": {"node": {"allOf": [closed(json!({"next": {"$ref": "#/$defs/node"}, "v": {"type": "integer"}}))]}},
            "$ref": "#/$defs/node",
        });
        assert_eq!(walk(schema.clone(), "next.next.v"), Ok(()));
        assert_eq!(walk(schema, "next.w"), no_member(1, &["next", "v"]));
        let either = json!({"anyOf": [closed(json!({"a": {}})), closed(json!({"b": {}})), {"type": "null"}]});
        assert_eq!(walk(either.clone(), "b"), Ok(()));
        assert_eq!(walk(either, "c"), no_member(0, &["a", "b"]));
        assert_eq!(walk(json!({"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"}), "y"), Ok(()));
    }

    /// until draft 7 `$ref` stands alone, so keywords beside it exclude nothing.
    #[test]
    fn a_reference_of_an_early_draft_stands_alone() {
        let of = |draft: &str| {
            json!({"$schema": draft, "definitions": {"x": closed(json!({"a": {}}))},
                "properties": {"o": {"$ref": "#/definitions/x", "additionalProperties": false}}})
        };
        assert_eq!(walk(of("http://json-schema.org/draft-07/schema#"), "o.a"), Ok(()));
        assert_eq!(walk(of("http://json-schema.org/draft-07/schema#"), "o.b"), no_member(1, &["a"]));
        assert_eq!(walk(of("https://json-schema.org/draft/2020-12/schema"), "o.a"), no_member(1, &[]));
    }

    /// with `on_item_failure: collect` an element is `{"output": …}` or `{"error": …}`.
    #[test]
    fn elements_of_a_collected_fan_out_are_entered_through_output_or_error() {
        let total = Shape::of_schema(&Arc::new(closed(json!({"total": {"type": "number"}}))), "s.json");
        let list = Shape::Array(Arc::new(Shape::Collected(Arc::new(total))));
        let walk = |path: &str| {
            let reference: etude_core::template::Reference = format!("a.output{path}").parse().unwrap();
            list.walk(reference.path()).map(drop).map_err(|miss| (miss.depth, miss.why))
        };
        assert_eq!(walk(".0.output.total"), Ok(()));
        assert_eq!(walk(".0.error.message"), Ok(()));
        assert_eq!(walk(".0.output.totl"), no_member(2, &["total"]));
        assert_eq!(walk(".0.total"), Err((1, Why::Collected)));
        assert_eq!(walk(".total"), Err((0, Why::CollectedArray)));
        assert_eq!(walk(".output.total"), Err((0, Why::Array)));
    }

    #[test]
    fn nullable_objects_are_entered() {
        let schema = json!({"type": ["object", "null"], "properties": {"a": {}}, "additionalProperties": false});
        assert_eq!(walk(schema.clone(), "a"), Ok(()));
        assert_eq!(walk(schema, "b"), no_member(0, &["a"]));
    }
}

//! Values of results: the places in them that can be named, and the lists that a value can be chosen from.

use etude_core::exact::canonical;
pub(crate) use etude_core::exact::same;
use serde_json::Value;

/// Names of members from the outside to the inside.
pub(crate) type Path = Vec<String>;

/// Maximum depth of the places in a result.
const MAX_DEPTH: usize = 5;
/// Maximum number of places in one result.
const MAX_PLACES: usize = 400;

pub(crate) fn at<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, step| match value {
        Value::Object(members) => members.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// True if a name can be written as a part of a reference.
pub(crate) fn is_nameable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// True for a text, a number or a truth value.
pub(crate) fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}

/// Paths of the values that `wanted` accepts, through members of objects alone.
pub(crate) fn fields(value: &Value, wanted: &dyn Fn(&Value) -> bool) -> Vec<Path> {
    fn walk(value: &Value, path: &mut Path, wanted: &dyn Fn(&Value) -> bool, found: &mut Vec<Path>) {
        if found.len() >= MAX_PLACES {
            return;
        }
        if wanted(value) {
            found.push(path.clone());
        }
        if let Value::Object(members) = value
            && path.len() < MAX_DEPTH
        {
            for (name, inner) in members.iter().filter(|(name, _)| is_nameable(name)) {
                path.push(name.clone());
                walk(inner, path, wanted, found);
                path.pop();
            }
        }
    }
    let mut found = Vec::new();
    walk(value, &mut Vec::new(), wanted, &mut found);
    found
}

/// A list inside a result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Collection {
    pub(crate) path: Path,
    pub(crate) kind: Kind,
}

/// Form of a list in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A JSON array.
    List,
    /// All members of an object, each an object.
    Members,
    /// The members of an object that are objects with the same members as another one.
    Records,
}

impl Collection {
    /// The elements; `None` if the list does not exist.
    pub(crate) fn elements<'v>(&self, value: &'v Value) -> Option<Vec<&'v Value>> {
        match (at(value, &self.path)?, self.kind) {
            (Value::Array(items), Kind::List) => Some(items.iter().collect()),
            (Value::Object(members), Kind::Members) => {
                members.values().all(Value::is_object).then(|| members.values().collect())
            }
            (Value::Object(_), Kind::Records) => Some(records(at(value, &self.path)?)).filter(|all| !all.is_empty()),
            _ => None,
        }
    }
}

/// Members of an object that are objects with the same members as another one of them.
fn records(value: &Value) -> Vec<&Value> {
    let Value::Object(members) = value else { return Vec::new() };
    let inner: Vec<&Value> = members.values().filter(|inner| inner.is_object()).collect();
    let has_twin = |one: &&Value| inner.iter().filter(|other| has_same_members(one, other)).count() > 1;
    let all: Vec<&Value> = inner.iter().filter(|one| has_twin(one)).copied().collect();
    // With two kinds of records, neither is the list.
    if all.windows(2).all(|pair| has_same_members(pair[0], pair[1])) { all } else { Vec::new() }
}

/// True if both are objects with the same members, or both something else of the same type.
pub(crate) fn has_same_shape(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len() && one.keys().all(|name| other.contains_key(name))
        }
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

fn has_same_members(one: &Value, other: &Value) -> bool {
    let (Value::Object(one), Value::Object(other)) = (one, other) else { return false };
    !one.is_empty() && one.len() == other.len() && one.keys().all(|name| other.contains_key(name))
}

/// Lists that are reached through members of objects alone.
pub(crate) fn collections(value: &Value) -> Vec<Collection> {
    let mut found = Vec::new();
    for path in fields(value, &|value| value.is_array() || value.is_object()) {
        match at(value, &path) {
            Some(Value::Array(_)) => found.push(Collection { path, kind: Kind::List }),
            Some(inner @ Value::Object(members)) => {
                if !members.is_empty() && members.values().all(Value::is_object) {
                    found.push(Collection { path, kind: Kind::Members });
                } else if !records(inner).is_empty() {
                    found.push(Collection { path, kind: Kind::Records });
                }
            }
            _ => {}
        }
    }
    found
}

/// True if that value is at a path. Numbers are compared by value, as everywhere.
pub(crate) fn is_at(whole: &Value, path: &[String], value: &Value) -> bool {
    at(whole, path).is_some_and(|found| same(found, value))
}

/// True if both are present and the same by value, or both are missing.
pub(crate) fn are_same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => same(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// The only element with that value; `None` if several or none have it.
pub(crate) fn only<'v>(elements: &[&'v Value], key: &Path, value: &Value) -> Option<&'v Value> {
    let mut found = elements.iter().filter(|element| is_at(element, key, value) && !value.is_null());
    let first = found.next()?;
    found.next().is_none().then_some(*first)
}

/// True if two calls are the same up to the order of sets: lists of scalars are compared as sets, and those of the same
/// length as pairs.
pub(crate) fn is_same_call(one: &Value, other: &Value) -> bool {
    same(one, other) || normal_order(&canonical(one)) == normal_order(&canonical(other))
}

fn normal_order(arguments: &Value) -> Value {
    let Value::Object(members) = arguments else { return arguments.clone() };
    let mut sorted = arguments.clone();
    let list_of =
        |value: &Value| -> Option<Vec<Value>> { value.as_array().filter(|items| items.iter().all(is_scalar)).cloned() };
    let lists: Vec<(String, Vec<Value>)> =
        members.iter().filter_map(|(name, value)| Some((name.clone(), list_of(value)?))).collect();
    for (_, list) in &lists {
        let together: Vec<&(String, Vec<Value>)> =
            lists.iter().filter(|(_, other)| other.len() == list.len()).collect();
        let mut rows: Vec<Vec<String>> =
            (0..list.len()).map(|n| together.iter().map(|(_, list)| list[n].to_string()).collect()).collect();
        rows.sort();
        for (column, (name, _)) in together.iter().enumerate() {
            sorted[name.as_str()] = rows.iter().map(|row| Value::from(row[column].as_str())).collect();
        }
    }
    sorted
}

/// JSON Pointer of a path.
pub(crate) fn pointer(path: &[String]) -> String {
    path.iter().map(|name| format!("/{}", etude_core::pointer::escaped(name))).collect()
}

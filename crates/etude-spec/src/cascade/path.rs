//! Path expressions: `config.model.region`, `items[0].id`, `items.0.id`, `$.paths[?(@.external)]` (D-3.2).

use etude_core::exact::{same, scalar};
use serde_json::{Map, Value};

/// A part of a path.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A member, or an element if the text is a number.
    Key(String),
    /// All elements.
    All,
    /// All elements that match a filter.
    Filter(Filter),
}

/// Condition on an element.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// Path inside the element; empty for the element itself.
    pub path: Vec<Part>,
    /// Required value; `None` accepts any value except a missing one, `false`, `null`, `0` and the empty text.
    pub equals: Option<Value>,
    /// True for `!=`.
    pub negated: bool,
}

/// True if `text` is a JSONPath rather than a name: it begins with `$.` or `$[`, or has a filter.
pub fn is_json_path(text: &str) -> bool {
    text.starts_with("$.") || text.starts_with("$[") || text.contains("?(")
}

/// Maximum length of a path, and maximum nesting depth of filters. Values are not nested deeper (`yaml::MAX_DEPTH`), so
/// a longer path leads nowhere. Setting such a path would create a value too deep to be printed or dropped.
const MAX_DEPTH: usize = 128;

/// Parses a path. An invalid text gives the parts up to the fault. A path of more than 128 parts is cut after one more
/// part.
pub fn parse(text: &str) -> Vec<Part> {
    parse_below(text, 0)
}

fn parse_below(text: &str, depth: usize) -> Vec<Part> {
    let mut rest = text.trim();
    rest = rest.strip_prefix('$').filter(|rest| rest.is_empty() || rest.starts_with(['.', '['])).unwrap_or(rest);
    let mut parts = Vec::new();
    while !rest.is_empty() && parts.len() <= MAX_DEPTH {
        if let Some(inner) = rest.strip_prefix('[') {
            let Some(end) = closing(inner) else { break };
            parts.extend(bracket(inner[..end].trim(), depth));
            rest = &inner[end + 1..];
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            match &rest[..end] {
                "" => {}
                "*" => parts.push(Part::All),
                key => parts.push(Part::Key(key.to_owned())),
            }
            rest = &rest[end..];
        }
    }
    parts
}

/// Position of the bracket that closes the one before `text`, skipping quotes and nested brackets. A quote within a
/// text, such as in an inserted directory `it's`, closes nothing: a bracket or an operator must follow the closing
/// quote.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    let ends = |at: usize| matches!(text[at + 1..].trim_start().chars().next(), None | Some(')' | ']' | '=' | '!'));
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if open == c && ends(at) => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str, depth: usize) -> Option<Part> {
    if inner == "*" {
        return Some(Part::All);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return (depth < MAX_DEPTH).then(|| Part::Filter(filter_of(filter.trim(), depth + 1)));
    }
    Some(Part::Key(inner.trim_matches(['\'', '"']).to_owned()))
}

fn filter_of(text: &str, depth: usize) -> Filter {
    let operator = ["===", "!==", "==", "!="].iter().find_map(|op| text.split_once(op).map(|sides| (*op, sides)));
    let (left, equals, negated) = match operator {
        Some((op, (left, right))) => (left, Some(literal(right.trim())), op.starts_with('!')),
        None => match text.strip_prefix('!') {
            Some(rest) => (rest, None, true),
            None => (text, None, false),
        },
    };
    let left = left.trim();
    Filter { path: parse_below(left.strip_prefix('@').unwrap_or(left), depth), equals, negated }
}

fn literal(text: &str) -> Value {
    let quoted = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    match quoted('\'').or_else(|| quoted('"')) {
        Some(text) => Value::from(text),
        None => scalar(text).unwrap_or_else(|| Value::from(text)),
    }
}

impl Filter {
    /// True if the filter matches the element.
    pub fn holds(&self, element: &Value) -> bool {
        let found = find(element, &self.path);
        let is_so = match &self.equals {
            Some(wanted) => found.is_some_and(|found| same(found, wanted)),
            None => found.is_some_and(is_truthy),
        };
        is_so != self.negated
    }
}

fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

fn find<'v>(value: &'v Value, parts: &[Part]) -> Option<&'v Value> {
    parts.iter().try_fold(value, |value, part| match part {
        Part::Key(key) => step(value, key),
        Part::All | Part::Filter(_) => all(value).into_iter().find(|element| selects(part, element)),
    })
}

fn step<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    match value {
        Value::Object(members) => members.get(key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    }
}

fn all(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

fn selects(part: &Part, element: &Value) -> bool {
    match part {
        Part::Filter(filter) => filter.holds(element),
        Part::All => true,
        Part::Key(_) => false,
    }
}

/// The value at `path`, or the first match of several: `pathGet`.
pub fn get<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    find(value, &parse(path))
}

/// All values at `path`; empty if nothing matches: `pathQuery`.
pub fn query<'v>(value: &'v Value, path: &str) -> Vec<&'v Value> {
    let parts = parse(path);
    if parts.len() > MAX_DEPTH {
        return Vec::new();
    }
    parts.iter().fold(vec![value], |found, part| {
        let next = found.into_iter().flat_map(|value| match part {
            Part::Key(key) => step(value, key).into_iter().collect::<Vec<_>>(),
            _ => all(value).into_iter().filter(|element| selects(part, element)).collect(),
        });
        next.collect()
    })
}

/// Sets the value at `path`, creating objects (and lists, for numbers) on the way: `pathSet`. A path with `*` or a
/// filter, or one deeper than values may be nested, sets nothing.
pub fn set(value: &mut Value, path: &str, new: Value) {
    let parts = parse(path);
    if parts.len() > MAX_DEPTH || !parts.iter().all(|part| matches!(part, Part::Key(_))) {
        return;
    }
    let mut at = value;
    for part in &parts {
        let Part::Key(key) = part else { return };
        at = entry(at, key);
    }
    *at = new;
}

/// Maximum length of a list that a path may create by naming a missing element.
const MAX_LENGTH: usize = 10_000;

fn entry<'v>(value: &'v mut Value, key: &str) -> &'v mut Value {
    let index = key.parse::<usize>().ok().filter(|index| *index < MAX_LENGTH);
    let is_list = value.is_array() || (index.is_some() && !value.is_object());
    match index.filter(|_| is_list) {
        Some(index) => {
            if !value.is_array() {
                *value = Value::Array(Vec::new());
            }
            if let Value::Array(items) = value {
                if items.len() <= index {
                    items.resize(index + 1, Value::Null);
                }
                return &mut items[index];
            }
            value
        }
        None => {
            if !value.is_object() {
                *value = Value::Object(Map::new());
            }
            match value {
                Value::Object(members) => members.entry(key.to_owned()).or_insert(Value::Null),
                value => value,
            }
        }
    }
}

/// Removes the value at `path`, or everything that a filter at its end selects: `pathRemove`.
pub fn remove(value: &mut Value, path: &str) {
    let parts = parse(path);
    let Some((last, before)) = parts.split_last().filter(|_| parts.len() <= MAX_DEPTH) else { return };
    let mut at = value;
    for part in before {
        let Part::Key(key) = part else { return };
        let next = match at {
            Value::Object(members) => members.get_mut(key),
            Value::Array(items) => key.parse::<usize>().ok().and_then(|index| items.get_mut(index)),
            _ => None,
        };
        let Some(next) = next else { return };
        at = next;
    }
    match (at, last) {
        (Value::Object(members), Part::Key(key)) => drop(members.shift_remove(key)),
        (Value::Array(items), Part::Key(key)) => {
            if let Some(index) = key.parse::<usize>().ok().filter(|index| *index < items.len()) {
                items.remove(index);
            }
        }
        (Value::Array(items), part) => items.retain(|item| !selects(part, item)),
        (Value::Object(members), part) => members.retain(|_, member| !selects(part, member)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// D-3.2: paths with names, places and filters find their values in every notation.
    #[test]
    fn paths_find_what_they_name() {
        let value = json!({"a": {"b": [{"id": 1}, {"id": 2, "on": true}]}, "p": ["x", {"external": "y"}]});
        assert_eq!(get(&value, "a.b.0.id"), Some(&json!(1)));
        assert_eq!(get(&value, "a.b[1].id"), Some(&json!(2)));
        assert_eq!(get(&value, "a.c"), None);
        assert_eq!(query(&value, "$.p[?(@.external)]"), [&json!({"external": "y"})]);
        assert_eq!(query(&value, "$.p[?(@ == 'x')]"), [&json!("x")]);
        assert_eq!(query(&value, "$.a.b[?(@.id != 1)].on"), [&json!(true)]);
        assert_eq!(query(&value, "$.p[*]").len(), 2);
    }

    /// D-3.2: only zero counts as zero, and numbers are equal by value, as they are written in YAML and in the path.
    #[test]
    fn filters_take_numbers_as_they_are_written() {
        let text = "---\nname: x\nmetadata: {p: [{n: 1.0e-400}, {n: -1.0e-400}, {n: 0.0}, {n: 2.0}]}\n---\n";
        let file = crate::source::SourceFile::new("x.skill.md", text);
        let (skill, _) = crate::cascade::Skill::read(&file, &"/p".into());
        let value = Value::Object(skill.expect("a skill").metadata().clone());
        let count = |path: &str| query(&value, path).len();
        assert_eq!((count("$.p[?(@.n)]"), count("$.p[?(!@.n)]")), (3, 1));
        assert_eq!((count("$.p[?(@.n == 0)]"), count("$.p[?(@.n == 1e-400)]")), (1, 1));
        assert_eq!((count("$.p[?(@.n == 2)]"), count("$.p[?(@.n != 2)]")), (1, 3));
    }

    /// D-3.2: setting a value creates the missing parts of the path; numbers create lists.
    #[test]
    fn setting_makes_the_way() {
        let mut value = json!({"webhook": {"on": true}});
        set(&mut value, "webhook.routes.0.secret", json!("s"));
        assert_eq!(value, json!({"webhook": {"on": true, "routes": [{"secret": "s"}]}}));
        set(&mut value, "$.webhook[*]", json!(1));
        assert_eq!(value["webhook"]["on"], json!(true));
    }

    /// D-3.2: a path cannot create a value that is too deep to be printed, read again or dropped.
    #[test]
    fn endless_paths_lead_to_nothing() {
        let mut value = json!({"a": {"b": 1}});
        let before = value.clone();
        for endless in [".a".repeat(20_000), "[0]".repeat(20_000), "[?(".repeat(20_000) + &")]".repeat(20_000)] {
            set(&mut value, &endless, json!(1));
            remove(&mut value, &endless);
            assert_eq!(get(&value, &endless), None);
        }
        assert_eq!(value, before);
        set(&mut value, &".a".repeat(MAX_DEPTH), json!(1));
        assert_eq!(get(&value, &".a".repeat(MAX_DEPTH)), Some(&json!(1)));
    }

    /// D-3.2: removing takes one value, or all that a filter selects.
    #[test]
    fn removing_leaves_the_rest() {
        let mut value = json!({"p": ["x", {"external": "y"}, "z"], "q": {"r": 1, "s": 2}});
        remove(&mut value, "$.p[?(@.external)]");
        remove(&mut value, "q.r");
        remove(&mut value, "nothing.here");
        assert_eq!(value, json!({"p": ["x", "z"], "q": {"s": 2}}));
    }
}

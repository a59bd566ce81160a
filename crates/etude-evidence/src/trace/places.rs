//! All places of a run in which a value was seen, found by the first word of the value.

use std::collections::HashMap;

use etude_core::verbatim::{holds, normal, words};
use serde_json::Value;

/// Place in which a value was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValuePlace {
    /// Source: `input`, an effect, or `event/N`.
    pub from: String,
    /// JSON pointer to the text or number that contains or equals the value.
    pub at: String,
}

/// Seen text or number, in compared form.
#[derive(Debug)]
struct Seen {
    place: ValuePlace,
    text: String,
}

/// Index of everything that was seen so far.
#[derive(Debug, Default)]
pub(super) struct Places {
    seen: Vec<Seen>,
    /// Indices into `seen`, by word.
    by_word: HashMap<String, Vec<usize>>,
}

impl Places {
    /// Notes all texts and numbers of `value`, which is at the pointer `at` of `from`.
    pub(super) fn add(&mut self, from: &str, at: &str, value: &Value) {
        each(value, &mut at.to_owned(), &mut |at, plain| {
            let text = normal(plain);
            let number = self.seen.len();
            let mut words: Vec<&str> = words(&text).collect();
            words.sort_unstable();
            words.dedup();
            for word in words {
                self.by_word.entry(word.to_owned()).or_default().push(number);
            }
            let place = ValuePlace { from: from.to_owned(), at: at.to_owned() };
            self.seen.push(Seen { place, text });
        });
    }

    /// All places of each text and number in `arguments`, by pointer (L-2).
    pub(super) fn origins(&self, arguments: &Value) -> Vec<(String, Vec<ValuePlace>)> {
        let mut origins = Vec::new();
        each(arguments, &mut String::new(), &mut |path, plain| {
            origins.push((path.to_owned(), self.places_of(&normal(plain))));
        });
        origins
    }

    fn places_of(&self, value: &str) -> Vec<ValuePlace> {
        let holds = |seen: &&Seen| holds(&seen.text, value);
        let places = |found: &mut dyn Iterator<Item = &Seen>| found.map(|seen| seen.place.clone()).collect();
        match words(value).next() {
            // At word boundaries, a text has the words of every text in it.
            Some(word) => match self.by_word.get(word) {
                Some(found) => places(&mut found.iter().map(|number| &self.seen[*number]).filter(holds)),
                None => Vec::new(),
            },
            None if value.is_empty() => Vec::new(),
            None => places(&mut self.seen.iter().filter(holds)),
        }
    }
}

/// Calls `visit` with the pointer and the text of each text and number in `value`.
fn each(value: &Value, path: &mut String, visit: &mut impl FnMut(&str, &str)) {
    let mut below = |step: &str, inner: &Value, visit: &mut _| {
        let before = path.len();
        path.push('/');
        path.push_str(&etude_core::pointer::escaped(step));
        each(inner, path, visit);
        path.truncate(before);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, inner)| below(name, inner, visit)),
        Value::Array(items) => items.iter().enumerate().for_each(|(n, inner)| below(&n.to_string(), inner, visit)),
        Value::String(text) => visit(path, text),
        Value::Number(number) => visit(path, &number.to_string()),
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn places_in(arguments: &Value) -> Vec<(String, Vec<String>)> {
        let mut places = Places::default();
        places.add("input", "/request", &json!("Tidy  notes/a.md of order #W123_4, 12 times"));
        places.add("input", "", &json!({"count": 1234, "a/b": ["deep"]}));
        places.add("x/turn1/List[0]", "", &json!("notes/a.md\nnotes/b \"q\".md\n"));
        places.add(
            "x/turn2/count[0]",
            "",
            &json!({"words": "1234", "at": 12.5, "who": [{"id": "w123 4"}], "same": "12"}),
        );
        let shown = |place: &ValuePlace| format!("{}:{}", place.from, place.at);
        places.origins(arguments).into_iter().map(|(path, places)| (path, places.iter().map(shown).collect())).collect()
    }

    fn one(value: Value) -> Vec<String> {
        let mut all = places_in(&json!({ "v": value }));
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0).1
    }

    /// L-2: every place, in order, with its pointer.
    #[test]
    fn every_place_is_an_origin() {
        assert_eq!(one(json!("notes/a.md")), ["input:/request", "x/turn1/List[0]:"]);
        assert_eq!(one(json!("W123_4")), ["input:/request", "x/turn2/count[0]:/who/0/id"]);
        assert_eq!(one(json!("deep")), ["input:/a~1b/0"]);
        assert_eq!(one(json!("unheard of")), [""; 0]);
        assert_eq!(one(json!("")), [""; 0]);
    }

    /// L-2: a value beside letters of a script without blanks has its origin.
    #[test]
    fn values_in_scripts_without_blanks_have_origins() {
        let mut places = Places::default();
        places.add("input", "/request", &json!("注文W-12をキャンセル。田中太郎です"));
        let origins = places.origins(&json!({"a": "w-12", "b": "田中太郎", "c": "W-1"}));
        let counts: Vec<usize> = origins.iter().map(|(_, places)| places.len()).collect();
        assert_eq!(counts, [1, 1, 0]);
    }

    /// L-3, 1.3: numbers and texts with the same digits are equal; a part of a number is not found.
    #[test]
    fn numbers_are_found_whole() {
        assert_eq!(one(json!(1234)), ["input:/count", "x/turn2/count[0]:/words"]);
        assert_eq!(one(json!(12)), ["input:/request", "x/turn2/count[0]:/same"]);
        assert_eq!(one(json!("12.5")), ["x/turn2/count[0]:/at"]);
        assert_eq!(one(json!(5)), [""; 0]);
        assert_eq!(one(json!("23")), [""; 0]);
    }

    /// 1.3: members and elements have their own pointers; truth values and nulls have no origins.
    #[test]
    fn texts_and_numbers_have_origins() {
        let paths: Vec<String> =
            places_in(&json!({"a": [1, true, null, {"b/c": "x"}]})).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["/a/0", "/a/3/b~1c"]);
    }
}

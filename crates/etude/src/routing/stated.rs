//! What a request can be seen to state. Small models fill in every parameter that they are shown, whatever they are told;
//! what they say is only believed where the request has something to show for it.

use etude_spec::pipeline::input::{InputDecl, Parameter};
use indexmap::IndexMap;
use serde_json::Value;
use serde_json::value::RawValue;

/// Words that may stand for a number.
const NUMBERS: &[&str] = &[
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
    "hundred",
    "thousand",
    "million",
    "dozen",
    "couple",
    "both",
    "single",
    "half",
    "once",
    "twice",
];
/// Signs that do.
const SIGNS: &str = "一二三四五六七八九十百千万两";

/// The members of `input`, a JSON object, that `request` can be seen to state: numbers of which it has the digits or some
/// number word, texts of which it has a word and which are not all of it, choices that it names. What equals a
/// parameter's default is left out as well.
pub fn stated(request: &str, declared: &InputDecl, input: &str) -> String {
    let members: IndexMap<String, &RawValue> = serde_json::from_str(input).unwrap_or_default();
    let request = Words::of(request);
    let kept: IndexMap<&str, &RawValue> = members
        .iter()
        .filter(|(name, value)| {
            let value: Value = serde_json::from_str(value.get()).unwrap_or_default();
            declared.parameter(name).is_none_or(|parameter| request.state(parameter, &value))
        })
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    serde_json::to_string(&kept).unwrap_or_else(|_| "{}".to_owned())
}

struct Words {
    /// In lower case.
    text: String,
    words: Vec<String>,
    numbers: Vec<f64>,
}

impl Words {
    fn of(text: &str) -> Self {
        let text = text.to_lowercase();
        let words = words(&text);
        let digits = text.split(|c: char| !c.is_ascii_digit() && c != '.').map(|run| run.trim_matches('.'));
        let numbers = digits.filter_map(|run| run.parse().ok()).collect();
        Self { text, words, numbers }
    }

    fn state(&self, parameter: &Parameter, value: &Value) -> bool {
        let default = parameter.default.as_ref().and_then(|default| default.value().ok());
        if default.as_ref() == Some(value) {
            return false;
        }
        match value {
            // A switch is meant where its name is.
            Value::Bool(_) => words(&parameter.name.to_lowercase()).iter().any(|word| self.has(word)),
            Value::String(text) if !parameter.required && self.is_all(text) => false,
            value => self.has_some_of(value),
        }
    }

    fn has_some_of(&self, value: &Value) -> bool {
        match value {
            Value::Number(number) => {
                let is_named = self.words.iter().any(|word| NUMBERS.contains(&word.as_str()));
                is_named
                    || self.text.contains(|c| SIGNS.contains(c))
                    || number.as_f64().is_some_and(|number| self.numbers.contains(&number))
            }
            Value::String(text) => words(&text.to_lowercase()).iter().any(|word| self.has(word)),
            Value::Array(items) => items.iter().any(|item| self.has_some_of(item)),
            Value::Object(members) => members.values().any(|member| self.has_some_of(member)),
            Value::Bool(_) | Value::Null => false,
        }
    }

    /// A word of a letter or two stands on its own; a longer one may be part of another.
    fn has(&self, word: &str) -> bool {
        match word.is_ascii() && word.len() < 4 {
            true => self.words.iter().any(|known| known == word),
            false => self.text.contains(word),
        }
    }

    fn is_all(&self, text: &str) -> bool {
        words(&text.to_lowercase()) == self.words
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use etude_spec::App;
    use etude_spec::source::MemorySources;

    use super::*;

    fn declared() -> InputDecl {
        let text = "name: p\ndescription: x\ninput:\n  file: {type: string, default: a.csv}\n  who: string\n  count: {type: integer, default: 5}\n  as_of: {type: string, default: \"\"}\n  check_links: {type: boolean, default: true}\n  tags: {type: array, default: []}\nsteps:\n  - {name: a, type: code, command: \"true\"}\n";
        let sources = MemorySources::new().with("pipelines/p/pipeline.yaml", text);
        let (mut summaries, diagnostics) = App::new(&sources).summaries();
        assert_eq!(diagnostics, []);
        summaries.remove(0).input
    }

    #[track_caller]
    fn keeps(request: &str, input: &str, expected: &str) {
        assert_eq!(stated(request, &declared(), input), expected, "{request}");
    }

    /// A-6.2: parameters are those that the request states; a small model's inventions are none.
    #[test]
    fn what_was_made_up_is_left_out() {
        keeps(
            "something is off with my spreadsheet",
            r#"{"file":"Something is off with my spreadsheet!","as_of":"2023-04-01","count":25,"check_links":false,"tags":["x"]}"#,
            "{}",
        );
        keeps("say hello", r#"{"who":"Ada"}"#, "{}");
        keeps("sort my mail", r#"{"count":5}"#, "{}");
    }

    /// A-6.2: what the request has something to show for stays as it was.
    #[test]
    fn what_the_request_says_stays() {
        let said =
            r#"{"file":"data/x.csv","who":"Ada","count":3,"as_of":"2026-07-01","check_links":false,"tags":["red"]}"#;
        keeps("audit data/x.csv for ada, 3 rows, as of 1 July 2026, no links, red ones", said, said);
        keeps("the last three of them", r#"{"count":3}"#, r#"{"count":3}"#);
        keeps("最新的三封邮件", r#"{"count":3}"#, r#"{"count":3}"#);
        keeps("给小明写信", r#"{"who":"小明"}"#, r#"{"who":"小明"}"#);
        keeps("hello", r#"{"who":"hello"}"#, r#"{"who":"hello"}"#);
    }

    #[test]
    fn short_words_stand_on_their_own() {
        keeps("mathematics", r#"{"file":"at"}"#, "{}");
        keeps("what is at home", r#"{"file":"at"}"#, r#"{"file":"at"}"#);
    }
}

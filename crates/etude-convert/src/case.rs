//! Cases: requests with input and expected output, from `--cases` and from files of the skill, never from a model (1.6).

use std::collections::BTreeSet;

use etude_core::schema::type_of;
use serde_json::{Map, Value, json};

use crate::command::Values;
use crate::draft::{Names, safe};
use crate::skill::Skill;

/// Maximum number of cases of a conversion.
pub const MAX_CASES: usize = 500;

/// A request with its input and expected output.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Unique name, which can be the name of a file.
    pub name: String,
    /// The request in words.
    pub request: String,
    /// The values of parameters.
    pub input: Map<String, Value>,
    /// Expected output; `None` if it is unknown.
    pub output: Option<Value>,
}

impl Case {
    /// The case as a value, as [`Case::from_value`] reads it.
    pub fn to_value(&self) -> Value {
        let mut value = json!({"name": self.name, "request": self.request, "input": self.input});
        if let Some(output) = &self.output {
            value["output"] = output.clone();
        }
        value
    }

    /// A case from `{"name","request","input","output"}`; every member may be missing.
    ///
    /// # Errors
    /// Fault of the value, without a full stop.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        let members = value.as_object().ok_or("a case is a JSON object")?;
        let text = |name: &str| match members.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(format!("`{name}` is not a string")),
        };
        let input = match members.get("input") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(input)) => input.clone(),
            Some(_) => return Err("`input` is not an object".to_owned()),
        };
        let (name, request) = (text("name")?, text("request")?);
        let name = safe(if name.is_empty() { &request } else { &name }, "case");
        Ok(Self { name, request, input, output: members.get("output").cloned() })
    }
}

/// The cases in JSON lines.
///
/// # Errors
/// The number of the first line that is not a case, from 1, and the fault.
pub fn from_lines(text: &str) -> Result<Vec<Case>, (usize, String)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let value = serde_json::from_str(line).map_err(|error| (at + 1, format!("it is not JSON: {error}")))?;
            Case::from_value(&value).map_err(|why| (at + 1, why))
        })
        .collect()
}

/// Cases in files of the skill: JSON lines below `evals/`, `examples/` or `tests/` that have an `output`, and
/// `evals/evals.json`. Lines in other forms are skipped.
pub fn of_skill(skill: &Skill) -> Vec<Case> {
    let is_there = |path: &str| ["evals/", "eval/", "examples/", "tests/"].iter().any(|start| path.starts_with(start));
    let mut found = Vec::new();
    for file in skill.files.iter().filter(|file| is_there(&file.path)) {
        let Some(text) = &file.text else { continue };
        if file.path.ends_with(".jsonl") {
            let cases = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            found.extend(cases.filter_map(|value: Value| case_with_output(&value)));
        } else if file.path.ends_with("evals.json") {
            let root: Value = serde_json::from_str(text).unwrap_or_default();
            found.extend(root["evals"].as_array().into_iter().flatten().filter_map(case_with_output));
        }
    }
    found
}

/// A case in a file of the skill. Prose that describes an output is not an output.
fn case_with_output(value: &Value) -> Option<Case> {
    value.get("output")?;
    let mut value = value.clone();
    for (name, other) in [("request", "prompt"), ("name", "id")] {
        if value.get(name).is_none() {
            let text = value.get(other).and_then(Value::as_str).map(str::to_owned);
            value[name] = json!(text);
        }
    }
    Case::from_value(&value).ok()
}

/// Cases with unique names, at most [`MAX_CASES`].
pub fn named(cases: Vec<Case>) -> Vec<Case> {
    let mut names = Names::default();
    let named = |case: Case| Case { name: names.unique(&case.name), ..case };
    cases.into_iter().take(MAX_CASES).map(named).collect()
}

/// Inputs of the cases that are texts, by parameter.
pub fn values(cases: &[Case]) -> Values {
    let mut values = Values::new();
    for (name, value) in cases.iter().flat_map(|case| &case.input) {
        if let Value::String(text) = value {
            values.entry(name.clone()).or_default().push(text.clone());
        }
    }
    values
}

/// Parameters of the cases, each with the JSON types of its values, and true if every case has it.
pub fn parameters(cases: &[Case]) -> Vec<(String, Vec<&'static str>, bool)> {
    let names: BTreeSet<&String> = cases.iter().flat_map(|case| case.input.keys()).collect();
    let declared = |name: &String| {
        let values = || cases.iter().filter_map(|case| case.input.get(name));
        let types: BTreeSet<&'static str> = values().map(type_of).collect();
        (name.clone(), types.into_iter().collect(), values().count() == cases.len())
    };
    names.into_iter().filter(|name| is_parameter(name)).map(declared).collect()
}

/// True if the name of an input can be the name of a parameter.
pub(crate) fn is_parameter(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skill::SkillFile;

    /// 1.6: `--cases` has one JSON object a line, and a line without one is reported with its number.
    #[test]
    fn cases_are_json_lines() {
        let text = "{\"name\": \"a b\", \"request\": \"do\", \"input\": {\"n\": 1}, \"output\": null}\n\n{\"request\": \"do it\"}\n";
        let cases = named(from_lines(text).expect("cases"));
        assert_eq!(cases[0].to_value(), json!({"name": "a-b", "request": "do", "input": {"n": 1}, "output": null}));
        assert_eq!(cases[1].to_value(), json!({"name": "do-it", "request": "do it", "input": {}}));
        assert_eq!(from_lines("{}\n[]\n"), Err((2, "a case is a JSON object".to_owned())));
        assert!(from_lines("{").is_err_and(|(line, _)| line == 1));
        assert_eq!(from_lines("{\"input\": 1}"), Err((1, "`input` is not an object".to_owned())));
    }

    /// 1.6: cases also come from the skill's own examples and eval files; prose is not an output.
    #[test]
    fn eval_files_of_the_skill_have_cases() {
        let file = |path: &str, text: &str| SkillFile {
            path: path.to_owned(),
            is_executable: false,
            text: Some(text.to_owned()),
        };
        let evals = "{\"evals\": [{\"id\": \"x\", \"prompt\": \"p\", \"output\": 1}, {\"id\": \"y\", \"prompt\": \"p\", \"expected_output\": \"A table\"}]}";
        let files = vec![
            file("data.jsonl", "{\"output\": 2}"),
            file("evals/evals.json", evals),
            file("examples/a.jsonl", "x\n{\"request\": \"r\", \"output\": 3}"),
        ];
        let skill = Skill::read("# A\n", files).expect("a skill");
        let found: Vec<Value> = of_skill(&skill).iter().map(Case::to_value).collect();
        assert_eq!(
            found,
            [
                json!({"name": "x", "request": "p", "input": {}, "output": 1}),
                json!({"name": "r", "request": "r", "input": {}, "output": 3})
            ]
        );
    }

    #[test]
    fn parameters_have_the_types_of_their_values() {
        let cases = from_lines("{\"input\": {\"a\": 1, \"b\": \"x\"}}\n{\"input\": {\"a\": 1.5, \"not a name\": 1}}")
            .expect("cases");
        let expected = [("a".to_owned(), vec!["integer", "number"], true), ("b".to_owned(), vec!["string"], false)];
        assert_eq!(parameters(&cases), expected);
    }
}

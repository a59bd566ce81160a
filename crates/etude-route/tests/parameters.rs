//! Parameters of requests on a table: `parameters/requests.jsonl`, over the pipelines of `parameters/pipelines.json`.
//!
//! A row has the parameters that a person understands (`means`), those that `code` takes (all, unless given), and those that
//! must be asked about. A value that is neither meant nor the default is wrong.

use std::collections::BTreeMap;

use etude_route::values::{About, ModelValue, Parameter, Reading, Type};
use serde_json::{Map, Value, json};

const PIPELINES: &str = include_str!("parameters/pipelines.json");
const REQUESTS: &str = include_str!("parameters/requests.jsonl");

struct Row {
    pipeline: String,
    request: String,
    means: Map<String, Value>,
    code: Map<String, Value>,
    ask: Vec<String>,
}

fn rows() -> Vec<Row> {
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("a row is JSON");
        let object = |name: &str| row[name].as_object().cloned();
        let ask = row["ask"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap().to_owned()).collect();
        let means = object("means").unwrap_or_default();
        Row {
            pipeline: row["pipeline"].as_str().unwrap().to_owned(),
            request: row["request"].as_str().unwrap().to_owned(),
            code: object("code").unwrap_or_else(|| means.clone()),
            means,
            ask,
        }
    };
    REQUESTS.lines().map(row).collect()
}

fn pipelines() -> Map<String, Value> {
    serde_json::from_str(PIPELINES).expect("the pipelines are JSON")
}

fn accepts(schema: &Value, json: &str) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(json) else { return false };
    let is_within = |number: f64| {
        schema["minimum"].as_f64().is_none_or(|low| number >= low)
            && schema["maximum"].as_f64().is_none_or(|high| number <= high)
    };
    let is_one = schema["enum"].as_array().is_none_or(|all| all.contains(&value));
    is_one
        && match schema["type"].as_str() {
            Some("integer") => value.as_f64().is_some_and(|n| n.fract() == 0.0 && is_within(n)),
            Some("number") => value.as_f64().is_some_and(is_within),
            Some("boolean") => value.is_boolean(),
            _ => value.is_string(),
        }
}

/// Reads `request` and hands the reading to `work`.
fn read<T>(pipeline: &Value, name: &str, request: &str, work: impl FnOnce(Reading<'_>) -> T) -> T {
    let input = pipeline["input"].as_object().unwrap();
    type Check<'a> = Box<dyn Fn(&str) -> bool + 'a>;
    let checks: Vec<Check<'_>> =
        input.values().map(|schema| Box::new(move |json: &str| accepts(schema, json)) as Check<'_>).collect();
    let parameters = input.iter().zip(&checks).map(|((name, schema), check)| Parameter {
        name,
        description: schema["description"].as_str().unwrap_or_default(),
        kind: match schema["type"].as_str().unwrap() {
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => Type::Text,
        },
        choices: schema["enum"].as_array().into_iter().flatten().map(|one| one.as_str().unwrap().to_owned()).collect(),
        format: schema["format"].as_str(),
        default: schema.get("default").map(Value::to_string),
        is_required: schema.get("default").is_none(),
        is_given: false,
        accepts: check.as_ref(),
    });
    let triggers: Vec<String> =
        pipeline["triggers"].as_array().into_iter().flatten().map(|t| t.as_str().unwrap().to_owned()).collect();
    let about = About { name, description: pipeline["description"].as_str().unwrap(), triggers: &triggers };
    work(Reading::new(request, about, parameters.collect(), &[]))
}

/// Outcome of a reading: its values, and the parameters that are asked about or missing.
fn outcome(reading: &Reading<'_>, pipeline: &Value) -> (Map<String, Value>, Vec<String>) {
    let taken: Map<String, Value> = reading
        .taken()
        .map(|(name, taken)| (name.to_owned(), serde_json::from_str(&taken.json).expect("JSON")))
        .collect();
    let mut open: Vec<String> = reading.unclear().into_iter().map(|unclear| unclear.name).collect();
    for (name, schema) in pipeline["input"].as_object().unwrap() {
        if schema.get("default").is_none() && !taken.contains_key(name) {
            open.push(name.clone());
        }
    }
    (taken, open)
}

fn same(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let sorted = |map: &Map<String, Value>| -> BTreeMap<String, Value> {
        let value = |value: &Value| value.as_f64().map_or_else(|| value.clone(), |number| json!(number));
        map.iter().map(|(name, found)| (name.clone(), value(found))).collect()
    };
    sorted(one) == sorted(other)
}

/// code takes numbers, dates, paths, choices and quoted words if there is one way to take them. An unclear value is
/// asked about, and never replaced by a default.
#[test]
fn what_stands_in_a_request_is_taken_or_asked_about() {
    let pipelines = pipelines();
    let mut wrong = Vec::new();
    for row in rows() {
        let pipeline = &pipelines[&row.pipeline];
        let (taken, open) = read(pipeline, &row.pipeline, &row.request, |reading| outcome(&reading, pipeline));
        let is_asked = row.ask.iter().all(|name| open.contains(name));
        let is_quiet = open.iter().all(|name| {
            row.ask.contains(name) || row.means.contains_key(name) || pipeline["input"][name].get("default").is_none()
        });
        if !same(&taken, &row.code) || !is_asked || !is_quiet {
            wrong.push(format!(
                "{}: {:?}\n    wanted {} asks {:?}\n    found  {} asks {open:?}",
                row.pipeline,
                row.request,
                Value::from(row.code),
                row.ask,
                Value::from(taken)
            ));
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

/// a model's value counts if the request has it whole, also before a particle of Korean, Japanese or Chinese.
#[test]
fn a_value_before_a_particle_is_whole() {
    let pipeline = json!({"description": "", "input": {"order": {"type": "string", "required": false}}});
    let takes = |request: &str| {
        let value = ("order".to_owned(), ModelValue::Text("A-17".to_owned()), "\"A-17\"".to_owned());
        read(&pipeline, "cancel", request, |mut reading| reading.believe(std::slice::from_ref(&value)).is_empty())
    };
    assert!(takes("주문 A-17을 취소해 주세요") && takes("注文A-17を取り消して") && takes("cancel order A-17 please"));
    assert!(!takes("주문 A-178을 취소해 주세요") && !takes("отмени заказ A-17б"));
}

/// Completion of a model that ignores the request.
fn made_up(schema: &Value, name: &str, round: usize) -> Value {
    match (schema["type"].as_str(), schema["enum"].as_array()) {
        (_, Some(choices)) => choices[round % choices.len()].clone(),
        (Some("boolean"), _) => json!(round.is_multiple_of(2)),
        (Some("integer" | "number"), _) if round == 0 => schema.get("default").cloned().unwrap_or(json!(42)),
        (Some("integer" | "number"), _) => json!([7919, 17, 1, 6][round % 4]),
        (_, _) if round == 0 => schema.get("default").cloned().unwrap_or(json!("Zyx Qwv")),
        _ if schema["format"] == "date" => json!(["2031-05-17", "2026-01-02"][round % 2]),
        _ if schema["format"] == "uri" => json!("https://made.up/"),
        _ => json!(format!("{name} qqq{round}")),
    }
}

fn said(value: &Value) -> ModelValue {
    match value {
        Value::Number(number) => ModelValue::Number(number.to_string()),
        Value::String(text) => ModelValue::Text(text.clone()),
        Value::Bool(value) => ModelValue::Bool(*value),
        Value::Array(all) => ModelValue::Many(all.iter().map(said).collect()),
        Value::Object(all) => ModelValue::Many(all.values().map(said).collect()),
        Value::Null => ModelValue::Null,
    }
}

/// a model that gives defaults, other numbers and unmentioned things for every parameter changes nothing: only values
/// that the request means are taken, and unclear parameters stay unclear.
#[test]
fn a_model_that_makes_values_up_is_not_believed() {
    let pipelines = pipelines();
    let mut wrong = Vec::new();
    for row in rows() {
        let pipeline = &pipelines[&row.pipeline];
        let input = pipeline["input"].as_object().unwrap();
        for round in 0..6 {
            let values: Vec<(String, ModelValue, String)> = input
                .iter()
                .map(|(name, schema)| {
                    let value = made_up(schema, name, round);
                    (name.clone(), said(&value), value.to_string())
                })
                .collect();
            let (taken, open, choices) = read(pipeline, &row.pipeline, &row.request, |mut reading| {
                let choices: BTreeMap<String, Vec<String>> =
                    reading.questions().into_iter().map(|question| (question.name, question.choices)).collect();
                reading.believe(&values);
                let (taken, open) = outcome(&reading, pipeline);
                (taken, open, choices)
            });
            for (name, value) in &taken {
                let is_meant = row.means.get(name).is_some_and(|meant| {
                    meant == value || meant.as_f64().is_some() && meant.as_f64() == value.as_f64()
                });
                let is_harmless = input[name].get("default") == Some(value) && !row.means.contains_key(name);
                // Two values are in the request, and the model has chosen one of them.
                let is_chosen = row.ask.contains(name)
                    && choices.get(name).is_some_and(|all| all.len() > 1 && all.contains(&value.to_string()));
                if !is_meant && !is_harmless && !is_chosen {
                    wrong.push(format!("{:?}: {name} is {value} in round {round}", row.request));
                }
            }
            for name in row.means.keys().filter(|name| !taken.contains_key(*name) && !open.contains(name)) {
                let asks = read(pipeline, &row.pipeline, &row.request, |reading| {
                    reading.questions().iter().any(|q| q.name == *name)
                });
                if !asks {
                    wrong.push(format!("{:?}: {name} is dropped in round {round}", row.request));
                }
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{} values:\n{}", wrong.len(), wrong.join("\n"));
}

/// wherever a number is put into a request, in digits or in words, no numeric parameter gets another one for it; and
/// if none gets it, none takes its default in silence.
#[test]
fn a_number_that_is_put_anywhere_is_never_replaced_by_another() {
    let numbers =
        [("2", 2), ("two", 2), ("7", 7), ("thirteen", 13), ("٤٢", 42), ("99", 99), ("4000", 4000), ("zwölf", 12)];
    let pipelines = pipelines();
    let mut wrong = Vec::new();
    let has_no_number = |row: &Row| {
        let spelled = [
            "one", "two", "three", "ten", "twelve", "dozen", "half", "third", "second", "million", "\"", "'", "“", "„",
            "«",
        ];
        let text = row.request.to_lowercase();
        !text.contains(char::is_numeric)
            && !spelled.iter().any(|word| text.contains(word))
            && row.means.values().all(|value| !value.is_number())
    };
    for row in rows().into_iter().filter(has_no_number) {
        let pipeline = &pipelines[&row.pipeline];
        let input = pipeline["input"].as_object().unwrap();
        let is_numeric = |name: &String| matches!(input[name]["type"].as_str(), Some("integer" | "number"));
        let words: Vec<&str> = row.request.split(' ').collect();
        for at in 0..=words.len() {
            for (text, number) in numbers {
                let request = [&words[..at], &[text], &words[at..]].concat().join(" ");
                let (taken, open) = read(pipeline, &row.pipeline, &request, |reading| outcome(&reading, pipeline));
                let numeric: Vec<(&String, &Value)> = taken.iter().filter(|(name, _)| is_numeric(name)).collect();
                if let Some((name, value)) = numeric.iter().find(|(_, value)| value.as_f64() != Some(f64::from(number)))
                {
                    wrong.push(format!("{request:?}: {name} is {value}"));
                }
                let is_received = !numeric.is_empty();
                let silent =
                    input.keys().filter(|name| is_numeric(name) && !taken.contains_key(*name) && !open.contains(*name));
                if let (false, Some(name)) = (is_received, silent.clone().next()) {
                    wrong.push(format!("{request:?}: {name} takes its default"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} requests:\n{}", wrong.len(), wrong.join("\n"));
}

/// no content of a request stops the reading.
#[test]
fn any_request_can_be_read() {
    let pipelines = pipelines();
    let pipeline = &pipelines["sort-mail"];
    for row in rows().into_iter().step_by(4) {
        let letters: Vec<char> = row.request.chars().collect();
        for end in 0..letters.len() {
            let cut: String = letters[..end].iter().collect();
            let turned: String = letters[end..].iter().chain(&letters[..end]).collect();
            for request in [cut, turned] {
                read(pipeline, "sort-mail", &request, |reading| outcome(&reading, pipeline));
            }
        }
    }
}

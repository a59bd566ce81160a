//! Values for parameters: they are coerced by declared type, never by guessing.

use std::collections::BTreeSet;
use std::fmt;

use etude_core::data::{Json, every_member};
use indexmap::IndexMap;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{InputDecl, InputType, Parameter, number};
use crate::json_text::json_fault;
use crate::wording::{meant, plain, quoted, quoted_list};

/// Reason why an input does not fit (`input_invalid`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputProblem {
    /// Name of the parameter; `None` if several, or the input as a whole, are at fault.
    pub parameter: Option<String>,
    /// The fault in the form of messages: lower case, no full stop.
    pub message: String,
    /// Next action for the user.
    pub hint: Option<String>,
}

/// Maximum number of faults that are listed for an input.
const MAX_PROBLEMS: usize = 100;

/// Faults of an input from an untrusted source. Faults beyond the maximum are only counted; their texts are never
/// built.
#[derive(Default)]
struct Problems<'d> {
    listed: Vec<InputProblem>,
    left_out: usize,
    /// Declared parameters with a value that does not fit.
    of: BTreeSet<&'d str>,
}

impl<'d> Problems<'d> {
    fn push(&mut self, problem: impl FnOnce() -> InputProblem) {
        match self.listed.len() < MAX_PROBLEMS {
            true => self.listed.push(problem()),
            false => self.left_out += 1,
        }
    }

    /// Records a value of a declared parameter that does not fit.
    fn refuse(&mut self, parameter: &'d str, problem: impl FnOnce() -> InputProblem) {
        self.of.insert(parameter);
        self.push(problem);
    }

    fn finish(self) -> Vec<InputProblem> {
        let mut all = self.listed;
        if self.left_out > 0 {
            all.push(InputProblem::new(None, format!("{} more errors are not listed", self.left_out), None));
        }
        all
    }
}

/// Input without a declaration: members as they are, pairs as text.
fn open(pairs: &[(String, String)], json: Option<&str>) -> Result<Json, InputProblem> {
    let mut given: IndexMap<String, String> = IndexMap::new();
    for (name, raw) in json.map(members).transpose()?.iter().flatten() {
        given.insert(name.to_string(), raw.get().to_owned());
    }
    for (name, text) in pairs {
        given.insert(name.clone(), Value::from(text.as_str()).to_string());
    }
    let members: Vec<String> =
        given.iter().map(|(name, value)| format!("{}:{value}", Value::from(name.as_str()))).collect();
    Ok(Json::trusted(format!("{{{}}}", members.join(","))))
}

impl fmt::Display for InputProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl InputProblem {
    fn new(parameter: Option<&str>, message: String, hint: Option<String>) -> Self {
        Self { parameter: parameter.map(str::to_owned), message, hint }
    }
}

impl InputDecl {
    /// Builds the input object of a run. `json` is a JSON object whose values keep their types; `pairs` are texts that
    /// are coerced by declared type and win over it. Members are in the order of the declaration; numbers keep their
    /// text. For parameters without a single type, a text stays text if `string` is allowed; otherwise it is read as
    /// JSON.
    ///
    /// # Errors
    /// All faults at once: the first hundred, the missing parameters, and the number of further faults.
    pub fn coerce(&self, pairs: &[(String, String)], json: Option<&str>) -> Result<Json, Vec<InputProblem>> {
        if self.is_open {
            return open(pairs, json).map_err(|problem| vec![problem]);
        }
        let mut problems = Problems::default();
        let mut given: IndexMap<&str, String> = IndexMap::new();
        let members = json.map(members).transpose().unwrap_or_else(|problem| {
            problems.push(|| problem);
            None
        });
        let mut named = BTreeSet::new();
        for (name, raw) in members.iter().flatten() {
            if !named.insert(name) {
                problems.push(|| twice(name));
                continue;
            }
            match self.parameter(name) {
                None => problems.push(|| self.undeclared(name)),
                Some(parameter) => match fits(parameter, raw.get()) {
                    Ok(()) => drop(given.insert(&parameter.name, raw.get().to_owned())),
                    Err(why) => problems.refuse(&parameter.name, || unfit(name, &why)),
                },
            }
        }
        let mut seen = Vec::new();
        for (name, text) in pairs {
            let Some(parameter) = self.parameter(name) else {
                problems.push(|| self.undeclared(name));
                continue;
            };
            if seen.contains(&name) {
                problems.push(|| twice(name));
                continue;
            }
            seen.push(name);
            match from_text(parameter, text).and_then(|value| fits(parameter, &value).map(|()| value)) {
                Ok(value) => drop(given.insert(&parameter.name, value)),
                Err(why) => problems.refuse(&parameter.name, || unfit(name, &why)),
            }
        }
        let faulty = |name: &str| problems.of.contains(name);
        let absent = |p: &&Parameter| p.required && !given.contains_key(p.name.as_str()) && !faulty(&p.name);
        let missing: Vec<&Parameter> = self.parameters.iter().filter(absent).collect();
        // If the input was unreadable, no parameter is known to be missing.
        if problems.listed.iter().all(|problem| problem.parameter.is_some()) {
            problems.listed.extend(missing_problem(&missing));
        }
        if problems.listed.is_empty() { Ok(self.assemble(&given)) } else { Err(problems.finish()) }
    }

    /// Faults of these texts, without those of missing parameters.
    pub fn misfits(&self, pairs: &[(String, String)]) -> Vec<InputProblem> {
        let mut problems = self.coerce(pairs, None).err().unwrap_or_default();
        let is_given = |name: &str| pairs.iter().any(|(given, _)| given == name);
        problems.retain(|problem| problem.parameter.as_deref().is_some_and(is_given));
        problems
    }

    /// JSON of a text for the parameter `name`; `None` if it does not fit the type.
    pub fn written(&self, name: &str, text: &str) -> Option<String> {
        from_text(self.parameter(name)?, text).ok()
    }

    fn undeclared(&self, name: &str) -> InputProblem {
        let names = self.names();
        let hint = meant(name, names.iter().copied()).or_else(|| match names.as_slice() {
            [] => Some("the pipeline takes no input".to_owned()),
            _ => Some(format!("declared parameters: {}", quoted_list(&names, "and"))),
        });
        InputProblem::new(Some(name), format!("parameter {} is not declared", quoted(name)), hint)
    }

    fn assemble(&self, given: &IndexMap<&str, String>) -> Json {
        let mut text = String::from("{");
        for parameter in &self.parameters {
            let default = parameter.default.as_ref().and_then(|json| json.inline());
            let Some(value) = given.get(parameter.name.as_str()).map(String::as_str).or(default) else {
                continue;
            };
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&Value::from(parameter.name.as_str()).to_string());
            text.push(':');
            text.push_str(value);
        }
        text.push('}');
        Json::trusted(text)
    }
}

fn missing_problem(missing: &[&Parameter]) -> Option<InputProblem> {
    let first = missing.first()?;
    let names: Vec<&str> = missing.iter().map(|parameter| parameter.name.as_str()).collect();
    let message = match names.as_slice() {
        [one] => format!("required parameter {} is missing", quoted(one)),
        many => format!("required parameters {} are missing", quoted_list(many, "and")),
    };
    let hint = format!("give it with `-i {}=…`", plain(&first.name));
    Some(InputProblem::new((names.len() == 1).then_some(names[0]), message, Some(hint)))
}

fn twice(name: &str) -> InputProblem {
    InputProblem::new(Some(name), format!("parameter {} is given twice", quoted(name)), None)
}

fn unfit(name: &str, why: &str) -> InputProblem {
    InputProblem::new(Some(name), format!("parameter {} {why}", quoted(name)), None)
}

/// Members of the input in their order, including duplicates.
fn members(text: &str) -> Result<Vec<(String, Box<RawValue>)>, InputProblem> {
    let whole =
        |message: String| InputProblem::new(None, message, Some("for example: `{\"name\": \"value\"}`".to_owned()));
    if let Err(why) = serde_json::from_str::<&RawValue>(text) {
        return Err(whole(format!("the input is not JSON: {}", json_fault(text, &why))));
    }
    every_member(text).map_err(|_| whole(format!("the input must be a JSON object, not {}", sort_of(text.trim()))))
}

/// JSON text of a command-line value.
fn from_text(parameter: &Parameter, text: &str) -> Result<String, String> {
    let string = || Ok(Value::from(text).to_string());
    let kind = parameter.short.or_else(|| single_type(parameter.schema.document()));
    let found = quoted(text);
    match kind {
        Some(InputType::String) => string(),
        Some(InputType::Integer) => number::integer(text).ok_or_else(|| format!("must be an integer, not {found}")),
        Some(InputType::Number) => match serde_json::from_str::<&RawValue>(text) {
            Ok(raw) if raw.get() == text && sort_of(text) == "a number" => Ok(text.to_owned()),
            _ => number::integer(text).ok_or_else(|| format!("must be a number, not {found}")),
        },
        Some(InputType::Boolean) if text == "true" || text == "false" => Ok(text.to_owned()),
        Some(InputType::Boolean) => Err(format!("must be `true` or `false`, not {found}")),
        Some(InputType::Array) => {
            json_text(text).map_err(|why| format!("must be a JSON array such as `[1, 2]`: {why}"))
        }
        Some(InputType::Object) => {
            json_text(text).map_err(|why| format!("must be a JSON object such as `{{\"a\": 1}}`: {why}"))
        }
        None if takes_text(parameter.schema.document()) => string(),
        None => json_text(text).map_err(|why| format!("must be JSON, as it has no single type: {why}")),
    }
}

fn json_text(text: &str) -> Result<String, String> {
    serde_json::from_str::<&RawValue>(text)
        .map(|raw| raw.get().to_owned())
        .map_err(|why| format!("{} is not JSON: {}", quoted(text), json_fault(text, &why)))
}

/// The type, if the schema names exactly one.
fn single_type(schema: &Value) -> Option<InputType> {
    match schema.get("type")? {
        Value::String(word) => InputType::from_word(word),
        Value::Array(words) if words.len() == 1 => InputType::from_word(words[0].as_str()?),
        _ => None,
    }
}

/// True if a parameter without a single type takes text: its schema allows strings by name, or lists only strings.
fn takes_text(schema: &Value) -> bool {
    let strings = |values: &Value| values.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    match (schema.get("type"), schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(words)), ..) => words.iter().any(|word| word == "string"),
        (None, Some(values), _) => strings(values),
        (None, None, Some(value)) => value.is_string(),
        _ => false,
    }
}

/// Checks a JSON value against the declaration.
///
/// # Errors
/// The reason, to follow the parameter's name: `must be …`.
pub(crate) fn fits(parameter: &Parameter, raw: &str) -> Result<(), String> {
    let Some(kind) = parameter.short else {
        if parameter.schema.document().as_object().is_some_and(serde_json::Map::is_empty) {
            // An empty schema accepts everything, even values that cannot be parsed.
            return Ok(());
        }
        let value: Value = serde_json::from_str(raw).map_err(|why| format!("is out of range ({why})"))?;
        let violations = parameter.schema.violations(&value);
        let reasons: Vec<_> = violations.iter().map(ToString::to_string).collect();
        return if reasons.is_empty() {
            Ok(())
        } else {
            Err(format!("does not fit its schema: {}", reasons.join("; ")))
        };
    };
    let sort = sort_of(raw);
    let good = match kind {
        InputType::String => sort == "a string",
        InputType::Integer => sort == "a number" && number::is_whole(raw),
        InputType::Number => sort == "a number",
        InputType::Boolean => sort == "a boolean",
        InputType::Array => sort == "an array",
        InputType::Object => sort == "an object",
    };
    if good {
        return Ok(());
    }
    let article = if matches!(kind, InputType::Integer | InputType::Array | InputType::Object) { "an" } else { "a" };
    let found = if sort == "a number" { quoted(raw) } else { sort.to_owned() };
    Err(format!("must be {article} {}, not {found}", kind.word()))
}

fn sort_of(raw: &str) -> &'static str {
    match raw.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

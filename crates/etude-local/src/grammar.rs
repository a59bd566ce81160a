//! Grammars from schemas and tools, to which the decoder is bound.

use etude_core::model::Tool;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::toktrie::TokEnv;
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value, json};

use crate::bounds;
use crate::template::{CALL_END, CALL_START};

/// Factory of matchers, one per model, because the vocabulary is prepared here.
pub(crate) struct Grammars {
    factory: ParserFactory,
}

/// Reason why a response cannot be bound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The schema of the response cannot be used.
    #[error("cannot constrain the local model to the response schema: {0}")]
    Schema(String),
    /// The schema of a tool's arguments cannot be used.
    #[error("cannot constrain the local model to the tool arguments: {0}")]
    Tools(String),
}

impl Grammars {
    /// Prepares grammars for the vocabulary `environment`.
    pub(crate) fn new(environment: &TokEnv) -> Result<Self, String> {
        let capabilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory =
            ParserFactory::new(environment, capabilities, &slices).map_err(|error| format!("{error:#}"))?;
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(Self { factory })
    }

    /// The grammar of a response that satisfies `schema` or, if there are tools, of a call instead.
    pub(crate) fn response(&self, schema: &Value, tools: &[Tool]) -> Result<Matcher, GrammarError> {
        let bound = bound(schema);
        let rules = if tools.is_empty() {
            format!("start: answer\nanswer: %json {bound}\n")
        } else {
            let mark = quoted(CALL_START);
            format!("start: answer | {mark} calls\nanswer: %json {bound}\n{}", calls(tools))
        };
        self.matcher(rules).map_err(GrammarError::Schema)
    }

    /// The grammar of a call of one of these tools, and nothing else.
    pub(crate) fn call(&self, tools: &[Tool]) -> Result<Matcher, GrammarError> {
        let mark = quoted(CALL_START);
        self.matcher(format!("start: {mark} calls\n{}", calls(tools))).map_err(GrammarError::Tools)
    }

    /// The grammar of the text after the mark that begins a tool call.
    pub(crate) fn after_mark(&self, tools: &[Tool]) -> Result<Matcher, GrammarError> {
        self.matcher(format!("start: calls\n{}", calls(tools))).map_err(GrammarError::Tools)
    }

    fn matcher(&self, rules: String) -> Result<Matcher, String> {
        let matcher = Matcher::new(self.factory.create_parser(TopLevelGrammar::from_lark(rules)));
        match matcher.get_error() {
            Some(error) => Err(first_line(&error)),
            None => Ok(matcher),
        }
    }
}

/// The rules of one call, which has its mark already. Several calls are not allowed: at the choice between another call and the
/// end, a small model continues with unwanted calls. It can make the next call after it has seen the result.
fn calls(tools: &[Tool]) -> String {
    let end = quoted(&format!("\n{CALL_END}"));
    let names: Vec<String> = (0..tools.len()).map(|at| format!("tool_{at}")).collect();
    let mut rules = format!("calls: \"\\n\" call {end}\ncall: {}\n", names.join(" | "));
    for (tool, rule) in tools.iter().zip(&names) {
        let name = Value::from(tool.name.as_str());
        let head = quoted(&format!("{{\"name\": {name}, \"arguments\": "));
        let arguments = bound(&object_of(&tool.parameters));
        rules.push_str(&format!("{rule}: {head} {rule}_arguments \"}}\"\n{rule}_arguments: %json {arguments}\n"));
    }
    rules
}

/// Makes a schema of arguments one of an object, even if the schema does not say so.
fn object_of(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) if fields.contains_key("type") || fields.contains_key("$ref") => schema.clone(),
        Value::Object(fields) => {
            let mut fields = fields.clone();
            fields.insert("type".into(), "object".into());
            Value::Object(fields)
        }
        _ => json!({"type": "object"}),
    }
}

/// `schema`, narrowed, with the options of the grammar's compiler. Unknown keywords are left to the validator of the response.
/// Blanks are those of the models' training, where they cost the fewest tokens.
fn bound(schema: &Value) -> Value {
    let mut fields = match bounds::narrowed(schema) {
        Value::Object(fields) => fields,
        other => Map::from_iter([("allOf".to_owned(), json!([other]))]),
    };
    let options = json!({
        "lenient": true, "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": ",
    });
    fields.insert("x-guidance".into(), options);
    Value::Object(fields)
}

/// A literal of the grammar's language, whose escapes are those of JSON.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;

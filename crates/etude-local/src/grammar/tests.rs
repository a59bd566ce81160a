//! Tests of the grammars: for any choice among the allowed tokens, the result satisfies the schema. The choices here are random,
//! which is worse than any model.

use std::sync::Arc;

use llguidance::toktrie::SimpleVob;

use super::*;
use crate::sample::Sampler;
use crate::vocabulary::Vocabulary;
use crate::vocabulary::testing::bytewise;

/// Schemas with all features that are commonly used with models.
pub(crate) fn schemas() -> Vec<Value> {
    let list: Value = serde_json::from_str(include_str!("../../testdata/schemas.json")).expect("the table of schemas");
    list.as_array().expect("a list").iter().map(|one| one["schema"].clone()).collect()
}

/// Generates random text; ends are preferred, so that it ends.
fn written(vocabulary: &Vocabulary, matcher: &mut Matcher, seed: u64) -> String {
    let mut sampler = Sampler::new(1.0, seed);
    let mut out = Vec::new();
    for _ in 0..200_000 {
        let forced = matcher.consume_ff_tokens();
        forced.iter().for_each(|token| out.extend_from_slice(vocabulary.bytes(*token)));
        if matcher.is_stopped() {
            break;
        }
        let mask: SimpleVob = matcher.compute_mask_or_eos().expect("a mask");
        let scores: Vec<f32> = (0_u32..259).map(|token| if is_closing(token) { 2.0 } else { 0.0 }).collect();
        let token = sampler.choose(&scores, Some(&mask)).expect("a token");
        if vocabulary.is_end(token) {
            break;
        }
        matcher.consume_token(token).expect("an allowed token");
        out.extend_from_slice(vocabulary.bytes(token));
    }
    assert!(matcher.is_stopped() || matcher.is_accepting().expect("a state"), "it did not come to an end");
    String::from_utf8(out).expect("UTF-8")
}

fn is_closing(token: u32) -> bool {
    u8::try_from(token).is_ok_and(|byte| b"\"]}".contains(&byte)) || token == 258
}

#[test]
fn whatever_is_chosen_the_response_satisfies_the_schema() {
    let vocabulary = bytewise();
    let grammars = Grammars::new(vocabulary.environment()).expect("grammars");
    for (at, schema) in schemas().iter().enumerate() {
        let validator = jsonschema::validator_for(schema).expect("a schema");
        for seed in 0..5 {
            let mut matcher = grammars.response(schema, &[]).unwrap_or_else(|error| panic!("schema {at}: {error}"));
            let text = written(&vocabulary, &mut matcher, seed);
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{at}: {error}: {text}"));
            assert!(validator.is_valid(&value), "schema {at}: {schema}\n{text}");
        }
    }
}

#[test]
fn a_keyword_that_the_grammar_does_not_know_is_left_to_the_validator() {
    let vocabulary = bytewise();
    let grammars = Grammars::new(vocabulary.environment()).expect("grammars");
    let schema = json!({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true});
    assert!(grammars.response(&schema, &[]).is_ok());
}

#[test]
fn a_schema_that_nothing_satisfies_is_refused() {
    let vocabulary = bytewise();
    let grammars = Grammars::new(vocabulary.environment()).expect("grammars");
    let error = grammars.response(&json!(false), &[]).err().expect("an error");
    assert!(error.to_string().starts_with("cannot constrain the local model to the response schema: "), "{error}");
}

#[test]
fn whatever_is_chosen_tool_calls_satisfy_their_tools() {
    let vocabulary = bytewise();
    let grammars = Grammars::new(vocabulary.environment()).expect("grammars");
    let tool = |name: &str, parameters: Value| Tool {
        name: name.into(),
        description: String::new(),
        parameters: Arc::new(parameters),
    };
    let move_to = json!({"type": "object", "properties": {"to": {"$ref": "#/$defs/place"}}, "required": ["to"],
        "$defs": {"place": {"enum": ["here", "there"]}}});
    let tools = [tool("move", move_to), tool("say", json!({"properties": {"text": {"type": "string"}}}))];
    let mut names = Vec::new();
    for seed in 0..40 {
        let mut matcher = grammars.after_mark(&tools).expect("a grammar");
        let text = written(&vocabulary, &mut matcher, seed);
        for call in text.split(CALL_START) {
            let json = call.trim().strip_suffix(CALL_END).expect("an end");
            let call: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
            let tool = tools.iter().find(|tool| call["name"] == *tool.name).expect("a known tool");
            let validator = jsonschema::validator_for(&tool.parameters).expect("a schema");
            assert!(validator.is_valid(&call["arguments"]) && call["arguments"].is_object(), "{json}");
            names.push(tool.name.clone());
        }
    }
    assert!(names.iter().any(|name| name == "move") && names.iter().any(|name| name == "say"));
}

#[test]
fn with_a_schema_and_tools_the_response_is_one_or_the_other() {
    let vocabulary = bytewise();
    let grammars = Grammars::new(vocabulary.environment()).expect("grammars");
    let tools = [Tool { name: "f".into(), description: String::new(), parameters: Arc::new(json!({})) }];
    let mut seen = (false, false);
    for seed in 0..40 {
        let mut matcher = grammars.response(&json!({"type": "boolean"}), &tools).expect("a grammar");
        let text = written(&vocabulary, &mut matcher, seed);
        let is_call = text.starts_with(CALL_START);
        assert!(is_call || ["true", "false"].contains(&&*text), "{text}");
        seen = (seen.0 || is_call, seen.1 || !is_call);
    }
    assert_eq!(seen, (true, true));
}

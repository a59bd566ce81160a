//! Parser for the output of a program.

use etude_core::tree;
use serde_json::Value;

use crate::wire::{self, TokenCount, thoughts};

/// Response of a program.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Printed {
    pub(crate) text: String,
    pub(crate) tokens: TokenCount,
    /// Cost in US dollars, as the program reports it.
    pub(crate) cost_usd: Option<f64>,
}

/// Reads stdout. The error is a failure that the program itself reports in a result object.
pub(super) fn read(stdout: &str) -> Result<Printed, String> {
    let Some(result) = result_object(stdout) else {
        return Ok(Printed { text: text_of(stdout), ..Printed::default() });
    };
    let said = result.get("result").and_then(Value::as_str).unwrap_or_default();
    if result.get("is_error").and_then(Value::as_bool) == Some(true) {
        return Err(said.to_owned());
    }
    let structured = result.get("structured_output").filter(|value| !value.is_null());
    let count = |name: &str| wire::count(result.pointer(&format!("/usage/{name}")));
    let cached = count("cache_read_input_tokens");
    let cache_written = count("cache_creation_input_tokens");
    Ok(Printed {
        text: structured.map_or_else(|| text_of(said), Value::to_string),
        tokens: TokenCount {
            input: count("input_tokens") + cached + cache_written,
            output: count("output_tokens"),
            cached,
            cache_written,
            ..TokenCount::default()
        },
        cost_usd: result.get("total_cost_usd").and_then(Value::as_f64).filter(|cost| *cost >= 0.0),
    })
}

/// The printed text without blanks around it, and without the reasoning before the response.
fn text_of(text: &str) -> String {
    thoughts::split(text.trim()).1.to_owned()
}

/// The failure in a result object; `None` if `stdout` has none.
pub(super) fn reported_failure(stdout: &str) -> Option<String> {
    let result = result_object(stdout)?;
    Some(result.get("result").and_then(Value::as_str)?.to_owned())
}

/// The result object in `stdout`. Only an object with the type `result` is one; any other object is the response itself.
fn result_object(stdout: &str) -> Option<Value> {
    let text = stdout.trim();
    let value = text.starts_with('{').then(|| tree::parse_response(text).ok())??;
    let is_result = value.get("type").and_then(Value::as_str) == Some("result")
        && (value.get("result").is_some_and(Value::is_string) || value.get("structured_output").is_some());
    is_result.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_object_gives_text_usage_and_cost() {
        let printed = read(
            r#"{"type":"result","result":" 4 ","total_cost_usd":0.02,
                "usage":{"input_tokens":3,"cache_read_input_tokens":10,"cache_creation_input_tokens":5,"output_tokens":7}}"#,
        );
        let tokens = TokenCount { input: 18, output: 7, cached: 10, cache_written: 5, ..TokenCount::default() };
        assert_eq!(printed, Ok(Printed { text: "4".into(), tokens, cost_usd: Some(0.02) }));
    }

    /// A-4.9: counts without sense neither overflow a sum nor reduce it.
    #[test]
    fn huge_counts_and_negative_costs_add_nothing_wrong() {
        let printed = read(
            r#"{"type":"result","result":"4","total_cost_usd":-2,
                "usage":{"input_tokens":18446744073709551615,"cache_read_input_tokens":18446744073709551615}}"#,
        );
        let printed = printed.expect("a response");
        assert!(printed.tokens.input >= 1 << 40 && printed.cost_usd.is_none(), "{printed:?}");
    }

    #[test]
    fn any_other_object_is_the_response() {
        for text in [r#"{"result":"x"}"#, r#"{"type":"result","result":{}}"#] {
            assert_eq!(read(text).map(|printed| printed.text), Ok(text.to_owned()));
        }
    }

    #[test]
    fn thoughts_are_no_response() {
        for text in ["<think>4? 5?</think>\n\n5\n", r#"{"type":"result","result":"<think>4?</think> 5"}"#] {
            assert_eq!(read(text).map(|printed| printed.text), Ok("5".to_owned()));
        }
    }

    #[test]
    fn a_reported_failure_is_no_response() {
        assert_eq!(read(r#"{"type":"result","is_error":true,"result":"log in first"}"#), Err("log in first".into()));
    }
}

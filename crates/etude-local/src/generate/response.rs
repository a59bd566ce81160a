//! Parsing of generated text into a response.

use etude_core::model::{ModelResponse, Part, Request, Stop, ToolCall, Usage};

use super::wire::Call;
use crate::bounds;
use crate::template::{CALL_END, CALL_START};

/// The response for the generated `text`.
pub(super) fn build(text: &str, is_whole: bool, request: &Request, usage: Usage, model: String) -> ModelResponse {
    let (text, tool_calls) = if request.tools.is_empty() { (text, Vec::new()) } else { calls(text, request) };
    let is_whole = is_whole && !tool_calls.iter().any(|call| is_cut(call, request));
    let stop = match (is_whole, tool_calls.is_empty()) {
        (false, _) => Stop::Length,
        (true, false) => Stop::ToolCalls,
        (true, true) => Stop::End,
    };
    ModelResponse {
        text: text.trim().to_owned(),
        tool_calls,
        stop,
        usage,
        model,
        reasoning: None,
        transport_failures: Vec::new(),
    }
}

/// True if a text in the arguments ends where the grammar made it end: half a file must not be written for a whole one.
fn is_cut(call: &ToolCall, request: &Request) -> bool {
    let Some(tool) = request.tools.iter().find(|tool| tool.name == call.name) else { return false };
    serde_json::from_str(&call.arguments).is_ok_and(|arguments| bounds::is_cut(&tool.parameters, &arguments))
}

/// The text before the first call, and all complete calls.
fn calls<'t>(text: &'t str, request: &Request) -> (&'t str, Vec<ToolCall>) {
    let Some((before, mut rest)) = text.split_once(CALL_START) else { return (text, Vec::new()) };
    // Ids are unique in a conversation.
    let earlier = request.messages.iter().flat_map(|message| &message.parts);
    let earlier = earlier.filter(|part| matches!(part, Part::ToolCall { .. })).count();
    let mut all = Vec::new();
    loop {
        // An argument may contain the mark that ends a call, so the end of the JSON counts.
        let mut reader = serde_json::Deserializer::from_str(rest).into_iter::<Call<'_>>();
        let Some(Ok(call)) = reader.next() else { break };
        let after = rest.get(reader.byte_offset()..).unwrap_or_default();
        all.push(ToolCall {
            id: format!("call_{}", earlier + all.len() + 1),
            name: call.name,
            arguments: call.arguments.get().to_owned(),
        });
        let after = after.trim_start().strip_prefix(CALL_END).unwrap_or(after).trim_start();
        let Some(next) = after.strip_prefix(CALL_START) else { break };
        rest = next;
    }
    (before, all)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use etude_core::model::{Message, Tool};

    use super::*;

    fn response(text: &str, is_whole: bool) -> ModelResponse {
        let tool = Tool { name: "f".into(), description: String::new(), parameters: Arc::new(true.into()) };
        let request = Request { messages: vec![Message::user("?")], tools: vec![tool], ..Request::default() };
        build(text, is_whole, &request, Usage::default(), "local/m".into())
    }

    #[test]
    fn calls_keep_their_arguments_as_written_even_with_marks_inside() {
        let text = "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\", \"n\": 1.50}}\n\
                    </tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
        let response = response(text, true);
        let arguments: Vec<&str> = response.tool_calls.iter().map(|call| call.arguments.as_str()).collect();
        assert_eq!(arguments, ["{\"a\": \"</tool_call>\", \"n\": 1.50}", "{}"]);
        assert_eq!(response.tool_calls[1].id, "call_2");
        assert_eq!((response.text.as_str(), response.stop), ("Let me see.", Stop::ToolCalls));
    }

    #[test]
    fn a_call_whose_text_was_cut_at_its_bound_says_so() {
        let call =
            |chars| format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {{\"a\": [\"{}\"]}}}}", "x".repeat(chars));
        assert_eq!(response(&call(399), true).stop, Stop::ToolCalls);
        let cut = response(&call(400), true);
        assert_eq!((cut.tool_calls.len(), cut.stop), (1, Stop::Length));
    }

    #[test]
    fn what_was_cut_off_says_so_and_has_no_half_calls() {
        let response = response("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": ", false);
        assert_eq!((response.tool_calls.len(), response.stop), (0, Stop::Length));
    }
}

//! Samples of streams, with the equivalent whole bodies.

use serde_json::{Value, json};

use crate::kind::ProviderKind;

pub(super) struct Sample {
    pub(super) kind: ProviderKind,
    pub(super) name: &'static str,
    pub(super) stream: String,
    /// The body of the whole response.
    pub(super) whole: Value,
    /// The text that is emitted on the way.
    pub(super) reported: &'static str,
}

pub(super) fn all() -> Vec<Sample> {
    vec![
        anthropic(),
        anthropic_refusal(),
        responses(),
        responses_cut(),
        chat(),
        chat_refusal(),
        gemini(),
        gemini_blocked(),
    ]
}

/// Events with their type in the data, as Anthropic and Responses write them.
fn typed(events: &[Value]) -> String {
    let one = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default());
    events.iter().map(one).collect()
}

fn untyped(events: &[Value]) -> String {
    events.iter().map(|data| format!("data: {data}\n\n")).collect()
}

fn anthropic() -> Sample {
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let start =
        |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let events = [
        json!({"type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [], "stop_reason": null,
            "stop_sequence": null,
            "usage": {"input_tokens": 25, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 1},
        }}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        json!({"type": "ping"}),
        delta(0, json!({"type": "thinking_delta", "thinking": "not to be told"})),
        delta(0, json!({"type": "signature_delta", "signature": "EqQB"})),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "I look at\n"})),
        delta(1, json!({"type": "text_delta", "text": "the 天気 ☀"})),
        stop(1),
        start(2, json!({"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"z\": \"Zür"})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "ich\", \"a\": 1.50}"})),
        stop(2),
        start(3, json!({"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}})),
        stop(3),
        json!({
            "type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
            "usage": {"output_tokens": 89, "output_tokens_details": {"reasoning_tokens": 5}},
        }),
        json!({"type": "message_stop"}),
    ];
    Sample {
        kind: ProviderKind::Anthropic,
        name: "calls",
        stream: format!(": keep-alive\n\n{}", typed(&events)),
        whole: json!({
            "content": [
                {"type": "thinking", "thinking": "not to be told", "signature": "EqQB"},
                {"type": "text", "text": "I look at\nthe 天気 ☀"},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"z": "Zürich", "a": 1.50}},
                {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
            ],
            "stop_reason": "tool_use",
            "usage": {
                "input_tokens": 25, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 89,
                "output_tokens_details": {"reasoning_tokens": 5},
            },
        }),
        reported: "I look at\nthe 天気 ☀",
    }
}

fn anthropic_refusal() -> Sample {
    let events = [
        json!({"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 25, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "I "}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "cannot"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({
            "type": "message_delta", "usage": {"output_tokens": 4},
            "delta": {"stop_reason": "refusal", "stop_details": {"explanation": "policy"}},
        }),
        json!({"type": "message_stop"}),
    ];
    Sample {
        kind: ProviderKind::Anthropic,
        name: "refusal",
        stream: typed(&events),
        whole: json!({
            "content": [{"type": "text", "text": "I cannot"}], "stop_reason": "refusal",
            "stop_details": {"explanation": "policy"}, "usage": {"input_tokens": 25, "output_tokens": 4},
        }),
        reported: "I cannot",
    }
}

fn responses() -> Sample {
    let output = json!([
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [
            {"type": "output_text", "annotations": [], "text": "Hello wörld"},
        ]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{\"a\":\"b\"}", "status": "completed"},
    ]);
    let usage = json!({
        "input_tokens": 37, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 11,
        "output_tokens_details": {"reasoning_tokens": 6}, "total_tokens": 48,
    });
    let whole = json!({"id": "resp_1", "object": "response", "status": "completed", "error": null,
        "incomplete_details": null, "output": output, "usage": usage});
    let events = [
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}, "sequence_number": 0}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs_1"}}),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "not to be told"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": output[0]}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "content": []}}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "Hello"}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": " wörld"}),
        json!({"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "Hello wörld"}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": output[1]}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"a\":"}),
        json!({"type": "response.function_call_arguments.done", "output_index": 2, "arguments": "{\"a\":\"b\"}"}),
        json!({"type": "response.output_item.done", "output_index": 2, "item": output[2]}),
        json!({"type": "response.completed", "response": whole, "sequence_number": 12}),
    ];
    Sample { kind: ProviderKind::OpenAi, name: "calls", stream: typed(&events), whole, reported: "Hello wörld" }
}

/// A response whose last event has no items.
fn responses_cut() -> Sample {
    let item = json!({"type": "message", "content": [{"type": "output_text", "text": "Hel"}]});
    let usage = json!({"input_tokens": 3, "output_tokens": 2});
    let incomplete =
        json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": usage});
    let mut whole = incomplete.clone();
    whole["output"] = json!([item]);
    let mut last = incomplete;
    last["output"] = json!([]);
    let events = [
        json!({"type": "response.output_text.delta", "delta": "Hel"}),
        json!({"type": "response.output_item.done", "item": item}),
        json!({"type": "response.incomplete", "response": last}),
    ];
    Sample { kind: ProviderKind::OpenAi, name: "cut", stream: typed(&events), whole, reported: "Hel" }
}

fn chat() -> Sample {
    let delta = |delta: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "usage": null,
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]})
    };
    let call = |call: Value| delta(json!({"tool_calls": [call]}));
    let events = [
        delta(json!({"role": "assistant", "content": "", "refusal": null})),
        delta(json!({"reasoning_content": "not to be told"})),
        delta(json!({"content": "I look: "})),
        json!({"choices": [{"index": 1, "delta": {"content": "another answer"}}]}),
        delta(json!({"content": "📦"})),
        call(json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}})),
        call(json!({"index": 0, "function": {"arguments": "{\"at\": "}})),
        call(json!({"index": 1, "id": "call_2", "type": "function", "function": {"name": "now", "arguments": "{}"}})),
        call(json!({"index": 0, "function": {"arguments": "\"x\"}"}})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": null}),
        json!({"choices": [], "usage": {
            "prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
            "prompt_tokens_details": {"cached_tokens": 16}, "completion_tokens_details": {"reasoning_tokens": 4},
        }}),
    ];
    Sample {
        kind: ProviderKind::OpenAiCompatible,
        name: "calls",
        stream: format!(": PROCESSING\n\n{}data: [DONE]\n\n", untyped(&events)),
        whole: json!({
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
                "role": "assistant", "content": "I look: 📦", "refusal": null,
                "reasoning_content": "not to be told",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"at\": \"x\"}"}},
                    {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                ],
            }}],
            "usage": {
                "prompt_tokens": 19, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 16},
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
        }),
        reported: "I look: 📦",
    }
}

fn chat_refusal() -> Sample {
    let events = [
        json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": null, "refusal": "I "}}]}),
        json!({"choices": [{"index": 0, "delta": {"refusal": "will not"}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ];
    Sample {
        kind: ProviderKind::OpenAiChat,
        name: "refusal",
        stream: untyped(&events),
        whole: json!({"choices": [{"message": {"content": null, "refusal": "I will not"}, "finish_reason": "stop"}]}),
        reported: "",
    }
}

fn gemini() -> Sample {
    let event = |parts: Value, usage: Value| json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}], "usageMetadata": usage, "modelVersion": "g"});
    let mut last = event(
        json!([{"functionCall": {"name": "now", "args": {}}}]),
        json!({"promptTokenCount": 12, "candidatesTokenCount": 20, "totalTokenCount": 39}),
    );
    last["candidates"][0]["finishReason"] = json!("STOP");
    let call = json!({"functionCall": {"name": "look", "args": {"z": 1, "a": "ü"}}, "thoughtSignature": "CpcB"});
    let events = [
        event(
            json!([{"text": "not to be told", "thought": true}]),
            json!({"promptTokenCount": 12, "thoughtsTokenCount": 7}),
        ),
        event(
            json!([{"text": "Well, "}]),
            json!({"promptTokenCount": 12, "cachedContentTokenCount": 5, "thoughtsTokenCount": 7}),
        ),
        event(json!([{"text": "yes ✓"}, call]), json!({"promptTokenCount": 12, "candidatesTokenCount": 9})),
        last,
    ];
    Sample {
        kind: ProviderKind::Gemini,
        name: "calls",
        stream: untyped(&events),
        whole: json!({
            "candidates": [{"finishReason": "STOP", "index": 0, "content": {"role": "model", "parts": [
                {"text": "not to be told", "thought": true}, {"text": "Well, yes ✓"}, call,
                {"functionCall": {"name": "now", "args": {}}},
            ]}}],
            "usageMetadata": {
                "promptTokenCount": 12, "candidatesTokenCount": 20, "cachedContentTokenCount": 5, "thoughtsTokenCount": 7,
            },
        }),
        reported: "Well, yes ✓",
    }
}

fn gemini_blocked() -> Sample {
    let whole = json!({
        "promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4},
    });
    Sample {
        kind: ProviderKind::Gemini,
        name: "blocked",
        stream: untyped(std::slice::from_ref(&whole)),
        whole,
        reported: "",
    }
}

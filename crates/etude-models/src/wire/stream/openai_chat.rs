//! Assembler for Chat Completions: each event adds to the only message, and the last one has the usage.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::openai_chat::{THOUGHTS, content_text, failure_of};
use super::super::thoughts::Filter;
use super::super::{DecodeError, array_at, text_at, value_at};
use super::{Assembler, Emit, Room, lay_over};

#[derive(Debug, Default)]
pub(super) struct Completion {
    has_begun: bool,
    /// Holds back reasoning in the text.
    filter: Option<Filter>,
    content: String,
    refusal: String,
    calls: Vec<Call>,
    /// Reasoning, by the member that contains it as text.
    thoughts: BTreeMap<&'static str, String>,
    details: Vec<Value>,
    finish_reason: Option<Value>,
    usage: Value,
    room: Room,
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Option<String>,
    extra: Value,
}

impl Assembler for Completion {
    fn take(&mut self, name: &str, mut data: Value, emit: Emit<'_>) -> Result<bool, DecodeError> {
        // Some servers put the error itself into an event of this type.
        if name == "error" && data.get("error").is_none() {
            data = json!({ "error": data });
        }
        if let Some(failure) = failure_of(&data) {
            return Err(failure);
        }
        lay_over(&mut self.usage, &data["usage"], &mut self.room)?;
        for choice in array_at(&data, "choices") {
            // Only the first of several choices is read.
            if choice.get("index").and_then(Value::as_u64).unwrap_or(0) != 0 {
                continue;
            }
            if let Some(failure) = failure_of(choice) {
                return Err(failure);
            }
            self.has_begun = true;
            let delta = choice.get("delta").or(choice.get("message")).unwrap_or(&Value::Null);
            let text = content_text(delta.get("content"));
            match &mut self.filter {
                Some(filter) => emit(&filter.pass(&text)),
                None => emit(&text),
            }
            self.room.text(&text)?;
            self.content.push_str(&text);
            let refusal = text_at(delta, "/refusal").unwrap_or_default();
            self.room.text(refusal)?;
            self.refusal.push_str(refusal);
            self.take_thoughts(delta)?;
            for call in array_at(delta, "tool_calls") {
                self.take_call(call)?;
            }
            // Some servers write an empty reason with every piece.
            let reason = choice.get("finish_reason").filter(|reason| !reason.is_null() && **reason != "");
            if let Some(reason) = reason {
                self.finish_reason = Some(reason.clone());
            }
        }
        // Usage may still follow; `[DONE]` ends the stream.
        Ok(false)
    }

    fn is_answered(&self) -> bool {
        self.finish_reason.is_some()
    }

    fn finish(self: Box<Self>, is_done: bool) -> Option<Value> {
        if !self.has_begun || (self.finish_reason.is_none() && !is_done) {
            return None;
        }
        let calls: Vec<Value> = self.calls.into_iter().map(Call::finish).collect();
        let mut message = json!({ "role": "assistant", "content": self.content, "tool_calls": calls });
        for (name, thought) in self.thoughts {
            message[name] = Value::from(thought);
        }
        if !self.details.is_empty() {
            message["reasoning_details"] = Value::Array(self.details);
        }
        if !self.refusal.is_empty() {
            message["refusal"] = Value::from(self.refusal);
        }
        let choice = json!({ "index": 0, "message": message, "finish_reason": self.finish_reason });
        Some(json!({ "choices": [choice], "usage": self.usage }))
    }
}

impl Completion {
    /// An assembler that emits no reasoning from the text.
    pub(super) fn without_thoughts() -> Self {
        Self { filter: Some(Filter::default()), ..Self::default() }
    }

    fn take_thoughts(&mut self, delta: &Value) -> Result<(), DecodeError> {
        for name in THOUGHTS {
            if let Some(text) = delta.get(name).and_then(Value::as_str) {
                self.room.text(text)?;
                self.thoughts.entry(name).or_default().push_str(text);
            }
        }
        for detail in array_at(delta, "reasoning_details") {
            self.room.value(detail)?;
            // Texts grow from piece to piece; encrypted content comes whole.
            let is_same = |last: &&mut Map<String, Value>| {
                ["type", "index"].iter().all(|name| last.get(*name).unwrap_or(&Value::Null) == &detail[*name])
            };
            let grows = ["text", "summary"].into_iter().find(|name| detail[*name].is_string());
            match (grows, self.details.last_mut().and_then(Value::as_object_mut).filter(is_same)) {
                (Some(name), Some(last)) => {
                    // The text grows in place: it may come in very many pieces.
                    let mut text = match last.get_mut(name).map(Value::take) {
                        Some(Value::String(text)) => text,
                        _ => String::new(),
                    };
                    text.push_str(detail[name].as_str().unwrap_or_default());
                    for (key, value) in detail.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
                        if key != name {
                            last.insert(key.clone(), value.clone());
                        }
                    }
                    last.insert(name.to_owned(), Value::from(text));
                }
                _ => {
                    self.room.block()?;
                    self.details.push(detail.clone());
                }
            }
        }
        Ok(())
    }

    /// Adds a piece of a tool call. Servers number calls, name them by an id, or both. Some number all of them alike, some
    /// repeat the id with every piece, and some make up another id for every piece.
    fn take_call(&mut self, piece: &Value) -> Result<(), DecodeError> {
        let index = piece.get("index").and_then(Value::as_u64);
        let id = text_at(piece, "/id").unwrap_or_default();
        let name = text_at(piece, "/function/name").unwrap_or_default();
        let is_same = |call: &Call| {
            (index.is_none() || call.index == index) && (id.is_empty() || call.id.is_empty() || call.id == id)
        };
        // A piece without a name does not begin a call if one of the same number has begun.
        let continued = || {
            let is_one = name.is_empty() && index.is_some();
            self.calls.iter().rposition(|call| is_one && call.index == index)
        };
        let at = match self.calls.iter().rposition(is_same).or_else(continued) {
            // A piece without number and id, but with a name, begins another call.
            Some(at) if index.is_some() || !id.is_empty() || name.is_empty() => at,
            _ => {
                self.room.block()?;
                self.calls.push(Call { index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        for (kept, text) in [(&mut call.id, id), (&mut call.name, name)] {
            if kept.is_empty() {
                self.room.text(text)?;
                text.clone_into(kept);
            }
        }
        lay_over(&mut call.extra, &piece["extra_content"], &mut self.room)?;
        match value_at(piece, "/function/arguments") {
            Some(Value::String(text)) => {
                self.room.text(text)?;
                call.arguments.get_or_insert_default().push_str(text);
            }
            Some(object @ Value::Object(_)) => {
                self.room.value(object)?;
                call.arguments = Some(object.to_string());
            }
            _ => {}
        }
        Ok(())
    }
}

impl Call {
    fn finish(self) -> Value {
        let mut call = json!({ "type": "function", "function": {} });
        if let Some(arguments) = self.arguments {
            call["function"]["arguments"] = Value::from(arguments);
        }
        if !self.extra.is_null() {
            call["extra_content"] = self.extra;
        }
        if !self.id.is_empty() {
            call["id"] = Value::from(self.id);
        }
        if !self.name.is_empty() {
            call["function"]["name"] = Value::from(self.name);
        }
        call
    }
}

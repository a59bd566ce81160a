//! A schema in the instructions, for the constraints that a provider does not enforce.

use etude_core::model::{Message, Part, Request, ResponseSchema, Role};

/// Adds the schema to a conversation whose response the provider constrains in part.
pub(crate) fn annotate(request: &mut Request, schema: &ResponseSchema, wrapped: bool) {
    let subject = if wrapped { "The `value` of the answer" } else { "The answer" };
    add(request, &format!("{subject} must satisfy this JSON Schema:\n{}", schema.schema));
}

/// Adds the schema to a conversation whose response the provider does not constrain.
pub(crate) fn instruct(request: &mut Request, schema: &ResponseSchema) {
    let text = "Answer with a single JSON value and nothing else: no explanation, no code fence. \
                It must satisfy this JSON Schema:\n";
    add(request, &format!("{text}{}", schema.schema));
}

/// Appends a note to the system prompt. A conversation without one gets it at the end of the last user message, since some
/// models have no system prompts at all.
fn add(request: &mut Request, note: &str) {
    if let Some(system) = request.system.as_mut().filter(|system| !system.trim().is_empty()) {
        system.push_str("\n\n");
        system.push_str(note);
        return;
    }
    match request.messages.iter_mut().rev().find(|message| message.role == Role::User) {
        Some(message) => match message.parts.last_mut() {
            Some(Part::Text(text)) => {
                text.push_str("\n\n");
                text.push_str(note);
            }
            _ => message.parts.push(Part::Text(note.to_owned())),
        },
        None => request.messages.push(Message::user(note)),
    }
}
